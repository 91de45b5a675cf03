"""Tests of groups with members of both protocols, and of their conversion (next-generation.md 8)."""

from typing import Any

import pytest

from coordinator.base.consumer_protocol import Subscription, assigned_partitions, write_subscription
from coordinator.messages.consumer_requests import ConsumerGroupDescribe, ConsumerGroupHeartbeat
from coordinator.messages.events import GroupConverted, MemberExpired, MemberFenced
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
    Assignment,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    Received,
    SyncGroup,
)
from coordinator.messages.responses import Ask, JoinGroupAnswer, RebalanceNotice, Reply, SyncGroupAnswer
from tests.coordinator.consumer.conversation import Conversation
from tests.coordinator.wire import assignment


class Mixed(Conversation):
    """A conversation in which members of the classic protocol take part."""

    def joins(
        self, name: str = "", *, owned: dict[str, list[int]] | None = None, instance: str | None = None, **fields: Any
    ) -> Any:
        """Send a join, and return the answer; None if the join is parked."""
        subscription = Subscription(("T",), None, owned or {}, -1, None)
        metadata = write_subscription(subscription, 0 if owned is None else 1)
        defaults: dict[str, Any] = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 20_000,
            "protocol_type": "consumer",
            "protocols": (Protocol("range", metadata), Protocol("roundrobin", metadata)),
            "require_known_member_id": False,
            "topics": (self.fact("T"),),
        }
        return self.asks(JoinGroup, member_id=name, group_instance_id=instance, **{**defaults, **fields})

    def asks(self, kind: Any, **fields: Any) -> Any:
        """Send a request, and return the answer; None if it comes later."""
        try:
            return self.sends(kind, **fields)
        except StopIteration:
            return None

    def syncs(self, name: str, generation_id: int, **fields: Any) -> str:
        """Send a sync, and return the partitions as text, or the number of the error."""
        answer = self.sends(SyncGroup, member_id=name, generation_id=generation_id, **fields)
        return str(answer.code) if answer.code else told(answer)

    def beats(self, name: str, generation_id: int) -> int:
        """Send a heartbeat of the classic protocol, and return the number of the error."""
        return int(self.sends(Heartbeat, member_id=name, generation_id=generation_id).code)


def told(answer: SyncGroupAnswer) -> str:
    partitions = assigned_partitions(answer.assignment)
    assert partitions is not None
    return " ".join(map(str, partitions.get("T", [])))


def classic(c: Mixed, *, delay: bool = False) -> tuple[str, str]:
    """Make a Stable classic group of P, which is static and has 0 and 1, and Q with 2 and 3; return their ids."""
    c.counts["T"] = 4
    p = c.joins(instance="p").member_id
    assert c.joins() is None
    joined = c.joins(p, instance="p")
    q = next(m.member_id for m in joined.members if m.member_id != p)
    assert joined.generation_id == 2
    plan = (Assignment(p, assignment({"T": [0, 1]})), Assignment(q, assignment({"T": [2, 3]})))
    c.sends(SyncGroup, member_id=p, group_instance_id="p", generation_id=2, assignments=plan)
    assert c.syncs(q, 2) == "2 3"
    return p, q


@pytest.fixture
def c() -> Mixed:
    return Mixed(group_initial_rebalance_delay_ms=0)


# -- classic members in a group of the consumer protocol ---------------------------------------------------------------


@pytest.mark.parametrize("instance", [None, "p"])
def test_a_repeated_first_join_makes_no_second_member(c: Mixed, instance: str | None):
    """I7: a gateway or a client sends a first join again, under its request id, if the response is lost."""
    c.plays("T:4\nX 0 -> 2 {0 1 2 3}")
    protocols = (Protocol("range", write_subscription(Subscription(("T",)))),)
    request = JoinGroup(
        request_id="first",
        reply_to="box",
        group_id="g",
        group_instance_id=instance,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        protocol_type="consumer",
        protocols=protocols,
        require_known_member_id=False,
    )
    joined = []
    for offset in (101, 102):
        c.steps([Received(offset, c.now_ms, request)])
        joined += [o.answer for o in c.latest if isinstance(o, Reply) and isinstance(o.answer, JoinGroupAnswer)]
    assert joined[0] == joined[1]
    assert list(c.group.members) == ["X", joined[0].member_id]
    assert not c.events(MemberFenced)


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_heartbeat_makes_a_classic_member_one_of_the_consumer_protocol(c: Mixed, epoch: int):
    """next-generation.md 3.1, step 2: at whatever epoch; its session timeout is that of the protocol."""
    _, q = classic(c)
    c.plays("X 0 -> 3 {}")
    c.beats(q, 2)
    fields: dict[str, Any] = {"member_epoch": epoch}
    if not epoch:
        fields.update(rebalance_timeout_ms=30_000, subscribed_topic_names=("T",), topic_partitions=())
    assert c.sends(ConsumerGroupHeartbeat, member_id=q, **fields).code == 0
    assert c.group.members[q].classic is None
    assert c.group.hot_state.sessions[q].timeout_ms == c.config.group_consumer_session_timeout_ms
    assert q not in c.group.hot_state.joins


