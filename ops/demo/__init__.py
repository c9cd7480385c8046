"""`make demo`: the main job against a simulated provider."""
