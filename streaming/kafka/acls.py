"""The minimum of rights that each of our processes needs at brokers that check rights.

`RIGHTS` is the table. `commands` writes it for Kafka's own tool. `check_acls` compares it with the rights that the
brokers grant, so that a missing right is reported at the start, and not by a failed batch.

Source: Kafka's `kafka-acls`; KIP-430 (the description of a topic contains the operations that a client may use).
"""

import shlex
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any

from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]
from kafka.errors import TopicAuthorizationFailedError

from streaming.config.settings import Settings
from streaming.errors import RightMissing
from streaming.kafka.any_broker import are_known
from streaming.kafka.topics import any_broker, refuse_error


class Role(StrEnum):
    """A part of the system that may have a Kafka user of its own."""

    COORDINATOR = "coordinator"
    GATEWAY = "gateway"
    MEMBER = "member"
    WATCHER = "watcher"
    AUDITOR = "auditor"
    OBSERVER = "observer"


ANY_TOPIC = "*"

Operations = tuple[AclOperation, ...]

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
CREATE, DELETE, DESCRIBE_CONFIGS = AclOperation.CREATE, AclOperation.DELETE, AclOperation.DESCRIBE_CONFIGS

RIGHTS: Mapping[Role, Mapping[str, Operations]] = {
    # The query reads requests and appends wake records. At each start it reads the configuration of its topics and the
    # latest events. With a new checkpoint it reads the fencing tokens that groups were given. It also looks for records
    # of groups that were repeated late, and how transactions have ended.
    Role.COORDINATOR: {
        "requests": (READ, WRITE, DESCRIBE_CONFIGS),
        "replies": (WRITE, DESCRIBE_CONFIGS),
        "groups": (READ, WRITE, DESCRIBE_CONFIGS),
        "events": (READ, WRITE, DESCRIBE_CONFIGS),
        "transactions": (READ, DELETE, DESCRIBE_CONFIGS),
    },
    # The gateway's clients need rights of their own. To accept an offset commit the gateway must see that the partition
    # exists. It writes into the transactions of its clients.
    Role.GATEWAY: {
        "requests": (WRITE,),
        "replies": (READ,),
        "transactions": (READ, WRITE),
        ANY_TOPIC: (DESCRIBE,),
    },
    # A client of this package, and `coordinator request`. The rights to the topics that it consumes are not listed
    # here.
    Role.MEMBER: {"requests": (WRITE,), "replies": (READ,)},
    Role.WATCHER: {"groups": (READ,), "events": (READ,)},
    Role.AUDITOR: dict.fromkeys(("requests", "replies", "groups", "events"), (READ,)),
    # The observer of Kafka's own groups reads the latest events and the names of topic ids.
    Role.OBSERVER: {
        "groups": (WRITE, DESCRIBE_CONFIGS),
        "events": (READ, WRITE, DESCRIBE_CONFIGS),
        "topics": (READ, WRITE, DESCRIBE_CONFIGS),
    },
}
"""By role, operations on the topics of that name behind the prefix. Read and Write include Describe."""

TO_STAND_BY: Mapping[str, Operations] = {"lease": (READ, WRITE, DESCRIBE_CONFIGS)}
"""The further rights of a coordinator whose drivers stand by for each other."""

IN_DIRECTORY: Operations = (READ, WRITE, DESCRIBE_CONFIGS)
"""The further rights of a coordinator with `directory` and `slots = all` on the directory."""

SOURCE_TOPIC = "__consumer_offsets"
"""The topic in which Kafka's own coordinator keeps its groups."""

PROVIDERS = " docs/observe.md lists the providers that do not allow it."

TO_OBSERVE: Operations = (READ,)
"""The further rights of the observer on `SOURCE_TOPIC`."""

TO_LOOK_UP: Operations = (DESCRIBE,)
"""Optional further rights of the coordinator and of the observer on the topics that groups read. The coordinator drops
the offsets of a topic that was deleted or made anew; the observer shows the names of topic ids."""

OF_SPARK: Operations = (DESCRIBE,)
"""The further rights of the observer on the group of Spark's driver, whose name begins with the topic prefix: Spark
requests its committed offsets, although it has none."""

TO_SEE_RETENTION: Operations = (DESCRIBE_CONFIGS,)
"""Optional further rights of the observer on `SOURCE_TOPIC` and on the cluster: how long tombstones and offsets are
kept."""

TO_SEE_ACLS = (DESCRIBE,)
"""The further rights on the cluster of a gateway that compares requests with the brokers' own access control lists."""

IN_TRANSACTIONS = (WRITE,)
"""The further rights of a gateway on transactional ids: it writes offsets into the transactions of its clients."""

ANY_ID = "*"

TO_PEERS: Operations = (WRITE, DESCRIBE_CONFIGS)
"""The further rights of the coordinator on the request topic of each coordinator with which it exchanges groups."""

