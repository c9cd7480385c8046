"""Definitions of sources and mappings: YAML in, frozen and fully merged specifications out.

Nothing here asks a server or reads a clock; what a definition means stands in `source` and `mapping`.
"""
