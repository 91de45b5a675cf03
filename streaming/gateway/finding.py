"""ApiVersions and FindCoordinator, which the gateway answers itself."""

import re
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, FindCoordinatorRequest

from coordinator.base.errors import ErrorCode
from streaming.gateway.apis import APIS, offered
from streaming.gateway.authenticating import Identity
from streaming.gateway.exchanges.exchange import GatewayData
from streaming.gateway.flow import Flow
from streaming.gateway.locating import GROUP, TRANSACTION, about, located, sought, without_rules
from streaming.gateway.messages import API_VERSIONS, decode
from streaming.gateway.questions import Questions
from streaming.gateway.relaying import Relaying
from streaming.gateway.seeing import seen
from streaming.gateway.shared import Shared
from streaming.gateway.slots import Slot
from streaming.gateway.work import Work

FIRST_WITH_SOFTWARE = 3
"""From this version on, ApiVersions has the name and the version of the client's software."""

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
"""Kafka's form of both (`ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN`)."""


class Negotiating:
    """The handler of ApiVersions for one connection.

    Args:
        node_id: The broker that the port stands for; None for the bootstrap address.
    """

    def __init__(self, shared: Shared, node_id: int | None, flow: Flow, work: Work) -> None:
        self._shared, self._node_id, self._flow, self._work = shared, node_id, flow, work

    def negotiate(self, slot: Slot, frame: bytes) -> None:
        """Handle an ApiVersions request. A request of an unknown version is not read, and answered as Kafka answers it.

        Raises:
            Malformed: The request cannot be read.
        """
        version = slot.header.version
        if version <= APIS[API_VERSIONS].last and not _is_valid(decode(ApiVersionsRequest, frame, slot.header)):
            error = ErrorCode.INVALID_REQUEST.number
            self._flow.respond(slot, ApiVersionsResponse(version=version, error_code=error, api_keys=[]))
            return
        self._work.begin(self._offer(slot))

    async def _offer(self, slot: Slot) -> None:
        brokers = await self._shared.offer_of(self._node_id)
        self._flow.respond(slot, offered(brokers, slot.header.version))


def _is_valid(message: Any) -> bool:
    """Return whether the name and the version of a client's software have Kafka's form (KIP-511)."""
    if message.version < FIRST_WITH_SOFTWARE:
        return True
    return all(map(SOFTWARE.fullmatch, (message.client_software_name, message.client_software_version)))


class Finding:
    """The handler of FindCoordinator for one connection. `relaying` finds a transaction's coordinator, a broker."""

    def __init__(
        self,
        shared: Shared,
        flow: Flow,
        work: Work,
        questions: Questions,
        world: GatewayData,
        relaying: Relaying,
        identity: Identity,
    ) -> None:
        self._shared, self._flow, self._work, self._identity = shared, flow, work, identity
        self._questions, self._world, self._relaying = questions, world, relaying

    def find(self, slot: Slot, frame: bytes) -> None:
        """Handle a FindCoordinator request.

        Raises:
            Malformed: The request cannot be read.
        """
        message = decode(FindCoordinatorRequest, frame, slot.header)
        if message.key_type == TRANSACTION:
            self._relaying.relay(slot, frame)
        elif message.key_type != GROUP or not self._shared.turn_away(sought(message), self._identity.key):
            self._work.begin(self._find(slot, message))

    async def _find(self, slot: Slot, message: Any) -> None:
        shared, group_ids = self._shared, sought(message)
        if message.key_type == GROUP and self._world.has_rules:
            asked = [about(group_id, self._questions.fields()) for group_id in group_ids]
            wait_ms, hold = shared.settings.gateway_hold_ms, self._flow.outgoing.hold
            errors = await seen(asked, shared.asking, wait_ms, self._flow.questions, hold)
        else:
            is_served = message.key_type == GROUP and await shared.is_served(group_ids)
            errors = dict.fromkeys(group_ids, without_rules(message, is_served=is_served))
        self._flow.respond(slot, located(message, shared.cluster, errors))
