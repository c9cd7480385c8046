"""Properties of what operates the stages."""
