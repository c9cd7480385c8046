"""The small edges to Kafka that both stages use: settings, membership, readers, topics."""
