"""The description of a group of the consumer protocol, and facts about its topics.

Source: Kafka's ConsumerGroup.asDescribedGroup; KIP-848. `group_topics` is our own: Kafka's coordinator reads the
cluster's metadata.
"""

from collections.abc import Iterator

from coordinator.base.context import Context
from coordinator.common.events import RebalanceCause
from coordinator.consumer import target_assignment, topics
from coordinator.consumer.epochs import raise_epoch
from coordinator.consumer.heartbeat import assigned_topics
from coordinator.messages.consumer_requests import ConsumerGroupDescribe, GroupTopics
from coordinator.messages.outputs import Output
from coordinator.messages.responses import ConsumerGroupDescribeAnswer, DescribedConsumer, GroupTopicsAnswer, Reply
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.consumer_member import ConsumerMember, Partitions


def describe(group: ConsumerGroup, request: ConsumerGroupDescribe, context: Context) -> Iterator[Output]:
    """Reply with the group as it is now. The assignor is the one that the members vote for now."""
    answer = ConsumerGroupDescribeAnswer(
        request_id=request.request_id,
        group_id=group.group_id,
        state=group.phase,
        group_epoch=group.hot_state.group_epoch,
        assignment_epoch=group.hot_state.assignment_epoch,
        assignor=target_assignment.voted_assignor(group, context.config),
        members=tuple(_described(group, member) for member in group.members.values()),
    )
    yield Reply(request.reply_to, answer)


def _described(group: ConsumerGroup, member: ConsumerMember) -> DescribedConsumer:
    held: Partitions = {topic_id: dict(numbers) for topic_id, numbers in member.assigned.items()}
    for topic_id, numbers in member.revoking.items():
        held.setdefault(topic_id, {}).update(numbers)
    present = {topic_id: numbers for topic_id, numbers in held.items() if topic_id in group.names_by_id}
    target = group.targets.get(member.member_id, {})
    return DescribedConsumer(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        rack_id=member.rack_id,
        member_epoch=group.epoch_of(member.member_id),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.names,
        subscribed_topic_regex=member.regex,
        assignment=assigned_topics(group, present),
        target_assignment=assigned_topics(group, {t: n for t, n in target.items() if t in group.names_by_id}),
        is_classic=member.classic is not None,
    )


def report_topics(group: ConsumerGroup, request: GroupTopics, context: Context) -> Iterator[Output]:
    """Store facts about topics and patterns. The group epoch is raised if the subscribed topics have changed."""
    cause = None
    for resolved in request.regexes:
        if topics.is_reported_by_member(group, resolved) and topics.resolve(
            group, resolved.regex, resolved.member_id, resolved.topics, is_authoritative=True
        ):
            cause = "regex_resolved"
    if topics.learn(group, request.topics, group.subscribed, is_authoritative=True):
        cause = cause or "topics_changed"
    if cause is not None and group.members:
        rebalance_cause = RebalanceCause(cause, "", request.client_id, request.client_host)
        yield from raise_epoch(group, rebalance_cause, context.now_ms, context.config)
    answer = GroupTopicsAnswer(
        request_id=request.request_id, changed=cause is not None, group_epoch=group.hot_state.group_epoch
    )
    yield Reply(request.reply_to, answer)
