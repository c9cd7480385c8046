"""What the two stages agree on: records, topics, keys, tables, definitions and settings."""
