"""Stage 1: reads the source and puts its pages and checkpoints into the log."""
