"""Scripts that other loaders run in environments of their own."""
