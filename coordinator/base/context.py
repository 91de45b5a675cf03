"""The data that a handler may use besides the group and the request: time, place and settings."""

from msgspec import Struct, field

from coordinator.base.config import Config
from coordinator.base.settled import Settled


class Context(Struct, frozen=True):
    """The circumstances of one request.

    Args:
        now_ms: The request's time, Unix milliseconds, never below the latest time of its group.
        config: The coordinator's settings.
        partition: The partition of the request topic that holds the request's record.
        offset: The offset of that record.
        secret: The secret from which member ids are derived.
        absent_ms: The time of a tombstone, if the group does not exist: after the end of a removed group with the same
            id, and not after the time of any later request.
        settled: Which transactions have ended; a handler may change it.
    """

    now_ms: int
    config: Config
    partition: int
    offset: int
    secret: bytes
    absent_ms: int = 0
    settled: Settled = field(default_factory=Settled)
