"""Topic ids (KIP-516): 16 bytes in Kafka's messages, and URL-safe base64 where they are printed."""

import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode


def id_text(topic_id: bytes) -> str:
    """Return the 16 bytes of a topic id as Kafka prints them: URL-safe base64 without padding."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def id_of(text: str) -> uuid.UUID:
    """Return the topic id that Kafka prints as `text`."""
    return uuid.UUID(bytes=urlsafe_b64decode(text + "=="))
