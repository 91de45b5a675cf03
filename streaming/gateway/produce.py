"""The one thing that a relay must know of a Produce request: whether it has an answer."""

from struct import Struct

from streaming.gateway.messages import Malformed, Reading

_ACKS = Struct(">h")
_BEFORE_CLIENT_ID = 8
_FIRST_TRANSACTIONAL, _FIRST_FLEXIBLE = 3, 9

_ENOUGH_BYTES = 1_024
_ALWAYS_ENOUGH_BYTES = 2 * 2**15 + 64
"""Two texts of Kafka's greatest length, and what stands around them."""


def acks_of(head: memoryview, version: int) -> int | None:
    """Find how many acknowledgements a Produce request asks for; with 0 it has no answer.

    Args:
        head: The frame without its length, as far as it is here.

    Returns:
        None while more of the frame must be seen.

    Raises:
        Malformed: it cannot be found.
    """
    for size in (_ENOUGH_BYTES, _ALWAYS_ENOUGH_BYTES):
        try:
            return _acks(Reading(bytes(head[:size]), _BEFORE_CLIENT_ID), version)
        except Malformed:
            continue
    if len(head) < _ALWAYS_ENOUGH_BYTES:
        return None
    raise Malformed("a Produce request does not say what acknowledgements it wants")


def _acks(reading: Reading, version: int) -> int:
    reading.text()
    if version >= _FIRST_FLEXIBLE:
        reading.skip_tags()
        reading.compact_text()
    elif version >= _FIRST_TRANSACTIONAL:
        reading.text()
    return int(reading.fixed(_ACKS))
