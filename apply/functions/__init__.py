"""Mapping functions of users, each in a process of its own, which may end in any way."""
