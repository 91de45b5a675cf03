"""Every API in every version: the request to the coordinator, and the client's response from its answer."""

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.messages.responses import AnyAnswer, ErrorAnswer, ExpelMemberAnswer
from streaming.gateway.exchanges import SERVED
from streaming.gateway.exchanges.offsets import KNOWS_UNSTABLE, NOT_NOW
from streaming.gateway.protocol.api import Handling
from streaming.gateway.server.apis import APIS
from tests.differential import wire
from tests.differential.ours import as_of
from tests.differential.transcript import ClientRequest, Names
from tests.streaming.gateway.examples import ANSWERS, REQUESTS, as_sent, ended
from tests.streaming.gateway.wiring import ask

LAST_WITH_NAMES = {"OffsetCommit": 9, "OffsetFetch": 9}
"""The last versions that name topics; `test_exchanges_offsets` has those with their ids."""

VERSIONS = {
    name: range(served.first, LAST_WITH_NAMES.get(name, served.last) + 1)
    for served in SERVED.values()
    if (name := served.request.name.removesuffix("Request")) in REQUESTS
}
EVERY = [(name, version) for name, versions in VERSIONS.items() for version in versions]


@pytest.mark.parametrize(("name", "version"), EVERY)
def test_the_coordinator_gets_the_clients_request(name: str, version: int):
    """S56: a field that a version lacks has the value that clients of that version imply."""
    assert ask(wire.message(REQUESTS[name], version), version).requests == [as_sent(name, version)]


@pytest.mark.parametrize(("name", "version", "answer"), [(*each, a) for each in EVERY for a in ANSWERS[each[0]]])
def test_the_client_gets_the_coordinators_response(name: str, version: int, answer: AnyAnswer):
    """S56: a field that a version lacks is left out."""
    response = ask(wire.message(REQUESTS[name], version), version).response_to(answer)
    read = wire.answer(REQUESTS[name], version, response)
    assert Names().tell(read) == Names().tell(as_of(ClientRequest("", "", REQUESTS[name], version), answer))
    assert response.throttle_time_ms == 0


# -- errors and unexpected answers -------------------------------------------------------------------------------------


def of_partitions(topics: Any) -> list[int]:
    return [partition.error_code for topic in topics for partition in topic.partitions]


CODES: dict[str, Callable[[Any], list[int]]] = {
    # the place of the error for the whole request, in the client's response
    "JoinGroup": lambda response: [response.error_code],
    "SyncGroup": lambda response: [response.error_code],
    "Heartbeat": lambda response: [response.error_code],
    "LeaveGroup": lambda response: [response.error_code],
    "OffsetCommit": lambda response: of_partitions(response.topics),
    "OffsetFetch": lambda response: (
        [group.error_code for group in response.groups]
        if response.version >= 8
        else [response.error_code]
        if response.version >= 2
        else of_partitions(response.topics)
    ),
    "OffsetDelete": lambda response: [response.error_code],
    "DescribeGroups": lambda response: [group.error_code for group in response.groups],
    "ListGroups": lambda response: [response.error_code],
    "DeleteGroups": lambda response: [result.error_code for result in response.results],
}

UNEXPECTED = {
    "a field above its bound": (ErrorAnswer(request_id="1", **ended(ErrorCode.INVALID_REQUEST)), 42),
    "coordinator unavailable": (ErrorAnswer(request_id="1", **ended(ErrorCode.COORDINATOR_NOT_AVAILABLE)), 15),
    "an error of another kind of answer": (ExpelMemberAnswer(request_id="1", **ended(ErrorCode.UNKNOWN_MEMBER_ID)), 25),
    "a success of another kind of answer": (ExpelMemberAnswer(request_id="1"), -1),
}


@pytest.mark.parametrize(("answer", "code"), UNEXPECTED.values(), ids=UNEXPECTED)
@pytest.mark.parametrize(("name", "version"), EVERY)
def test_an_error_has_the_place_that_clients_read(name: str, version: int, answer: AnyAnswer, code: int):
    """An error in any kind of answer reaches the client, and a success of the wrong kind is an error.

    `test_exchanges_offsets` has the one that is in each partition.
    """
    response = ask(wire.message(REQUESTS[name], version), version).response_to(answer)
    is_of_partitions = name == "OffsetFetch" and version >= KNOWS_UNSTABLE and code in NOT_NOW
    assert set(CODES[name](response)) == {0 if is_of_partitions else code}


def test_every_offered_served_api_is_served():
    """The APIs and versions that are offered as served equal those with exchanges."""
    answered_here = {key: api for key, api in APIS.items() if api.handling is Handling.SERVED}
    offered = {key: (f"{api.name}Request", api.first, api.last) for key, api in answered_here.items()}
    assert offered == {key: (s.request.name, s.first, s.last) for key, s in SERVED.items()}
