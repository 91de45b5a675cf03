"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, the two requests of the consumer protocol (KIP-848).

The coordinator knows only the topics that requests tell it. So each subscription goes to it with the facts that the
gateway has of its topics, and a pattern with the topics that it matches.

Source: KafkaApis.handleConsumerGroupHeartbeat and handleConsumerGroupDescribe, and the JSON schemas of their messages.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from kafka.protocol.api_message import ApiMessage

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import SUBSCRIBED_NAMES_MAX
from coordinator.messages import consumer_requests as requests
from coordinator.messages.responses import (
    AnyAnswer,
    AssignedTopic,
    ConsumerGroupDescribeAnswer,
    ConsumerGroupHeartbeatAnswer,
    DescribedConsumer,
)
from streaming.gateway.exchanges.administration import Named, describing
from streaming.gateway.exchanges.exchange import (
    Asker,
    Exchange,
    ListenerData,
    Subscription,
    expected,
    of_one,
)
from streaming.gateway.protocol.definitions import ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatResponse
from streaming.gateway.protocol.topic_ids import id_of, id_text

CLASSIC, CONSUMER = 0, 1
"""The types of members in a description, with Kafka's numbers."""


# -- heartbeats --------------------------------------------------------------------------------------------------------


def subscription(message: Any) -> Subscription:
    """Return what a heartbeat subscribes to. More names than a request may have are left out: it is refused anyway."""
    names = message.subscribed_topic_names or ()
    return Subscription(tuple(dict.fromkeys(names[:SUBSCRIBED_NAMES_MAX])), message.subscribed_topic_regex or "")


def heartbeat(message: Any, asker: Asker, metadata: ListenerData) -> Exchange:
    """Return the exchange with which a member joins, follows its assignment, renews its session or leaves."""
    names, owned = message.subscribed_topic_names, message.topic_partitions
    wanted = subscription(message)
    found = metadata.matching(wanted.pattern) if wanted.pattern else None
    topics = tuple(dict.fromkeys((*wanted.names, *(found.topics if found else ()))))
    request = requests.ConsumerGroupHeartbeat(
        **asker.fields(),
        group_id=message.group_id,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        group_instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=message.rebalance_timeout_ms,
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=message.subscribed_topic_regex,
        server_assignor=message.server_assignor,
        topic_partitions=None if owned is None else tuple(map(_owned, owned)),
        version=message.version,
        topics=metadata.facts_of(topics[:SUBSCRIBED_NAMES_MAX]),  # the coordinator asks for the others
        regex_topics=found.topics if found and found.error is None else None,
        regex_error=found.error if found else None,
    )
    return of_one(request, lambda answer: heartbeat_response(answer, message.version))


def _owned(topic: Any) -> requests.OwnedPartitions:
    return requests.OwnedPartitions(id_text(topic.topic_id), tuple(topic.partitions))


_ASSIGNMENT = ConsumerGroupHeartbeatResponse.Assignment


def heartbeat_response(answer: AnyAnswer, version: int) -> ApiMessage:
    """Return the response to a heartbeat."""
    said = expected(answer, ConsumerGroupHeartbeatAnswer)
    if said.code:
        return ConsumerGroupHeartbeatResponse(
            version=version, error_code=said.code, error_message=said.error_message or None
        )
    assigned = None
    if said.assignment is not None:
        topics = [
            _ASSIGNMENT.TopicPartitions(topic_id=id_of(each.topic_id), partitions=list(each.partitions))
            for each in said.assignment
        ]
        assigned = _ASSIGNMENT(topic_partitions=topics)
    return ConsumerGroupHeartbeatResponse(
        version=version,
        member_id=said.member_id,
        member_epoch=said.member_epoch,
        heartbeat_interval_ms=said.heartbeat_interval_ms,
        assignment=assigned,
    )


# -- describing --------------------------------------------------------------------------------------------------------

_GROUP = ConsumerGroupDescribeResponse.DescribedGroup
_MEMBER = _GROUP.Member


def describe(message: Any, asker: Asker, metadata: ListenerData) -> Exchange:
    """Describe groups. In the response, groups that the client may not see come first, as in Kafka."""

    def respond(named: Sequence[Named]) -> ApiMessage:
        groups = [_described(*each) for each in named]
        groups.sort(key=lambda group: group.error_code != ErrorCode.GROUP_AUTHORIZATION_FAILED.number)
        return ConsumerGroupDescribeResponse(version=message.version, groups=groups)

    return describing(message, message.group_ids, requests.ConsumerGroupDescribe, (asker, metadata), respond)


def _described(group_id: str, answer: AnyAnswer, allowed: frozenset[int] | None) -> Any:
    said = expected(answer, ConsumerGroupDescribeAnswer, group_id=group_id)
    if said.code:
        return _GROUP(group_id=group_id, error_code=said.code, error_message=said.error_message or None, members=[])
    return _GROUP(
        group_id=group_id,
        group_state=said.state.value,
        group_epoch=said.group_epoch,
        assignment_epoch=said.assignment_epoch,
        assignor_name=said.assignor,
        members=list(map(_member, said.members)),
        authorized_operations=allowed,
    )


def _member(member: DescribedConsumer) -> Any:
    return _MEMBER(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_MEMBER.Assignment(topic_partitions=_topics(_MEMBER.Assignment, member.assignment)),
        target_assignment=_MEMBER.TargetAssignment(
            topic_partitions=_topics(_MEMBER.TargetAssignment, member.target_assignment)
        ),
        member_type=CLASSIC if member.is_classic else CONSUMER,
    )


def _topics(kind: Any, topics: Iterable[AssignedTopic]) -> list[Any]:
    return [
        kind.TopicPartitions(topic_id=id_of(each.topic_id), topic_name=each.topic, partitions=list(each.partitions))
        for each in topics
    ]
