"""Member indexes: the names of a group's members, which its hot state needs and its rest holds; and a cache of them.

The caller owns the `MemberIndexCache` and passes it. A cache of a pure function cannot be stale, in whatever process
and however often the task runs.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct

from coordinator.state.encoding import decode, inflate

CACHE_BYTES_MAX = 64 * 2**20
"""The memory that all cached member indexes may take together, in bytes. One takes 3 KB in groups of ten members."""

MEMBER_INDEX_BYTES, MEMBER_BYTES = 300, 150
"""The approximate memory of a member index, and of each member in it, in bytes, without the rest that is its key."""


class MemberIndex(NamedTuple):
    """The members' ids, in order, and the member ids of static members by instance id."""

    member_ids: list[str]
    instances: dict[str, str]


class Named(Protocol):
    """A member of either protocol."""

    member_id: str
    group_instance_id: str | None


class _Named(Struct, array_like=True):
    """The beginning of a member of either protocol; later fields are skipped."""

    member_id: str
    group_instance_id: str | None


class _WithMembers(Struct, array_like=True):
    """The beginning of a `Group` or a `ConsumerGroup` up to its members; later fields are skipped."""

    hot_state: Raw
    group_id: Raw
    since_ms: Raw
    version: Raw
    protocol_type: Raw
    protocol_name: Raw
    leader_id: Raw
    members: dict[str, _Named]


_members_decoder = msgspec.msgpack.Decoder(_WithMembers)


class MemberIndexCache:
    """A cache of member indexes by the rest of the group; the least recently used ones are dropped.

    Each commit creates a new rest of a group, and the earlier rest is never looked up again.

    Args:
        bytes_max: How many bytes the cached member indexes may take together. The latest one stays even if it takes
            more.
    """

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._known: OrderedDict[bytes, MemberIndex] = OrderedDict()
        self.bytes = 0

    def of(self, rest: bytes) -> MemberIndex:
        """Return the member index of a rest, from the cache if it is cached."""
        if (known := self._known.get(rest)) is not None:
            self._known.move_to_end(rest)
            return known
        known = _read_member_index(rest)
        self.put(rest, known)
        return known

    def put(self, rest: bytes, index: MemberIndex) -> None:
        """Cache the member index of a rest, so that it is not read from the rest later."""
        if rest in self._known:
            return
        self._known[rest] = index
        self.bytes += _bytes_of(rest, index)
        while self.bytes > self._bytes_max and len(self._known) > 1:
            self.bytes -= _bytes_of(*self._known.popitem(last=False))


def _read_member_index(rest: bytes) -> MemberIndex:
    return member_index_of(decode(_members_decoder, inflate(rest)).members.values())


def member_index_of(members: Iterable[Named]) -> MemberIndex:
    """Return the member index of members, in their order."""
    in_order = list(members)
    instances = {m.group_instance_id: m.member_id for m in in_order if m.group_instance_id is not None}
    return MemberIndex([m.member_id for m in in_order], instances)


def _bytes_of(rest: bytes, index: MemberIndex) -> int:
    return len(rest) + MEMBER_INDEX_BYTES + MEMBER_BYTES * len(index.member_ids)
