"""Bare heartbeats of members of the consumer protocol, in one record with others: settled members are answered."""

import random
from functools import partial
from typing import Any

import pytest
from msgspec import ValidationError, json, structs

from coordinator.base.limits import HEARTBEATS_MAX
from coordinator.messages.consumer_requests import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    OwnedPartitions,
    TopicFact,
)
from coordinator.messages.events import MemberExpired
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.requests import JoinGroup, Protocol, Received
from coordinator.messages.responses import HeartbeatsAnswer, Reply
from coordinator.shard import budget as limits_of_the_step
from tests.coordinator.consumer.conversation import Conversation, topic_id

SESSION_MS = 45_000


def settled(**config: Any) -> Conversation:
    """Return a Stable group of A, which is static, and of B and C."""
    return Conversation(**config).plays("""
        T:1
        A(i) 0       -> 2 {0}
        B 0 names none -> 2 {}
        C 0 names none -> 2 {}
        = Stable 2 2
    """)


def bare(member_id: str = "B", epoch: int = 2, group_id: str = "g", **fields: Any) -> ConsumerGroupHeartbeat:
    who = {"request_id": f"{group_id}-{member_id}", "reply_to": "box", "client_id": member_id}
    return ConsumerGroupHeartbeat(**who, group_id=group_id, member_id=member_id, member_epoch=epoch, **fields)


def codes(c: Conversation, *heartbeats: Heartbeat | ConsumerGroupHeartbeat) -> tuple[int, ...]:
    """Send heartbeats in one record, and return their codes."""
    answer = c.sends(partial(Heartbeats.of, heartbeats), group_id="")  # type: ignore[arg-type]
    assert isinstance(answer, HeartbeatsAnswer)
    assert answer.request_ids == tuple(each.request_id for each in heartbeats)
    return answer.codes


# -- what is bare ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "is_bare"),
    [
        ({}, True),
        ({"epoch": 1}, True),
        ({"epoch": 0}, False),
        ({"epoch": -1}, False),
        ({"group_instance_id": "i"}, True),
        ({"again": True}, False),
        ({"topic_partitions": ()}, False),
        ({"topic_partitions": (OwnedPartitions(topic_id("T"), (0,)),)}, False),
        ({"regex_topics": ()}, False),
        ({"regex_error": "no pattern"}, False),
        ({"rebalance_timeout_ms": 1}, False),
        ({"subscribed_topic_names": ()}, False),
        ({"subscribed_topic_regex": ""}, False),
        ({"server_assignor": "range"}, False),
        ({"rack_id": "r"}, False),
        ({"topics": (TopicFact("T"),)}, False),
    ],
    ids=str,
)
def test_a_heartbeat_is_bare_if_it_only_renews_the_session(fields: dict[str, Any], is_bare: bool):
    assert bare(**fields).is_bare is is_bare


def test_a_record_has_only_bare_heartbeats():
    with pytest.raises(AssertionError, match="no other heartbeats"):
        Heartbeats.of([bare(topic_partitions=())], request_id="r", reply_to="box")


def test_a_record_of_both_protocols_survives_the_wire():
    classic = Heartbeat(request_id="x", reply_to="box", group_id="x", generation_id=7, member_id="m")
    beats = [bare(), classic, bare("A", group_instance_id="i", principal="User:ana")]
    record = Heartbeats.of(beats, request_id="r", reply_to="box")
    assert record.consumers == (True, False, True)
    assert list(json.decode(json.encode(record), type=Heartbeats).each()) == beats
    assert Heartbeats.of([classic], request_id="r", reply_to="box").consumers == ()


@pytest.mark.parametrize(("rows", "is_read"), [(HEARTBEATS_MAX, True), (HEARTBEATS_MAX + 1, False)])
def test_the_column_has_a_bound(rows: int, is_read: bool):
    record = structs.replace(Heartbeats.of([bare()], request_id="r", reply_to="box"), consumers=(True,) * rows)
    if is_read:
        assert not json.decode(json.encode(record), type=Heartbeats).is_even
    else:
        with pytest.raises(ValidationError):
            json.decode(json.encode(record), type=Heartbeats)


# -- settled members ---------------------------------------------------------------------------------------------------


