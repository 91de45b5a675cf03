"""The deadlines of policies: quarantines and offers that end, and pending holds that are due.

A pending hold that is due begins one rebalance for all pending holds, in the name of the oldest one. In a freeze only a
partition without an owner is due: newcomers wait until its end, and vacancies are adopted.

A vacancy that is adopted goes to a member that is there. One member pauses for that instead of all. The vacancies that
are due together are spread over the members that may have them, in the order of their loads.

Partitions that were added to a topic are found in the assignments of a leader that was told so in this generation. A
leader watches for such partitions, but nobody does while its seat is vacant. So its assignments are not installed, but
looked at: a partition that nobody has begins a rebalance. Partitions that they leave out mean nothing, because the
assignments of a cooperative assignor leave some out.
"""

import heapq
from collections.abc import Iterable, Iterator

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import assigned_partitions, write_assignment
from coordinator.base.limits import SEAT_OFFER_MS
from coordinator.base.policies import NO_SUCCESSION, Policy
from coordinator.base.states import Phase
from coordinator.classic.departures import unowned_until_ms
from coordinator.classic.newcomers import readmit
from coordinator.classic.offers import (
    call,
    index_member,
    index_vacancy,
    match_key_of,
    merged,
    offer,
    offer_to_standby,
    rounded,
    unindex_member,
    unindex_vacancy,
    withdraw,
)
from coordinator.classic.rebalance import prepare
from coordinator.common.events import RebalanceCause, event, member_cause, member_event
from coordinator.messages.outputs import Output
from coordinator.messages.policy_events import FreezeBroken, RebalanceHeld
from coordinator.messages.requests import SyncGroup
from coordinator.policies.rules import (
    begin_freeze,
    end_freeze,
    frozen_until_ms,
    has_plain_assignments,
    is_seatable,
    unowned_max_ms,
)
from coordinator.state.classic_group import Group, Member
from coordinator.state.policy_state import Standby, Vacancy

ADDED = ""
"""The key of the vacancy of partitions that were added in a freeze. No member has this id."""


def look_at_plan(group: Group, member: Member, request: SyncGroup, now_ms: int, config: Config) -> Iterator[Output]:
    """Find the partitions in a leader's assignments that nobody has. They begin a rebalance, or in a freeze a vacancy.

    The assignments are not installed. A leader watches for partitions that are added to its topics; while its seat was
    vacant, nobody did.
    """
    if not group.policy_state.awaits_plan or member.member_id != group.leader_id or not request.assignments:
        return
    group.policy_state.awaits_plan = False
    held = [m.assignment for m in group.members.values()] + [v.assignment for v in group.policy_state.vacant.values()]
    known = _partitions_of(held)
    added = [p for p in sorted(_partitions_of(a.assignment for a in request.assignments)) if p not in known]
    if not added or not is_seatable(group, config):
        return
    frozen_ms = frozen_until_ms(config, now_ms)
    if frozen_ms is None:
        yield from prepare(group, member_cause(member, "partitions_added"), now_ms, config)
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
    group.is_policy_state_changed = True
    if (before := group.policy_state.vacant.get(ADDED)) is not None:
        before.assignment = merged([before.assignment, assignment])
        return
    group.policy_state.vacant[ADDED] = Vacancy(
        member_id=ADDED,
        group_instance_id=None,
        client_id=member.client_id,
        client_host=member.client_host,
        subscription_digest=match_key_of(group, member).subscription_digest,
        assignment=assignment,
        since_ms=now_ms,
        until_ms=until_ms,
        policy="freeze",
        wait_ms=unowned_max_ms(config),
        cause="partitions_added",
        reason=None,
    )
    index_vacancy(group, ADDED)
    yield from offer_to_standby(group, ADDED, now_ms)


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
        vacancy = group.policy_state.vacant[key]
        partitions, candidates = assigned_partitions(vacancy.assignment), loads.get(vacancy.subscription_digest)
        if partitions is None or not candidates:
            return
        _, has_lapsed, owned, place, member_id = candidates[0]
        load = True, has_lapsed, owned + _count(partitions), place, member_id
        heapq.heapreplace(candidates, load)
        member = group.members[member_id]
        how = "passed" if member_id in group.policy_state.standbys else "adopted"
        offer(group, key, member, how, now_ms)
        if how == "adopted":
            yield _broken(group, vacancy, until_ms, now_ms)
        yield from call(group, member)


