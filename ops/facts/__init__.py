"""Edges of the reading verbs: facts from the log and from Postgres, as plain typed values.

Nothing here judges; what the facts mean is decided in the pure modules beside this folder.
"""
