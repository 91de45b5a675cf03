"""The clients that cause rebalances again and again.

A rebalance that the protocol requires of a healthy member does not count against its client (`counts_against`).
"""

from bisect import bisect_left, bisect_right
from collections import Counter

from msgspec import Struct

from coordinator.messages.events import MemberExpired, MemberFenced, RebalanceStarted
from streaming.views.state.causes import counts_against
from streaming.views.state.group import GroupView

SHORT_MEMBERSHIPS = 3
"""With this number of rebalances within `SHORT_MEMBERSHIPS_MS`, a client counts as flapping."""

SHORT_MEMBERSHIPS_MS = 3_600_000

Begun = dict[tuple[str, str], list[int]]


def times_begun(group: GroupView) -> Begun:
    """Return for each client, by id and host, the times when it caused a rebalance or a further reason for one."""
    begun: Begun = {}
    kind = group.kind
    for event in group.events:
        if isinstance(event, RebalanceStarted) and counts_against(event, kind):
            times = begun.setdefault((event.client_id, event.client_host), [])
            if times[-1:] != [event.at_ms]:  # a client that is gone and came back has two reasons at one time
                times.append(event.at_ms)
    return begun


def times_until(begun: Begun, client: tuple[str, str], until_ms: int) -> int:
    """Return how many rebalances a client caused within the hour before a time."""
    at_ms = begun.get(client, [])
    return bisect_right(at_ms, until_ms) - bisect_left(at_ms, until_ms - SHORT_MEMBERSHIPS_MS)


class UnstableClient(Struct):
    """A client, and the numbers of rebalances that it caused and of times that it was expelled or fenced."""

    client_id: str
    client_host: str
    rebalances: int
    dropped: int
    fenced: int


def unstable_clients(group: GroupView, since_ms: int) -> list[UnstableClient]:
    """Return the clients that caused a group's rebalances since a time, the most frequent first."""
    started: Counter[tuple[str, str]] = Counter()
    dropped: Counter[tuple[str, str]] = Counter()
    fenced: Counter[tuple[str, str]] = Counter()
    kind = group.kind
    latest_ms: dict[tuple[str, str], int] = {}
    for event in group.since(since_ms):
        match event:
            case RebalanceStarted() if (event.client_id or event.client_host) and counts_against(event, kind):
                who = event.client_id, event.client_host
                started[who] += latest_ms.get(who) != event.at_ms
                latest_ms[who] = event.at_ms
            case MemberExpired():
                dropped[event.client_id, event.client_host] += 1
            case MemberFenced():
                fenced[event.client_id, event.client_host] += 1
    everybody = sorted(started.keys() | dropped.keys() | fenced.keys(), key=lambda who: (-started[who], who))
    return [UnstableClient(*who, started[who], dropped[who], fenced[who]) for who in everybody]
