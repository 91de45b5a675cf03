"""The table of kinds is complete, its rows fit their handlers, and the short path of heartbeats equals its row."""

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any, get_args, get_type_hints

import pytest
from msgspec.structs import asdict

from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.states import Phase
from coordinator.classic import join
from coordinator.common.handler import RequestSpec, Subject
from coordinator.messages.fields import BaseRequest
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Received, Request
from coordinator.messages.responses import Answer, AnyAnswer, AssignmentNotice, ErrorAnswer, RebalanceNotice, Reply
from coordinator.shard.consumer_handlers import CONSUMER_HANDLERS
from coordinator.shard.handlers import HANDLERS
from coordinator.shard.shard import Shard
from coordinator.state.classic_group import Group
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.group import AnyGroup
from tests.coordinator.plain import PlainHeartbeat
from tests.coordinator.scenario import Scenario

OF_NO_REQUEST = {AssignmentNotice, ErrorAnswer, RebalanceNotice}
"""The response to an unreadable record, and the notices, which answer no request."""


# -- the rows ----------------------------------------------------------------------------------------------------------


def test_every_request_has_a_row_and_every_row_a_request() -> None:
    assert {*get_args(Request)} == HANDLERS.keys()


def test_every_answer_belongs_to_one_row() -> None:
    answers = Counter(kind.answer for kind in HANDLERS.values())
    assert answers == Counter({*get_args(AnyAnswer)} - OF_NO_REQUEST)


@pytest.mark.parametrize("request_type", HANDLERS)
def test_an_answer_has_the_tag_of_its_request(request_type: type[BaseRequest]) -> None:
    answer = HANDLERS[request_type].answer
    assert request_type.__struct_config__.tag == answer.__struct_config__.tag


@pytest.mark.parametrize("request_type", HANDLERS)
def test_a_handler_accepts_the_arguments_of_its_row(request_type: type[BaseRequest]) -> None:
    """A handler gets a group that does not exist only if its row has no error for that."""
    kind = HANDLERS[request_type]
    subject, request, context, _ = get_type_hints(kind.handler).values()
    assert (request, context) == (request_type, Context)
    if kind.subject is Subject.GROUP:
        may_be_none = (Group | None, AnyGroup | None, Group | ConsumerGroup | None)
        assert subject in (may_be_none if kind.absent is None else (Group, AnyGroup))


@pytest.mark.parametrize("request_type", CONSUMER_HANDLERS)
def test_a_handler_of_the_consumer_protocol_accepts_the_arguments_of_its_row(request_type: type[BaseRequest]) -> None:
    subject, request, context, _ = get_type_hints(CONSUMER_HANDLERS[request_type].handler).values()
    assert (request, context) == (request_type, Context)
    assert subject in (ConsumerGroup, AnyGroup, AnyGroup | None, Group | ConsumerGroup | None)


def test_every_request_to_one_group_has_a_row_for_the_consumer_protocol() -> None:
    assert CONSUMER_HANDLERS.keys() == {r for r, kind in HANDLERS.items() if kind.subject is Subject.GROUP}


@pytest.mark.parametrize("request_type", CONSUMER_HANDLERS)
def test_both_rows_of_a_request_have_the_same_answer_and_rights(request_type: type[BaseRequest]) -> None:
    classic, consumer = HANDLERS[request_type], CONSUMER_HANDLERS[request_type]
    columns = "answer", "right", "topic_right", "visible", "needs_group_id", "on_its_own", "refusal_fields", "reason"
    for column in columns:
        assert getattr(classic, column) == getattr(consumer, column), column


@pytest.mark.parametrize("request_type", HANDLERS)
def test_checks_of_a_group_are_only_in_rows_with_an_error_for_an_absent_group(
    request_type: type[BaseRequest],
) -> None:
    kind = HANDLERS[request_type]
    assert kind.absent is not None or not kind.of_the_group


# -- a new kind --------------------------------------------------------------------------------------------------------


class CountMembers(BaseRequest, frozen=True, kw_only=True, tag="count_members"):
    """A kind of request that the core does not know."""


class CountMembersAnswer(Answer, frozen=True, kw_only=True, tag="count_members"):
    """The number of the group's members."""

    members: int = -1


