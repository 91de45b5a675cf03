"""What the brokers must let each of our processes do, where they ask: that, and nothing more.

`RIGHTS` is the table. `commands` says it to Kafka's own tool; `see_rights` compares it with what the brokers allow, so
that who lacks something is told before anything starts, and not by a batch that fails.

Source: Kafka's `kafka-acls`, KIP-430 (what a client may do with a topic is told with the topic).
"""

import shlex
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from enum import StrEnum
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, RightMissing
from streaming.kafka.clients import ANSWER_WAIT_S, admin


class Role(StrEnum):
    """Who may be a Kafka user of its own."""

    COORDINATOR = "coordinator"
    GATEWAY = "gateway"
    MEMBER = "member"
    WATCHER = "watcher"
    AUDITOR = "auditor"


ANY_TOPIC = "*"

Operations = tuple[AclOperation, ...]

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
CREATE, DESCRIBE_CONFIGS = AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS

RIGHTS: Mapping[Role, Mapping[str, Operations]] = {
    # the query reads what is asked, and appends what wakes it; at each start it looks at how its topics are configured,
    # and at what happened last; with a new checkpoint, at the fencing tokens that groups were given; and it looks for
    # records of groups that were repeated late
    Role.COORDINATOR: {
        "requests": (READ, WRITE, DESCRIBE_CONFIGS),
        "replies": (WRITE, DESCRIBE_CONFIGS),
        "groups": (READ, WRITE, DESCRIBE_CONFIGS),
        "events": (READ, WRITE, DESCRIBE_CONFIGS),
    },
    # beside that its clients show rights of their own; to take offsets it must see that there is such a partition
    Role.GATEWAY: {"requests": (WRITE,), "replies": (READ,), ANY_TOPIC: (DESCRIBE,)},
    # a client of this package, and `coordinator request`; what it consumes is its own affair
    Role.MEMBER: {"requests": (WRITE,), "replies": (READ,)},
    Role.WATCHER: {"groups": (READ,), "events": (READ,)},
    Role.AUDITOR: dict.fromkeys(("requests", "replies", "groups", "events"), (READ,)),
}
"""Role by role, operations on the topics of that name behind the prefix. Read and Write bring Describe with them."""

TO_SEE_ACLS = (DESCRIBE,)
"""What a gateway needs beside that on the cluster, where it compares requests with the brokers' own lists."""

TO_CREATE = (CREATE,)
"""What the coordinator needs beside that on a topic which it is to make."""


def commands(role: Role, principal: str, settings: Settings, *, to_create: bool = False) -> Iterator[str]:
    """Write the commands that grant a role's rights, to be run by somebody who may.

    Args:
        principal: As the brokers' authorizer names it, such as `User:coordinator`.
        to_create: Let the coordinator make its topics as well.
    """
    for topic, operations in RIGHTS[role].items():
        if to_create and role is Role.COORDINATOR:
            operations = (*operations, *TO_CREATE)
        name = topic if topic == ANY_TOPIC else f"{settings.topic_prefix}.{topic}"
        yield _command(principal, operations, ["--topic", name], settings)
    if role is Role.GATEWAY and settings.is_relayed_as_gateway and settings.gateway_relay == "acls":
        yield _command(principal, TO_SEE_ACLS, ["--cluster"], settings)


def _command(principal: str, operations: Operations, resource: list[str], settings: Settings) -> str:
    asked = [part for operation in operations for part in ("--operation", _spelt(operation))]
    return shlex.join(
        ["kafka-acls", "--bootstrap-server", settings.bootstrap_servers, "--command-config", "admin.properties",
         "--add", "--allow-principal", principal, *asked, *resource]
    )  # fmt: skip


def see_rights(settings: Settings, role: Role) -> None:
    """See that the brokers let us do with our topics, which are there, what the role has to.

    Raises:
        RightMissing: they do not; the sentence names all that is missing.
        BrokerUnreachable: no broker answered.
    """
    own = {topic: wanted for topic, wanted in RIGHTS[role].items() if topic != ANY_TOPIC}
    rights = {f"{settings.topic_prefix}.{topic}": wanted for topic, wanted in own.items()}
    allowed = _allowed(settings, list(rights))
    missing = [
        f"{_spelt(operation)} on {topic}"
        for topic, wanted in rights.items()
        for operation in wanted
        if operation not in allowed[topic]
    ]
    if missing:
        raise RightMissing(
            f"The brokers do not let the {role}'s user do all it has to ({', '.join(missing)}): "
            f"`coordinator acls {role} --principal User:NAME` prints what to grant."
        )


def _allowed(settings: Settings, topics: list[str]) -> dict[str, Collection[AclOperation]]:
    asker = admin(settings, "coordinator-rights")
    asked = asker.describe_topics(
        TopicCollection(topics), include_authorized_operations=True, request_timeout=ANSWER_WAIT_S
    )
    return {topic: _of_a_topic(settings, told) for topic, told in asked.items()}


def _of_a_topic(settings: Settings, told: Future[Any]) -> Collection[AclOperation]:
    try:
        return frozenset(told.result().authorized_operations)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:  # not even to be shown it
            return ()
        raise BrokerUnreachable.at(settings.bootstrap_servers, error.args[0].str()) from error


def _spelt(operation: AclOperation) -> str:
    return operation.name.title().replace("_", "")
