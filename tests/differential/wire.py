"""This project's requests as messages of Kafka's protocol, and Kafka's responses as this project's."""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from kafka.protocol.admin.groups import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)

from coordinator.base.states import Phase
from coordinator.messages import consumer_requests
from coordinator.messages import requests as asked
from coordinator.messages.requests import Request
from coordinator.messages.responses import (
    AnyAnswer,
    CommittedPartition,
    DeletedPartition,
    DeleteGroupAnswer,
    DescribedMember,
    DescribeGroupAnswer,
    FetchedOffset,
    HeartbeatAnswer,
    JoinedMember,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    LeftMember,
    ListedGroup,
    ListGroupsAnswer,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    SyncGroupAnswer,
)
from streaming.gateway.protocol.definitions import DeleteGroupsRequest, TxnOffsetCommitRequest
from streaming.gateway.protocol.topic_ids import id_of, id_text
from tests.differential import transacting, wire_consumers
from tests.differential.asking import BY_ID
from tests.differential.wire_consumers import named

SENT_BY_ID = 6
"""The first version of TxnOffsetCommit that names topics by their ids."""

MANY_GROUPS = 8
"""The first version in which an OffsetFetch may have several groups."""

MANY_LEAVE = 3
"""The first version in which a LeaveGroup may have several members."""

Message = Any
Field = dict[str, Any]


# -- requests ----------------------------------------------------------------------------------------------------------


def message(request: Request | transacting.OfProducer, version: int) -> Message:
    """Return a request as a message of that version."""
    match request:
        case transacting.SendOffsets():
            return TxnOffsetCommitRequest(
                **_fields(request, "transactional_id producer_id producer_epoch member_id group_instance_id"),
                generation_id_or_member_epoch=request.generation_id,
                topics=_topics_to_commit(request.offsets, TxnOffsetCommitRequest, by_id=version >= SENT_BY_ID),
            )
        case transacting.OfProducer():
            return transacting.message(request, version)
        case asked.JoinGroup():
            offer = JoinGroupRequest.JoinGroupRequestProtocol
            return JoinGroupRequest(
                **_fields(
                    request, "member_id group_instance_id session_timeout_ms rebalance_timeout_ms protocol_type reason"
                ),
                protocols=[offer(name=p.name, metadata=p.metadata) for p in request.protocols],
            )
        case asked.SyncGroup():
            part = SyncGroupRequest.SyncGroupRequestAssignment
            return SyncGroupRequest(
                **_fields(request, "member_id group_instance_id generation_id protocol_type protocol_name"),
                assignments=[part(member_id=a.member_id, assignment=a.assignment) for a in request.assignments],
            )
        case asked.Heartbeat():
            return HeartbeatRequest(**_fields(request, "member_id group_instance_id generation_id"))
        case asked.LeaveGroup():
            if version < MANY_LEAVE:
                return LeaveGroupRequest(group_id=request.group_id, member_id=request.members[0].member_id)
            leaving = LeaveGroupRequest.MemberIdentity
            return LeaveGroupRequest(
                group_id=request.group_id,
                members=[
                    leaving(member_id=m.member_id, group_instance_id=m.group_instance_id, reason=m.reason)
                    for m in request.members
                ],
            )
        case asked.OffsetCommit():
            return OffsetCommitRequest(
                **_fields(request, "member_id group_instance_id"),
                generation_id_or_member_epoch=request.generation_id,
                topics=_topics_to_commit(request.offsets, OffsetCommitRequest, by_id=version >= BY_ID),
            )
        case asked.OffsetFetch():
            return _fetch(request, version)
        case asked.DescribeGroup():
            return DescribeGroupsRequest(groups=[request.group_id], include_authorized_operations=False)
        case consumer_requests.ConsumerGroupHeartbeat() | consumer_requests.ConsumerGroupDescribe():
            return wire_consumers.message(request)
        case asked.ListGroups():
            return ListGroupsRequest(states_filter=list(request.states), types_filter=list(request.types))
        case asked.DeleteGroup():
            return DeleteGroupsRequest(groups_names=[request.group_id])
        case asked.OffsetDelete():
            topic, partition = OffsetDeleteRequest.OffsetDeleteRequestTopic, _nested(OffsetDeleteRequest, "Partition")
            return OffsetDeleteRequest(
                group_id=request.group_id,
                topics=[
                    topic(name=t.topic, partitions=[partition(partition_index=p) for p in t.partitions])
                    for t in request.topics
                ],
            )
    raise ValueError(f"Kafka knows no {request}")


def _fields(request: Request, names: str) -> Field:
    return {name: getattr(request, name) for name in ["group_id", *names.split()]}


def _nested(kind: Message, part: str) -> Message:
    """Return the type of a topic's entries, which is nested in the type of the topic."""
    topic = getattr(kind, f"{kind.__name__}Topic")
    return getattr(topic, f"{kind.__name__}{part}")


def _called(topic: str, topic_id: str | None, *, by_id: bool) -> Field:
    """Return the field that names a topic in a commit or a fetch."""
    if not by_id:
        return {"name": topic}
    assert topic_id, f"topic {topic} has no id"
    return {"topic_id": id_of(topic_id)}


def _topics_to_commit(offsets: Iterable[asked.OffsetToCommit], kind: Message, *, by_id: bool) -> list[Message]:
    topic, partition = getattr(kind, f"{kind.__name__}Topic"), _nested(kind, "Partition")
    return [
        topic(
            **_called(*named_as, by_id=by_id),
            partitions=[
                partition(
                    partition_index=o.partition,
                    committed_offset=o.offset,
                    committed_leader_epoch=o.leader_epoch,
                    committed_metadata=o.metadata,
                )
                for o in some
            ],
        )
        for named_as, some in groupby(offsets, key=lambda offset: (offset.topic, offset.topic_id))
    ]


