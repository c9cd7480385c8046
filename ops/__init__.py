"""Operating both stages: command line, local stack, audit, alerts, erasure and page."""
