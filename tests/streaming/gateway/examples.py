"""A request of each kind with all of its fields, its form in older versions, and responses to it."""

from typing import Any

from msgspec.structs import replace

from coordinator.base.errors import ErrorCode
from coordinator.base.states import Phase
from coordinator.messages import requests
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import Request
from coordinator.messages.responses import (
    AnyAnswer,
    CommittedPartition,
    DeletedPartition,
    DeleteGroupAnswer,
    DescribedMember,
    DescribeGroupAnswer,
    FetchedOffset,
    HeartbeatAnswer,
    JoinedMember,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    LeftMember,
    ListedGroup,
    ListGroupsAnswer,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    SyncGroupAnswer,
)
from tests.streaming.gateway.wiring import FakeAsker

WHO: dict[str, Any] = {"request_id": "1", **FakeAsker().common, "group_id": "g"}
BINARY = bytes(range(256))


def ended(code: ErrorCode) -> dict[str, Any]:
    return {"error": code.name, "code": code.number}


OFFSETS = (
    requests.OffsetToCommit("t", 0, 2**63 - 1, 7, "añb"),
    requests.OffsetToCommit("t", 2, 1, -1, None),
    requests.OffsetToCommit("u", 1, 0, 0, ""),
)

REQUESTS: dict[str, Request] = {
    "JoinGroup": requests.JoinGroup(
        **WHO,
        member_id="ana-1",
        group_instance_id="i",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=9_000,
        protocol_type="consumer",
        protocols=(requests.Protocol("range", BINARY), requests.Protocol("sticky", b"")),
        reason="because",
    ),
    "SyncGroup": requests.SyncGroup(
        **WHO,
        generation_id=3,
        member_id="ana-1",
        group_instance_id="i",
        protocol_type="consumer",
        protocol_name="range",
        assignments=(requests.Assignment("ana-1", BINARY), requests.Assignment("bo-1", b"")),
    ),
    "Heartbeat": Heartbeat(**WHO, generation_id=3, member_id="ana-1", group_instance_id="i"),
    "LeaveGroup": requests.LeaveGroup(
        **WHO, members=(requests.Leaving("ana-1", "i", "because"), requests.Leaving("", "j"))
    ),
    "OffsetCommit": requests.OffsetCommit(
        **WHO,
        generation_id=3,
        member_id="ana-1",
        group_instance_id="i",
        offsets=OFFSETS,
    ),
    "OffsetFetch": requests.OffsetFetch(
        **WHO,
        topics=(requests.TopicPartitions("t", (0, 2)), requests.TopicPartitions("nowhere", (9,))),
        member_id="ana-1",
        generation_id=3,
    ),
    "OffsetDelete": requests.OffsetDelete(
        **WHO, topics=(requests.TopicPartitions("t", (0, 2)), requests.TopicPartitions("u", (1,)))
    ),
    "DescribeGroups": requests.DescribeGroup(**WHO),
    "ListGroups": requests.ListGroups(**WHO | {"group_id": ""}, states=("Stable", "empty"), types=("classic",)),
    "DeleteGroups": requests.DeleteGroup(**WHO),
}

UNTIL: dict[str, list[tuple[int, dict[str, Any]]]] = {
    # the values that a client sends before a version: none, or the value that was implied before that version
    "JoinGroup": [
        (9, {"supports_skipping_assignment": False}),
        (8, {"reason": None}),
        (5, {"group_instance_id": None}),
        (4, {"require_known_member_id": False}),
        (1, {"rebalance_timeout_ms": 6_000}),
    ],
    "SyncGroup": [(5, {"protocol_type": None, "protocol_name": None}), (3, {"group_instance_id": None})],
    "Heartbeat": [(3, {"group_instance_id": None})],
    "LeaveGroup": [
        (5, {"members": (requests.Leaving("ana-1", "i"), requests.Leaving("", "j"))}),
        (3, {"members": (requests.Leaving("ana-1"),)}),
    ],
    "OffsetCommit": [
        (7, {"group_instance_id": None}),
        (6, {"offsets": tuple(replace(o, leader_epoch=-1) for o in OFFSETS)}),
    ],
    "OffsetFetch": [(9, {"member_id": None, "generation_id": -1})],
    "ListGroups": [(5, {"types": ()}), (4, {"states": ()})],
}


