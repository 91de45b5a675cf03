"""A client's rights from the brokers' access control lists, decided as the brokers decide.

The gateway needs this where the brokers cannot see the client, because its requests use a connection of the gateway.
The brokers' `super.users` and `allow.everyone.if.no.acl.found` are no part of their lists, so they have no effect here.

The gateway requests the lists regularly with its own rights. They are valid for `AGE_MAX_S`. A right that is revoked
at the brokers ends here within `REFRESH_S` plus the time of a request, and within `AGE_MAX_S` if no broker answers.
Without valid lists, every request is denied.

A right that is granted counts at once: before a request is denied, the lists are requested again (`renew`).
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType  # type: ignore[attr-defined]
from kafka.errors import KafkaError, NoError, SecurityDisabledError, for_code
from kafka.protocol.admin import DescribeAclsRequest

from coordinator.base.access import Table
from streaming.config.settings import Settings
from streaming.gateway.connection.tasks import Coalesced
from streaming.kafka.any_broker import AnyBroker, Reconnecting, metadata_request

log = logging.getLogger(__name__)


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


# -- the lists of the brokers ------------------------------------------------------------------------------------------


REFRESH_S = 5.0
AGE_MAX_S = 15.0
"""The maximum age of the lists for a decision."""

REST_S = 1.0
"""The least time between two requests for the lists, which denied requests of clients wait for."""

ASK_WAIT_S = AGE_MAX_S - REFRESH_S
"""The longest wait for an answer of any broker: the earlier lists are valid until then."""

RESOURCES = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.TRANSACTIONAL_ID, ResourceType.GROUP)

_RESOURCES = {each.value: each for each in RESOURCES}
_OPERATIONS = {each.value: each for each in AclOperation}

NOTHING_IS_ALLOWED = AccessLists(())


class EverythingIsAllowed(AccessLists):
    """The lists of brokers without an authorizer, which allow every request."""

    def __init__(self) -> None:
        super().__init__(())

    def allow(self, client: Client, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Return True: every client may do it."""
        return True

    def allow_some(self, client: Client, operation: AclOperation, resource: ResourceType) -> bool:
        """Return True: every client may do it."""
        return True


class BrokerAcls:
    """The lists as of the last response of the brokers.

    Args:
        settings: The settings with the gateway's own access to the brokers.
    """

    def __init__(self, settings: Settings) -> None:
        kafka = {**settings.kafka_client_arguments(), "client_id": "coordinator-gateway-acls"}
        self._brokers = Reconnecting(kafka)
        self._lists: AccessLists = NOTHING_IS_ALLOWED
        self._asked_s = self._tried_s = float("-inf")
        self._request = Coalesced(self._refresh_after_rest)
        self._trouble = ""

    def current(self) -> AccessLists:
        """Return the lists; lists that allow nothing if the last ones are too old."""
        return self._lists if time.monotonic() - self._asked_s <= AGE_MAX_S else NOTHING_IS_ALLOWED

    async def run(self) -> None:
        """Request the lists at regular intervals."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.renew()

    async def renew(self) -> None:
        """Wait for a request for the lists that begins after this call."""
        await self._request()

    async def _refresh_after_rest(self) -> None:
        await asyncio.sleep(self._tried_s + REST_S - time.monotonic())
        await self.refresh()

    async def refresh(self) -> None:
        """Request the lists once. If the brokers do not return them, the old lists remain until they are too old."""
        asked_s = self._tried_s = time.monotonic()
        try:
            self._handle(AccessLists(await asyncio.to_thread(self._brokers.run, _ask)), asked_s)
        except SecurityDisabledError:
            self._handle(EverythingIsAllowed(), asked_s)
        except KafkaError as error:
            self._record_trouble(f"the brokers do not return their access control lists: {error}")

    def close(self) -> None:
        """Close the connections. A request that waits fails soon."""
        self._brokers.close()

    def _handle(self, lists: AccessLists, asked_s: float) -> None:
        self._lists, self._asked_s, self._trouble = lists, asked_s, ""

    def _record_trouble(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("%s. Grant Describe on the cluster to the gateway; until then it relays nothing.", trouble)


def _ask(brokers: AnyBroker) -> list[AclBinding]:
    """Return all bindings about `RESOURCES`.

    Raises:
        SecurityDisabledError: The brokers have no authorizer.
        KafkaError: They refuse to list the bindings, or none answers.
    """
    if not brokers.members:  # else only the bootstrap servers would be asked
        brokers.learn(brokers.ask(lambda: metadata_request(()), within_s=ASK_WAIT_S))
    response = brokers.ask(_request, within_s=ASK_WAIT_S)
    if (error := for_code(response.error_code)) is not NoError:
        raise error(response.error_message or error.description)
    return [binding for each in response.resources for binding in _bindings(each)]


def _request() -> Any:
    return DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY.value,
        resource_name_filter=None,
        pattern_type_filter=ResourcePatternType.ANY.value,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY.value,
        permission_type=AclPermissionType.ANY.value,
    )


def _bindings(resource: Any) -> Iterator[AclBinding]:
    """Yield the bindings of a resource, without those about other resources, and about operations newer than these."""
    for each in resource.acls:
        if resource.resource_type in _RESOURCES and each.operation in _OPERATIONS:
            yield AclBinding(
                _RESOURCES[resource.resource_type],
                resource.resource_name,
                ResourcePatternType(resource.pattern_type),
                each.principal,
                each.host,
                _OPERATIONS[each.operation],
                AclPermissionType(each.permission_type),
            )
