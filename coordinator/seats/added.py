"""Partitions that were added to a topic, found in the assignments of a leader that was told so in this generation.

A leader watches for such partitions, but nobody does while its seat is vacant. So its assignments are not installed,
but looked at: a partition that nobody has begins a rebalance. Partitions that they leave out mean nothing, because the
assignments of a cooperative assignor leave some out.
"""

from collections.abc import Iterable, Iterator

from coordinator.config import Config
from coordinator.consumer_protocol import assigned_partitions, write_assignment
from coordinator.events import blame, member_event
from coordinator.group import Group, Member
from coordinator.outputs import Output, RebalanceHeld
from coordinator.rebalance import prepare
from coordinator.requests import SyncGroup
from coordinator.seat_parts import Vacancy
from coordinator.seating import begin_freeze, frozen_until_ms, is_seatable, unowned_max_ms
from coordinator.seats.freezing import unowned_until_ms
from coordinator.seats.indexing import kin_of, put_in_vacancy
from coordinator.seats.offers import merged, offer_to_standby

ADDED = ""
"""The key of the vacancy of partitions that were added in a freeze. No member has this id."""


def look_at_plan(group: Group, member: Member, request: SyncGroup, now_ms: int, config: Config) -> Iterator[Output]:
    """Find the partitions in a leader's assignments that nobody has. They begin a rebalance, or in a freeze a vacancy.

    The assignments are not installed. A leader watches for partitions that are added to its topics; while its seat was
    vacant, nobody did.
    """
    if not group.seats.awaits_plan or member.member_id != group.leader_id or not request.assignments:
        return
    group.seats.awaits_plan = False
    held = [m.assignment for m in group.members.values()] + [v.assignment for v in group.seats.vacant.values()]
    known = _partitions_of(held)
    added = [p for p in sorted(_partitions_of(a.assignment for a in request.assignments)) if p not in known]
    if not added or not is_seatable(group, config):
        return
    frozen_ms = frozen_until_ms(config, now_ms)
    if frozen_ms is None:
        yield from prepare(group, blame(member, "partitions_added"), now_ms, config)
    else:
        yield from _keep_added(group, member, added, now_ms, config)


def _partitions_of(assignments: Iterable[bytes]) -> set[tuple[str, int]]:
    return {
        (topic, number)
        for assignment in assignments
        for topic, numbers in (assigned_partitions(assignment) or {}).items()
        for number in numbers
    }


def _keep_added(
    group: Group, member: Member, added: Iterable[tuple[str, int]], now_ms: int, config: Config
) -> Iterator[Output]:
    """Make a vacancy of partitions that were added, beside those that were added before."""
    partitions: dict[str, list[int]] = {}
    for topic, number in added:
        partitions.setdefault(topic, []).append(number)
    assignment = write_assignment(partitions, version=0)
    until_ms = unowned_until_ms(group, now_ms, config)
    yield from begin_freeze(group, now_ms, config)
    yield member_event(
        RebalanceHeld, group, member, now_ms, policy="freeze", cause="partitions_added", until_ms=until_ms
    )
    group.are_seats_news = True
    if (before := group.seats.vacant.get(ADDED)) is not None:
        before.assignment = merged([before.assignment, assignment])
        return
    group.seats.vacant[ADDED] = Vacancy(
        member_id=ADDED,
        group_instance_id=None,
        client_id=member.client_id,
        client_host=member.client_host,
        likeness=kin_of(group, member).likeness,
        assignment=assignment,
        since_ms=now_ms,
        until_ms=until_ms,
        policy="freeze",
        wait_ms=unowned_max_ms(config),
        cause="partitions_added",
        reason=None,
    )
    put_in_vacancy(group, ADDED)
    yield from offer_to_standby(group, ADDED, now_ms)
