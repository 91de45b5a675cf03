"""The translation of streams and share groups, in what the recordings of real clients do not show."""

import pytest
from msgspec import UNSET

from coordinator.base.states import Phase
from coordinator.messages.events import GroupConverted, MemberAway, RebalanceCompleted, RebalanceStarted
from coordinator.messages.group_records import Subtopology, Tasks, Topology
from coordinator.messages.observed_events import MemberGone
from streaming.observe.schemas import Kind
from tests.streaming.observe.log import Log, events, groups, told
from tests.streaming.observe.writing import (
    Written,
    classic,
    commit,
    gone,
    member,
    share_current,
    share_group,
    share_member,
    share_partitions,
    share_target_epoch,
    streams_current,
    streams_group,
    streams_member,
    streams_target,
    streams_target_epoch,
    topology,
    write,
)

TWO = {"0": [0, 1], "1": [0]}


def of_one(**fields: str) -> Log:
    """Return the log of a streams group with one member, which has all tasks in epoch 2."""
    log = Log().append(1_000, streams_member("w", "A", **fields), topology("w", _0=("lines",), _1=("words",)),
                       streams_group("w", 2, 7, configs={"num.standby.replicas": "0"}), streams_target("w", "A", TWO),
                       streams_target_epoch("w", 2, 1_000), streams_current("w", "A", 2, TWO))  # fmt: skip
    log.read()
    return log


def causes(log: Log) -> list[str]:
    return [each.cause for each in events(log.read(), RebalanceStarted)]


def test_streams_group_has_the_partitions_that_its_tasks_read() -> None:
    (record,) = groups(of_one().outputs)
    assert (record.type, record.state, record.generation_id, record.assignment_epoch) == ("streams", Phase.STABLE, 2, 2)
    assert (record.protocol_type, record.protocol_name, record.leader) == ("streams", None, None)
    assert record.subscribed_topics == ("lines", "w-0-changelog", "w-1-changelog", "words")
    subtopologies = {"0": Subtopology(("lines",), changelogs=("w-0-changelog",)),
                     "1": Subtopology(("words",), changelogs=("w-1-changelog",))}  # fmt: skip
    assert record.topology == Topology(0, 0, subtopologies, {"num.standby.replicas": "0"})
    (only,) = record.members
    assert only.assigned == {"lines": [0, 1], "words": [0]}
    assert (only.protocol, only.member_epoch, only.state, only.subscribed_topics) == ("streams", 2, "stable", UNSET)
    assert only.streams is not UNSET
    assert (only.streams.process_id, only.streams.assigned, only.streams.target) == ("p", Tasks(TWO), Tasks(TWO))


def test_member_of_a_streams_group_may_have_an_endpoint_tags_and_standby_tasks() -> None:
    log = of_one()
    log.append(2_000, streams_member("w", "A", endpoint=("host", 65_000), tags={"zone": "a"}),
               streams_group("w", 3, 7, configs={"num.standby.replicas": "0"}),
               streams_target("w", "A", {"0": [0]}, {"0": [1]}), streams_target_epoch("w", 3, 2_000),
               streams_current("w", "A", 2, {"0": [0]}, {"0": [1]}, {"1": [0]}, state=2))  # fmt: skip
    log.read()
    (member_now,) = groups(log.outputs)[-1].members
    assert (member_now.state, member_now.assigned) == ("unrevoked", {"lines": [0], "words": [0]})
    assert member_now.revoking == {"words": [0]}
    assert member_now.streams is not UNSET
    assert (member_now.streams.endpoint, member_now.streams.client_tags) == ("host:65000", {"zone": "a"})
    assert member_now.streams.assigned == Tasks({"0": [0]}, {"0": [1]})
    assert member_now.streams.revoking == Tasks({"1": [0]})
    (began,) = events(log.outputs, RebalanceStarted)[1:]
    assert (began.cause, began.member_id, began.changed) == ("member_changed", "A", ("client_tags", "user_endpoint"))


@pytest.mark.parametrize(
    ("instance", "changed", "is_cause"),
    [
        (None, {"client_id": "bo"}, True),
        ("i", {"client_id": "bo"}, False),
        ("i", {"process_id": "q"}, True),
        ("i", {"rack": "b"}, True),
    ],
)
def test_only_some_changes_of_a_static_member_raise_the_epoch(
    instance: str | None, changed: dict[str, str], is_cause: bool
) -> None:
    log = of_one(**{"instance": instance} if instance else {})
    log.append(2_000, streams_member("w", "A", instance=instance, **changed), streams_group("w", 3, 7, configs={
        "num.standby.replicas": "0"}))  # fmt: skip
    assert causes(log) == (["member_changed"] if is_cause else ["unknown"])


