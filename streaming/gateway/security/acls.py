"""A client's rights from the brokers' access control lists, decided as the brokers decide.

The gateway needs this where the brokers cannot see the client, because its requests use a connection of the gateway.
The brokers' `super.users` and `allow.everyone.if.no.acl.found` are no part of their lists, so they have no effect here.
"""

from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from coordinator.base.access import Table


class Client(NamedTuple):
    """A client, by the names in the brokers' lists.

    Args:
        principal: `User:CN=ana`.
        host: The client's address, without a slash.
    """

    principal: str
    host: str


class Acl(NamedTuple):
    """A binding in Kafka's names."""

    principal: str
    operation: str
    resource: str
    name: str
    pattern: str
    permission: str
    host: str

    @classmethod
    def of(cls, binding: AclBinding) -> "Acl":
        """Return the names of a binding of librdkafka."""
        return cls(
            binding.principal,
            AclOperation(binding.operation).name,
            ResourceType(binding.restype).name,
            binding.name,
            ResourcePatternType(binding.resource_pattern_type).name,
            AclPermissionType(binding.permission_type).name,
            binding.host,
        )


class AccessLists:
    """The brokers' lists at one time.

    Args:
        bindings: All bindings of topics, transactional ids and the cluster.
    """

    def __init__(self, bindings: Iterable[AclBinding]) -> None:
        self._table = Table(map(Acl.of, bindings))

    def allow(self, client: Client, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Return whether a client may perform an operation on the resource of that name."""
        return self._table.allows(client.principal, client.host, operation.name, resource.name, name)

    def allow_some(self, client: Client, operation: AclOperation, resource: ResourceType) -> bool:
        """Return whether the lists allow a client an operation on at least one name, without a denial for that name."""
        return any(self.allow(client, operation, resource, name) for name in self._table.names(resource.name))
