"""The responses to ApiVersions and FindCoordinator on one connection."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

from coordinator.base.binary import Malformed
from coordinator.base.errors import ErrorCode
from coordinator.messages.responses import ErrorAnswer, OffsetFetchAnswer
from streaming.gateway.connection.tasks import Work
from streaming.gateway.members.mailbox import Mailbox
from streaming.gateway.security.authenticate import Identity
from streaming.gateway.server.find_coordinator import FindCoordinator, Negotiating
from streaming.gateway.server.relaying import Relaying
from streaming.gateway.server.serving import ListenerMetadata
from tests.streaming.gateway.parts import FakeShared, FlowBench, turn
from tests.streaming.gateway.wiring import frame_of

GROUP, TRANSACTION = 0, 1
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE.number


class Bench(FlowBench):
    """The parts that answer both APIs, in a running loop."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = FakeShared(self.metrics)
        identity, work = Identity(()), Work(self.flow)
        hold = self.flow.send_buffer.hold
        questions = Mailbox(self.shared.coordinators, identity, self.flow.questions, lambda notice: None, hold)
        relaying = Relaying(self.shared, 1, self.flow, work, identity)
        self._negotiate = Negotiating(self.shared, 1, self.flow, work).negotiate
        self._find = FindCoordinator(
            self.shared, self.flow, work, questions, ListenerMetadata(self.shared, 1, identity), relaying, identity
        ).find

    def negotiate(self, version: int, frame: bytes | None = None, *, software: tuple[str, str] = ("a", "1")) -> None:
        name, release = software
        message = ApiVersionsRequest(
            version=min(version, 4), client_software_name=name, client_software_version=release
        )
        self._negotiate(self.slot(18, version), frame_of(message, message.version) if frame is None else frame)

    def find(self, *group_ids: str, key_type: int = GROUP, version: int = 4) -> None:
        keys: dict[str, Any] = {"key": group_ids[0]} if version < 4 else {"coordinator_keys": list(group_ids)}
        message = FindCoordinatorRequest(version=version, key_type=key_type, **keys)
        self._find(self.slot(10, version), frame_of(message, version))

    async def read_response(self, kind: Any, version: int) -> Any:
        """Return the only response that was sent."""
        await turn()
        self.run_soon()
        (frame,) = self.transport.frames()
        return kind.decode(frame, version=version, header=True)

    async def found(self, version: int = 4) -> list[tuple[int, int]]:
        """Return the error and the node of each group in the response to FindCoordinator."""
        response = await self.read_response(FindCoordinatorResponse, version)
        return [(each.error_code, each.node_id) for each in (response.coordinators if version >= 4 else [response])]


def run(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Bench())

    asyncio.run(main())


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize(
    ("software", "is_valid"),
    [
        (("apache-kafka.java", "4.4.0"), True),
        (("a", "1"), True),
        (("", "1"), False),
        (("a", ""), False),
        (("-a", "1"), False),
        (("a", "1."), False),
        (("a b", "1"), False),
        (("a\n", "1"), False),
        (("ä", "1"), False),
    ],
)
def test_invalid_name_of_a_clients_software_is_refused(version: int, software: tuple[str, str], is_valid: bool):
    """KIP-511: the names are part of the request from version 3 on."""

    async def scenario(bench: Bench) -> None:
        bench.negotiate(version, software=software)
        await turn()
        bench.run_soon()
        (frame,) = bench.transport.frames()  # kafka-python reads an error as one of version 0
        refused = ApiVersionsResponse(version=version, error_code=42, api_keys=[]).encode()
        assert (frame[4:] == refused) is (version >= 3 and not is_valid)

    run(scenario)


@pytest.mark.parametrize("version", range(5))
def test_versions_are_answered_without_a_broker(version: int):
    async def scenario(bench: Bench) -> None:
        bench.negotiate(version)
        response = await bench.read_response(ApiVersionsResponse, version)
        assert {each.api_key for each in response.api_keys} >= {10, 11, 12, 18}

    run(scenario)


