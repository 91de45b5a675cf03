"""In a freeze, a partition that nobody has owned for too long goes to a member that is there: a vacancy is adopted.

One member pauses for that instead of all. The vacancies that are due together are spread over the members that may have
them, in the order of their loads.
"""

import heapq
from collections.abc import Iterator

from coordinator.consumer_protocol import assigned_partitions
from coordinator.events import event
from coordinator.group import Group
from coordinator.outputs import FreezeBroken, Output
from coordinator.seat_parts import Vacancy
from coordinator.seats.indexing import kin_of
from coordinator.seats.offers import call, offer

Load = tuple[bool, bool, int, int, str]
"""Whether a member is called already, whether it has let an offer pass, its partitions, its place, and its id."""


def adopt(group: Group, keys: list[str], until_ms: int, now_ms: int) -> Iterator[Output]:
    """Offer vacancies to the members like them that have the fewest partitions. Stop at one that nobody may have.

    Args:
        keys: The vacancies, of which none is on offer.
        until_ms: The end of the freeze.
    """
    loads = _loads(group)
    for key in keys:
        vacancy = group.seats.vacant[key]
        partitions, candidates = assigned_partitions(vacancy.assignment), loads.get(vacancy.likeness)
        if partitions is None or not candidates:
            return
        _, has_lapsed, owned, place, member_id = candidates[0]
        load = True, has_lapsed, owned + _count(partitions), place, member_id
        heapq.heapreplace(candidates, load)
        member = group.members[member_id]
        how = "passed" if member_id in group.seats.standbys else "adopted"
        offer(group, key, member, how, now_ms)
        if how == "adopted":
            yield _broken(group, vacancy, until_ms, now_ms)
        yield from call(group, member)


def _loads(group: Group) -> dict[bytes, list[Load]]:
    """Return the members that may adopt partitions, by likeness, as heaps."""
    loads: dict[bytes, list[Load]] = {}
    for place, member in enumerate(group.visible):
        partitions = assigned_partitions(member.assignment)
        if partitions is not None:
            member_id, seats = member.member_id, group.seats
            load = member_id in seats.offers, member_id in seats.lapsed, _count(partitions), place, member_id
            loads.setdefault(kin_of(group, member).likeness, []).append(load)
    for heap in loads.values():
        heapq.heapify(heap)
    return loads


def _count(partitions: dict[str, list[int]]) -> int:
    return sum(map(len, partitions.values()))


def _broken(group: Group, vacancy: Vacancy, until_ms: int, now_ms: int) -> FreezeBroken:
    return event(
        FreezeBroken,
        group,
        now_ms,
        why="unowned_too_long",
        how="adopted",
        member_id=vacancy.member_id,
        client_id=vacancy.client_id,
        client_host=vacancy.client_host,
        until_ms=until_ms,
    )
