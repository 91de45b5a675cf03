"""Views of a few example groups, written by hand; the expected output of the commands shows them.

`orders` has three members and four partitions of `t`: ana is the first member, bo and cy join, cy gets no partition,
and bo becomes silent and is dropped. `idle` has offsets and no members; `moving` rebalances. The ids of the group
`EVIL` are hostile text.
"""

from datetime import UTC, datetime
from typing import Any

from coordinator.base.states import Phase
from coordinator.messages.events import (
    AnyEvent,
    AssignmentChanged,
    Handover,
    MemberExpired,
    MemberJoined,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.messages.group_records import GroupMember, GroupRecord, OffsetRecord
from streaming.views import Raw, Views
from streaming.views.state.lag import Bounds
from streaming.wire.records import OutputTopics, to_row

NOON_MS = int(datetime(2026, 9, 21, 12, tzinfo=UTC).timestamp() * 1_000)
ANA, BO, CY = (f"{name}-2a84c1d0-1111-2222-3333-44445555666{n}" for n, name in enumerate(("ana", "bo", "cy")))
EVIL = "=1+1\x1b]0;x\x07\r\n\u202e<b>[red]"
ENDS = {("t", 0): Bounds(0, 100), ("t", 1): Bounds(0, 50), ("t", 2): Bounds(0, 7)}


def member(member_id: str, instance: str | None = None, **assigned: list[int]) -> GroupMember:
    return GroupMember(
        member_id=member_id,
        group_instance_id=instance,
        client_id=member_id.partition("-")[0],
        client_host="/10.0.0.1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        assignment=b"",
        assigned=assigned,
    )


def group(group_id: str, version: int, *members: GroupMember, **fields: Any) -> GroupRecord:
    wanted = {
        "state": Phase.STABLE if members else Phase.EMPTY,
        "since_ms": NOON_MS + 61_000,
        "generation_id": 3,
        "protocol_type": "consumer",
        "protocol_name": "range" if members else None,
        "leader": members[0].member_id if members else None,
        "subscribed_topics": ("t",) if members else (),
        **fields,
    }
    return GroupRecord(group_id=group_id, version=version, members=members, **wanted)  # type: ignore[arg-type]


def offset(group_id: str, version: int, partition: int, at: int, topic: str = "t", **fields: Any) -> OffsetRecord:
    wanted = {
        "leader_epoch": 4,
        "metadata": "",
        "commit_timestamp_ms": NOON_MS + 62_000,
        "expire_timestamp_ms": None,
        "generation_id": 3,
        "member_id": ANA,
        **fields,
    }
    return OffsetRecord(group_id=group_id, version=version, topic=topic, partition=partition, offset=at, **wanted)


def event(kind: type[AnyEvent], version: int, after_ms: int, generation_id: int, **fields: Any) -> AnyEvent:
    common = {"group_id": "orders", "version": version, "at_ms": NOON_MS + after_ms, "generation_id": generation_id}
    return kind(**{**common, **fields})


def member_fields(member_id: str) -> dict[str, Any]:
    return {"member_id": member_id, "client_id": member_id.partition("-")[0], "client_host": "/10.0.0.1"}


def joined(version: int, after_ms: int, generation_id: int, member_id: str) -> AnyEvent:
    return event(
        MemberJoined, version, after_ms, generation_id, **member_fields(member_id), group_instance_id=None, reason=None
    )


def started(version: int, after_ms: int, generation_id: int, cause: str, member_id: str) -> AnyEvent:
    return event(
        RebalanceStarted, version, after_ms, generation_id, **member_fields(member_id),
        cause=cause, reason=None, members=1, joins_until_ms=NOON_MS + after_ms + 3_000,
    )  # fmt: skip


def completed(version: int, after_ms: int, generation_id: int, took_ms: int, *after: str, **fields: Any) -> AnyEvent:
    wanted = {"joined": (), "gone": (), "members_before": (), **fields}
    return event(
        RebalanceCompleted, version, after_ms, generation_id, duration_ms=took_ms, joins_ms=took_ms, syncs_ms=0,
        protocol_name="range", leader=ANA, members_after=after, fencing_token=(NOON_MS + after_ms) * 1_000, **wanted,
    )  # fmt: skip


def moved(version: int, after_ms: int, generation_id: int, *of: tuple[int, str | None, str | None]) -> AnyEvent:
    handovers = tuple(Handover("t", *each) for each in of)
    return event(AssignmentChanged, version, after_ms, generation_id, handovers=handovers)


HISTORY = [
    joined(1, 0, 0, ANA),
    started(2, 0, 0, "member_joined", ANA),
    completed(3, 3_000, 1, 3_000, ANA, joined=(ANA,)),
    moved(4, 3_000, 1, (0, None, ANA), (1, None, ANA), (2, None, ANA), (3, None, ANA)),
    joined(5, 10_000, 1, BO),
    started(6, 10_000, 1, "member_joined", BO),
    joined(7, 10_500, 1, CY),
    completed(8, 11_200, 2, 1_200, ANA, BO, CY, joined=(BO, CY)),
    moved(9, 11_200, 2, (2, ANA, BO), (3, ANA, BO)),
    event(MemberExpired, 10, 60_000, 2, **member_fields(BO), group_instance_id=None, why="session_expired",
          silence_ms=10_000, reason=None),
    started(11, 60_000, 2, "session_expired", BO),
    completed(12, 61_000, 3, 1_000, ANA, CY, gone=(BO,)),
    moved(13, 61_000, 3, (2, BO, ANA), (3, BO, ANA)),
]  # fmt: skip

RECORDS: list[GroupRecord | OffsetRecord] = [
    group("orders", 14, member(ANA, t=[0, 1, 2, 3]), member(CY, "desk-1", t=[])),
    *(offset("orders", 15 + partition, partition, at) for partition, at in enumerate((90, 50, 7))),
    group("idle", 1, protocol_type=None, since_ms=NOON_MS, generation_id=0),
    offset("idle", 2, 1, 40, generation_id=-1, member_id="", metadata="by hand"),
    offset("idle", 3, 0, 5, topic="gone"),
    group("moving", 1, member(ANA), state=Phase.PREPARING),
    group(EVIL, 1, member("@" + EVIL, EVIL, **{EVIL: [0]}), protocol_name=EVIL),
]

TOPICS = OutputTopics("replies", "groups", "events", "requests")


def example_views() -> Views:
    """Return the views of all example records."""
    views = Views()
    for offset_in_topic, each in enumerate(HISTORY):
        row = to_row(each, TOPICS, 0)
        views.fold(Raw("events", 0, offset_in_topic, each.at_ms, row.key, row.value), 0)
    for offset_in_topic, record in enumerate(RECORDS):
        views.fold(_raw(offset_in_topic, record), 0)
    return views


def _raw(offset_in_topic: int, record: GroupRecord | OffsetRecord) -> Raw:
    from coordinator.messages.group_records import Published

    key = ("group", record.group_id) if isinstance(record, GroupRecord) else (
        "offset", record.group_id, record.topic, record.partition
    )  # fmt: skip
    row = to_row(Published(record.group_id, key, record, record.version), TOPICS, 0)
    return Raw("groups", 0, offset_in_topic, NOON_MS, row.key, row.value)
