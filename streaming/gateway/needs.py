"""What the sender of each request that goes to a broker needs to be allowed: the table of all that is relayed.

`NEEDS` says for each API how the topics are found in a request, and what has to be allowed on them, on the cluster, or
on a transactional id. Two things are decided by it: the coordinator's own topics are never reachable through a gateway,
in any version and whoever asks; and where the brokers cannot see who a client is, its request is compared with their
access control lists first. An API without a row is relayed by no gateway.

Source: Kafka's KafkaApis and ControllerApis (`authHelper.authorize...` of each handler), docs/security.html.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeQuorumRequest,
    DescribeTransactionsRequest,
    DescribeUserScramCredentialsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    ListPartitionReassignmentsRequest,
    ListTransactionsRequest,
    UpdateFeaturesRequest,
)
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    WriteTxnMarkersRequest,
)

from streaming.gateway.locating import MANY_KEYS
from streaming.gateway.produce import Produce
from streaming.gateway.rights import ANY, CLUSTER_NAME

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.BROKER
TRANSACTIONAL_ID, GROUP = ResourceType.TRANSACTIONAL_ID, ResourceType.GROUP

TOPIC_CONFIG, GROUP_CONFIG = 2, 32
"""Kafka's numbers of the kinds of things that have settings (`ConfigResource.Type`); all others are the cluster's."""

NO_ID = bytes(16)
ORDINARY_REPLICAS = (-1, -2)
"""Who fetches as a consumer or a tool does, and not as a broker."""

NameOf = Callable[[bytes], str | None]
"""Returns the name of the topic that has an id; None where no broker has told of it."""


class Need(NamedTuple):
    """Something that has to be allowed.

    Args:
        operation: None where the brokers ask for nothing on this topic; it must not be the coordinator's all the same.
        name: Of the resource; for a topic `*` is every topic, and None one whose id nobody knows.
        or_on_cluster: An operation that will do instead, where it is allowed on the cluster.
    """

    operation: AclOperation | None
    resource: ResourceType
    name: str | None
    or_on_cluster: AclOperation | None = None


class Row(NamedTuple):
    """One API.

    Args:
        request: What a request is read as; None where there is nothing in it to be read.
        needs: Lists what a request needs.
        is_checked: Whether that is enough to decide. Else it is not relayed where the brokers do not see the client.
    """

    request: Any
    needs: Callable[[Any, NameOf], Iterable[Need]]
    is_checked: bool = True


def id_in(entry: Any) -> bytes | None:
    """Return the id by which a request identifies a topic; None where it names it."""
    topic_id = getattr(entry, "topic_id", NO_ID)  # where the version has none, the class has one of another type
    return topic_id if isinstance(topic_id, bytes) and topic_id != NO_ID else None


def name_of_topic(entry: Any, name_of: NameOf) -> str | None:
    """Return the name of a topic that a request names, or identifies."""
    if topic_id := id_in(entry):
        return name_of(topic_id)
    name: str | None = entry if isinstance(entry, str) else getattr(entry, "topic", None) or getattr(entry, "name", "")
    return name


def _topics(field: str, operation: AclOperation | None) -> Callable[[Any, NameOf], Iterator[Need]]:
    """List the topics of an array in a request; where it is null, it stands for all topics."""

    def needs(message: Any, name_of: NameOf) -> Iterator[Need]:
        entries = getattr(message, field)
        if entries is None:
            yield Need(operation, TOPIC, ANY)
        for entry in entries or ():
            yield Need(operation, TOPIC, name_of_topic(entry, name_of))

    return needs


def _cluster(operation: AclOperation, field: str | None = None) -> Callable[[Any, NameOf], Iterator[Need]]:
    """List what is asked of the cluster, and maybe about topics of an array."""

    def needs(message: Any, name_of: NameOf) -> Iterator[Need]:
        yield Need(operation, CLUSTER, CLUSTER_NAME)
        for entry in (getattr(message, field) if field else None) or ():
            yield Need(None, TOPIC, name_of_topic(entry, name_of))

    return needs


def _transaction(operation: AclOperation, field: str) -> Callable[[Any, NameOf], Iterator[Need]]:
    def needs(message: Any, name_of: NameOf) -> Iterator[Need]:
        ids = getattr(message, field)
        for each in [ids] if isinstance(ids, str) else ids or ():
            yield Need(operation, TRANSACTIONAL_ID, each)

    return needs


def _configs(operation: AclOperation) -> Callable[[Any, NameOf], Iterator[Need]]:
    def needs(message: Any, name_of: NameOf) -> Iterator[Need]:
        kinds = {TOPIC_CONFIG: TOPIC, GROUP_CONFIG: GROUP}
        for entry in message.resources:
            kind = kinds.get(entry.resource_type, CLUSTER)
            yield Need(operation, kind, CLUSTER_NAME if kind is CLUSTER else entry.resource_name)

    return needs


def _produce(message: Produce, name_of: NameOf) -> Iterator[Need]:
    if message.transactional_id is not None:
        yield Need(WRITE, TRANSACTIONAL_ID, message.transactional_id)
    for name in message.topics:
        yield Need(WRITE, TOPIC, name)


def _fetch(message: Any, name_of: NameOf) -> Iterator[Need]:
    if message.replica_id not in ORDINARY_REPLICAS:
        yield Need(AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    yield from _topics("topics", READ)(message, name_of)


def _create_topics(message: Any, name_of: NameOf) -> Iterator[Need]:
    for topic in message.topics:
        yield Need(CREATE, TOPIC, topic.name, or_on_cluster=CREATE)


def _delete_topics(message: Any, name_of: NameOf) -> Iterator[Need]:
    return _topics("topics" if message.version >= DELETE_BY_ID else "topic_names", DELETE)(message, name_of)


DELETE_BY_ID = 6
"""From this version on a DeleteTopics may name topics by their ids."""


def _init_producer_id(message: Any, name_of: NameOf) -> Iterator[Need]:
    if message.transactional_id is None:
        yield Need(WRITE, TOPIC, ANY, or_on_cluster=AclOperation.IDEMPOTENT_WRITE)
    else:
        yield Need(WRITE, TRANSACTIONAL_ID, message.transactional_id)


def _add_partitions(message: Any, name_of: NameOf) -> Iterator[Need]:
    if message.version < ADD_MANY:
        yield Need(WRITE, TRANSACTIONAL_ID, message.v3_and_below_transactional_id)
        yield from _topics("v3_and_below_topics", WRITE)(message, name_of)
        return
    yield Need(AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)  # brokers alone ask so
    for transaction in message.transactions:
        yield from _topics("topics", WRITE)(transaction, name_of)


ADD_MANY = 4
"""From this version on an AddPartitionsToTxn may be about many transactions."""


def _markers(message: Any, name_of: NameOf) -> Iterator[Need]:
    yield Need(AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME, or_on_cluster=ALTER)
    for marker in message.markers:
        yield from _topics("topics", None)(marker, name_of)


def _log_dirs(message: Any, name_of: NameOf) -> Iterator[Need]:
    yield Need(ALTER, CLUSTER, CLUSTER_NAME)
    for place in message.dirs:
        yield from _topics("topics", None)(place, name_of)


def _elect_leaders(message: Any, name_of: NameOf) -> Iterator[Need]:
    yield Need(ALTER, CLUSTER, CLUSTER_NAME)
    yield from _topics("topic_partitions", None)(message, name_of)


def _find_transactions(message: Any, name_of: NameOf) -> Iterator[Need]:
    for key in message.coordinator_keys if message.version >= MANY_KEYS else [message.key]:
        yield Need(DESCRIBE, TRANSACTIONAL_ID, key)


def _nothing(message: Any, name_of: NameOf) -> Iterable[Need]:
    return ()


NEEDS: Mapping[int, Row] = {
    # API  read as                                what it needs, and where its topics are
    0:  Row(Produce,                              _produce),
    1:  Row(FetchRequest,                         _fetch),
    2:  Row(ListOffsetsRequest,                   _topics("topics", DESCRIBE)),
    3:  Row(MetadataRequest,                      _nothing),  # narrowed, and so is the answer
    10: Row(FindCoordinatorRequest,               _find_transactions),
    19: Row(CreateTopicsRequest,                  _create_topics),
    20: Row(DeleteTopicsRequest,                  _delete_topics),
    21: Row(DeleteRecordsRequest,                 _topics("topics", DELETE)),
    22: Row(InitProducerIdRequest,                _init_producer_id),
    23: Row(OffsetForLeaderEpochRequest,          _topics("topics", DESCRIBE)),
    24: Row(AddPartitionsToTxnRequest,            _add_partitions),
    26: Row(EndTxnRequest,                        _transaction(WRITE, "transactional_id")),
    27: Row(WriteTxnMarkersRequest,               _markers),
    29: Row(DescribeAclsRequest,                  _cluster(DESCRIBE)),
    30: Row(CreateAclsRequest,                    _cluster(ALTER)),
    31: Row(DeleteAclsRequest,                    _cluster(ALTER)),
    32: Row(DescribeConfigsRequest,               _configs(DESCRIBE_CONFIGS)),
    33: Row(AlterConfigsRequest,                  _configs(ALTER_CONFIGS)),
    34: Row(AlterReplicaLogDirsRequest,           _log_dirs),
    35: Row(DescribeLogDirsRequest,               _cluster(DESCRIBE, "topics")),
    37: Row(CreatePartitionsRequest,              _topics("topics", ALTER)),
    38: Row(None,                                 _nothing, is_checked=False),  # the token would be the gateway's
    39: Row(None,                                 _nothing, is_checked=False),
    40: Row(None,                                 _nothing, is_checked=False),
    41: Row(None,                                 _nothing, is_checked=False),
    43: Row(ElectLeadersRequest,                  _elect_leaders),
    44: Row(IncrementalAlterConfigsRequest,       _configs(ALTER_CONFIGS)),
    45: Row(AlterPartitionReassignmentsRequest,   _cluster(ALTER, "topics")),
    46: Row(ListPartitionReassignmentsRequest,    _cluster(DESCRIBE, "topics")),
    48: Row(DescribeClientQuotasRequest,          _cluster(DESCRIBE_CONFIGS)),
    49: Row(AlterClientQuotasRequest,             _cluster(ALTER_CONFIGS)),
    50: Row(DescribeUserScramCredentialsRequest,  _cluster(DESCRIBE)),
    51: Row(AlterUserScramCredentialsRequest,     _cluster(ALTER)),
    55: Row(DescribeQuorumRequest,                _cluster(DESCRIBE)),
    57: Row(UpdateFeaturesRequest,                _cluster(ALTER)),
    60: Row(DescribeClusterRequest,               _nothing),
    61: Row(DescribeProducersRequest,             _topics("topics", READ)),
    64: Row(None,                                 _cluster(ALTER)),
    65: Row(DescribeTransactionsRequest,          _transaction(DESCRIBE, "transactional_ids")),
    66: Row(ListTransactionsRequest,              _nothing, is_checked=False),  # it tells of all
    74: Row(ListConfigResourcesRequest,           _cluster(DESCRIBE_CONFIGS)),
}  # fmt: skip
