"""Singer taps as subprocesses: what they say (pure), how they are run and ended (edges)."""
