"""The group epoch is raised, and a target assignment follows: at once, or when a policy that holds it allows that.

    settle   holds it until no further newcomer or leaving member has come for a while
    freeze   holds it until the end of the freeze, or until a partition was without an owner for too long

While the target assignment is held, the group is Assigning, as Kafka's groups are before the target assignment: members
keep their targets, a newcomer has none, and all of them are answered at the epoch of the present target assignment.

`HOLDS` decides by which policy a raise is held, the first row that fits. Source: our own; without policies KIP-848.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec import UNSET

from coordinator.base.config import Config
from coordinator.base.limits import NEVER_MS
from coordinator.base.policies import NO_SETTLE, Settle
from coordinator.common.events import RebalanceCause, event, member_cause, member_event
from coordinator.consumer import target_assignment
from coordinator.consumer.publish import by_name
from coordinator.consumer.quarantine import end_quarantine, end_where_needed
from coordinator.messages.events import RebalanceStarted
from coordinator.messages.outputs import Output
from coordinator.messages.policy_events import FreezeBroken, RebalanceHeld, SeatVacated
from coordinator.policies.rules import WHY_A_FREEZE_BREAKS, begin_freeze, end_freeze, frozen_until_ms, unowned_max_ms
from coordinator.policies.view import standing_of_consumer
from coordinator.state.consumer_group import Change, ConsumerGroup, HeldPlan, RemovedMember
from coordinator.state.consumer_member import ConsumerMember


class Raised(NamedTuple):
    """A raise of the group epoch.

    Args:
        vacated: The removed members behind it that leave partitions without an owner.
        was_due: A target assignment was due before, and no policy held it.
    """

    group: ConsumerGroup
    cause: RebalanceCause
    vacated: list[RemovedMember]
    was_due: bool
    now_ms: int
    config: Config


# -- conditions --------------------------------------------------------------------------------------------------------


def is_of_an_operator(raised: Raised) -> bool:
    return raised.cause.name == "operator"


def follows_one_that_is_not_held(raised: Raised) -> bool:
    return raised.was_due


def leaves_no_owner(raised: Raised) -> bool:
    """Return whether no present member has a target, so that there is nothing to keep."""
    return not any(raised.group.targets.values())


def comes_in_a_freeze(raised: Raised) -> bool:
    return frozen_until_ms(raised.config, raised.now_ms) is not None


def is_of_a_newcomer_that_waits(raised: Raised) -> bool:
    return raised.cause.name == "member_joined" and _settle(raised.config).join_quiet_ms > 0


def is_of_a_member_that_leaves_and_waits(raised: Raised) -> bool:
    return raised.cause.name == "member_left" and _settle(raised.config).leave_quiet_ms > 0


def leaves_every_partition_its_owner(raised: Raised) -> bool:
    """Return whether the raise can wait for the clock of settle, which runs already."""
    return raised.group.held is not None and not raised.vacated


def is_any(raised: Raised) -> bool:
    return True


HOLDS: tuple[tuple[Callable[[Raised], bool], str], ...] = (
    # a raise that ...                      is held by
    (is_of_an_operator,                     ""),
    (follows_one_that_is_not_held,          ""),
    (leaves_no_owner,                       ""),
    (comes_in_a_freeze,                     "freeze"),
    (is_of_a_newcomer_that_waits,           "settle"),
    (is_of_a_member_that_leaves_and_waits,  "settle"),
    (leaves_every_partition_its_owner,      "clock"),  # the clock of settle, which goes on as it is
    (is_any,                                ""),
)  # fmt: skip


def _settle(config: Config) -> Settle:
    return config.policy.settle or NO_SETTLE if config.policy is not None else NO_SETTLE


# -- raises ------------------------------------------------------------------------------------------------------------


def raise_epoch(group: ConsumerGroup, cause: RebalanceCause, now_ms: int, config: Config) -> Iterator[Output]:
    """Raise the group epoch, because the target assignment is out of date. The caller calls it once for a request."""
    was_due = group.hot_state.group_epoch > group.hot_state.assignment_epoch and group.held is None
    group.hot_state.group_epoch += 1
    yield from end_where_needed(group, now_ms)
    vacated = [removed for removed in group.pending_changes.removed if any(removed.target.values())]
    raised = Raised(group, cause, vacated, was_due, now_ms, config)
    if policy := next(policy for fits, policy in HOLDS if fits(raised)):
        yield from _hold(raised, policy)
        return
    if is_of_an_operator(raised) and group.members and (until_ms := frozen_until_ms(config, now_ms)) is not None:
        yield _broken_freeze(group, cause, until_ms, now_ms)
    yield from _start(group, cause, now_ms)


def after_removal(group: ConsumerGroup, cause: RebalanceCause, now_ms: int, config: Config) -> Iterator[Output]:
    """Raise the group epoch after a removal. The caller calls it once for all members that one request removes.

    Members in quarantine have no targets, so the others do not notice that such a member is gone.
    """
    if cause.name == "operator" or not all(removed.was_quarantined for removed in group.pending_changes.removed):
        yield from raise_epoch(group, cause, now_ms, config)


def _start(group: ConsumerGroup, cause: RebalanceCause, now_ms: int) -> Iterator[Output]:
    """Begin a rebalance. It ends the hold of a policy."""
    held, group.held, group.hot_state.is_frozen = group.held, None, False
    if held is not None:
        group.hot_state.plan_ms, group.pending_changes.is_changed = NEVER_MS, True
    if group.change is None:
        before = group.pending_changes.before
        group.change = Change(now_ms, 0, tuple(group.members) if before is None else before)
    yield event(
        RebalanceStarted,
        group,
        now_ms,
        cause=cause.name,
        member_id=cause.member_id,
        client_id=cause.client_id,
        client_host=cause.client_host,
        reason=cause.reason,
        members=len(group.members),
        joins_until_ms=now_ms,
        held_ms=UNSET if held is None or held.since_ms == now_ms else now_ms - held.since_ms,
    )


def _broken_freeze(group: ConsumerGroup, cause: RebalanceCause, until_ms: int, now_ms: int) -> FreezeBroken:
    return event(
        FreezeBroken,
        group,
        now_ms,
        why=WHY_A_FREEZE_BREAKS.get(cause.name, "unowned_too_long"),
        how="rebalanced",
        member_id=cause.member_id,
        client_id=cause.client_id,
        client_host=cause.client_host,
        until_ms=until_ms,
    )


# -- holds -------------------------------------------------------------------------------------------------------------


def _hold(raised: Raised, policy: str) -> Iterator[Output]:
    """Hold the target assignment by a policy, and report what is held."""
    group, cause, now_ms, config = raised.group, raised.cause, raised.now_ms, raised.config
    held = group.held = group.held or HeldPlan(
        since_ms=now_ms,
        until_ms=now_ms,
        policy=policy,
        wait_ms=0,
        cause=cause.name,
        member_id=cause.member_id,
        client_id=cause.client_id,
        client_host=cause.client_host,
        reason=cause.reason,
    )
    group.pending_changes.is_changed = True
    held.vacant += len(raised.vacated)
    if held.unowned_since_ms == NEVER_MS and _leaves_unowned(raised):
        held.unowned_since_ms = now_ms
    if policy == "settle":
        _wait_for_quiet(raised, held)
    elif policy == "freeze":
        until_ms = frozen_until_ms(config, now_ms) or now_ms
        _freeze(held, min(held.until_ms, until_ms) if group.hot_state.is_frozen else until_ms, now_ms, config)
        group.hot_state.is_frozen = True
        yield from begin_freeze(group, now_ms, config)
    group.hot_state.plan_ms = group.hot_state.track_deadline(held.due_ms)
    for removed in raised.vacated:
        yield _vacated(raised, removed, held)
    if cause.name not in DEPARTURES:
        yield _held(group, cause, held, now_ms)


DEPARTURES = ("member_left", "session_expired", "revocation_overdue", "joins_overdue", "syncs_overdue")
"""The causes of a raise after a removal."""


def _wait_for_quiet(raised: Raised, held: HeldPlan) -> None:
    """Start the clock of settle, or extend it because of a further cause."""
    settle = _settle(raised.config)
    held.wait_ms = settle.join_quiet_ms if is_of_a_newcomer_that_waits(raised) else settle.leave_quiet_ms
    until_ms = raised.group.hot_state.wait(raised.now_ms, held.wait_ms)
    longest_ms = max(held.since_ms + settle.max_ms, raised.now_ms)
    held.until_ms = max(held.until_ms, min(until_ms, longest_ms))


def _freeze(held: HeldPlan, until_ms: int, now_ms: int, config: Config) -> None:
    """Hold the target assignment until a time, and bound the time of partitions without an owner."""
    held.policy, held.until_ms, held.wait_ms = "freeze", until_ms, 0
    if held.unowned_since_ms == NEVER_MS:
        held.unowned_until_ms = NEVER_MS
    elif held.unowned_until_ms == NEVER_MS:
        held.unowned_max_ms = unowned_max_ms(config)
        held.unowned_until_ms = max(held.unowned_since_ms + held.unowned_max_ms, now_ms)


def _leaves_unowned(raised: Raised) -> bool:
    """Return whether a raise shows partitions that are in no member's target."""
    group, cause = raised.group, raised.cause
    if raised.vacated or cause.name in DEPARTURES:
        return bool(raised.vacated)
    if cause.name != "member_joined":
        return has_unowned(group)
    topics = {topic.topic_id: topic.partitions for topic in group.topics.values() if topic.topic_id is not None}
    subscribed = group.topic_ids_of(group.members[cause.member_id])
    return any(len(group.planned.get(topic_id, ())) < topics[topic_id] for topic_id in subscribed)