def count_members(group: Group, request: CountMembers, context: Context) -> Iterator[Output]:
    answer: Any = CountMembersAnswer(request_id=request.request_id, members=len(group.members))
    yield Reply(request.reply_to, answer)


def test_a_new_kind_is_handled_by_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    row = RequestSpec(CountMembersAnswer, count_members, needs_group_id=True, absent=ErrorCode.GROUP_ID_NOT_FOUND)
    monkeypatch.setitem(HANDLERS, CountMembers, row)
    s = Scenario.stable("ana", "bo")
    answers = []
    for group_id in ("g", "another", ""):
        asked: Any = CountMembers(request_id="1", reply_to="inbox", group_id=group_id, client_id="", client_host="")
        outputs = s.new_shard(s.shard.to_bytes()).step([Received(100, s.now_ms, asked)], s.now_ms)
        answers += [output.answer for output in outputs if isinstance(output, Reply)]
    assert answers == [
        CountMembersAnswer(request_id="1", members=2),
        CountMembersAnswer(request_id="1", error="GROUP_ID_NOT_FOUND", code=69),
        CountMembersAnswer(request_id="1", error="INVALID_GROUP_ID", code=24),
    ]


# -- the short path of heartbeats --------------------------------------------------------------------------------------


def _in_phase(phase: Phase) -> Scenario:
    """Return a group in a phase, with a dynamic member, a static one (unless it is Empty) and a pending id."""
    s = Scenario.stable("ana").join("bo", group_instance_id="i").join("ana")
    s.sync("ana", plan={"ana": {"t": [0]}, "bo": {"t": [1]}})
    if phase is Phase.EMPTY:
        s.leave("ana", "bo/i")
    elif phase is Phase.PREPARING:
        s.join("bo", group_instance_id="i", topics=["u"])
    elif phase is Phase.COMPLETING:
        s.join("bo", group_instance_id="i", topics=["u"]).join("ana")
    s.join("eve", member_id="", require_known_member_id=True)
    assert s.group.phase is phase
    return s


def _stepped(s: Scenario, request: Heartbeat) -> tuple[list[Output], bytes]:
    shard: Shard = s.new_shard(s.shard.to_bytes())
    return shard.step([Received(100, s.now_ms + 1, request)], s.now_ms + 1), shard.to_bytes()


@pytest.mark.parametrize("phase", [Phase.EMPTY, Phase.PREPARING, Phase.COMPLETING, Phase.STABLE], ids=str)
def test_the_short_path_of_heartbeats_equals_their_row(phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every heartbeat, the responses and the bytes of the group after it are equal."""
    s = _in_phase(phase)
    generation_id, row, codes = s.group.generation_id, HANDLERS[Heartbeat], set()
    member_ids = (*(s.ids[name] for name in ("ana", "bo", "eve")), "nobody", "")
    generation_ids = (generation_id - 1, generation_id, generation_id + 1, -1)
    for member_id, instance_id, sent_id in product(member_ids, (None, "i", "j", ""), generation_ids):
        heartbeat = Heartbeat(
            request_id="1", reply_to="inbox", group_id="g", client_id="c", client_host="/c.example",
            member_id=member_id, group_instance_id=instance_id, generation_id=sent_id,
        )  # fmt: skip
        with monkeypatch.context() as patch:
            patch.delitem(HANDLERS, Heartbeat)
            short = _stepped(s, heartbeat)
        with monkeypatch.context() as patch:
            patch.setitem(HANDLERS, PlainHeartbeat, row)
            patch.delattr(join, "answer_heartbeat")
            by_row = _stepped(s, PlainHeartbeat(**asdict(heartbeat)))
        is_equal = short == by_row  # pytest needs minutes to write a difference of bytes
        assert is_equal, heartbeat
        codes |= {output.answer.error for output in short[0] if isinstance(output, Reply)}
    assert codes == EXPECTED[phase]


_REFUSED = {"UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "ILLEGAL_GENERATION"}
EXPECTED = {
    Phase.EMPTY: {"UNKNOWN_MEMBER_ID"},
    Phase.PREPARING: _REFUSED | {"REBALANCE_IN_PROGRESS"},
    Phase.COMPLETING: _REFUSED | {"NONE"},
    Phase.STABLE: _REFUSED | {"NONE"},
}
"""The errors of heartbeats in each phase. The cases above produce all of them."""
