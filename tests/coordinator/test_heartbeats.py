"""Heartbeats of many members in one record: each is handled like a record of its own, and all are answered together."""

from typing import Any

import pytest
from msgspec import json, structs

from coordinator.base.config import Config
from coordinator.base.limits import HEARTBEAT_BYTES
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Assignment, DescribeGroup, JoinGroup, Protocol, Received, Request, SyncGroup
from coordinator.messages.responses import HeartbeatsAnswer, JoinGroupAnswer, Reply
from coordinator.shard import budget as limits_of_the_step
from coordinator.shard.shard import Shard
from coordinator.state import codec

CONFIG = Config(group_initial_rebalance_delay_ms=0)
SESSION_MS = 10_000


class Log:
    """One shard with a Stable group of one member for each of the given ids."""

    def __init__(self, *group_ids: str) -> None:
        self.shard, self.offset, self.now_ms = Shard(0, 1, bytes(16), CONFIG), 0, 1_000_000
        self.members: dict[str, str] = {}
        for group_id in group_ids:
            who: dict[str, Any] = {"request_id": "r", "reply_to": "in", "group_id": group_id}
            (joined,) = self.answers(
                JoinGroup(
                    **who, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS, protocol_type="work",
                    protocols=(Protocol("p"),), require_known_member_id=False,
                )
            )  # fmt: skip
            assert isinstance(joined, JoinGroupAnswer)
            self.members[group_id] = joined.member_id
            plan = (Assignment(joined.member_id),)
            self.answers(SyncGroup(**who, generation_id=1, member_id=joined.member_id, assignments=plan))

    def step(self, *requests: Request, size_bytes: int = 0) -> list[Output]:
        log = []
        for request in requests:
            self.offset += 1
            log.append(Received(self.offset, self.now_ms, request, size_bytes=size_bytes))
        return self.shard.step(log, self.now_ms)

    def answers(self, *requests: Request) -> list[Any]:
        return [output.answer for output in self.step(*requests) if isinstance(output, Reply)]

    def beat(self, group_id: str, number: int = 0, **fields: Any) -> Heartbeat:
        said = {"generation_id": 1, "member_id": self.members.get(group_id, "nobody"), **fields}
        return Heartbeat(request_id=f"{group_id}-{number}", reply_to="in", group_id=group_id, **said)


def together(*beats: Heartbeat) -> Heartbeats:
    return Heartbeats.of(beats, request_id="all", reply_to="in")


def test_each_heartbeat_is_answered_as_in_a_record_of_its_own():
    beats = lambda log: (  # noqa: E731
        log.beat("a"),
        log.beat("b", generation_id=7),
        log.beat("c", member_id="nobody"),
        log.beat("d", group_instance_id="other"),
        log.beat("none"),
        log.beat(""),
        log.beat("e"),
    )
    singly, gathered = Log(*"abcde"), Log(*"abcde")
    codes = [answer.code for answer in singly.answers(*beats(singly))]
    (answer,) = gathered.answers(together(*beats(gathered)))
    assert codes == [0, 22, 25, 25, 25, 24, 0]
    assert answer == HeartbeatsAnswer(
        request_id="all",
        request_ids=("a-0", "b-0", "c-0", "d-0", "none-0", "-0", "e-0"),
        codes=tuple(codes),
    )
    assert codec.decode_shard(singly.shard.to_bytes()).groups == codec.decode_shard(gathered.shard.to_bytes()).groups


def test_a_heartbeat_renews_the_session_from_the_time_of_the_record():
    log = Log("a", "b")
    log.now_ms += SESSION_MS - 1
    log.answers(together(log.beat("a"), log.beat("none")))
    log.now_ms += 2
    log.step(log.beat("none"), log.beat("a", 2), log.beat("b", 2))
    assert [*log.shard.group("a").members] == [log.members["a"]]
    assert log.shard.group("b").members == {}


@pytest.mark.parametrize(
    "column", ["groups", "member_ids", "generation_ids", "client_hosts", "group_instance_ids", "consumers"]
)
def test_uneven_columns_are_an_invalid_request_and_renew_nothing(column: str):
    log = Log("a", "b")
    record = together(log.beat("a"), log.beat("b"))
    short = structs.replace(
        record, **{column: (*getattr(record, column)[:1],) or (False if column == "consumers" else None,)}
    )
    before = log.shard.to_bytes()
    (answer,) = log.answers(short)
    assert (answer.code, answer.codes) == (42, ())
    assert codec.decode_shard(log.shard.to_bytes()).groups == codec.decode_shard(before).groups


def test_a_record_survives_the_wire():
    log = Log("a", "b")
    record = together(log.beat("a", principal="User:ana"), log.beat("b", group_instance_id="i"))
    assert json.decode(json.encode(record), type=Heartbeats) == record
    assert list(record.each()) == [
        log.beat("a", principal="User:ana"),
        log.beat("b", group_instance_id="i"),
    ]


def test_a_heartbeat_of_a_group_that_waits_is_not_handled(monkeypatch: pytest.MonkeyPatch):
    """The group's earlier requests wait for the next step; the heartbeats of the other groups do not."""
    monkeypatch.setattr(limits_of_the_step, "GROUP_STEP_BYTES_MAX", 100)
    log = Log("a", "b")
    describe = DescribeGroup(request_id="d", reply_to="in", group_id="a")
    answers = log.answers(describe, describe, together(log.beat("a"), log.beat("b")))
    assert answers[-1].codes == (14, 0)
    assert [received.request for received in log.shard.deferred] == [describe]


def test_short_heartbeats_count_in_the_budget_of_the_step(monkeypatch: pytest.MonkeyPatch):
    """Their sender pays for a few bytes and has each of them handled."""
    monkeypatch.setattr(limits_of_the_step, "GROUP_STEP_BYTES_MAX", 10 * HEARTBEAT_BYTES)
    log = Log("a")
    few, many = (together(*(log.beat("x", n) for n in range(number))) for number in (9, 11))
    assert len(log.answers(few, few)) == 2
    assert len(log.answers(many, many)) == 1
    assert [received.request for received in log.shard.deferred] == [many]
    assert len(log.answers(few, few, few)) == 2, "both steps are bounded alike"
    log.step(many, many, size_bytes=20_000)
    assert not log.shard.deferred, "a record of the usual size pays for itself"
