"""The rights that the sender of a relayed request needs.

Each function lists the needs of one request: the rights on topics, on the cluster, or on a transactional id. The table
of `relayed_apis` names a function for each API. The needs serve two decisions. No client can use the coordinator's
topics through a gateway, in any version. And if the brokers cannot see the client, the gateway compares its request
with their access control lists.

Source: Kafka's KafkaApis and ControllerApis (`authHelper.authorize...` of each handler), docs/security.html.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from coordinator.base.access import ANY, CLUSTER_NAME
from streaming.gateway.protocol.produce import Produce
from streaming.gateway.relay.coordinator_lookup import MANY_KEYS

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.BROKER
TRANSACTIONAL_ID, GROUP = ResourceType.TRANSACTIONAL_ID, ResourceType.GROUP

TOPIC_CONFIG, GROUP_CONFIG = 2, 32
"""Kafka's numbers of the resources with settings (`ConfigResource.Type`). All other numbers stand for the cluster."""

PREFERRED_ELECTION = 0
"""Kafka's number of an election of preferred leaders (`ElectionType`). The other one is unclean."""

NO_ID = bytes(16)
ORDINARY_REPLICAS = (-1, -2)
"""The replica ids in a Fetch of a consumer or a tool. Brokers use other ids."""

NameOf = Callable[[bytes], str | None]
"""Returns the name of the topic with an id; None if no broker's response contained the id."""


class RequiredAcl(NamedTuple):
    """A right that a request needs.

    Args:
        operation: None if the brokers require no right on this topic. The coordinator's topics are refused even then.
        name: The name of the resource. For a topic, `*` means every topic, and None a topic with an unknown id.
        or_on_cluster: An operation on the cluster that is sufficient instead.
    """

    operation: AclOperation | None
    resource: ResourceType
    name: str | None
    or_on_cluster: AclOperation | None = None


def id_in(entry: Any) -> bytes | None:
    """Return the id by which a request identifies a topic; None if the request contains the name."""
    topic_id = getattr(entry, "topic_id", NO_ID)  # in a version without ids, it is of another type
    return topic_id if isinstance(topic_id, bytes) and topic_id != NO_ID else None


def name_of_topic(entry: Any, name_of: NameOf) -> str | None:
    """Return the name of a topic in a request, which contains the topic's name or id."""
    if topic_id := id_in(entry):
        return name_of(topic_id)
    name: str | None = entry if isinstance(entry, str) else getattr(entry, "topic", None) or getattr(entry, "name", "")
    return name


def topics(field: str, operation: AclOperation | None) -> Callable[[Any, NameOf], Iterator[RequiredAcl]]:
    """Return a function that lists the needs for an array of topics. A null array stands for all topics."""

    def required_acls(message: Any, name_of: NameOf) -> Iterator[RequiredAcl]:
        entries = getattr(message, field)
        if entries is None:
            yield RequiredAcl(operation, TOPIC, ANY)
        for entry in entries or ():
            yield RequiredAcl(operation, TOPIC, name_of_topic(entry, name_of))

    return required_acls


def cluster(operation: AclOperation, field: str | None = None) -> Callable[[Any, NameOf], Iterator[RequiredAcl]]:
    """Return a function that lists the need on the cluster, and the topics of an array if `field` is given."""

    def required_acls(message: Any, name_of: NameOf) -> Iterator[RequiredAcl]:
        yield RequiredAcl(operation, CLUSTER, CLUSTER_NAME)
        for entry in (getattr(message, field) if field else None) or ():
            yield RequiredAcl(None, TOPIC, name_of_topic(entry, name_of))

    return required_acls


def transaction(operation: AclOperation, field: str) -> Callable[[Any, NameOf], Iterator[RequiredAcl]]:
    def required_acls(message: Any, name_of: NameOf) -> Iterator[RequiredAcl]:
        ids = getattr(message, field)
        for each in [ids] if isinstance(ids, str) else ids or ():
            yield RequiredAcl(operation, TRANSACTIONAL_ID, each)

    return required_acls


