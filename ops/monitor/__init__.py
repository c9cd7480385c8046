"""`gapless monitor`: reads durable state again and again, and serves metrics and a page of it.

Computes nothing that status does not know; holds no state of its own that a restart would lose.
"""
