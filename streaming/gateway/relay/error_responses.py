"""The responses to requests that are not relayed, each in the form of its own API.

A request is refused as a whole: no part of it reaches a broker. The refused parts get their error. The other parts get
an error for parts that were not tried. In a Produce, a Fetch or a lookup of offsets, clients retry this error after a
request for metadata, which no longer contains the refused topics. Other requests get OPERATION_NOT_ATTEMPTED.

The table of `relayed_apis` names one of these functions for each API. A refused request of an API without one ends the
connection.
"""

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from kafka.errors import (
    ClusterAuthorizationFailedError,
    FetchSessionIdNotFoundError,
    GroupAuthorizationFailedError,
    NotLeaderForPartitionError,
    OperationNotAttemptedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
)
from kafka.protocol.admin import (
    CreateAclsResponse,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsResponse,
    DescribeProducersResponse,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchResponse, ListOffsetsResponse, OffsetForLeaderEpochResponse
from kafka.protocol.metadata import FindCoordinatorResponse
from kafka.protocol.producer import AddPartitionsToTxnResponse, InitProducerIdResponse, ProduceResponse

from coordinator.base.access import CLUSTER_NAME
from streaming.gateway.protocol.produce import Produce
from streaming.gateway.relay.coordinator_lookup import MANY_KEYS
from streaming.gateway.relay.required_acls import (
    ADD_MANY,
    CLUSTER,
    DELETE_BY_ID,
    GROUP,
    GROUP_CONFIG,
    TOPIC,
    TOPIC_CONFIG,
    TRANSACTIONAL_ID,
    NameOf,
    RequiredAcl,
    name_of_topic,
)

NOT_TRIED_NOW: int = NotLeaderForPartitionError.errno
"""A retriable error. A client requests metadata before its retry."""

NOT_TRIED: int = OperationNotAttemptedError.errno
UNKNOWN_TOPIC_ID: int = UnknownTopicIdError.errno
NO_SUCH_SESSION: int = FetchSessionIdNotFoundError.errno
TOPIC_REFUSED: int = TopicAuthorizationFailedError.errno

REFUSED: Mapping[Any, int] = {
    TOPIC: TOPIC_REFUSED,
    CLUSTER: ClusterAuthorizationFailedError.errno,
    GROUP: GroupAuthorizationFailedError.errno,
    TRANSACTIONAL_ID: TransactionalIdAuthorizationFailedError.errno,
}

FIRST_BY_ID = 13
"""From this version on, a Fetch identifies topics by their ids."""


class Refusal:
    """The refused parts of one request.

    Args:
        required_acls: The rights that are missing. A topic without a name is one with an unknown id.
        name_of: Returns the name of the topic with an id.
    """

    def __init__(self, required_acls: list[RequiredAcl], name_of: NameOf) -> None:
        self._refused = {(required.resource, required.name) for required in required_acls}
        self._name_of = name_of

    def __str__(self) -> str:
        return ", ".join(f"{kind.name.lower()} {name or 'of an unknown id'}" for kind, name in sorted(
            self._refused, key=repr)[:NAMED_MAX])  # fmt: skip

    def topic(self, entry: Any, otherwise: int) -> int:
        """Return the error of a topic of the request; `otherwise` if nothing about it is refused."""
        name = name_of_topic(entry, self._name_of)
        if (TOPIC, name) in self._refused:
            return UNKNOWN_TOPIC_ID if name is None else TOPIC_REFUSED
        return next((REFUSED[kind] for kind, _ in self._refused if kind is not TOPIC), otherwise)

    def resource(self, kind: Any, name: str) -> int:
        """Return the error of a topic, a group or the cluster."""
        return REFUSED[kind] if (kind, name) in self._refused else NOT_TRIED

    @property
    def whole(self) -> int:
        """The error of a request with only one error. It is a topic's error only if no other resource is refused."""
        kinds = {kind for kind, _ in self._refused}
        return REFUSED[next((kind for kind in (TRANSACTIONAL_ID, CLUSTER, GROUP) if kind in kinds), TOPIC)]


NAMED_MAX = 5
"""The maximum number of refused resources in a line of the log."""


def produce(message: Produce, refusal: Refusal) -> ApiMessage:
    topic_kind = ProduceResponse.TopicProduceResponse
    topics = []
    for name, partitions in message.topics.items():
        error = refusal.topic(name, NOT_TRIED_NOW)
        each = [topic_kind.PartitionProduceResponse(index=i, error_code=error, base_offset=-1) for i in partitions]
        topics.append(topic_kind(name=name, partition_responses=each))
    return ProduceResponse(version=message.version, responses=topics)


def fetch(message: Any, refusal: Refusal) -> ApiMessage:
    kind = FetchResponse.FetchableTopicResponse
    topics = []
    for topic in message.topics:
        error = refusal.topic(topic, NOT_TRIED_NOW)
        each = [
            kind.PartitionData(partition_index=p.partition, error_code=error, high_watermark=-1, records=b"")
            for p in topic.partitions
        ]
        by_id = message.version >= FIRST_BY_ID
        named = {"topic_id": uuid.UUID(bytes=topic.topic_id)} if by_id else {"topic": topic.topic}
        topics.append(kind(partitions=each, **named))
    return FetchResponse(version=message.version, responses=topics)


def no_such_session(message: Any) -> ApiMessage:
    """Return a response to a Fetch after which the client begins a new session, and names all its topics."""
    return FetchResponse(version=message.version, error_code=NO_SUCH_SESSION)


def list_offsets(message: Any, refusal: Refusal) -> ApiMessage:
    kind = ListOffsetsResponse.ListOffsetsTopicResponse
    return ListOffsetsResponse(
        version=message.version,
        topics=[
            kind(
                name=topic.name,
                partitions=[
                    kind.ListOffsetsPartitionResponse(
                        partition_index=p.partition_index, error_code=refusal.topic(topic, NOT_TRIED_NOW)
                    )
                    for p in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )


def leader_epochs(message: Any, refusal: Refusal) -> ApiMessage:
    kind = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    return OffsetForLeaderEpochResponse(
        version=message.version,
        topics=[
            kind(
                topic=topic.topic,
                partitions=[
                    kind.EpochEndOffset(partition=p.partition, error_code=refusal.topic(topic, NOT_TRIED_NOW))
                    for p in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )


def delete_records(message: Any, refusal: Refusal) -> ApiMessage:
    kind = DeleteRecordsResponse.DeleteRecordsTopicResult
    return DeleteRecordsResponse(
        version=message.version,
        topics=[
            kind(
                name=topic.name,
                partitions=[
                    kind.DeleteRecordsPartitionResult(
                        partition_index=p.partition_index, low_watermark=-1, error_code=refusal.topic(topic, NOT_TRIED)
                    )
                    for p in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )


def describe_producers(message: Any, refusal: Refusal) -> ApiMessage:
    kind = DescribeProducersResponse.TopicResponse
    return DescribeProducersResponse(
        version=message.version,
        topics=[
            kind(
                name=topic.name,
                partitions=[
                    kind.PartitionResponse(partition_index=i, error_code=refusal.topic(topic, NOT_TRIED))
                    for i in topic.partition_indexes
                ],
            )
            for topic in message.topics
        ],
    )


def add_partitions(message: Any, refusal: Refusal) -> ApiMessage:
    if message.version >= ADD_MANY:
        return AddPartitionsToTxnResponse(version=message.version, error_code=refusal.whole)
    kind = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    return AddPartitionsToTxnResponse(
        version=message.version,
        results_by_topic_v3_and_below=[
            kind(
                name=topic.name,
                results_by_partition=[
                    kind.AddPartitionsToTxnPartitionResult(
                        partition_index=i, partition_error_code=refusal.topic(topic, NOT_TRIED)
                    )
                    for i in topic.partitions
                ],
            )
            for topic in message.v3_and_below_topics
        ],
    )


def create_topics(message: Any, refusal: Refusal) -> ApiMessage:
    kind = CreateTopicsResponse.CreatableTopicResult
    topics = [kind(name=t.name, error_code=refusal.topic(t, NOT_TRIED)) for t in message.topics]
    return CreateTopicsResponse(version=message.version, topics=topics)


def create_partitions(message: Any, refusal: Refusal) -> ApiMessage:
    kind = CreatePartitionsResponse.CreatePartitionsTopicResult
    results = [kind(name=t.name, error_code=refusal.topic(t, NOT_TRIED)) for t in message.topics]
    return CreatePartitionsResponse(version=message.version, results=results)


def delete_topics(message: Any, refusal: Refusal) -> ApiMessage:
    kind = DeleteTopicsResponse.DeletableTopicResult
    results = []
    for topic in message.topics if message.version >= DELETE_BY_ID else message.topic_names:
        error = refusal.topic(topic, NOT_TRIED)
        if isinstance(topic, str):
            results.append(kind(name=topic, error_code=error))
        else:
            results.append(kind(name=topic.name, topic_id=uuid.UUID(bytes=topic.topic_id), error_code=error))
    return DeleteTopicsResponse(version=message.version, responses=results)


def configs(response: Any, result: Any, field: str) -> Callable[[Any, Refusal], ApiMessage]:
    def refused(message: Any, refusal: Refusal) -> ApiMessage:
        kinds = {TOPIC_CONFIG: TOPIC, GROUP_CONFIG: GROUP}
        results = []
        for each in message.resources:
            kind = kinds.get(each.resource_type, CLUSTER)
            error = refusal.resource(kind, CLUSTER_NAME if kind is CLUSTER else each.resource_name)
            about = {"resource_type": each.resource_type, "resource_name": each.resource_name}
            results.append(result(error_code=error, **about))
        made: ApiMessage = response(version=message.version, **{field: results})
        return made

    return refused


def whole(response: Any) -> Callable[[Any, Refusal], ApiMessage]:
    def refused(message: Any, refusal: Refusal) -> ApiMessage:
        made: ApiMessage = response(version=message.version, error_code=refusal.whole)
        return made

    return refused


def init_producer_id(message: Any, refusal: Refusal) -> ApiMessage:
    error = REFUSED[CLUSTER] if message.transactional_id is None else refusal.whole
    return InitProducerIdResponse(version=message.version, error_code=error, producer_id=-1, producer_epoch=-1)


def find_transactions(message: Any, refusal: Refusal) -> ApiMessage:
    nowhere = {"error_code": refusal.whole, "node_id": -1, "host": "", "port": -1}
    if message.version < MANY_KEYS:
        return FindCoordinatorResponse(version=message.version, **nowhere)
    each = [FindCoordinatorResponse.Coordinator(key=key, **nowhere) for key in message.coordinator_keys]
    return FindCoordinatorResponse(version=message.version, coordinators=each)


def create_acls(message: Any, refusal: Refusal) -> ApiMessage:
    each = [CreateAclsResponse.AclCreationResult(error_code=refusal.whole) for _ in message.creations]
    return CreateAclsResponse(version=message.version, results=each)