def test_settled_members_are_answered_and_renew_their_sessions_like_single_heartbeats():
    together, singly = settled(), settled()
    beats = bare("A", group_instance_id="i"), bare("B"), bare("C")
    for c in together, singly:
        c.now_ms += 20_000
    assert codes(together, *beats) == (0, 0, 0)
    for each in beats:
        said = singly.sends(ConsumerGroupHeartbeat, **_without_envelope(each))
        assert (said.code, said.member_epoch, said.assignment, said.pending) == (0, 2, None, "none")
    assert together.group == singly.group
    ends_ms = {session.deadline_ms for session in together.group.hot_state.sessions.values()}
    assert ends_ms == {together.now_ms + SESSION_MS}


def _without_envelope(request: ConsumerGroupHeartbeat) -> dict[str, Any]:
    return {name: value for name, value in structs.asdict(request).items() if name not in ("request_id", "reply_to")}


def with_a_classic_member() -> tuple[Conversation, str]:
    """Return the settled members with a member of a classic group, and its id."""
    c = settled(group_initial_rebalance_delay_ms=0)
    joined = c.sends(
        JoinGroup, group_id="classic", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="work",
        protocols=(Protocol("p"),), require_known_member_id=False,
    )  # fmt: skip
    return c, joined.member_id


def test_members_of_both_protocols_are_in_one_record():
    c, member_id = with_a_classic_member()
    beat = Heartbeat(request_id="x", reply_to="box", group_id="classic", member_id=member_id, generation_id=1)
    assert codes(c, bare(), beat, structs.replace(beat, member_id="nobody"), bare("C")) == (0, 0, 25, 0)


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_deadline_that_was_moved_on_refuses_nobody(is_cut: bool):
    """The earliest deadline of the hot state may be that of a session that was renewed since."""
    c = settled(clock_slack_ms=0)
    c.now_ms += SESSION_MS - 1
    assert codes(c, bare("A"), bare("B"), bare("C")) == (0, 0, 0)
    c.now_ms += 1
    if is_cut:
        c.passes(0)
    assert codes(c, bare("A"), bare("B"), bare("C")) == (0, 0, 0)


# -- all others --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": "nobody"},
        {"epoch": 1},
        {"epoch": 3},
        {"epoch": 0},
        {"epoch": -1},
        {"epoch": -2, "group_instance_id": "i"},
        {"group_instance_id": "i"},
        {"group_instance_id": "unknown"},
        {"group_id": "other"},
        {"group_id": ""},
    ],
    ids=str,
)
def test_a_heartbeat_that_is_not_of_a_settled_member_is_refused_and_changes_nothing(fields: dict[str, Any]):
    c = settled()
    before = c.group
    row = bare(**fields)
    record = Heartbeats.of([bare(), bare("C")], request_id="r", reply_to="box")
    record = structs.replace(
        record, request_ids=("C", "row"), groups=("g", row.group_id), member_ids=("C", row.member_id),
        generation_ids=(2, row.member_epoch), group_instance_ids=(None, row.group_instance_id),
    )  # fmt: skip
    c.now_ms += 100
    answer = c.sends(partial(structs.replace, record), group_id="")  # type: ignore[arg-type]
    assert answer.codes == (0, 14)
    before.hot_state.now_ms = c.now_ms
    before.hot_state.sessions["C"].deadline_ms = c.now_ms + SESSION_MS
    assert c.group == before


def test_a_member_of_a_classic_group_is_refused():
    c, member_id = with_a_classic_member()
    assert codes(c, bare(member_id, 1, "classic"), bare()) == (14, 0)


def test_the_refused_member_gets_its_assignment_by_a_record_of_its_own():
    c = settled().plays("T:2")
    c.tells_topics("T")
    c.now_ms += 1_000
    assert codes(c, bare("A", group_instance_id="i"), bare("B")) == (14, 14)
    c.plays("A(i) 2 -> 3 {0 1}\n A(i) 3 own 0 1 -> 3\n B 2 -> 3\n C 2 -> 3")
    assert codes(c, bare("A", 3, group_instance_id="i"), bare("B", 3), bare("B", 2)) == (0, 0, 14)


def test_a_member_that_waits_for_partitions_is_refused():
    c = Conversation().plays("T:2\nA 0 -> 2 {0 1}\n-- 1000\nB 0 -> 3 {}\n")
    assert codes(c, bare("A"), bare("B", 3)) == (14, 14)
    c.plays("A 2 -> 2 {0}")
    assert codes(c, bare("A"), bare("B", 3)) == (14, 14)
    c.plays("A 2 own 0 -> 3\nB 3 -> 3 {1}")
    assert codes(c, bare("A", 3), bare("B", 3)) == (0, 0)
    c.in_one_step()


