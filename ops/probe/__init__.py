"""`gapless probe`: what a definition claims of its provider, found out by asking the provider.

Experiments and what follows from them are pure; `asking` and `run` are the edges. Only reads.
"""