def test_an_upgrade_and_a_downgrade(c: Mixed):
    """next-generation.md 12: the conversation that Kafka's classes have answered."""
    p, q = classic(c)
    c.plays("X 0 -> 3 {}\n= Reconciling 3 3")
    assert (c.beats(p, 2), c.beats(q, 2)) == (27, 27)
    joined = c.joins(q, owned={"T": [2, 3]})
    assert (joined.generation_id, joined.leader, joined.members, joined.protocol_name) == (3, "", (), "range")
    assert c.syncs(q, 3) == "2 3"
    assert c.joins(p, instance="p", owned={"T": [0, 1]}).generation_id == 2  # cooperative: it gives up 1 first
    assert c.syncs(p, 2) == "0"
    assert c.beats(p, 2) == 27
    assert c.joins(p, instance="p", owned={"T": [0]}).generation_id == 3
    assert c.syncs(p, 3) == "0"
    c.plays("X 3 -> 3 {1}\n= Stable 3 3")
    c.plays("X -1 -> -1")
    group = c.shard.group("g")
    assert group is not None
    assert (group.generation_id, group.phase.value) == (3, "PreparingRebalance")
    assert (c.beats(p, 3), c.beats(q, 3)) == (27, 27)  # the generation that they know
    assert [(e.group_type, e.members, e.generation_before) for e in c.events(GroupConverted)] == [
        ("consumer", 2, 2),
        ("classic", 2, 3),
    ]


def test_an_eager_member_gives_up_and_takes_by_one_join(c: Mixed):
    """Its subscription names no owned partitions, so it has confirmed all."""
    p, _ = classic(c)
    c.plays("X 0 -> 3 {}")
    assert c.beats(p, 2) == 27
    assert c.joins(p, instance="p").generation_id == 3
    assert c.syncs(p, 3) == "0"
    c.plays("X 3 -> 3 {1}")


def test_a_new_member_of_the_classic_protocol_joins(c: Mixed):
    c.plays("T:4\nA 0 -> 2 {0 1 2 3}\n-- 1000")
    asked = c.joins(require_known_member_id=True)
    assert (asked.code, len(asked.member_id), len(c.group.members)) == (79, 36, 1)
    joined = c.joins(asked.member_id)
    assert (joined.member_id, joined.generation_id) == (asked.member_id, 3)
    assert c.syncs(asked.member_id, 3) == ""
    assert c.beats(asked.member_id, 3) == 0  # not all that it waits for is free
    c.plays("A 2 -> 2 {0 1}\nA 2 own 0 1 -> 3")
    notices = [o.answer for o in c.latest if isinstance(o, Reply) and isinstance(o.answer, RebalanceNotice)]
    assert [notice.member_id for notice in notices] == [asked.member_id]
    assert c.beats(asked.member_id, 3) == 27
    assert c.joins(asked.member_id, owned={}).generation_id == 3
    assert c.syncs(asked.member_id, 3) == "2 3"
    c.plays("= Stable 3 3")


def test_any_member_id_may_join(c: Mixed):
    """As in Kafka: a dynamic member with an unknown id is a new member with that id."""
    c.plays("T:2\nA 0 -> 2 {0 1}")
    assert c.joins("made-up").member_id == "made-up"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocol_type": "connect"}, 23),
        ({"protocols": ()}, 23),
        ({"protocols": (Protocol("sticky", b"\0" * 10),)}, 23),
        ({"protocols": (Protocol("range", b"\x00"),)}, 23),
        ({"name": "N", "instance": "unknown"}, 25),
        ({"name": "N", "instance": "s"}, 82),
        ({"session_timeout_ms": 1}, 26),
    ],
)
def test_a_join_that_does_not_fit_is_refused(c: Mixed, fields: dict[str, Any], code: int):
    c.plays("T:2\nA(s) 0 -> 2 {0 1}")
    assert c.joins("C").code == 0
    assert c.joins(**fields).code == code
    assert list(c.group.members) == ["A", "C"]


