"""Kafka's messages as bytes: frames, schemas, and the limits of a client."""
