"""The GitHub API of `emulate` as a foreign server: how it is installed, run and written to."""