def _loads(group: Group) -> dict[bytes, list[Load]]:
    """Return the members that may adopt partitions, by subscription digest, as heaps."""
    loads: dict[bytes, list[Load]] = {}
    for place, member in enumerate(group.visible):
        partitions = assigned_partitions(member.assignment)
        if partitions is not None:
            member_id, policy_state = member.member_id, group.policy_state
            load = (
                member_id in policy_state.offers,
                member_id in policy_state.declined,
                _count(partitions),
                place,
                member_id,
            )
            loads.setdefault(match_key_of(group, member).subscription_digest, []).append(load)
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


def policies_due(group: Group, now_ms: int, config: Config) -> Iterator[Output]:
    """End the quarantines and offers that are over, and clear the pending holds that are due."""
    policy_state = group.policy_state
    for member_id in [m for m, until_ms in policy_state.quarantined.items() if until_ms <= now_ms]:
        if member_id in policy_state.quarantined:  # a rebalance may have ended the quarantine of the last members
            yield from readmit(group, group.members[member_id], "over", now_ms, config)
    if group.phase is Phase.STABLE:
        yield from _lapse(group, now_ms, config)
        if (frozen_ms := frozen_until_ms(config, now_ms)) is not None and has_plain_assignments(group, config):
            yield from _freeze(group, frozen_ms, now_ms, config)
        if policy_state.holds_until_ms <= now_ms:
            yield from prepare(group, _oldest(group), now_ms, config)
    if policy_state.frozen_until_ms <= now_ms:
        policy_state.frozen_until_ms = 0
    policy_state.was_extended = policy_state.was_extended and policy_state.is_held
    group.hot_state.policy_ms = group.hot_state.track_deadline(policy_state.earliest_ms)


def _oldest(group: Group) -> RebalanceCause:
    """Return the cause of the oldest pending hold."""
    policy_state = group.policy_state
    vacancy = min(policy_state.vacant.values(), key=lambda hold: hold.since_ms, default=None)
    member_id = min(policy_state.standbys, key=lambda m: policy_state.standbys[m].since_ms, default=None)
    if member_id is not None and (vacancy is None or policy_state.standbys[member_id].since_ms < vacancy.since_ms):
        member, standby = group.members[member_id], policy_state.standbys[member_id]
        return RebalanceCause("member_joined", member_id, member.client_id, member.client_host, standby.reason)
    assert vacancy is not None, "a pending hold is due"
    return RebalanceCause(vacancy.cause, vacancy.member_id, vacancy.client_id, vacancy.client_host, vacancy.reason)


# -- offers ------------------------------------------------------------------------------------------------------------


def _lapse(group: Group, now_ms: int, config: Config) -> Iterator[Output]:
    """End the offers that are over. Other standbys get the vacancies, unless these are due themselves."""
    freed: list[str] = []
    for member_id in [m for m, each in group.policy_state.offers.items() if each.until_ms <= now_ms]:
        member, how = group.members[member_id], group.policy_state.offers[member_id].how
        unindex_member(group, member)
        freed += withdraw(group, member)
        group.policy_state.declined[member_id] = None
        if how != "adopted":
            yield from _wait_again(group, member_id, now_ms, config)
        index_member(group, member)
        group.is_policy_state_changed = True
    for key in freed:
        if group.policy_state.vacant[key].until_ms > now_ms:
            yield from offer_to_standby(group, key, now_ms)


def _wait_again(group: Group, member_id: str, now_ms: int, config: Config) -> Iterator[Output]:
    """Make a member that has let an offer pass the last standby. A newcomer without a pending hold gets one."""
    standbys, policy = group.policy_state.standbys, config.policy
    if member_id in standbys:
        standbys[member_id] = standbys.pop(member_id)
        return
    member, frozen_ms = group.members[member_id], frozen_until_ms(config, now_ms)
    wait_ms = (policy.succession or NO_SUCCESSION).standby_ms if policy is not None else 0
    until_ms = frozen_ms or group.hot_state.wait(now_ms, wait_ms)
    standbys[member_id] = Standby(
        now_ms, until_ms, "succession", wait_ms, match_key_of(group, member).subscription_digest
    )
    yield from _hold(group, member_id, "succession" if frozen_ms is None else "freeze", until_ms, now_ms, config)


def _hold(group: Group, member_id: str, policy: str, until_ms: int, now_ms: int, config: Config) -> Iterator[Output]:
    """Report that a newcomer waits, by a policy that is in force now."""
    standby = group.policy_state.standbys[member_id]
    group.policy_state.clear(standby)
    standby.policy, standby.until_ms = policy, until_ms
    if policy == "freeze":
        standby.wait_ms = 0
        yield from begin_freeze(group, now_ms, config)
    member = group.members[member_id]
    yield member_event(RebalanceHeld, group, member, now_ms, policy=policy, cause="member_joined", until_ms=until_ms)


