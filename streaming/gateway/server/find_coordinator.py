"""ApiVersions and FindCoordinator, which the gateway answers itself.

A client that finds no coordinator sends nothing about its group. If its session began before the coordinator became
unavailable, the coordinator then has to know that it was unavailable for this group: a session goes on once more if a
request about the group has waited in the log (`coordinator.common.timers`). So the gateway sends one about each such
group (`CoordinatorProbe`), a heartbeat with no member id, which changes nothing else.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, FindCoordinatorRequest

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import GROUP_ID_CHARS_MAX
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import OffsetFetch
from coordinator.messages.responses import AnyAnswer
from streaming.gateway.connection.flow_control import Flow, InFlightRequest
from streaming.gateway.connection.tasks import Work
from streaming.gateway.coordinator.replies import ReplyCollector
from streaming.gateway.coordinator.routing import Coordinators
from streaming.gateway.exchanges.exchange import ListenerData
from streaming.gateway.members.mailbox import Mailbox
from streaming.gateway.members.services import Shared
from streaming.gateway.protocol.messages import API_VERSIONS, decode
from streaming.gateway.relay.coordinator_lookup import (
    GROUP,
    TRANSACTION,
    about,
    located,
    seen_by,
    sought,
    without_rules,
)
from streaming.gateway.security.authenticate import Identity
from streaming.gateway.server.apis import APIS, offered
from streaming.gateway.server.relaying import Relaying


async def probe(
    requests: Sequence[OffsetFetch],
    coordinators: Coordinators,
    wait_ms: int,
    waiting: set[str],
    hold: Callable[[int], None],
) -> dict[str, ErrorCode]:
    """Send requests without an effect that require the right to describe a group, and return each group's error.

    Args:
        requests: One request for each group.
        waiting: The ids of the client's unanswered requests, which contain these ids until the answers arrive.
        hold: Called with the number of newly held bytes of answers.
    """
    request_ids = {request.request_id for request in requests}
    heard: asyncio.Future[Sequence[AnyAnswer]] = asyncio.get_running_loop().create_future()
    answers = ReplyCollector(len(requests), heard.set_result, hold)
    waiting |= request_ids
    try:
        for index, request in enumerate(requests):
            coordinators.send(request, partial(answers.handle, index))
        found = await asyncio.wait_for(heard, wait_ms / 1_000)
    except TimeoutError:
        return dict.fromkeys((request.group_id for request in requests), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    finally:
        waiting -= request_ids
        answers.forget()
        coordinators.forget(requests[0].reply_to if requests else "", request_ids)
    return dict(zip((request.group_id for request in requests), map(seen_by, found), strict=True))


FRESH_S = 10.0
"""A coordinator whose last answer is not older than this counts as available."""

PROBED_MAX = 10_000
"""The groups about which a heartbeat waits for an answer. About further groups none is sent: the log does not grow
without end while the coordinator is unavailable."""


class CoordinatorProbe:
    """Heartbeats with no member id, sent while the coordinator does not answer.

    Args:
        hold_ms: The longest wait for an answer.
    """

    def __init__(self, coordinators: Coordinators, hold_ms: int) -> None:
        self._coordinators, self._hold_ms = coordinators, hold_ms
        self._mailbox = coordinators.open_inbox()
        self._probed: dict[str, str] = {}
        """By group, the id of the heartbeat that waits for an answer."""

    async def is_served(self, group_ids: Sequence[str]) -> bool:
        """Return whether the coordinator answers. Wait up to `hold_ms` for an answer.

        Args:
            group_ids: The groups that a client looks for. A member looks for one.
        """
        if self._coordinators.silence_s() < FRESH_S:
            self._forget_lost()
            return True
        is_one = len(group_ids) == 1 and len(group_ids[0]) <= GROUP_ID_CHARS_MAX
        self._probe(group_ids[0] if is_one else "")
        return await self._coordinators.heard(self._hold_ms / 1_000)

    def _probe(self, group_id: str) -> None:
        """Send a heartbeat about a group, unless one waits for an answer."""
        if group_id in self._probed or len(self._probed) >= PROBED_MAX:
            return
        request_id = self._probed[group_id] = self._coordinators.request_id()
        about = Heartbeat(
            request_id=request_id, reply_to=self._mailbox, group_id=group_id, generation_id=-1, member_id=""
        )
        self._coordinators.send(about, lambda answer, size: self._probed.pop(group_id, None))

    def _forget_lost(self) -> None:
        """Wait no longer for answers, since the coordinator answers others."""
        if self._probed:
            self._coordinators.forget(self._mailbox, self._probed.values())
            self._probed.clear()


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

    def negotiate(self, in_flight: InFlightRequest, frame: bytes) -> None:
        """Handle an ApiVersions request. A request of an unknown version is not read, and answered as Kafka answers it.

        Raises:
            Malformed: The request cannot be read.
        """
        version = in_flight.header.version
        if version <= APIS[API_VERSIONS].last and not _is_valid(decode(ApiVersionsRequest, frame, in_flight.header)):
            error = ErrorCode.INVALID_REQUEST.number
            self._flow.respond(in_flight, ApiVersionsResponse(version=version, error_code=error, api_keys=[]))
            return
        self._work.begin(self._offer(in_flight))

    async def _offer(self, in_flight: InFlightRequest) -> None:
        brokers = await self._shared.offer_of(self._node_id)
        self._flow.respond(in_flight, offered(brokers, in_flight.header.version))


def _is_valid(message: Any) -> bool:
    """Return whether the name and the version of a client's software have Kafka's form (KIP-511)."""
    if message.version < FIRST_WITH_SOFTWARE:
        return True
    return all(map(SOFTWARE.fullmatch, (message.client_software_name, message.client_software_version)))


class FindCoordinator:
    """The handler of FindCoordinator for one connection. `relaying` finds a transaction's coordinator, a broker."""

    def __init__(
        self,
        shared: Shared,
        flow: Flow,
        work: Work,
        mailbox: Mailbox,
        metadata: ListenerData,
        relaying: Relaying,
        identity: Identity,
    ) -> None:
        self._shared, self._flow, self._work, self._identity = shared, flow, work, identity
        self._mailbox, self._metadata, self._relaying = mailbox, metadata, relaying

    def find(self, in_flight: InFlightRequest, frame: bytes) -> None:
        """Handle a FindCoordinator request.

        Raises:
            Malformed: The request cannot be read.
        """
        message = decode(FindCoordinatorRequest, frame, in_flight.header)
        if message.key_type == TRANSACTION:
            self._relaying.relay(in_flight, frame)
        elif message.key_type != GROUP or not self._shared.reject_moved(sought(message), self._identity.key):
            self._work.begin(self._find(in_flight, message))

    async def _find(self, in_flight: InFlightRequest, message: Any) -> None:
        shared, group_ids = self._shared, sought(message)
        if message.key_type == GROUP and self._metadata.has_rules:
            requests = [about(group_id, self._mailbox.fields()) for group_id in group_ids]
            wait_ms, hold = shared.settings.gateway_hold_ms, self._flow.send_buffer.hold
            errors = await probe(requests, shared.coordinators, wait_ms, self._flow.questions, hold)
        else:
            is_served = message.key_type == GROUP and await shared.is_served(group_ids)
            errors = dict.fromkeys(group_ids, without_rules(message, is_served=is_served))
        self._flow.respond(in_flight, located(message, shared.cluster, errors))
