"""Why a group rebalanced, in three sentences: what happened, who was behind it, and what to change, if anything.

`ADVICE` is the table: cause by cause whether the rebalance was avoidable, and the setting to look at where it was.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from typing import NamedTuple

from msgspec import Struct

from coordinator.outputs import MemberExpired, MemberFenced, MemberJoined, RebalanceStarted
from streaming.views.group import GroupView
from streaming.views.rebalances import Rebalance, rebalances
from streaming.watch.words import brief, clock, duration, escape

COMES_BACK_MS = 120_000
"""A client that leaves and joins again within that time was restarted."""

FLAPPING = 3
"""So many rebalances of one client's doing within `FLAPPING_MS` are no accident."""

FLAPPING_MS = 3_600_000


Begun = dict[tuple[str, str], list[int]]


class Advice(NamedTuple):
    """What to think of a cause.

    Args:
        setting: The one to look at; None where nothing is wrong.
        text: A sentence; `{who}`, `{silence}` and `{setting}` are filled in.
    """

    is_avoidable: bool
    setting: str | None
    text: str


ADVICE = {
    # what it was                   avoidable  the setting           what to do
    "session_expired": Advice(True, "session.timeout.ms",
        "Avoidable, unless the process died: look at session.timeout.ms ({silence}), which is to be longer than"
        " its longest pause, and at heartbeat.interval.ms, a third of it at most."),
    "poll_overdue": Advice(True, "max.poll.interval.ms",
        "Avoidable: look at max.poll.interval.ms, which is to be longer than the slowest batch takes to be worked"
        " through, or make batches smaller by max.poll.records."),
    "sync_overdue": Advice(True, "max.poll.interval.ms",
        "Avoidable: a member joined and never asked for its part of the plan; look at how long its leader plans, and"
        " at max.poll.interval.ms."),
    "restarted": Advice(True, "group.instance.id",
        "Avoidable: the client came back within {silence}; with a group.instance.id, and a session.timeout.ms above the"
        " time it takes to restart, nobody else would have noticed."),
    "static_member_replaced": Advice(True, "group.instance.id",
        "Avoidable: a static member came back with another protocol or while the group was rebalancing; two processes"
        " with one group.instance.id fence each other."),
    "member_joined": Advice(False, None,
        "Unavoidable: a new member is given its share. Where many start together, the coordinator's"
        " group_initial_rebalance_delay_ms lets them join at once."),
    "member_left": Advice(False, None,
        "Unavoidable: what a member that leaves has owned goes to others."),
    "metadata_changed": Advice(False, None,
        "Unavoidable: a member asks for other topics, or offers other assignors, than before."),
    "leader_rejoined": Advice(False, None,
        "Unavoidable: the leader plans anew, most likely because a topic has more partitions now."),
    "operator": Advice(False, None,
        "Unavoidable: somebody asked for it."),
}  # fmt: skip

UNKNOWN = Advice(False, None, "What began it is no longer in the events topic.")

_POLLED_TOO_LATE = re.compile(r"poll(ed|ing)?\b.*(timeout|interval|late|exceeded|expired)", re.IGNORECASE)
"""What clients give as the reason when their user did not poll in time: Java, librdkafka and ours."""


class Why(Struct, kw_only=True):
    """The answer. `cause` is a key of `ADVICE`, or `unknown`; `setting` is the one to look at."""

    group_id: str
    at_ms: int
    generation_id: int
    cause: str
    is_avoidable: bool
    setting: str | None
    member_id: str | None
    client_id: str | None
    client_host: str | None
    reason: str | None
    what: str
    who: str
    advice: str
    flapping: bool = False


def why(group: GroupView, at_ms: int | None = None) -> Why | None:
    """Explain a group's latest rebalance, or the latest that had begun by a moment; None where there was none."""
    begun = [r for r in rebalances(group.events) if at_ms is None or r.started_ms <= at_ms]
    return explain(group, begun[-1]) if begun else None


def explain(group: GroupView, rebalance: Rebalance, begun: Begun | None = None) -> Why:
    """Explain one rebalance of a group.

    Args:
        begun: What `times_begun` says of the group, for who explains many.
    """
    first = rebalance.started[0] if rebalance.started else None
    cause, silence_ms = _cause(group, rebalance, first)
    advice = ADVICE.get(cause, UNKNOWN)
    times = _times(times_begun(group) if begun is None else begun, rebalance, first)
    return Why(
        group_id=group.group_id,
        at_ms=rebalance.started_ms,
        generation_id=rebalance.generation_id,
        cause=cause,
        is_avoidable=advice.is_avoidable,
        setting=advice.setting,
        member_id=first.member_id or None if first else None,
        client_id=first.client_id or None if first else None,
        client_host=first.client_host or None if first else None,
        reason=first.reason if first else None,
        what=_what(group, rebalance),
        who=_who(first, cause, silence_ms, times),
        advice=advice.text.format(silence=duration(silence_ms) if silence_ms else "as it is set"),
        flapping=times >= FLAPPING,
    )