@pytest.mark.parametrize(
    ("validated", "metadata_hash", "configs", "wanted"),
    [
        (0, 7, {"num.standby.replicas": "0"}, ["unknown"]),
        (0, 8, {"num.standby.replicas": "0"}, ["topics_changed"]),
        (-1, 8, {"num.standby.replicas": "0"}, ["topics_changed", "topology_not_ready"]),
        (-1, 7, {"num.standby.replicas": "0"}, ["topology_not_ready"]),
        (0, 7, {"num.standby.replicas": "1"}, ["configs_changed"]),
        (0, 7, {}, ["configs_changed"]),
    ],
)
def test_epoch_of_a_streams_group_has_the_causes_that_its_record_shows(
    validated: int, metadata_hash: int, configs: dict[str, str], wanted: list[str]
) -> None:
    log = of_one()
    log.append(2_000, streams_group("w", 3, metadata_hash, validated=validated, configs=configs))
    assert causes(log) == wanted
    state = Phase.NOT_READY if validated < 0 else Phase.ASSIGNING
    assert groups(log.outputs)[-1].state is state


def test_settings_of_a_streams_group_that_changed_are_named() -> None:
    log = of_one()
    log.append(2_000, streams_group("w", 3, 7, configs={"num.standby.replicas": "1", "rack.tags": "zone"}))
    log.read()
    began = events(log.outputs, RebalanceStarted)[-1]
    assert began.configs == {"num.standby.replicas": ("0", "1"), "rack.tags": (None, "zone")}


def test_topology_that_is_ready_again_is_a_cause() -> None:
    log = of_one()
    log.append(2_000, streams_group("w", 3, 8, validated=-1))
    log.append(3_000, streams_group("w", 4, 7, validated=0)).append(3_000, streams_target_epoch("w", 4, 3_000))
    assert causes(log)[-2:] == ["topics_changed", "topology_ready"]


def test_static_member_of_a_streams_group_goes_away_for_a_while() -> None:
    log = of_one(instance="i")
    log.append(2_000, streams_current("w", "A", -2, TWO))
    (away,) = events(log.read(), MemberAway)
    assert (away.group_instance_id, groups(log.outputs)[-1].state) == ("i", Phase.RECONCILING)


def test_member_of_a_streams_group_that_keeps_its_tasks_for_too_long_is_dropped() -> None:
    log = of_one()
    log.append(2_000, streams_current("w", "A", 2, {"0": [0]}, None, {"1": [0]}, state=2))
    log.append(302_000, gone(Kind.STREAMS_CURRENT, "w", "A"), gone(Kind.STREAMS_TARGET, "w", "A"),
               gone(Kind.STREAMS_MEMBER, "w", "A"), streams_group("w", 3, 7))  # fmt: skip
    (dropped,) = events(log.read(), MemberGone)
    assert dropped.likely == "revocation_overdue"


def test_task_goes_to_its_next_owner_without_the_record_that_gave_it_up() -> None:
    """A compaction has removed that record."""
    log = of_one()
    log.append(3_000, streams_member("w", "B", client_id="bo"), streams_group("w", 3, 7), streams_target_epoch("w", 3),
               streams_target("w", "B", {"1": [0]}), streams_current("w", "B", 3, {"1": [0]}))  # fmt: skip
    log.read()
    assert [line for line in told(log.outputs) if "assignment_changed" in line][-1].endswith("handovers=0:A>B")


def test_history_of_a_streams_group_begins_after_a_compaction() -> None:
    log = Log().hole(40)
    log.append(1_000, topology("w", _0=("lines",), _1=("words",))).hole().append(2_000, streams_member("w", "A"))
    log.append(3_000, streams_target("w", "A", TWO)).append(4_000, streams_current("w", "A", 9, TWO))
    log.append(5_000, streams_group("w", 9, 7)).append(6_000, streams_target_epoch("w", 9, 5_000))
    assert [line.split(" ", 2)[2] for line in told(log.read())][:1] == ["observation_began from_offset=40"]
    record = groups(log.outputs)[-1]
    assert (record.state, record.members[0].assigned) == (Phase.STABLE, {"lines": [0, 1], "words": [0]})
    assert not events(log.outputs, RebalanceStarted)


def test_group_with_offsets_alone_becomes_a_streams_group() -> None:
    """A classic group that is empty: its tombstone comes with the records of the streams group."""
    log = Log().append(500, classic("w", 3, 400)).append(600, commit("w", 0, 5, 600))
    log.read()
    log.append(1_000, gone(Kind.CLASSIC_GROUP, "w"), streams_member("w", "A"), topology("w", _0=("lines",)),
               streams_group("w", 2, 7), streams_target("w", "A", {"0": [0]}), streams_target_epoch("w", 2, 1_000),
               streams_current("w", "A", 2, {"0": [0]}))  # fmt: skip
    outputs = log.read()
    (converted,) = events(outputs, GroupConverted)
    assert (converted.group_type, converted.members) == ("streams", 1)
    assert [each.cause for each in events(outputs, RebalanceStarted)] == ["member_joined"]
    assert not any("group_deleted" in line for line in told(outputs))


