"""Definitions against stand-ins that answer as their providers document it."""
