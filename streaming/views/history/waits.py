"""The members that a group of the consumer protocol waits for: now, and in a rebalance that is over.

A partition waits while the owner is not the planned owner. A static member that is away keeps the group Reconciling.
"""

from collections.abc import Iterable

from msgspec import Struct

from coordinator.base.states import Phase
from coordinator.messages.events import MemberAway
from streaming.views.history.rebalances import GIVEN_UP, Rebalance, Wait, latest
from streaming.views.state.fields import AWAY, known, state_of
from streaming.views.state.group import GroupView
from streaming.views.state.partition_moves import WITH_TARGETS, waiting_partitions
from streaming.views.text import brief, clock, duration, in_partitions


class WaitedFor(Struct):
    """A member for which the next owners of its partitions wait or waited, or a static member that is away.

    Args:
        partitions: By topic, the partitions that it has or had to give up.
        next_ids: The members that get or got them.
        wait_ms: The longest wait; null while it lasts.
        since_ms: The time of the plan that moved the partitions, or at which the member went away, while the wait
            lasts; null if that is unknown, and if the wait is over.
        until_ms: The time at which a member that is away is dropped; null for other members, and if it is unknown.
        ended: `given_up`, `member_left`, or the reason for which the member was dropped; null while the wait lasts.
    """

    member_id: str
    partitions: dict[str, list[int]]
    next_ids: list[str]
    wait_ms: int | None
    since_ms: int | None = None
    until_ms: int | None = None
    is_away: bool = False
    ended: str | None = None


def waits(group: GroupView, rebalance: Rebalance) -> list[WaitedFor]:
    """Return the members that a rebalance waited for, the longest wait first; those that it waits for come before."""
    still = running_waits(group, rebalance) if rebalance.ended_ms is None else []
    by_member: dict[tuple[str, str], list[Wait]] = {}
    for wait in rebalance.waits.values():
        by_member.setdefault((wait.member_id, wait.ended), []).append(wait)
    over = [_waited_for(member_id, ended, each) for (member_id, ended), each in by_member.items()]
    return still + sorted(over, key=lambda each: (-(each.wait_ms or 0), each.member_id))


def _waited_for(member_id: str, ended: str, waited: Iterable[Wait]) -> WaitedFor:
    waited_for = WaitedFor(member_id, {}, [], 0, ended=ended)
    for wait in waited:
        waited_for.partitions.setdefault(wait.topic, []).append(wait.partition)
        waited_for.wait_ms = max(waited_for.wait_ms or 0, wait.wait_ms)
        if wait.next_id is not None and wait.next_id not in waited_for.next_ids:
            waited_for.next_ids.append(wait.next_id)
    return waited_for


# -- now ---------------------------------------------------------------------------------------------------------------


def running_waits(group: GroupView, rebalance: Rebalance | None = None) -> list[WaitedFor]:
    """Return the members that a group waits for now, in the order in which they joined.

    Args:
        rebalance: The last rebalance of the group, if the caller has it.
    """
    if group.record is None or group.type.value not in WITH_TARGETS or group.state in (Phase.STABLE, Phase.EMPTY):
        return []
    rebalance = rebalance or latest(group.events, group.waiting_partitions)
    awaited = {member.member_id: WaitedFor(member.member_id, {}, [], None) for member in group.members}
    for (topic, partition), owner, planned in waiting_partitions(group.record):
        wait = awaited[owner.member_id]
        wait.partitions.setdefault(topic, []).append(partition)
        if planned.member_id not in wait.next_ids:
            wait.next_ids.append(planned.member_id)
    for member in group.members:
        wait = awaited[member.member_id]
        for topic, numbers in (known(member.revoking) or {}).items():
            wait.partitions[topic] = sorted({*wait.partitions.get(topic, ()), *numbers})
        wait.since_ms = _since_ms(group, rebalance, wait) if wait.partitions else None
        if state_of(member) == AWAY:
            _set_away(group, wait)
    return [wait for wait in awaited.values() if wait.partitions or wait.is_away]


def _since_ms(group: GroupView, rebalance: Rebalance | None, wait: WaitedFor) -> int | None:
    """Return the time of the plan since which a member has partitions of other members; None if it is unknown."""
    if rebalance is None or rebalance.ended_ms is not None:
        return None
    places = ((topic, number) for topic, numbers in wait.partitions.items() for number in numbers)
    epochs = group.waiting_partitions.within(rebalance.first_version, None)
    shown = {epochs.get((place, wait.member_id)) for place in places}
    planned_ms = [rebalance.plans_ms[epoch] for epoch in shown if epoch in rebalance.plans_ms]
    if planned_ms:
        return min(planned_ms)
    unconfirmed_ms = rebalance.moving_ms[rebalance.confirmed.get(wait.member_id, 0) :]
    return next(iter(unconfirmed_ms or rebalance.moving_ms), None)


def _set_away(group: GroupView, wait: WaitedFor) -> None:
    """Note that a member is away, and until when it is awaited."""
    wait.is_away = True
    away = (e for e in reversed(group.events) if isinstance(e, MemberAway) and e.member_id == wait.member_id)
    if (left := next(away, None)) is not None:
        wait.since_ms, wait.until_ms = wait.since_ms or left.at_ms, left.until_ms


# -- in words ----------------------------------------------------------------------------------------------------------


def in_words(each: WaitedFor, now_ms: int | None) -> str:
    """Return a wait as a sentence.

    Args:
        now_ms: The present, for the duration of a wait that lasts; None to tell the time of its beginning instead.
    """
    places, who, next_ids = in_partitions(each.partitions), brief(each.member_id), ", ".join(map(brief, each.next_ids))
    if each.is_away:
        keeps = f"; it has not given up {places}" if each.partitions else ""
        return f"{who} is away{_lasting(each, now_ms)}{_until(each)}{keeps}."
    if each.wait_ms is None:
        by = f"; next: {next_ids}" if next_ids else ""
        return f"{who} has not given up {places} yet{_lasting(each, now_ms)}{by}."
    if each.ended in (GIVEN_UP, None):
        by = f" before {next_ids} got it" if next_ids else ""
        return f"{who} took {duration(each.wait_ms)} to give up {places}{by}."
    how = "left" if each.ended == "member_left" else "was dropped"
    by = f" before {next_ids} got it" if next_ids else ""
    return f"{who} had {places} for {duration(each.wait_ms)} after the plan, and {how}{by}."


def in_short(each: WaitedFor, now_ms: int) -> str:
    """Return a wait that lasts, as `describe` shows it."""
    if each.is_away:
        return f"{brief(each.member_id)} to come back{_until(each)}"
    return f"{brief(each.member_id)} to give up {in_partitions(each.partitions)}{_lasting(each, now_ms)}"


def _lasting(each: WaitedFor, now_ms: int | None) -> str:
    if each.since_ms is None:
        return ""
    return f", since {clock(each.since_ms)}" if now_ms is None else f", for {duration(max(0, now_ms - each.since_ms))}"


def _until(each: WaitedFor) -> str:
    return f", at the latest until {clock(each.until_ms)}" if each.until_ms is not None else ""
