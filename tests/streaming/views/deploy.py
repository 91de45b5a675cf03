"""A group that lives through a deploy under policies, as its events and its record tell it.

c1, c2 and c3 own t-0, t-1 and t-2 in generation 2. c2 leaves, and d2 takes its seat after 4 s. d1 joins and stands by;
c1 leaves, and its seat passes to d1. c3 expires in a freeze, and d1 adopts its seat. f1 is in quarantine. d2 leaves,
and its seat is vacant now, while g1 stands by.
"""

from typing import Any

from coordinator.base.states import Phase
from coordinator.messages.events import (
    AnyEvent,
    AssignmentChanged,
    Handover,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.messages.group_records import GroupMember, GroupRecord, Hold
from coordinator.messages.policy_events import (
    FreezeBegun,
    FreezeBroken,
    MemberQuarantined,
    RebalanceHeld,
    SeatTaken,
    SeatVacated,
)
from streaming.views import GroupView, Views
from tests.streaming.views.golden_views import NOON_MS

S = 1_000


def event(kind: type[Any], after_ms: int, member_id: str | None = None, **fields: Any) -> Any:
    """Return an event of the group, some time after noon."""
    who: dict[str, Any] = {}
    if member_id is not None:
        who = {"member_id": member_id, "client_id": member_id.rstrip("0123456789"), "client_host": f"/{member_id}"}
        if "group_instance_id" in kind.__struct_fields__:
            who["group_instance_id"] = None
    common = {"group_id": "deploy", "version": after_ms + 1, "at_ms": NOON_MS + after_ms, "generation_id": 2}
    return kind(**common | who | fields)


def joined(after_ms: int, member_id: str) -> MemberJoined:
    return event(MemberJoined, after_ms, member_id, reason=None)  # type: ignore[no-any-return]


def left(after_ms: int, member_id: str) -> MemberLeft:
    return event(MemberLeft, after_ms, member_id, reason="closed")  # type: ignore[no-any-return]


def expired(after_ms: int, member_id: str) -> MemberExpired:
    why = {"why": "session_expired", "silence_ms": 45 * S, "reason": None}
    return event(MemberExpired, after_ms, member_id, **why)  # type: ignore[no-any-return]


def started(after_ms: int, cause: str, member_id: str, **fields: Any) -> RebalanceStarted:
    wanted = {"cause": cause, "reason": None, "members": 3, "joins_until_ms": NOON_MS + after_ms, **fields}
    return event(RebalanceStarted, after_ms, member_id, **wanted)  # type: ignore[no-any-return]


def completed(after_ms: int, token: int, *after: str, before: tuple[str, ...] = ()) -> RebalanceCompleted:
    return event(  # type: ignore[no-any-return]
        RebalanceCompleted, after_ms, duration_ms=S, joins_ms=S, syncs_ms=0, protocol_name="range", leader=after[0],
        members_before=before, members_after=after, joined=(), gone=(), fencing_token=token,
    )  # fmt: skip


def held(after_ms: int, member_id: str, until_ms: int, policy: str = "succession") -> RebalanceHeld:
    fields = {"policy": policy, "cause": "member_joined", "until_ms": NOON_MS + until_ms}
    return event(RebalanceHeld, after_ms, member_id, **fields)  # type: ignore[no-any-return]


def vacated(after_ms: int, member_id: str, until_ms: int, *numbers: int, **fields: Any) -> SeatVacated:
    wanted = {"policy": "succession", "cause": "member_left", "reason": None, **fields}
    wanted |= {"partitions": {"t": [*numbers]}, "until_ms": NOON_MS + until_ms}
    return event(SeatVacated, after_ms, member_id, **wanted)  # type: ignore[no-any-return]


def taken(after_ms: int, member_id: str, how: str, before: str, unowned_ms: int, *numbers: int) -> SeatTaken:
    wanted = {"how": how, "before": before, "partitions": {"t": [*numbers]}, "unowned_ms": unowned_ms}
    return event(SeatTaken, after_ms, member_id, **wanted, fencing_token=after_ms)  # type: ignore[no-any-return]


FOUNDED: list[AnyEvent] = [
    *(joined(0, member_id) for member_id in ("c1", "c2", "c3")),
    started(0, "member_joined", "c1"),
    completed(1 * S, 1, "c1", "c2", "c3"),
    event(AssignmentChanged, 1 * S, handovers=tuple(Handover("t", n, None, f"c{n + 1}") for n in range(3))),
]

DEPLOY: list[AnyEvent] = [
    left(10 * S, "c2"),
    vacated(10 * S, "c2", 40 * S, 1),
    joined(14 * S, "d2"),
    taken(14 * S, "d2", "took", "c2", 4 * S, 1),
    joined(20 * S, "d1"),
    held(20 * S, "d1", 80 * S),
    left(30 * S, "c1"),
    vacated(30 * S, "c1", 60 * S, 0),
    taken(30_300, "d1", "passed", "c1", 300, 0),
    expired(40 * S, "c3"),
    event(FreezeBegun, 40 * S, until_ms=NOON_MS + 7200 * S),
    vacated(40 * S, "c3", 100 * S, 2, policy="freeze", cause="session_expired"),
    event(FreezeBroken, 100 * S, "c3", why="unowned_too_long", how="adopted", until_ms=NOON_MS + 7200 * S),
    taken(100_100, "d1", "adopted", "c3", 60_100, 2),
    joined(110 * S, "f1"),
    event(MemberQuarantined, 110 * S, "f1", identity="f/f1", flaps=3, times=2, until_ms=NOON_MS + 300 * S),
    joined(112 * S, "g1"),
    held(112 * S, "g1", 7200 * S, "freeze"),
    left(115 * S, "d2"),
    vacated(115 * S, "d2", 175 * S, 1, policy="freeze"),
]

NOW_MS = NOON_MS + 124 * S
HOLD = Hold(
    since_ms=NOON_MS + 112 * S, until_ms=NOON_MS + 175 * S, frozen_until_ms=NOON_MS + 7200 * S, vacant=1, standing_by=1,
    quarantined=1,
)  # fmt: skip


def member(member_id: str, standing: str | None, *numbers: int) -> GroupMember:
    fields: dict[str, Any] = {} if standing is None else {"standing": standing}
    return GroupMember(
        member_id=member_id, group_instance_id=None, client_id=member_id[0], client_host=f"/{member_id}",
        session_timeout_ms=45 * S, rebalance_timeout_ms=60 * S, assignment=b"", assigned={"t": [*numbers]}, **fields,
    )  # fmt: skip


RECORD = GroupRecord(
    group_id="deploy", state=Phase.STABLE, since_ms=NOON_MS + 1 * S, generation_id=2, protocol_type="consumer",
    protocol_name="range", leader="d1", subscribed_topics=("t",), version=999_999, hold=HOLD,
    members=(member("d1", None, 0, 2), member("f1", "quarantined"), member("g1", "standing_by")),
)  # fmt: skip


def view(*events: AnyEvent, record: GroupRecord | None = None) -> GroupView:
    """Return a group with a history."""
    group = GroupView("deploy", 0, record=record)
    for each in events:
        group.add(each, 1_000_000)
    return group


def deploy_views() -> Views:
    """Return views of the deploy."""
    return Views(groups={"deploy": view(*FOUNDED, *DEPLOY, record=RECORD)})
