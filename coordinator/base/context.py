"""The data that a handler may use besides the group and the request: time, place and settings."""

from collections.abc import Mapping

from msgspec import Struct

from coordinator.base.config import Config


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
        settled_before: The place in the transactions topic before which all transactions have ended but the open ones.
        open_transactions: By producer id, the first place of each of these.
    """

    now_ms: int
    config: Config
    partition: int
    offset: int
    secret: bytes
    absent_ms: int = 0
    settled_before: int = 0
    open_transactions: Mapping[int, int] = {}