def test_an_unknown_version_of_api_versions_is_answered():
    """KIP-35: the request is unreadable, and the response has the oldest version."""

    async def scenario(bench: Bench) -> None:
        bench.negotiate(9, b"\0\x12\0\x09\0\0\0\x4d\xff\xff?")
        assert (await bench.read_response(ApiVersionsResponse, 0)).error_code == ErrorCode.UNSUPPORTED_VERSION.number

    run(scenario)


def test_a_request_that_ends_early_is_malformed():
    async def scenario(bench: Bench) -> None:
        with pytest.raises(Malformed):
            bench.negotiate(3, b"\0\x12\0\x03\0\0\0\x4d\xff\xff")

    run(scenario)


@pytest.mark.parametrize("version", range(7))
def test_groups_are_found_at_their_ports(version: int):
    async def scenario(bench: Bench) -> None:
        groups = ("g", "x") if version >= 4 else ("g",)
        bench.find(*groups, version=version)
        assert await bench.found(version) == [(0, 1), (0, 2)][: len(groups)]
        assert bench.shared.coordinators.sent == []

    run(scenario)


def test_no_group_is_found_while_the_coordinator_does_not_answer():
    async def scenario(bench: Bench) -> None:
        bench.shared.served = False
        bench.find("g")
        assert await bench.found() == [(UNAVAILABLE, -1)]

    run(scenario)


def test_with_rules_the_coordinator_decides_which_groups_are_found():
    async def scenario(bench: Bench) -> None:
        bench.shared.settings.access = "rules"
        bench.find("g", "x", "g")
        await turn()
        assert [request.group_id for request in bench.shared.coordinators.requests] == ["g", "x"], "each once"
        assert len(bench.flow.questions) == 2
        bench.shared.coordinators.answer(OffsetFetchAnswer, index=0, partitions=())
        denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
        bench.shared.coordinators.answer(ErrorAnswer, index=1, error=denied.name, code=denied.number)
        assert await bench.found() == [(0, 1), (denied.number, -1), (0, 1)]
        assert (bench.flow.questions, bench.shared.coordinators.waiting) == (set(), 0)

    run(scenario)


def test_a_coordinator_that_does_not_answer_in_time_is_unavailable():
    async def scenario(bench: Bench) -> None:
        bench.shared.settings.access, bench.shared.settings.gateway_hold_ms = "rules", 0
        bench.find("g")
        while bench.flow.questions or not bench.shared.coordinators.sent:
            await asyncio.sleep(0)
        assert await bench.found() == [(UNAVAILABLE, -1)]
        assert bench.shared.coordinators.waiting == 0

    run(scenario)


def test_a_transactions_coordinator_is_found_by_the_broker():
    async def scenario(bench: Bench) -> None:
        bench.find("t", key_type=TRANSACTION)
        await turn()
        (frame,) = bench.shared.upstreams[0].frames()
        assert FindCoordinatorRequest.decode(frame, version=4, header=True).coordinator_keys == ["t"]
        assert bench.transport.written == b""

    run(scenario)


def test_other_kinds_of_keys_have_no_coordinator():
    async def scenario(bench: Bench) -> None:
        bench.find("g", key_type=2)
        assert await bench.found() == [(ErrorCode.INVALID_REQUEST.number, -1)]

    run(scenario)


@pytest.mark.parametrize("version", range(7))
def test_the_client_of_a_group_that_cannot_be_written_is_turned_away(version: int):
    """It would stay with this gateway as long as it is answered here."""

    async def scenario(bench: Bench) -> None:
        bench.shared.lost_groups = {"lost"}
        bench.find("lost", version=version)
        await turn()
        bench.run_soon()
        assert (bench.shared.turned_away, bench.transport.frames()) == ({("", "", None)}, [])

    run(scenario)
