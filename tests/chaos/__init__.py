"""The whole pipeline under random kills, stops and outages from a printed seed, and who judges it."""
