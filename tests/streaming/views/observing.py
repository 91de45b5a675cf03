"""Hand-made events and records of groups that Kafka's own coordinator keeps, as `coordinator observe` writes them."""

from typing import Any

from coordinator.base.states import Phase
from coordinator.messages.events import (
    AnyEvent,
    AssignmentChanged,
    GroupEmptied,
    Handover,
    MemberFenced,
    MemberJoined,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.messages.group_records import GroupMember, GroupRecord, OffsetRecord, Published
from coordinator.messages.observed_events import (
    HistoryGap,
    MemberGone,
    ObservationBegan,
    OffsetsForgotten,
    OffsetsSet,
    SetOffset,
)
from streaming.views import Raw, Views
from streaming.wire.records import OutputTopics, to_row

T = 1_795_378_900_000
HOST = "/127.0.0.1"
TOPICS = OutputTopics("replies", "groups", "events", "requests")


def member_id(name: str, number: str = "1111") -> str:
    """Return a member id of the classic protocol; its short name is `name-number`."""
    return f"{name}-{number}0000-1111-2222-3333-444455556666"


class Observed:
    """The records of one group, in the order in which they are written. Times count from `began_ms`.

    Args:
        session_ms: The session timeout of all members.
        began_ms: The time that all times count from.
    """

    def __init__(
        self, group_id: str = "clicks", session_ms: int | None = 6_000, kind: str = "classic", began_ms: int = T
    ) -> None:
        self.began_ms = began_ms
        self.group_id, self.session_ms, self.kind = group_id, session_ms, kind
        self.version, self.generation_id, self.written = 0, 0, list[Any]()

    def add(self, kind: Any, at_ms: int, **fields: Any) -> "Observed":
        self.version += 1
        head = {"group_id": self.group_id, "version": self.version, "generation_id": self.generation_id}
        self.written.append(kind(**head, at_ms=self.began_ms + at_ms, **fields))
        return self

    def begins(self, at_ms: int = 0, *, founded: bool = False) -> "Observed":
        return self.add(ObservationBegan, at_ms, founded=founded, from_offset=17)

    def gap(self, at_ms: int, first: int, last: int) -> "Observed":
        return self.add(HistoryGap, at_ms, from_generation=first, to_generation=last, holes=True)

    def started(
        self,
        at_ms: int,
        cause: str,
        who: str = "",
        *,
        after_ms: int | None = None,
        is_inferred: bool = True,
        **fields: Any,
    ) -> "Observed":
        """Write a reason of a rebalance; it is inferred unless the group has the consumer protocol."""
        wanted: dict[str, Any] = {
            "cause": cause, "member_id": who, "client_id": who.partition("-")[0], "client_host": HOST if who else "",
            "reason": None, "members": 2, "how_known": "inferred" if is_inferred else "recorded",
            "joins_until_ms": None if is_inferred else self.began_ms + at_ms, **fields,
        }  # fmt: skip
        if is_inferred:
            wanted["not_before_ms"] = None if after_ms is None else self.began_ms + after_ms
        return self.add(RebalanceStarted, at_ms, **wanted)

    def joined(self, at_ms: int, who: str, instance: str | None = None, client_id: str | None = None) -> "Observed":
        return self.add(MemberJoined, at_ms, **self._who(who, instance, client_id), reason=None)

    def gone(
        self,
        at_ms: int,
        who: str,
        last_commit_ms: int | None = None,
        likely: str | None = None,
        instance: str | None = None,
    ) -> "Observed":
        last = None if last_commit_ms is None else self.began_ms + last_commit_ms
        fields = {"last_commit_ms": last, "session_timeout_ms": self.session_ms, "likely": likely}
        return self.add(MemberGone, at_ms, **self._who(who, instance), **fields)

    def fenced(self, at_ms: int, who: str, by: str, instance: str) -> "Observed":
        by_client = {"replaced_by_client_id": by.partition("-")[0], "replaced_by_client_host": HOST}
        return self.add(MemberFenced, at_ms, **self._who(who, instance), replaced_by=by, **by_client)

    def _who(self, who: str, instance: str | None, client_id: str | None = None) -> dict[str, Any]:
        client = who.partition("-")[0] if client_id is None else client_id
        return {"member_id": who, "group_instance_id": instance, "client_id": client, "client_host": HOST}

    def completed(
        self, at_ms: int, *members: str, plan_ms: int = 4, joined: tuple[str, ...] = (), gone: tuple[str, ...] = (),
        took_ms: int | None = None, **moves: tuple[str | None, str | None],
    ) -> "Observed":  # fmt: skip
        """Write the end of a rebalance; the partitions `p0`, `p1` ... move from one member to another."""
        leader = members[0] if self.kind == "classic" else None
        self.add(
            RebalanceCompleted, at_ms, duration_ms=took_ms, joins_ms=took_ms, syncs_ms=plan_ms, protocol_name="range",
            leader=leader, members_before=(), members_after=members, joined=joined, gone=gone,
        )  # fmt: skip
        return self.moved(at_ms, **moves) if moves else self

    def moved(self, at_ms: int, **moves: tuple[str | None, str | None]) -> "Observed":
        handovers = tuple(Handover("orders", int(name[1:]), *owners) for name, owners in moves.items())
        return self.add(AssignmentChanged, at_ms, handovers=handovers)

    def emptied(self, at_ms: int) -> "Observed":
        return self.add(GroupEmptied, at_ms)

    def forgotten(self, at_ms: int, why: str, *places: tuple[str, int]) -> "Observed":
        return self.add(OffsetsForgotten, at_ms, partitions=places or (("orders", 0),), why=why)

    def set(self, at_ms: int, *places: tuple[str, int, int | None, int], more: int = 0) -> "Observed":
        """Write that offsets were set: topic, partition, offset before and after."""
        partitions = tuple(SetOffset(*each) for each in places)
        back = sum(each.before is not None and each.after < each.before for each in partitions)
        return self.add(OffsetsSet, at_ms, partitions=partitions, offsets_set=len(partitions) + more, set_back=back)

    def record(self, at_ms: int, owned: dict[str, list[int]], **fields: Any) -> "Observed":
        self.version += 1
        clients = fields.pop("clients", {})
        members = tuple(
            GroupMember(
                member_id=who, group_instance_id=None, client_id=clients.get(who, who.partition("-")[0]),
                client_host=HOST, session_timeout_ms=self.session_ms, rebalance_timeout_ms=300_000, assignment=b"",
                assigned={"orders": numbers} if numbers else {},
            )
            for who, numbers in owned.items()
        )  # fmt: skip
        wanted: dict[str, Any] = {
            "state": Phase.STABLE if members else Phase.EMPTY, "generation_id": self.generation_id,
            "protocol_type": "consumer", "protocol_name": "range" if members else None,
            "leader": members[0].member_id if members and self.kind == "classic" else None,
            "subscribed_topics": ("orders",), "type": self.kind, "kept_by": "kafka", **fields,
        }  # fmt: skip
        self.written.append(
            GroupRecord(
                group_id=self.group_id, since_ms=self.began_ms + at_ms, members=members, version=self.version, **wanted
            )
        )
        return self

    def commits(self, at_ms: int, partition: int, offset: int, **fields: Any) -> "Observed":
        self.version += 1
        wanted: dict[str, Any] = {
            "leader_epoch": -1, "metadata": "", "expire_timestamp_ms": None, "generation_id": None, "member_id": None,
            **fields,
        }  # fmt: skip
        self.written.append(
            OffsetRecord(group_id=self.group_id, topic="orders", partition=partition, offset=offset,
                         commit_timestamp_ms=self.began_ms + at_ms, version=self.version, **wanted)
        )  # fmt: skip
        return self

    def to(self, generation_id: int) -> "Observed":
        """Set the generation of the records that follow."""
        self.generation_id = generation_id
        return self

    @property
    def events(self) -> list[AnyEvent]:
        return [each for each in self.written if not isinstance(each, GroupRecord | OffsetRecord)]

    def views(self, *, is_live: bool = True) -> Views:
        """Return the views of all records."""
        views = Views(is_live=is_live)
        for topic in "groups", "events":
            kinds = (GroupRecord, OffsetRecord)
            of_topic = [each for each in self.written if isinstance(each, kinds) == (topic == "groups")]
            for offset, each in enumerate(of_topic):
                row = to_row(published(each), TOPICS, 0)
                views.fold(Raw(topic, 0, offset, self.began_ms, row.key, row.value), now_ms=0)  # type: ignore[arg-type]
        if not is_live:
            views.begin()
        return views


def published(record: Any) -> Any:
    """Return a record as the coordinator's outputs have it."""
    if isinstance(record, GroupRecord):
        return Published(record.group_id, ("group", record.group_id), record, record.version)
    if isinstance(record, OffsetRecord):
        key = ("offset", record.group_id, record.topic, record.partition)
        return Published(record.group_id, key, record, record.version)
    return record
