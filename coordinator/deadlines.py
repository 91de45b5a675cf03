"""The times at which time alone changes a group, and the changes.

Deadlines are derived from the group's vitals and are not stored beside them. An output of a deadline carries the time
of the deadline, not the time at which the deadline was noticed. If a deadline is noticed very late, the coordinator was
unavailable and no member is to blame: the same wait starts once more (KIP-62's sessions promise a member its timeout;
Kafka's coordinator renews them on load).
"""

from collections.abc import Iterator
from enum import IntEnum

from msgspec import Struct

from coordinator.config import Config
from coordinator.describe import publish, publishing
from coordinator.group import NEVER_MS, Group, Session
from coordinator.leaving import pending_due, session_due
from coordinator.offsets import offsets_due
from coordinator.outputs import Output
from coordinator.phases import Phase
from coordinator.rebalance import joins_due, syncs_due


class Kind(IntEnum):
    """The kinds of deadlines, in the order in which they fire if several have the same time."""

    SESSION = 0
    PENDING = 1
    JOINS = 2
    SYNCS = 3
    OFFSETS = 4
    PUBLISH = 5


class Deadline(Struct, frozen=True, order=True):
    """A time at which time alone changes a group. Sorts by time, then by kind, then by the order of the members."""

    at_ms: int
    kind: Kind
    place: int = 0
    member_id: str = ""


def deadlines(group: Group) -> Iterator[Deadline]:
    """Yield all deadlines of a group; a time of `NEVER_MS` is not armed."""
    vitals = group.vitals
    for place, (member_id, session) in enumerate(vitals.sessions.items()):
        yield Deadline(session.deadline_ms, Kind.SESSION, place, member_id)
    for place, (member_id, session) in enumerate(vitals.pending.items()):
        yield Deadline(session.deadline_ms, Kind.PENDING, place, member_id)
    yield Deadline(vitals.joins_ms, Kind.JOINS)
    yield Deadline(vitals.syncs_ms, Kind.SYNCS)
    yield Deadline(vitals.offsets_ms, Kind.OFFSETS)
    yield Deadline(vitals.publish_ms, Kind.PUBLISH)


def advance(group: Group, until_ms: int, noticed_ms: int, config: Config) -> Iterator[Output]:
    """Fire every deadline up to and including `until_ms`, the oldest first.

    Args:
        noticed_ms: The coordinator's current time, which may be much later than `until_ms`.
    """
    vitals = group.vitals
    while vitals.earliest_ms <= until_ms:
        queue = sorted(d for d in deadlines(group) if d.at_ms <= until_ms)
        vitals.earliest_ms = NEVER_MS
        for due in queue:
            if due.at_ms != _armed_ms(group, due):
                continue  # an earlier deadline has settled or moved this one
            vitals.now_ms = max(vitals.now_ms, due.at_ms)
            if noticed_ms - due.at_ms > config.late_notice_ms and _may_be_extended(group, due):
                _wait_once_more(group, due, noticed_ms)
            else:
                yield from publishing(group, _fire(group, due, config))
            assert group.phase is Phase.DEAD or due.at_ms != _armed_ms(group, due), f"{due} did not clear"
            if vitals.earliest_ms <= until_ms:
                break  # a new deadline is due as well: start again
        else:
            vitals.earliest_ms = min(d.at_ms for d in deadlines(group))


def _armed_ms(group: Group, due: Deadline) -> int | None:
    """Return the time of a deadline as it is now; None if its member is gone."""
    vitals = group.vitals
    if due.kind in (Kind.SESSION, Kind.PENDING):
        session = _session(group, due)
        return session.deadline_ms if session else None
    return {
        Kind.JOINS: vitals.joins_ms,
        Kind.SYNCS: vitals.syncs_ms,
        Kind.OFFSETS: vitals.offsets_ms,
        Kind.PUBLISH: vitals.publish_ms,
    }[due.kind]


def _session(group: Group, due: Deadline) -> Session | None:
    return {Kind.SESSION: group.vitals.sessions, Kind.PENDING: group.vitals.pending}.get(due.kind, {}).get(
        due.member_id
    )


def _fire(group: Group, due: Deadline, config: Config) -> Iterator[Output]:
    if due.kind is Kind.SESSION:
        yield from session_due(group, group.members[due.member_id], due.at_ms, config)
    elif due.kind is Kind.PENDING:
        yield from pending_due(group, due.member_id, due.at_ms)
    elif due.kind is Kind.JOINS:
        yield from joins_due(group, due.at_ms)
    elif due.kind is Kind.SYNCS:
        yield from syncs_due(group, due.at_ms, config)
    elif due.kind is Kind.PUBLISH:
        yield publish(group)
    else:
        yield from offsets_due(group, due.at_ms, config)


def _may_be_extended(group: Group, due: Deadline) -> bool:
    if due.kind in (Kind.OFFSETS, Kind.PUBLISH):
        return False
    session = _session(group, due)
    return not (session or group.vitals).extended


def _wait_once_more(group: Group, due: Deadline, now_ms: int) -> None:
    vitals = group.vitals
    if session := _session(group, due):
        vitals.renew(session, now_ms)
        session.extended = True
        return
    vitals.extended = True
    if due.kind is Kind.SYNCS:
        vitals.syncs_ms = vitals.wait(now_ms, group.rebalance_timeout_ms)
    else:
        wait_ms = group.delay.delay_ms if group.delay else group.rebalance_timeout_ms
        vitals.joins_ms = vitals.wait(now_ms, wait_ms)