def test_a_full_group_takes_no_other_classic_member():
    c = Mixed(group_consumer_max_size=1).plays("T:1\nA 0 -> 2 {0}")
    assert isinstance(c, Mixed)
    assert c.joins("B").code == 81


def test_requests_of_classic_members_are_checked(c: Mixed):
    c.plays("T:2\nA 0 -> 2 {0 1}")
    assert c.joins("C").generation_id == 2
    assert c.syncs("C", 2, protocol_name="roundrobin") == "23"
    assert c.syncs("C", 2, protocol_type="connect") == "23"
    assert c.syncs("C", 1) == "22"
    assert c.syncs("A", 2) == "25"
    assert c.syncs("C", 2, group_instance_id="i") == "25"
    c.plays("S(s) 0 names none -> 2 {}")
    assert c.syncs("C", 2, group_instance_id="s") == "82"
    assert c.beats("C", 3) == 22
    assert c.beats("A", 2) == 25


def test_the_commits_of_a_classic_member_are_checked_by_its_generation(c: Mixed):
    c.plays("T:2\nA 0 -> 2 {0 1}")
    c.joins("C")
    offsets = (OffsetToCommit("T", 0, 1),)
    for generation_id, code in ((2, 0), (3, 22), (1, 22)):
        commit = c.sends(OffsetCommit, member_id="C", generation_id=generation_id, offsets=offsets, version=2)
        assert commit.partitions[0].code == code
    assert c.sends(OffsetFetch, member_id="C", generation_id=1, topics=()).code == 22


def test_a_static_member_of_the_classic_protocol_takes_its_place(c: Mixed):
    """Whatever the epoch of the holder, it needs not have left."""
    c.plays("T:2\nA(i) 0 -> 2 {0 1}\nB 0 names none -> 2 {}")
    joined = c.joins(instance="i")
    assert (joined.code, joined.generation_id) == (0, 2)
    assert c.syncs(joined.member_id, 2, group_instance_id="i") == "0 1"
    assert [(e.member_id, e.replaced_by) for e in c.events(MemberFenced)] == [("A", joined.member_id)]
    c.plays("A(i) 2 -> 82\n= Stable 2 2\nA3(i) 0 -> 2 {0 1}\n= Stable 2 2")


def test_the_last_consumer_is_replaced_without_a_rebalance(c: Mixed):
    """next-generation.md 8.4: if the plan was not stale, nobody has to join again."""
    c.plays("T:2\nA(i) 0 -> 2 {0 1}")
    joined = c.joins(instance="i")
    group = c.shard.group("g")
    assert group is not None
    assert (group.phase.value, group.generation_id, group.leader_id) == ("Stable", 2, joined.member_id)
    assert c.syncs(joined.member_id, 2, group_instance_id="i") == "0 1"
    assert c.beats(joined.member_id, 2) == 0


def test_a_classic_member_that_does_not_do_as_told_is_dropped(c: Mixed):
    c.plays("T:4\nA 0 -> 2 {0 1 2 3}\n-- 1000")
    c.joins("C", session_timeout_ms=1_800_000)
    c.joins("D", session_timeout_ms=1_800_000)
    assert c.syncs("D", 3) == ""
    for _ in range(4):
        c.passes(5_000)
        c.sends(ConsumerGroupHeartbeat, member_id="A", member_epoch=c.group.epoch_of("A"))
    assert [(e.member_id, e.why) for e in c.events(MemberExpired)][:1] == [("C", "syncs_overdue")]


# -- conversions -------------------------------------------------------------------------------------------------------


def test_a_group_is_converted_when_its_partitions_are_known(c: Mixed):
    """Without that, partitions in use would look free; the answer asks for the topics."""
    p, q = classic(c)
    fields: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "topic_partitions": ()}
    answer = c.sends(ConsumerGroupHeartbeat, member_id="X", subscribed_topic_names=("U",), **fields)
    assert (answer.code, answer.ask) == (14, Ask(("T",)))
    assert c.shard.group("g") is not None
    facts = (c.fact("T"), c.fact("U"))
    answer = c.sends(ConsumerGroupHeartbeat, member_id="X", subscribed_topic_names=("U",), topics=facts, **fields)
    assert (answer.code, answer.member_epoch) == (0, 3)
    assert {m: sorted(n for ns in each.assigned.values() for n in ns) for m, each in c.group.members.items()} == {
        p: [0, 1],
        q: [2, 3],
        "X": [],
    }


