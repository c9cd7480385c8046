"""PocketBase, and the definition that reads it."""
