"""Static members and administration on the real broker and the real query."""

from typing import Any

import pytest

from coordinator.messages.requests import (
    DeleteGroup,
    ExpelMember,
    ListGroups,
    OffsetDelete,
    RebalanceGroup,
    TopicPartitions,
)
from streaming.administration.shards import list_groups
from streaming.query.coordinator import Coordinator
from tests.system.asking import TOLD_BY_THE_TRANSPORT, Asker
from tests.system.reading import Reader


@pytest.fixture
def reader(coordinator: Coordinator, asker: Asker) -> Reader:
    return Reader(coordinator.settings, asker.group_id)


def test_static_member_restarts_without_a_rebalance(asker: Asker, reader: Reader) -> None:
    """S44, S101: the restarted member gets the same partitions and a new id, and the old process is fenced."""
    joined = asker.ask(asker.joining(group_instance_id="worker-1"))
    old = joined.member_id
    assert old.startswith("worker-1-")
    assert asker.ask(asker.syncing(1, old, {old: b"mine"})).assignment == b"mine"

    back = asker.ask(asker.joining(group_instance_id="worker-1", client_host="/10.0.0.7"))
    assert (back.error, back.generation_id, back.skip_assignment) == ("NONE", 1, True)
    assert back.leader == back.member_id != old
    assert asker.ask(asker.syncing(1, back.member_id)).assignment == b"mine"
    assert asker.heartbeat(1, old, group_instance_id="worker-1").error == "FENCED_INSTANCE_ID"
    assert asker.heartbeat(1, old).error == "UNKNOWN_MEMBER_ID"
    assert asker.heartbeat(1, back.member_id, group_instance_id="worker-1").error == "NONE"
    (member,) = asker.describe().members
    assert (member.group_instance_id, member.client_host) == ("worker-1", "/10.0.0.7")

    fenced = reader.await_event("member_fenced")
    assert (fenced["member_id"], fenced["replaced_by"]) == (old, back.member_id)
    assert len(named(reader, "rebalance_started")) == 1


def test_operator_rebalances_expels_and_deletes(asker: Asker, reader: Reader) -> None:
    """S50: the events have the cause of each action. A group that is made again continues to count generations."""
    ana, generation = asker.alone(client_id="ana")
    assert asker.commit(generation, ana, 7).error == "NONE"
    asked = asker.administer(RebalanceGroup, reason="new disks")
    assert (asked.error, asked.state.value) == ("NONE", "PreparingRebalance")
    assert asker.ask(asker.joining(ana, "ana")).generation_id == 2
    assert asker.ask(asker.syncing(2, ana, {ana: b"mine"})).error == "NONE"

    listed = list_groups(asker.transport, ListGroups(**TOLD_BY_THE_TRANSPORT, states=("stable",)))
    assert [(g.protocol_type, g.type) for g in listed.groups if g.group_id == asker.group_id] == [("work", "classic")]
    topics = (TopicPartitions("t", (0, 5)),)
    assert asker.administer(OffsetDelete, topics=topics).error == "NON_EMPTY_GROUP"
    assert asker.administer(DeleteGroup).error == "NON_EMPTY_GROUP"
    assert asker.administer(ExpelMember, member_id=ana, reason="stuck").error == "NONE"
    assert asker.heartbeat(2, ana).error == "UNKNOWN_MEMBER_ID"
    assert [p.error for p in asker.administer(OffsetDelete, topics=topics).partitions] == ["NONE", "NONE"]
    assert asker.fetch() == {}
    assert asker.administer(DeleteGroup).error == "NONE"
    assert asker.administer(DeleteGroup).error == "GROUP_ID_NOT_FOUND"
    assert asker.describe().state.value == "Dead"
    assert asker.alone(client_id="bo")[1] == 4

    causes = [(e["cause"], e["reason"]) for e in named(reader, "rebalance_started")]
    wishes = [("operator", "new disks"), ("operator", "stuck")]
    assert causes == [("member_joined", None), *wishes, ("member_joined", None)]
    expired = [(e["member_id"], e["why"], e["reason"]) for e in named(reader, "member_expired")]
    assert expired == [(ana, "expelled", "stuck")]
    assert [e["partitions"] for e in named(reader, "offsets_deleted")] == [[["t", 0]]]


def named(reader: Reader, name: str) -> list[dict[str, Any]]:
    return [event for event in reader.events() if event["event"] == name]
