"""Tests of every part, against real Kafka and real PostgreSQL where they are needed."""
