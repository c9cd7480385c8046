"""A simulated provider with its own clock and its own ledger of what is true.

Imports no product code, so that what it says may be held against the product.
It never tells the product anything that its public paths do not tell.
"""
