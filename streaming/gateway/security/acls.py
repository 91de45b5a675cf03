"""A client's rights from the brokers' access control lists, decided as the brokers decide.

The gateway needs this where the brokers cannot see the client, because its requests use a connection of the gateway. An
operation that no list allows is denied, and a denial by one list overrides all others. The brokers' `super.users` and
`allow.everyone.if.no.acl.found` are not part of their lists, so they have no effect here.

Source: Kafka's StandardAuthorizerData (`findAclRule`, `findResult`) and AclEntry; KIP-11, KIP-290.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

ANY = "*"
EVERYBODY = "User:*"
ANONYMOUS = "User:ANONYMOUS"
CLUSTER_NAME = "kafka-cluster"

IMPLYING = {
    # operation: the operations that imply it
    AclOperation.DESCRIBE: frozenset({AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""The operations that imply each operation. A denial implies nothing."""

DECISIONS_MAX = 100_000
"""The maximum number of cached decisions. Beyond it the cache is cleared, because clients choose the names."""


class Client(NamedTuple):
    """A client, by the names in the brokers' lists.

    Args:
        principal: `User:CN=ana`.
        host: The client's address, without a slash.
    """

    principal: str
    host: str


class AccessLists:
    """The brokers' lists at one time.

    Args:
        bindings: All bindings of topics, transactional ids and the cluster.
    """

    def __init__(self, bindings: Iterable[AclBinding]) -> None:
        self._named: dict[tuple[ResourcePatternType, ResourceType, str], list[AclBinding]] = {}
        for each in bindings:
            key = ResourcePatternType(each.resource_pattern_type), ResourceType(each.restype), each.name
            self._named.setdefault(key, []).append(each)
        prefixed = ResourcePatternType.PREFIXED
        self._prefix_lengths = sorted({len(name) for pattern, _, name in self._named if pattern is prefixed})
        self._decided: dict[tuple[Client, AclOperation, ResourceType, str], bool] = {}

    def allow(self, client: Client, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Return whether a client may perform an operation on the resource of that name."""
        question = client, operation, resource, name
        if (decided := self._decided.get(question)) is None:
            if len(self._decided) >= DECISIONS_MAX:
                self._decided.clear()
            decided = self._decided[question] = self._decide(*question)
        return decided

    def allow_some(self, client: Client, operation: AclOperation, resource: ResourceType) -> bool:
        """Return whether the lists allow a client an operation on at least one name, without a denial for that name."""
        names = {name for _, kind, name in self._named if kind is resource}
        return any(self.allow(client, operation, resource, name) for name in names)

    def _decide(self, client: Client, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        is_allowed = False
        for each in self._about(resource, name):
            if each.principal in (client.principal, EVERYBODY) and each.host in (client.host, ANY):
                if each.permission_type is AclPermissionType.DENY and each.operation in (operation, AclOperation.ALL):
                    return False
                is_allowed |= each.permission_type is AclPermissionType.ALLOW and _covers(each, operation)
        return is_allowed

    def _about(self, resource: ResourceType, name: str) -> Iterator[AclBinding]:
        literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
        keys = [(literal, resource, each) for each in (name, ANY)]
        keys += [(prefixed, resource, name[:length]) for length in self._prefix_lengths if length <= len(name)]
        for key in keys:
            yield from self._named.get(key, ())


def _covers(allowing: AclBinding, operation: AclOperation) -> bool:
    return allowing.operation in (operation, AclOperation.ALL) or allowing.operation in IMPLYING.get(operation, ())
