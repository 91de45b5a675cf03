"""A coordinator in memory, for tests of code that uses the client. No broker, no query, no thread, no real time."""

from streaming.testing.coordinator import InMemoryCoordinator
from streaming.testing.errors import NotSettled

__all__ = ["InMemoryCoordinator", "NotSettled"]
