"""The whole pipeline for hours under a changing load: what grows, what leaks, what gets stuck."""