# -- freezes -----------------------------------------------------------------------------------------------------------


def _freeze(group: Group, frozen_ms: int, now_ms: int, config: Config) -> Iterator[Output]:
    """Put due pending holds off until the end of the freeze, and let members adopt the due vacancies."""
    policy_state = group.policy_state
    waiting = [
        m
        for m, hold in policy_state.standbys.items()
        if m not in policy_state.offers and policy_state.due_ms(hold) <= now_ms
    ]
    for member_id in waiting:
        yield from _hold(group, member_id, "freeze", frozen_ms, now_ms, config)
    due = [
        key for key, hold in policy_state.vacant.items() if not hold.offered_to and policy_state.due_ms(hold) <= now_ms
    ]
    for key in due:
        vacancy = policy_state.vacant[key]
        unindex_vacancy(group, key)
        policy_state.clear(vacancy)
        vacancy.policy, vacancy.until_ms = "freeze", min(vacancy.until_ms, now_ms)
        index_vacancy(group, key)
    if due:
        yield from adopt(group, due, frozen_ms, now_ms)


# -- late notice, and other policies -----------------------------------------------------------------------------------


def wait_once_more(group: Group, now_ms: int) -> bool:
    """Start the waits again that are over, because the coordinator was unavailable. Return whether that was done.

    What lasts until a time, as a freeze or a quarantine does, is over as soon as that is noticed.
    """
    policy_state, hot_state = group.policy_state, group.hot_state
    if policy_state.was_extended:
        return False
    policy_state.was_extended = policy_state.earliest_ms <= now_ms
    for hold in policy_state.pending_holds:
        if hold.until_ms <= now_ms:
            hold.until_ms = hot_state.wait(now_ms, hold.wait_ms)
    if policy_state.settle_timer is not None and policy_state.settle_timer.until_ms <= now_ms:
        policy_state.settle_timer.until_ms = hot_state.wait(now_ms, policy_state.settle_timer.wait_ms)
    for offered in policy_state.offers.values():
        offered.until_ms = max(offered.until_ms, rounded(hot_state.wait(now_ms, SEAT_OFFER_MS)))
    for member_id, until_ms in policy_state.quarantined.items():
        policy_state.quarantined[member_id] = max(until_ms, now_ms)
    if 0 < policy_state.frozen_until_ms <= now_ms:
        policy_state.frozen_until_ms, group.is_policy_state_changed = 0, True
    hot_state.policy_ms = hot_state.track_deadline(policy_state.earliest_ms)
    return True


def reconsider(group: Group, now_ms: int, config: Config) -> Iterator[Output]:
    """Apply other policies to the pending holds of a group: one whose policy is gone is due, and none is due later."""
    policy_state = group.policy_state
    group.is_policy_state_changed |= end_freeze(group, now_ms, config)
    policy = config.policy if has_plain_assignments(group, config) else None
    for hold in policy_state.pending_holds:
        hold.until_ms = min(hold.until_ms, max(_newly_due_ms(hold, policy, now_ms), now_ms))
    if policy_state.settle_timer is not None:
        settle = policy.settle if policy is not None else None
        until_ms = now_ms if settle is None else policy_state.settle_timer.first_ms + settle.max_ms
        policy_state.settle_timer.until_ms = min(policy_state.settle_timer.until_ms, max(until_ms, now_ms))
    if policy is None or policy.quarantine is None:
        policy_state.unstable_clients, policy_state.expiries_ms, policy_state.joined_ms = {}, [], {}
        for member_id in list(policy_state.quarantined):
            if member_id in policy_state.quarantined:
                yield from readmit(group, group.members[member_id], "policy", now_ms, config)
    group.hot_state.policy_ms = group.hot_state.track_deadline(policy_state.earliest_ms)


def _newly_due_ms(hold: Vacancy | Standby, policy: Policy | None, now_ms: int) -> int:
    """Return when a pending hold would be due if it had begun under the policies of now."""
    frozen_ms = policy.frozen_until_ms(now_ms) if policy is not None else None
    if policy is None or (hold.policy == "freeze" and frozen_ms is None):
        return now_ms
    if hold.policy == "freeze" and policy.freeze is not None:
        return hold.since_ms + policy.freeze.unowned_max_ms if isinstance(hold, Vacancy) else frozen_ms or now_ms
    if hold.policy == "succession" and policy.succession is not None:
        is_vacancy = isinstance(hold, Vacancy)
        return hold.since_ms + (policy.succession.vacant_ms if is_vacancy else policy.succession.standby_ms)
    return hold.until_ms if hold.policy == "settle" else now_ms
