"""Rosters: the names of a group's members, which its vitals need and its rest holds; and a cache of them.

The caller owns the `Rosters` and passes it. A cache of a pure function cannot be stale, in whatever process and however
often the task runs.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct

from coordinator.state.encoding import decode, inflate

ROSTERS_BYTES_MAX = 64 * 2**20
"""The memory that all cached rosters may take together, in bytes: a roster takes some 3 KB in groups of ten members."""

ROSTER_BYTES, MEMBER_BYTES = 300, 150
"""The approximate memory of a roster, and of each member in it, in bytes, without the rest that is its key."""


class Roster(NamedTuple):
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

    vitals: Raw
    group_id: Raw
    since_ms: Raw
    version: Raw
    protocol_type: Raw
    protocol_name: Raw
    leader_id: Raw
    members: dict[str, _Named]


_members_decoder = msgspec.msgpack.Decoder(_WithMembers)


class Rosters:
    """A cache of rosters by the rest of the group; the least recently used ones are dropped.

    Each commit creates a new rest of a group, and the earlier rest is never looked up again.

    Args:
        bytes_max: How many bytes the cached rosters may take together. The latest one stays even if it takes more.
    """

    def __init__(self, bytes_max: int = ROSTERS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._known: OrderedDict[bytes, Roster] = OrderedDict()
        self.bytes = 0

    def of(self, rest: bytes) -> Roster:
        """Return the roster of a rest, from the cache if it is cached."""
        if (known := self._known.get(rest)) is not None:
            self._known.move_to_end(rest)
            return known
        known = _read_roster(rest)
        self.note(rest, known)
        return known

    def note(self, rest: bytes, roster: Roster) -> None:
        """Cache the roster of a rest, so that it is not read from the rest later."""
        if rest in self._known:
            return
        self._known[rest] = roster
        self.bytes += _bytes_of(rest, roster)
        while self.bytes > self._bytes_max and len(self._known) > 1:
            self.bytes -= _bytes_of(*self._known.popitem(last=False))


def _read_roster(rest: bytes) -> Roster:
    return roster_of(decode(_members_decoder, inflate(rest)).members.values())


def roster_of(members: Iterable[Named]) -> Roster:
    """Return the roster of members, in their order."""
    in_order = list(members)
    instances = {m.group_instance_id: m.member_id for m in in_order if m.group_instance_id is not None}
    return Roster([m.member_id for m in in_order], instances)


def _bytes_of(rest: bytes, roster: Roster) -> int:
    return len(rest) + ROSTER_BYTES + MEMBER_BYTES * len(roster.member_ids)