def has_unowned(group: ConsumerGroup) -> bool:
    """Return whether a partition of a topic to which some member subscribes is in no member's target."""
    topic_ids: dict[tuple[tuple[str, ...], str], frozenset[str]] = {}
    owned: dict[str, int] = {}
    for member in group.members.values():
        subscription = member.names, member.regex
        if subscription not in topic_ids:
            topic_ids[subscription] = group.topic_ids_of(member)
        for topic_id, numbers in group.targets.get(member.member_id, {}).items():
            if topic_id in topic_ids[subscription]:
                owned[topic_id] = owned.get(topic_id, 0) + len(numbers)
    subscribed = frozenset[str]().union(*topic_ids.values())
    counts = (topic for topic in group.topics.values() if topic.topic_id in subscribed)
    return any(owned.get(topic.topic_id or "", 0) < topic.partitions for topic in counts)


def _vacated(raised: Raised, removed: RemovedMember, held: HeldPlan) -> SeatVacated:
    return member_event(
        SeatVacated,
        raised.group,
        removed.member,
        raised.now_ms,
        policy=held.policy,
        cause=raised.cause.name,
        reason=raised.cause.reason,
        partitions=by_name(raised.group, removed.target),
        until_ms=held.due_ms,
    )


def _held(group: ConsumerGroup, cause: RebalanceCause, held: HeldPlan, now_ms: int) -> RebalanceHeld:
    member = group.members.get(cause.member_id)
    return event(
        RebalanceHeld,
        group,
        now_ms,
        member_id=cause.member_id,
        group_instance_id=member.group_instance_id if member is not None else None,
        client_id=cause.client_id,
        client_host=cause.client_host,
        policy=held.policy,
        cause=cause.name,
        until_ms=held.until_ms,
    )


