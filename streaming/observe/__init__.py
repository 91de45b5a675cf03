"""The query that reads Kafka's `__consumer_offsets`, and publishes the groups of Kafka's own coordinator as our
records."""
