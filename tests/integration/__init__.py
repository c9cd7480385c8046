"""Tests against the real Kafka and the real PostgreSQL."""
