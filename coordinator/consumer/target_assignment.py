"""Target assignments: a server assignor assigns every partition of the subscribed topics to a member.

The first request after a raise of the group epoch computes the target assignment; if no request comes, a deadline does.
It is computed once in `group_consumer_assignment_interval_ms` at most. The input has the targets before, not the
partitions that members own.

Source: Kafka's TargetAssignmentBuilder and GroupMetadataManager.maybeUpdateTargetAssignment; KIP-848.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from coordinator.assignors.server import SERVER_ASSIGNORS, GroupSpec, MemberSpec, Target, Targets
from coordinator.base.config import Config
from coordinator.base.limits import NEVER_MS
from coordinator.common.events import event
from coordinator.consumer import topics
from coordinator.messages.events import PlanMade
from coordinator.messages.outputs import Output
from coordinator.state.consumer_group import Change, ConsumerGroup


def is_due(group: ConsumerGroup, now_ms: int, config: Config) -> bool:
    """Return whether the group waits for a target assignment that no policy holds, and the latest one is old enough."""
    is_waiting = group.hot_state.group_epoch > group.hot_state.assignment_epoch and bool(group.members)
    return is_waiting and group.held is None and (not group.assignment_ms or now_ms >= _next_ms(group, config))


def schedule(group: ConsumerGroup, now_ms: int, config: Config) -> None:
    """Set the deadline that computes the target assignment if no request comes before; remove it if none is due."""
    hot_state = group.hot_state
    if hot_state.group_epoch == hot_state.assignment_epoch or not group.members:
        hot_state.plan_ms = NEVER_MS
    elif group.held is not None:
        hot_state.plan_ms = hot_state.track_deadline(group.held.due_ms)
    elif hot_state.plan_ms == NEVER_MS:
        hot_state.plan_ms = hot_state.track_deadline(max(now_ms, _next_ms(group, config)))


def _next_ms(group: ConsumerGroup, config: Config) -> int:
    return group.assignment_ms + config.group_consumer_assignment_interval_ms


def make_plan(group: ConsumerGroup, now_ms: int, config: Config, named: str | None = None) -> Iterator[Output]:
    """Compute the target assignment of the present group epoch.

    Args:
        named: The assignor that the present request names; it wins a tied vote.
    """
    topics.forget_unused(group)
    assignor = voted_assignor(group, config, named)
    before, targets = group.targets, SERVER_ASSIGNORS[assignor](_spec(group))
    group.set_targets(targets)
    group.assignor, group.assignment_ms, group.hot_state.plan_ms = assignor, now_ms, NEVER_MS
    change = group.change or Change(now_ms, 0, tuple(group.members))
    group.change = Change(change.started_ms, now_ms, change.before)
    yield event(
        PlanMade,
        group,
        now_ms,
        assignor=assignor,
        members=len(group.members) - len(group.policy_state.quarantined),
        partitions=sum(len(numbers) for target in targets.values() for numbers in target.values()),
        moved=_moved(before, targets),
        waited_ms=now_ms - change.started_ms,
    )


def has_another_assignor(group: ConsumerGroup, config: Config, named: str | None) -> bool:
    """Return whether the members vote for another assignor than that of the latest target assignment.

    Args:
        named: The assignor that the present request names; it wins a tied vote.
    """
    return group.assignor not in ("", voted_assignor(group, config, named))


def voted_assignor(group: ConsumerGroup, config: Config, named: str | None = None) -> str:
    """Return the assignor with the most votes; without a vote, the first configured one."""
    configured = config.group_consumer_assignors
    votes = Counter(m.assignor for m in group.members.values() if m.assignor in configured)
    if not votes:
        return configured[0]
    tied = [name for name in configured if votes[name] == max(votes.values())]
    return named if named in tied else tied[0]


def _spec(group: ConsumerGroup) -> GroupSpec:
    """Return the input of an assignor, without the members in quarantine.

    The group has other members: without any, no target assignment is due, and the last one is in no quarantine.
    """
    subscriptions = {(m.names, m.regex): m for m in group.visible}
    topic_ids = {key: group.topic_ids_of(member) for key, member in subscriptions.items()}
    subscribed = frozenset().union(*topic_ids.values())
    is_homogeneous = len(subscriptions) == 1 and not all(next(iter(subscriptions)))
    topics_by_id = {topic.topic_id: topic for topic in group.topics.values() if topic.topic_id is not None}
    counts = {topic_id: topics_by_id[topic_id].partitions for topic_id in topics_by_id if topic_id in subscribed}
    return GroupSpec(
        members=[
            MemberSpec(
                m.member_id,
                m.group_instance_id,
                topic_ids[m.names, m.regex],
                _existing(group.targets.get(m.member_id, {}), counts),
            )
            for m in group.visible
        ],
        partitions=counts,
        names=group.names_by_id,
        is_homogeneous=is_homogeneous,
        names_subscribed=max(len(set(group.names_of(m))) for m in subscriptions.values()),
    )


def _existing(target: Target, counts: Mapping[str, int]) -> Target:
    """Return a target without the partitions that its topics no longer have.

    Kafka cannot take partitions away from a topic, but a topic may be reported as gone and then with fewer partitions.
    """
    beyond = [each for each, numbers in target.items() if each in counts and max(numbers) >= counts[each]]
    if not beyond:
        return target
    cut = target | {topic_id: [n for n in target[topic_id] if n < counts[topic_id]] for topic_id in beyond}
    return {topic_id: numbers for topic_id, numbers in cut.items() if numbers}


def _moved(before: Targets, after: Targets) -> int:
    """Return how many partitions are in a target in which they were not before."""
    moved = 0
    for member_id, target in after.items():
        had = before.get(member_id, {})
        moved += sum(len(set(numbers).difference(had.get(topic_id, ()))) for topic_id, numbers in target.items())
    return moved
