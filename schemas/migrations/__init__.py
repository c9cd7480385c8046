"""SQL migrations of the schema `gapless`, applied in order of their numbers and never changed."""