def _fetch(request: asked.OffsetFetch, version: int) -> Message:
    wanted = None
    if request.topics is not None:
        wanted = [(_called(t.topic, t.topic_id, by_id=version >= BY_ID), list(t.partitions)) for t in request.topics]
    if version < MANY_GROUPS:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = None if wanted is None else [topic(**name, partition_indexes=numbers) for name, numbers in wanted]
        return OffsetFetchRequest(group_id=request.group_id, topics=topics, require_stable=request.require_stable)
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = group.OffsetFetchRequestTopics
    topics = None if wanted is None else [topic(**name, partition_indexes=numbers) for name, numbers in wanted]
    who = {"member_id": request.member_id, "member_epoch": request.generation_id}
    return OffsetFetchRequest(
        groups=[group(group_id=request.group_id, topics=topics, **who)], require_stable=request.require_stable
    )


# -- responses ---------------------------------------------------------------------------------------------------------


def answer(request: Request | transacting.OfProducer, version: int, said: Message) -> AnyAnswer:
    """Convert Kafka's response to this project's response."""
    return READERS[type(request)](request, version, said)


def _joined(request: Request, version: int, said: Message) -> AnyAnswer:
    return JoinGroupAnswer(
        request_id=request.request_id,
        **named(said.error_code),
        generation_id=said.generation_id,
        protocol_type=said.protocol_type,
        protocol_name=said.protocol_name,
        leader=said.leader,
        skip_assignment=bool(said.skip_assignment),
        member_id=said.member_id,
        members=tuple(JoinedMember(m.member_id, m.group_instance_id, bytes(m.metadata)) for m in said.members),
    )


def _synced(request: Request, version: int, said: Message) -> AnyAnswer:
    return SyncGroupAnswer(
        request_id=request.request_id,
        **named(said.error_code),
        protocol_type=said.protocol_type,
        protocol_name=said.protocol_name,
        assignment=bytes(said.assignment),
    )


def _alive(request: Request, version: int, said: Message) -> AnyAnswer:
    return HeartbeatAnswer(request_id=request.request_id, **named(said.error_code))


def _left(request: Request, version: int, said: Message) -> AnyAnswer:
    return LeaveGroupAnswer(
        request_id=request.request_id,
        **named(said.error_code),
        members=tuple(LeftMember(m.member_id, m.group_instance_id, **named(m.error_code)) for m in said.members or ()),
    )


def _topic(topic: Message) -> str:
    """Return the name of a topic in a response, or else its id."""
    return topic.name or id_text(topic.topic_id.bytes)


def _committed(request: Request, version: int, said: Message) -> AnyAnswer:
    partitions = [
        CommittedPartition(_topic(topic), p.partition_index, **named(p.error_code))
        for topic in said.topics
        for p in topic.partitions
    ]
    return OffsetCommitAnswer(request_id=request.request_id, partitions=tuple(partitions))


def _fetched(request: Request, version: int, said: Message) -> AnyAnswer:
    group = said if version < MANY_GROUPS else said.groups[0]
    partitions = [
        FetchedOffset(
            _topic(topic),
            p.partition_index,
            p.committed_offset,
            p.committed_leader_epoch,
            p.metadata,
            **named(p.error_code),
        )
        for topic in group.topics
        for p in topic.partitions
    ]
    return OffsetFetchAnswer(
        request_id=request.request_id, **named(group.error_code or 0), partitions=tuple(partitions)
    )


def _described(request: Request, version: int, said: Message) -> AnyAnswer:
    (group,) = said.groups
    members = [
        DescribedMember(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            session_timeout_ms=-1,
            rebalance_timeout_ms=-1,
            metadata=bytes(m.member_metadata),
            assignment=bytes(m.member_assignment),
            awaiting=None,
        )
        for m in group.members
    ]
    return DescribeGroupAnswer(
        request_id=request.request_id,
        **named(group.error_code),
        group_id=group.group_id,
        state=Phase(group.group_state or Phase.DEAD),
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_data,
        members=tuple(members),
    )


def _listed(request: Request, version: int, said: Message) -> AnyAnswer:
    groups = [
        ListedGroup(g.group_id, g.protocol_type, Phase(g.group_state or Phase.DEAD), g.group_type or "")
        for g in said.groups
    ]
    return ListGroupsAnswer(request_id=request.request_id, **named(said.error_code), groups=tuple(groups))


def _deleted(request: Request, version: int, said: Message) -> AnyAnswer:
    (result,) = said.results
    return DeleteGroupAnswer(request_id=request.request_id, **named(result.error_code))


def _forgotten(request: Request, version: int, said: Message) -> AnyAnswer:
    partitions = [
        DeletedPartition(topic.name, p.partition_index, **named(p.error_code))
        for topic in said.topics
        for p in topic.partitions
    ]
    return OffsetDeleteAnswer(request_id=request.request_id, **named(said.error_code), partitions=tuple(partitions))


READERS: dict[type, Callable[[Any, int, Message], Any]] = {
    **transacting.READERS,
    transacting.SendOffsets: _committed,
    asked.JoinGroup: _joined,
    asked.SyncGroup: _synced,
    asked.Heartbeat: _alive,
    asked.LeaveGroup: _left,
    asked.OffsetCommit: _committed,
    asked.OffsetFetch: _fetched,
    asked.DescribeGroup: _described,
    asked.ListGroups: _listed,
    asked.DeleteGroup: _deleted,
    asked.OffsetDelete: _forgotten,
    consumer_requests.ConsumerGroupHeartbeat: wire_consumers.heard,
    consumer_requests.ConsumerGroupDescribe: wire_consumers.described,
}