def as_sent(name: str, version: int) -> Request:
    """Return the request as a client of that version sends it."""
    unsaid = {field: value for until, older in UNTIL.get(name, ()) if version < until for field, value in older.items()}
    if name == "OffsetCommit":
        unsaid["version"] = version
    return replace(REQUESTS[name], **unsaid)


JOINED = JoinGroupAnswer(
    request_id="1",
    generation_id=3,
    protocol_type="consumer",
    protocol_name="range",
    leader="ana-1",
    skip_assignment=False,
    member_id="ana-1",
    members=(JoinedMember("ana-1", "i", BINARY), JoinedMember("bo-1", None, b"")),
)
DESCRIBED = DescribeGroupAnswer(
    request_id="1",
    group_id="g",
    state=Phase.STABLE,
    protocol_type="consumer",
    protocol_name="range",
    members=(DescribedMember("ana-1", "i", "ana", "/127.0.0.1", 6_000, 9_000, BINARY, b"plan", None),),
)
OK, UNKNOWN = ended(ErrorCode.NONE), ended(ErrorCode.UNKNOWN_MEMBER_ID)

ANSWERS: dict[str, list[AnyAnswer]] = {
    "JoinGroup": [
        JOINED,
        replace(JOINED, member_id="bo-1", members=()),
        JoinGroupAnswer(request_id="1", member_id="ana-1", **ended(ErrorCode.MEMBER_ID_REQUIRED)),
        JoinGroupAnswer(request_id="1", **ended(ErrorCode.GROUP_MAX_SIZE_REACHED)),
    ],
    "SyncGroup": [
        SyncGroupAnswer(request_id="1", protocol_type="consumer", protocol_name="range", assignment=BINARY),
        SyncGroupAnswer(request_id="1", **ended(ErrorCode.REBALANCE_IN_PROGRESS)),
    ],
    "Heartbeat": [
        HeartbeatAnswer(request_id="1"),
        HeartbeatAnswer(request_id="1", **ended(ErrorCode.REBALANCE_IN_PROGRESS)),
        HeartbeatAnswer(request_id="1", **ended(ErrorCode.FENCED_INSTANCE_ID)),
    ],
    "LeaveGroup": [
        LeaveGroupAnswer(request_id="1", members=(LeftMember("ana-1", "i", **OK), LeftMember("", "j", **UNKNOWN))),
        LeaveGroupAnswer(request_id="1", members=(LeftMember("ana-1", None, **UNKNOWN),)),
    ],
    "OffsetCommit": [
        OffsetCommitAnswer(
            request_id="1",
            partitions=(
                CommittedPartition("t", 0, **OK),
                CommittedPartition("t", 2, **ended(ErrorCode.OFFSET_METADATA_TOO_LARGE)),
                CommittedPartition("u", 1, **OK),
            ),
        ),
        OffsetCommitAnswer(
            request_id="1",
            **ended(ErrorCode.GROUP_ID_NOT_FOUND),
            partitions=tuple(
                CommittedPartition(topic, p, **ended(ErrorCode.GROUP_ID_NOT_FOUND))
                for topic, p in (("t", 0), ("t", 2), ("u", 1))
            ),
        ),
    ],
    "OffsetFetch": [
        OffsetFetchAnswer(
            request_id="1",
            partitions=(
                FetchedOffset("t", 0, 2**63 - 1, 7, "añb"),
                FetchedOffset("t", 2),
                FetchedOffset("nowhere", 9, **ended(ErrorCode.UNSTABLE_OFFSET_COMMIT)),
            ),
        ),
    ],
    "OffsetDelete": [
        OffsetDeleteAnswer(
            request_id="1",
            partitions=(
                DeletedPartition("t", 0, **OK),
                DeletedPartition("t", 2, **OK),
                DeletedPartition("u", 1, **ended(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)),
            ),
        ),
        OffsetDeleteAnswer(request_id="1", **ended(ErrorCode.NON_EMPTY_GROUP)),
    ],
    "DescribeGroups": [DESCRIBED, DescribeGroupAnswer(request_id="1", group_id="g")],
    "ListGroups": [
        ListGroupsAnswer(
            request_id="1",
            groups=(
                ListedGroup("g", "consumer", Phase.STABLE, "classic"),
                ListedGroup("g2", "", Phase.EMPTY, "classic"),
            ),
        ),
    ],
    "DeleteGroups": [
        DeleteGroupAnswer(request_id="1"),
        DeleteGroupAnswer(request_id="1", **ended(ErrorCode.NON_EMPTY_GROUP)),
    ],
}
