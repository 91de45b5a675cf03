"""When, where and under which settings a request is handled: what its handler may use beside the group."""

from msgspec import Struct

from coordinator.config import Config


class Context(Struct, frozen=True):
    """The circumstances of one request.

    Args:
        now_ms: The request's time, Unix milliseconds, never below the latest time of its group.
        config: The coordinator's settings.
        partition: The partition of the request topic that holds the request's record.
        offset: The offset of that record.
        secret: The secret from which member ids are derived.
        not_before_ms: The first moment after the end of a forgotten group of the same name; 0 where no such end is
            remembered.
    """

    now_ms: int
    config: Config
    partition: int
    offset: int
    secret: bytes
    not_before_ms: int = 0
