"""Every API in every version: what is asked of the coordinator, and what the client hears of its answer."""

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.errors import ErrorCode
from coordinator.outputs import AnyAnswer, ErrorAnswer, ExpelMemberAnswer
from streaming.gateway.apis import APIS, Handling
from streaming.gateway.exchanges import SERVED
from tests.differential import wire
from tests.differential.ours import as_of
from tests.differential.transcript import Asked, Names
from tests.streaming.gateway.examples import ANSWERS, REQUESTS, as_sent, ended
from tests.streaming.gateway.wiring import ask

VERSIONS = {
    name: range(served.first, served.last + 1)
    for served in SERVED.values()
    if (name := served.request.name.removesuffix("Request")) in REQUESTS
}
EVERY = [(name, version) for name, versions in VERSIONS.items() for version in versions]


@pytest.mark.parametrize(("name", "version"), EVERY)
def test_asks_what_the_client_asks(name: str, version: int):
    """S56: what a version has no field for is what clients of that age took for granted."""
    assert ask(wire.message(REQUESTS[name], version), version).requests == [as_sent(name, version)]


@pytest.mark.parametrize(("name", "version", "answer"), [(*each, a) for each in EVERY for a in ANSWERS[each[0]]])
def test_says_what_the_coordinator_says(name: str, version: int, answer: AnyAnswer):
    """S56: of what a version has no field for, nothing is said."""
    said = ask(wire.message(REQUESTS[name], version), version).hears(answer)
    told = wire.answer(REQUESTS[name], version, said)
    assert Names().tell(told) == Names().tell(as_of(Asked("", "", REQUESTS[name], version), answer))
    assert said.throttle_time_ms == 0


# -- answers that nobody asked for -------------------------------------------------------------------------------------


def of_partitions(topics: Any) -> list[int]:
    return [partition.error_code for topic in topics for partition in topic.partitions]


CODES: dict[str, Callable[[Any], list[int]]] = {
    # where a client looks for the error of its whole request
    "JoinGroup": lambda said: [said.error_code],
    "SyncGroup": lambda said: [said.error_code],
    "Heartbeat": lambda said: [said.error_code],
    "LeaveGroup": lambda said: [said.error_code],
    "OffsetCommit": lambda said: of_partitions(said.topics),
    "OffsetFetch": lambda said: (
        [group.error_code for group in said.groups]
        if said.version >= 8
        else [said.error_code]
        if said.version >= 2
        else of_partitions(said.topics)
    ),
    "OffsetDelete": lambda said: [said.error_code],
    "DescribeGroups": lambda said: [group.error_code for group in said.groups],
    "ListGroups": lambda said: [said.error_code],
    "DeleteGroups": lambda said: [result.error_code for result in said.results],
}

UNEXPECTED = {
    "beyond our bounds": (ErrorAnswer(request_id="1", **ended(ErrorCode.INVALID_REQUEST)), 42),
    "nobody there": (ErrorAnswer(request_id="1", **ended(ErrorCode.COORDINATOR_NOT_AVAILABLE)), 15),
    "an answer to something else": (ExpelMemberAnswer(request_id="1", **ended(ErrorCode.UNKNOWN_MEMBER_ID)), 25),
    "success of something else": (ExpelMemberAnswer(request_id="1"), -1),
}


@pytest.mark.parametrize(("answer", "code"), UNEXPECTED.values(), ids=UNEXPECTED)
@pytest.mark.parametrize(("name", "version"), EVERY)
def test_an_error_is_heard_where_clients_look_for_it(name: str, version: int, answer: AnyAnswer, code: int):
    """An error of the whole is the client's, whatever kind of answer brings it; and what is no answer is no success."""
    said = ask(wire.message(REQUESTS[name], version), version).hears(answer)
    assert set(CODES[name](said)) == {code}


def test_serves_what_is_offered():
    """What clients are told that we serve is what we serve."""
    answered_here = {key: api for key, api in APIS.items() if api.handling in (Handling.SERVED, Handling.REFUSED)}
    offered = {key: (f"{api.name}Request", api.first, api.last) for key, api in answered_here.items()}
    assert offered == {key: (s.request.name, s.first, s.last) for key, s in SERVED.items()}
