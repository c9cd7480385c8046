"""The main job against servers that this project did not write; see README.md beside this file."""