@pytest.mark.parametrize("is_cut", [False, True])
def test_deadlines_fire_before_the_heartbeat(is_cut: bool):
    """C has expired at the time of the record, also if no step has ended since: the others are not settled any more."""
    c = settled(clock_slack_ms=0)
    c.now_ms += SESSION_MS - 1
    assert codes(c, bare("A"), bare("B")) == (0, 0)
    c.now_ms += 2
    if is_cut:
        c.passes(0)
    assert bool(c.events(MemberExpired)) is is_cut
    assert codes(c, bare("A"), bare("B")) == (14, 14)
    assert [event.member_id for event in c.events(MemberExpired)] == ["C"]
    c.plays("A(i) 2 -> 3\nB 2 -> 3")
    assert codes(c, bare("A", 3), bare("B", 3)) == (0, 0)


def test_a_heartbeat_of_a_group_that_waits_is_refused(monkeypatch: pytest.MonkeyPatch):
    """The group's earlier requests wait for the next step; the heartbeats of the other groups do not."""
    c = settled()
    c.group_id = "h"
    c.plays("A 0 -> 2 {0}")
    monkeypatch.setattr(limits_of_the_step, "GROUP_STEP_BYTES_MAX", 100)
    describe = ConsumerGroupDescribe(request_id="d", reply_to="box", group_id="g")
    record = Heartbeats.of([bare(), bare("A", group_id="h")], request_id="r", reply_to="box")
    c.steps([Received(100 + n, c.now_ms, each) for n, each in enumerate([describe, describe, record])])
    answers = [output.answer for output in c.latest if isinstance(output, Reply)]
    assert isinstance(answers[-1], HeartbeatsAnswer)
    assert answers[-1].codes == (14, 0)


# -- however the log is cut --------------------------------------------------------------------------------------------


class Crowd:
    """Random members of one group, whose heartbeats are single or in one record with those of the others.

    No deadline counts as noticed late, since that depends on the batches.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.c = Conversation(group_consumer_session_timeout_ms=3_000, late_notice_ms=3_600_000).plays("T:6")
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, tuple[OwnedPartitions, ...]] = {}
        self.codes = set[int]()

    def run(self) -> Conversation:
        for _ in range(60):
            self.c.now_ms += self.chance.choice((0, 50, 300, 900))
            member_id = self.chance.choice("ABCD")
            match self.chance.randrange(8):
                case 0 if member_id in self.epochs:
                    self.says(member_id, epoch=-1)
                case 1 | 2 | 3:
                    self.says(member_id)
                case _ if self.epochs:
                    self.beat_together()
        return self.c

    def says(self, member_id: str, epoch: int | None = None) -> None:
        """Send a heartbeat with all fields, and acknowledge each assignment at once."""
        epoch = self.epochs.get(member_id, 0) if epoch is None else epoch
        owned = self.owned.get(member_id, ()) if epoch else ()
        fields = {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": ("T",), "topics": (self.c.fact("T"),)}
        answer = self.c.sends(
            ConsumerGroupHeartbeat, member_id=member_id, member_epoch=epoch, topic_partitions=owned, **fields
        )
        if answer.code or epoch < 0:
            self.epochs.pop(member_id, None)
            return
        self.epochs[member_id] = answer.member_epoch
        if answer.assignment is not None:
            self.owned[member_id] = tuple(OwnedPartitions(t.topic_id, t.partitions) for t in answer.assignment)

    def beat_together(self) -> None:
        """Send the bare heartbeats of all members in one record. Those that are refused change nothing."""
        before = self.c.group
        said = codes(self.c, *(bare(member_id, epoch) for member_id, epoch in self.epochs.items()))
        assert set(said) <= {0, 14}
        self.codes |= set(said)
        after = self.c.group
        for member_id, code in zip(self.epochs, said, strict=True):
            if (session := after.hot_state.sessions.get(member_id)) is not None:
                renewed_ms = self.c.now_ms + 3_000 if code == 0 else before.hot_state.sessions[member_id].deadline_ms
                assert session.deadline_ms == renewed_ms


@pytest.mark.parametrize("seed", range(10))
def test_the_cut_of_the_log_does_not_matter(seed: int):
    crowd = Crowd(seed)
    c = crowd.run()
    assert crowd.codes == {0, 14}
    for batches in 1, 3, 20:
        shard, outputs = c.new_shard(), list[Any]()
        size = len(c.log) // batches
        for begin in range(0, len(c.log), size):
            log = c.log[begin : begin + size]
            outputs += shard.step(log, log[-1].at_ms)
        assert outputs == c.outputs
