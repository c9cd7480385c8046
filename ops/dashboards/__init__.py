"""The Grafana dashboard as code; `gapless.json` is what it builds and what is deployed."""