# -- deadlines, and other policies -------------------------------------------------------------------------------------


def plan_due(group: ConsumerGroup, now_ms: int, config: Config) -> Iterator[Output]:
    """Compute the target assignment that is due. If a policy holds it, begin the rebalance, or go on with a freeze."""
    held = group.held
    if held is None:
        yield from target_assignment.make_plan(group, now_ms, config)
        return
    if group.policy_state.frozen_until_ms <= now_ms:
        group.policy_state.frozen_until_ms = 0
    cause = RebalanceCause(held.cause, held.member_id, held.client_id, held.client_host, held.reason)
    if (frozen_ms := frozen_until_ms(config, now_ms)) is not None:
        yield from _resume(group, held, frozen_ms, now_ms, config)
        if held.due_ms > now_ms:
            return
        yield _broken_freeze(group, cause, frozen_ms, now_ms)
    yield from _start(group, cause, now_ms)
    if target_assignment.is_due(group, now_ms, config):
        yield from target_assignment.make_plan(group, now_ms, config)


def _resume(group: ConsumerGroup, held: HeldPlan, frozen_ms: int, now_ms: int, config: Config) -> Iterator[Output]:
    """Hold the target assignment until the end of a freeze. It is due all the same if partitions have no owner."""
    is_over = held.until_ms <= now_ms
    if not has_unowned(group):
        held.unowned_since_ms = held.unowned_until_ms = NEVER_MS
    elif held.unowned_since_ms == NEVER_MS:
        held.unowned_since_ms = now_ms
    _freeze(held, frozen_ms if is_over else held.until_ms, now_ms, config)
    group.hot_state.is_frozen, group.pending_changes.is_changed = True, True
    group.hot_state.plan_ms = group.hot_state.track_deadline(held.due_ms)
    if is_over and held.due_ms > now_ms:
        yield from begin_freeze(group, now_ms, config)
        for member in standing_by(group):
            yield _held(group, member_cause(member, "member_joined"), held, now_ms)


