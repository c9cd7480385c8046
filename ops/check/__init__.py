"""`gapless check`: what a definition would ask, what comes back, and what would become of it.

Asks one page of each stream at most, and writes nothing.
"""