def configs(operation: AclOperation) -> Callable[[Any, NameOf], Iterator[RequiredAcl]]:
    def required_acls(message: Any, name_of: NameOf) -> Iterator[RequiredAcl]:
        kinds = {TOPIC_CONFIG: TOPIC, GROUP_CONFIG: GROUP}
        for entry in message.resources:
            kind = kinds.get(entry.resource_type, CLUSTER)
            yield RequiredAcl(operation, kind, CLUSTER_NAME if kind is CLUSTER else entry.resource_name)

    return required_acls


def produce(message: Produce, name_of: NameOf) -> Iterator[RequiredAcl]:
    if message.transactional_id is not None:
        yield RequiredAcl(WRITE, TRANSACTIONAL_ID, message.transactional_id)
    for name in message.topics:
        yield RequiredAcl(WRITE, TOPIC, name)


def fetch(message: Any, name_of: NameOf) -> Iterator[RequiredAcl]:
    if message.replica_id not in ORDINARY_REPLICAS:
        yield RequiredAcl(AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    yield from topics("topics", READ)(message, name_of)


def create_topics(message: Any, name_of: NameOf) -> Iterator[RequiredAcl]:
    for topic in message.topics:
        yield RequiredAcl(CREATE, TOPIC, topic.name, or_on_cluster=CREATE)


def delete_topics(message: Any, name_of: NameOf) -> Iterator[RequiredAcl]:
    return topics("topics" if message.version >= DELETE_BY_ID else "topic_names", DELETE)(message, name_of)


DELETE_BY_ID = 6
"""From this version on, DeleteTopics may identify topics by their ids."""


def init_producer_id(message: Any, name_of: NameOf) -> Iterator[RequiredAcl]:
    if message.transactional_id is None:
        yield RequiredAcl(WRITE, TOPIC, ANY, or_on_cluster=AclOperation.IDEMPOTENT_WRITE)
    else:
        yield RequiredAcl(WRITE, TRANSACTIONAL_ID, message.transactional_id)


def add_partitions(message: Any, name_of: NameOf) -> Iterator[RequiredAcl]:
    if message.version < ADD_MANY:
        yield RequiredAcl(WRITE, TRANSACTIONAL_ID, message.v3_and_below_transactional_id)
        yield from topics("v3_and_below_topics", WRITE)(message, name_of)
        return
    yield RequiredAcl(AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)  # only brokers use these versions
    for transaction in message.transactions:
        yield from topics("topics", WRITE)(transaction, name_of)


ADD_MANY = 4
"""From this version on, AddPartitionsToTxn may contain many transactions."""


def markers(message: Any, name_of: NameOf) -> Iterator[RequiredAcl]:
    yield RequiredAcl(AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME, or_on_cluster=ALTER)
    for marker in message.markers:
        yield from topics("topics", None)(marker, name_of)


def log_dirs(message: Any, name_of: NameOf) -> Iterator[RequiredAcl]:
    yield RequiredAcl(ALTER, CLUSTER, CLUSTER_NAME)
    for place in message.dirs:
        yield from topics("topics", None)(place, name_of)


def elect_leaders(message: Any, name_of: NameOf) -> Iterator[RequiredAcl]:
    """List the needs for an election of leaders. One of the preferred leaders of all partitions costs no records."""
    yield RequiredAcl(ALTER, CLUSTER, CLUSTER_NAME)
    if message.topic_partitions is not None or message.election_type != PREFERRED_ELECTION:
        yield from topics("topic_partitions", None)(message, name_of)


def find_transactions(message: Any, name_of: NameOf) -> Iterator[RequiredAcl]:
    for key in message.coordinator_keys if message.version >= MANY_KEYS else [message.key]:
        yield RequiredAcl(DESCRIBE, TRANSACTIONAL_ID, key)


def nothing(message: Any, name_of: NameOf) -> Iterable[RequiredAcl]:
    return ()