TO_CREATE = (CREATE,)
"""The further rights of the coordinator on a topic that it has to create."""


def commands(role: Role, principal: str, settings: Settings, *, to_create: bool = False) -> Iterator[str]:
    """Yield the commands that grant a role's rights. An administrator of the brokers runs them.

    Args:
        principal: The name at the brokers' authorizer, such as `User:coordinator`.
        to_create: Whether the coordinator may also create its topics.
    """
    for topic, operations in _on_topics(settings, role).items():
        if to_create and role in (Role.COORDINATOR, Role.OBSERVER):
            operations = (*operations, *TO_CREATE)
        name = topic if topic == ANY_TOPIC else f"{settings.topic_prefix}.{topic}"
        yield _command(principal, operations, ["--topic", name], settings)
    if role is Role.COORDINATOR:
        for topic, operations in _with_others(settings).items():
            may_create = to_create and topic == settings.directory_topic
            yield _command(principal, (*operations, *TO_CREATE * may_create), ["--topic", topic], settings)
    if role is Role.GATEWAY:
        yield _command(principal, IN_TRANSACTIONS, ["--transactional-id", ANY_ID], settings)
    if role is Role.OBSERVER:
        yield _command(principal, (*TO_OBSERVE, *TO_SEE_RETENTION), ["--topic", SOURCE_TOPIC], settings)
        of_driver = ["--group", settings.topic_prefix, "--resource-pattern-type", "prefixed"]
        yield _command(principal, OF_SPARK, of_driver, settings)
        yield _command(principal, TO_SEE_RETENTION, ["--cluster"], settings)
    if role in (Role.COORDINATOR, Role.OBSERVER):
        yield _command(principal, TO_LOOK_UP, ["--topic", ANY_TOPIC], settings)
    if role is Role.GATEWAY and settings.is_relayed_as_gateway and settings.gateway_relay == "acls":
        yield _command(principal, TO_SEE_ACLS, ["--cluster"], settings)


def _on_topics(settings: Settings, role: Role) -> Mapping[str, Operations]:
    is_standing_by = role is Role.COORDINATOR and settings.stand_by
    return {**RIGHTS[role], **(TO_STAND_BY if is_standing_by else {})}


def _with_others(settings: Settings) -> dict[str, Operations]:
    """Return the further rights of a coordinator that exchanges groups, by topic."""
    to_peers = {f"{peer}.requests": TO_PEERS for peer in settings.peers}
    return to_peers | ({settings.directory_topic: IN_DIRECTORY} if settings.is_founder else {})


def _command(principal: str, operations: Operations, resource: list[str], settings: Settings) -> str:
    asked = [part for operation in operations for part in ("--operation", _spelt(operation))]
    return shlex.join(
        ["kafka-acls", "--bootstrap-server", settings.bootstrap_servers, "--command-config", "admin.properties",
         "--add", "--allow-principal", principal, *asked, *resource]
    )  # fmt: skip


def check_acls(settings: Settings, role: Role) -> None:
    """Check that the brokers grant us the rights of a role on our topics. The topics must exist.

    Raises:
        RightMissing: rights are missing; the text names all of them.
        BrokerUnreachable: no broker answered.
        TopicRefused: the brokers did not describe a topic.
    """
    own = {topic: wanted for topic, wanted in _on_topics(settings, role).items() if topic != ANY_TOPIC}
    rights = {f"{settings.topic_prefix}.{topic}": wanted for topic, wanted in own.items()}
    if role is Role.COORDINATOR:
        rights |= _with_others(settings)
    if role is Role.OBSERVER:
        rights[SOURCE_TOPIC] = TO_OBSERVE
    allowed = _allowed(settings, list(rights))
    missing = [
        f"{_spelt(operation)} on {topic}"
        for topic, wanted in rights.items()
        for operation in wanted
        if operation not in allowed[topic]
    ]
    if missing:
        raise RightMissing(
            f"The {role}'s user lacks rights at the brokers ({', '.join(missing)}): "
            f"`coordinator acls {role} --principal User:NAME` prints the commands that grant them."
            f"{PROVIDERS if role is Role.OBSERVER else ''}"
        )


def _allowed(settings: Settings, topics: list[str]) -> dict[str, Collection[AclOperation]]:
    with any_broker(settings) as brokers:
        described = brokers.describe_topics(topics, are_known)
    return {name: _of_a_topic(name, topic) for name, topic in described.items()}


def _of_a_topic(name: str, topic: Any) -> Collection[AclOperation]:
    """Return the operations that a description contains, by their numbers."""
    if topic.error_code == TopicAuthorizationFailedError.errno:  # we may not even describe the topic
        return ()
    refuse_error(name, "show", topic.error_code)
    return [operation for operation in AclOperation if operation.value in topic.authorized_operations]


def _spelt(operation: AclOperation) -> str:
    return operation.name.title().replace("_", "")