def test_empty_streams_group_becomes_a_classic_one() -> None:
    """W9: one JoinGroup is enough, and Kafka writes all in one batch."""
    log = of_one()
    log.append(2_000, gone(Kind.STREAMS_CURRENT, "w", "A"), gone(Kind.STREAMS_TARGET, "w", "A"),
               gone(Kind.STREAMS_MEMBER, "w", "A"), streams_group("w", 3, 7))  # fmt: skip
    log.read()
    log.append(3_000, gone(Kind.STREAMS_TARGET_EPOCH, "w"), gone(Kind.STREAMS_GROUP, "w"),
               gone(Kind.STREAMS_TOPOLOGY, "w"), classic("w", 0, 3_000))  # fmt: skip
    outputs = log.read()
    (converted,) = events(outputs, GroupConverted)
    assert (converted.group_type, converted.generation_before) == ("classic", 3)
    (record,) = groups(outputs)
    assert (record.type, record.state, record.topology) == ("classic", Phase.EMPTY, UNSET)
    log.append(9_000, classic("w", 1, 8_000, member("bo-1", {"orders": [0]})))
    assert causes(log) == ["member_joined"], "the change of the protocol is no cause of it"


def test_streams_group_is_deleted() -> None:
    log = of_one()
    log.append(2_000, gone(Kind.STREAMS_CURRENT, "w", "A"), gone(Kind.STREAMS_TARGET, "w", "A"),
               gone(Kind.STREAMS_MEMBER, "w", "A"), streams_group("w", 3, 7))  # fmt: skip
    log.append(3_000, gone(Kind.STREAMS_TARGET_EPOCH, "w"), gone(Kind.STREAMS_GROUP, "w"),
               gone(Kind.STREAMS_TOPOLOGY, "w"))  # fmt: skip
    assert told(log.read())[-2:] == ["!! 3000 group_deleted why=no member and no offset left", "=> group forgotten"]


# -- share groups ------------------------------------------------------------------------------------------------------


def founding() -> list[Written]:
    return [share_member("s", "A"), share_group("s", 2, 7), share_target_epoch("s", 2), share_current("s", "A", 2),
            share_partitions("s", [0, 1], [])]  # fmt: skip


def test_share_group_waits_for_its_share_state() -> None:
    log = Log().append(1_000, *founding())
    log.read()
    (record,) = groups(log.outputs)
    assert (record.type, record.state, record.protocol_type) == ("share", Phase.STABLE, "share")
    assert record.initializing == {"orders": [0, 1]}, "the record has the name with the id"
    log.append(2_000, share_partitions("s", [], [0, 1]))
    log.append(3_000, share_group("s", 3, 7), share_target_epoch("s", 3), share_current("s", "A", 3, [0, 1]))
    outputs = log.read()
    (began,) = events(outputs, RebalanceStarted)
    assert (began.cause, began.topics_added, began.generation_id) == ("share_state_ready", ("orders",), 3)
    record = groups(outputs)[-1]
    assert (record.initializing, record.members[0].assigned) == ({}, {"orders": [0, 1]})


def test_several_members_of_a_share_group_may_have_one_partition() -> None:
    log = Log().append(1_000, *founding())
    log.append(2_000, share_partitions("s", [], [0]))
    log.append(3_000, share_group("s", 3, 7), share_target_epoch("s", 3), share_current("s", "A", 3, [0]))
    log.append(4_000, share_member("s", "B", client_id="bo"), share_group("s", 4, 7), share_target_epoch("s", 4),
               share_current("s", "A", 4, [0]), share_current("s", "B", 4, [0]))  # fmt: skip
    outputs = log.read()
    assert [each.assigned for each in groups(outputs)[-1].members] == [{"orders": [0]}, {"orders": [0]}]
    assert not any("assignment_changed" in line for line in told(outputs))
    assert events(outputs, RebalanceCompleted)[-1].joined == ("B",)


def test_member_of_a_share_group_subscribes_to_other_topics() -> None:
    log = Log().append(1_000, *founding())
    log.read()
    log.append(2_000, share_member("s", "A", topics=("orders", "refunds")), share_group("s", 3, 9))
    (began,) = events(log.read(), RebalanceStarted)
    assert (began.cause, began.topics_added) == ("subscription_changed", ("refunds",))


def test_share_state_that_is_taken_away_is_no_cause() -> None:
    log = Log().append(1_000, *founding()).append(2_000, share_partitions("s", [], [0, 1]))
    log.append(3_000, share_group("s", 3, 7), share_target_epoch("s", 3), share_current("s", "A", 3, [0, 1]))
    log.read()
    log.append(4_000, share_partitions("s", [], [])).append(5_000, share_group("s", 4, 8))
    assert causes(log) == ["topics_changed"]


def test_tombstone_of_the_share_state_is_read() -> None:
    log = Log().append(1_000, *founding()).append(2_000, write(Kind.SHARE_PARTITIONS, ["s"], None))
    log.read()
    assert groups(log.outputs)[-1].initializing == {}


def test_change_of_a_streams_member_that_raises_no_epoch_is_no_cause_of_a_later_one() -> None:
    log = of_one()
    log.append(2_000, streams_member("w", "A", client_id="bo"))
    log.append(3_000, streams_group("w", 3, 8, configs={"num.standby.replicas": "0"}))
    assert causes(log) == ["topics_changed"]
