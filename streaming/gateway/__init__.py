"""Kafka's own protocol on TCP ports, for clients that know nothing of this coordinator."""

from streaming.gateway.server import Gateway

__all__ = ["Gateway"]
