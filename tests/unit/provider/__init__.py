"""The simulated provider, judged by its own ledger and by hand-made records."""
