"""Ingest's fetch side against a provider that misbehaves, item by item; README.md has the list."""