def standing_by(group: ConsumerGroup) -> list[ConsumerMember]:
    """Return the newcomers that have no target because a policy holds it."""
    return [m for m in group.members.values() if standing_of_consumer(group, m) == "standing_by"]


def wait_once_more(group: ConsumerGroup, now_ms: int) -> bool:
    """Start the wait of a hold again, because the coordinator was unavailable. Return whether that was done.

    A freeze lasts until a time, so it is over as soon as that is noticed.
    """
    held = group.held
    if held is None or held.was_extended or (held.policy == "freeze" and held.until_ms <= now_ms):
        return False
    held.was_extended = True
    if held.policy == "settle":
        held.until_ms = group.hot_state.wait(now_ms, held.wait_ms)
    else:
        held.unowned_until_ms = group.hot_state.wait(now_ms, held.unowned_max_ms)
    group.hot_state.plan_ms = group.hot_state.track_deadline(held.due_ms)
    return True


def policies_due(group: ConsumerGroup, now_ms: int, config: Config) -> Iterator[Output]:
    """End the freeze and the quarantines that are over. Members that were in quarantine are newcomers from now on."""
    if 0 < group.policy_state.frozen_until_ms <= now_ms:
        group.policy_state.frozen_until_ms, group.pending_changes.is_changed = 0, True
    for member_id in [m for m, until_ms in group.policy_state.quarantined.items() if until_ms <= now_ms]:
        if member_id in group.policy_state.quarantined:
            yield from _end_quarantine(group, member_id, "over", now_ms, config)
    group.hot_state.policy_ms = group.hot_state.track_deadline(group.policy_state.earliest_ms)


def _end_quarantine(group: ConsumerGroup, member_id: str, why: str, now_ms: int, config: Config) -> Iterator[Output]:
    member = group.members[member_id]
    yield end_quarantine(group, member, why, now_ms)
    yield from raise_epoch(group, member_cause(member, "member_joined"), now_ms, config)


def reconsider(group: ConsumerGroup, now_ms: int, config: Config) -> Iterator[Output]:
    """Apply other policies to a hold: one whose policy is gone ends, and none ends later."""
    group.pending_changes.is_changed |= end_freeze(group, now_ms, config)
    policy, held = config.policy, group.held
    if held is not None:
        until_ms = now_ms
        if held.policy == "freeze":
            until_ms = frozen_until_ms(config, now_ms) or now_ms
        elif policy is not None and policy.settle is not None:
            until_ms = held.since_ms + policy.settle.max_ms
        held.until_ms = min(held.until_ms, max(until_ms, now_ms))
        if held.unowned_until_ms < NEVER_MS and frozen_until_ms(config, now_ms) is not None:
            unowned_ms = held.unowned_since_ms + unowned_max_ms(config)
            held.unowned_until_ms = min(held.unowned_until_ms, max(unowned_ms, now_ms))
        group.hot_state.plan_ms = group.hot_state.track_deadline(held.due_ms)
    if policy is None or policy.quarantine is None:
        group.policy_state.unstable_clients, group.policy_state.expiries_ms, group.policy_state.joined_ms = {}, [], {}
        for member_id in list(group.policy_state.quarantined):
            if member_id in group.policy_state.quarantined:
                yield from _end_quarantine(group, member_id, "policy", now_ms, config)
    group.hot_state.policy_ms = group.hot_state.track_deadline(group.policy_state.earliest_ms)
