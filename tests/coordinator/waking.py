"""Wake records, which let time pass in a shard that has read its whole log."""

from coordinator.messages.requests import Received, Wake


def wake(at_ms: int, offset: int = 0) -> Received:
    """Return a wake record that was appended at `at_ms`."""
    return Received(offset, at_ms, Wake())
