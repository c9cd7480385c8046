"""Kinto as a foreign server: how it is installed, run and written to."""