def _cause(group: GroupView, rebalance: Rebalance, first: RebalanceStarted | None) -> tuple[str, int | None]:
    """Say which row of the table applies, and the time that its advice speaks of."""
    if first is None:
        return "unknown", None
    if first.cause == "session_expired":
        gone = (e for e in group.since(first.at_ms, MemberExpired) if e.member_id == first.member_id)  # type: ignore[union-attr]
        return "session_expired", next((e.silence_ms for e in gone if isinstance(e, MemberExpired)), None)
    if first.cause == "member_left":
        if first.reason and _POLLED_TOO_LATE.search(first.reason):
            return "poll_overdue", None
        if (back_ms := _back_after(group, first)) is not None:
            return "restarted", back_ms
    return first.cause, None


def _back_after(group: GroupView, left: RebalanceStarted) -> int | None:
    """Say how soon a client that left was a member again."""
    for event in group.since(left.at_ms, MemberJoined):
        if (
            isinstance(event, MemberJoined)
            and (event.client_id, event.client_host) == (left.client_id, left.client_host)
            and event.member_id != left.member_id
            and event.at_ms <= left.at_ms + COMES_BACK_MS
        ):
            return max(1, event.at_ms - left.at_ms)
    return None


def _what(group: GroupView, rebalance: Rebalance) -> str:
    began = f"{escape(group.group_id)} rebalanced at {clock(rebalance.started_ms)}"
    if rebalance.ended_ms is None:
        return f"{began} and still does."
    took = f"{began} for {duration(rebalance.ended_ms - rebalance.started_ms)}, to generation {rebalance.generation_id}"
    if rebalance.completed is None:
        return f"{took}, which has no members."
    moved = len(rebalance.handovers)
    changed = "no partition changed" if not moved else f"{moved} partition{'s' * (moved != 1)} changed"
    return f"{took}: {changed} hands among {_members(len(rebalance.completed.members_after))}."


def _members(number: int) -> str:
    return f"{number} member{'s' * (number != 1)}"


_DID = {
    "session_expired": "was silent for {silence} and was dropped",
    "poll_overdue": "left because its user did not poll in time",
    "sync_overdue": "did not ask for its part of the plan in time",
    "restarted": "left and came back after {silence}",
    "static_member_replaced": "took over from another process under its instance id",
    "member_joined": "joined",
    "member_left": "left",
    "metadata_changed": "rejoined with another subscription",
    "leader_rejoined": "leads, and rejoined",
}


def _who(first: RebalanceStarted | None, cause: str, silence_ms: int | None, times: int) -> str:
    if first is None:
        return "Who was behind it is not known any more."
    host = f" at {escape(first.client_host)}" if first.client_host else ""
    said = f', saying "{escape(first.reason)}"' if first.reason else ""
    if cause == "operator":
        whom = f", about {brief(first.member_id)}" if first.member_id else ""
        return f"An operator ({escape(first.client_id)}{host}) asked for it{whom}{said}."
    did = _DID.get(cause, cause.replace("_", " ")).format(silence=duration(silence_ms) if silence_ms else "too long")
    often = f"; it is behind {times} rebalances of the last hour" if times >= FLAPPING else ""
    return f"{brief(first.member_id)}{host} {did}{said}{often}."


def times_begun(group: GroupView) -> Begun:
    """Say of each client, by id and host, when it was behind a rebalance, or behind one more reason for one."""
    begun: Begun = {}
    for event in group.events:
        if isinstance(event, RebalanceStarted):
            begun.setdefault((event.client_id, event.client_host), []).append(event.at_ms)
    return begun


def _times(begun: Begun, rebalance: Rebalance, first: RebalanceStarted | None) -> int:
    if first is None or not first.client_id:
        return 0
    at_ms, until_ms = begun[first.client_id, first.client_host], rebalance.started_ms
    return bisect_right(at_ms, until_ms) - bisect_left(at_ms, until_ms - FLAPPING_MS)


class Flapping(Struct):
    """A client and how often it was behind a rebalance, or was dropped or fenced."""

    client_id: str
    client_host: str
    rebalances: int
    dropped: int
    fenced: int


def flapping(group: GroupView, since_ms: int) -> list[Flapping]:
    """Say who was behind a group's rebalances since then, the worst first."""
    started: Counter[tuple[str, str]] = Counter()
    dropped: Counter[tuple[str, str]] = Counter()
    fenced: Counter[tuple[str, str]] = Counter()
    for event in group.since(since_ms):
        match event:
            case RebalanceStarted() if event.client_id or event.client_host:
                started[event.client_id, event.client_host] += 1
            case MemberExpired():
                dropped[event.client_id, event.client_host] += 1
            case MemberFenced():
                fenced[event.client_id, event.client_host] += 1
    everybody = sorted(started.keys() | dropped.keys() | fenced.keys(), key=lambda who: (-started[who], who))
    return [Flapping(*who, started[who], dropped[who], fenced[who]) for who in everybody]