def test_parked_requests_are_answered_by_a_conversion(c: Mixed):
    _, q = classic(c)
    assert c.joins() is None
    assert c.joins(q) is None
    c.plays("X 0 -> 3 {}")
    answers = [o.answer for o in c.latest if isinstance(o, Reply) and isinstance(o.answer, JoinGroupAnswer)]
    assert [answer.code for answer in answers] == [27, 27]


def test_a_group_in_its_first_round_is_not_converted_yet():
    """COORDINATOR_LOAD_IN_PROGRESS: the client tries again (Kafka fails with UNKNOWN_SERVER_ERROR)."""
    c = Mixed(group_initial_rebalance_delay_ms=3_000)
    assert c.joins() is None
    c.plays("T:1\nX 0 -> 14\nX 2 -> 69")


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_a_policy_forbids_the_upgrade(policy: str):
    c = Mixed(group_initial_rebalance_delay_ms=0, group_consumer_migration_policy=policy)
    classic(c)
    c.plays("X 0 -> 69")


def test_a_policy_forbids_the_downgrade():
    """The group stays one of the consumer protocol, and the coordinator plans for its classic members."""
    c = Mixed(group_consumer_migration_policy="upgrade")
    c.plays("T:2\nA 0 -> 2 {0 1}\n-- 1000")
    c.joins("C")
    c.plays("A -1 -> -1\n-- 1000\n= Reconciling 4 4")
    assert c.beats("C", 3) == 27
    assert c.joins("C").generation_id == 4
    assert c.syncs("C", 4) == "0 1"


def test_members_with_an_assignor_of_their_own_are_not_converted(c: Mixed):
    c.counts["T"] = 1
    joined = c.joins()
    data = assignment({"T": [0]})[:-4] + b"\x00\x00\x00\x01x"
    c.sends(SyncGroup, member_id=joined.member_id, generation_id=1, assignments=(Assignment(joined.member_id, data),))
    c.plays("X 0 -> 69")


def test_a_group_that_is_not_of_consumers_is_not_converted(c: Mixed):
    c.joins(protocol_type="connect")
    c.plays("T:1\nX 0 -> 69")


def test_a_refused_heartbeat_converts_nothing(c: Mixed):
    """next-generation.md 1.3: 128 comes from a check of the converted group, after the checks of the conversion."""
    classic(c)
    fields: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "topic_partitions": (), "topics": (c.fact("T"),)}
    fields |= {"subscribed_topic_regex": "(", "regex_error": "missing )"}
    before = c.shard.group("g")
    answer = c.sends(ConsumerGroupHeartbeat, member_id="X", **fields)
    assert (answer.code, answer.error_message) == (128, "missing )")
    assert c.shard.group("g") == before
    assert c.sends(ConsumerGroupHeartbeat, member_id="X", **{**fields, "topics": ()}).code == 14


def test_a_dynamic_member_changes_its_protocol(c: Mixed):
    """Under its own id it goes on as the same member."""
    _, q = classic(c)
    fields: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "topic_partitions": (), "subscribed_topic_names": ()}
    assert c.sends(ConsumerGroupHeartbeat, member_id="X", topics=(c.fact("T"),), **fields).member_epoch == 2
    assert c.sends(LeaveGroup, members=(Leaving("", "p"),)).members[0].code == 0
    c.plays(f"{q} 0 -> 3 {{0 1 2 3}}")
    assert c.group.members[q].classic is None
    assert not c.group.hot_state.sessions[q].is_classic


def test_a_static_member_changes_its_protocol_without_a_rebalance(c: Mixed):
    """next-generation.md 8.5: the same partitions, no epoch more."""
    classic(c)
    c.plays("P2(p) 0 -> 2 {0 1}\n= Stable 2 2")


def test_a_description_names_the_protocol_of_each_member():
    """The column UPGRADED of kafka-consumer-groups."""
    c = Mixed().plays("""
        T:4
        A 0  -> 2 {0 1 2 3}
    """)
    c.joins("P")
    members = c.sends(ConsumerGroupDescribe).members
    assert {member.member_id: member.is_classic for member in members} == {"A": False, "P": True}


def test_an_empty_group_knows_no_member_id(c: Mixed):
    """UNKNOWN_MEMBER_ID, and the group stays as it is (next-generation.md 8.1)."""
    c.plays("""
        T:2
        A 0   -> 2 {0 1}
        A -1  -> -1
    """)
    before = c.group.generation_id
    assert c.joins("made-up").code == c.joins("made-up", instance="i").code == 25
    assert (c.group.generation_id, c.group.phase.value) == (before, "Empty")
