"""The responses to Produce: whether they may contain addresses of brokers.

From version 10 on, a response has the addresses of new leaders if the broker no longer leads a partition (KIP-951).
Nearly all responses have none, so they are told apart without decoding them.

Source: ProduceResponse.json.
"""

from struct import Struct

FIRST_WITH_ADDRESSES = 10

_CORRELATION_ID_BYTES = _THROTTLE_BYTES = 4
_FINE = Struct(">ihqqqBBB")
"""A partition without an error: its index, the error, offsets and time, record errors, message and tagged fields."""

_NO_MORE = (1, 0, 0)
"""No record errors, no message and no tagged fields."""

ONE_BYTE_MAX = 0x7F
"""The largest number that is written as one byte; it stands for one element or character less."""


def may_have_addresses(frame: bytes) -> bool:
    """Return whether a response, without its length, may contain addresses. False only if it certainly does not."""
    try:
        return not _is_plain(frame)
    except (IndexError, ValueError):
        return True


def _is_plain(frame: bytes) -> bool:
    """Return whether all partitions are without an error, and nothing is tagged.

    Raises:
        IndexError, ValueError: The response ends too early, or is a long one.
    """
    place = _CORRELATION_ID_BYTES
    if frame[place]:
        return False
    topics, place = _count(frame, place + 1)
    for _ in range(topics):
        name, place = _count(frame, place)
        partitions, place = _count(frame, place + name)
        for _ in range(partitions):
            if place + _FINE.size > len(frame):
                return False
            _, error, _, _, _, *rest = _FINE.unpack_from(frame, place)
            if error or tuple(rest) != _NO_MORE:
                return False
            place += _FINE.size
        if frame[place]:
            return False
        place += 1
    place += _THROTTLE_BYTES
    return len(frame) == place + 1 and not frame[place]


def _count(frame: bytes, place: int) -> tuple[int, int]:
    """Return the length at a place, and the place after it."""
    number = frame[place]
    if not 0 < number <= ONE_BYTE_MAX:
        raise ValueError("a length of several bytes")
    return number - 1, place + 1
