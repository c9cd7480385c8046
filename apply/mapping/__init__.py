"""From raw records to typed rows: a mapping compiled to straight-line code, and its plain oracle."""
