"""What Prometheus is told of groups, read as Prometheus reads it."""

import contextlib
import inspect
import re
import threading
from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from coordinator import administration, leaving, membership, rebalance
from coordinator.kinds import KINDS
from coordinator.outputs import (
    AnyEvent,
    CommitRejected,
    GroupEmptied,
    GroupMember,
    GroupRecord,
    MemberExpired,
    MemberFenced,
    MemberJoined,
    MemberLeft,
    OffsetRecord,
    Published,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.phases import Phase
from coordinator.requests import OffsetCommit
from streaming.views import Raw, Views, metrics
from streaming.views.metrics import CAUSES, ERRORS, WHYS, GroupFigures
from streaming.wire.records import OutputTopics, to_row

TOPICS = OutputTopics("replies", "groups", "events", "requests")
WHO: dict[str, Any] = {"member_id": "ana", "client_id": "c", "client_host": "h"}
MEMBER: dict[str, Any] = {**WHO, "group_instance_id": None}


ORDER = ("group", "group_id", "topic", "topic_name", "partition", "partition_id")


def _in_order(labels: Iterable[str]) -> list[str]:
    """Put a sample's labels in the order of `ORDER`, and others behind."""
    return sorted(labels, key=lambda label: ORDER.index(label) if label in ORDER else len(ORDER))


class Told:
    """Views that are told records, and what a scrape of them gives: values by name and labels."""

    def __init__(self) -> None:
        self.views, self.ends, self.lock = Views(is_live=True), dict[tuple[str, int], int](), threading.Lock()
        self._version: dict[str, int] = {}
        self._offset = 0

    def tell(self, kind: type[AnyEvent], group_id: str = "g", **fields: Any) -> None:
        event = kind(
            **{"group_id": group_id, "version": self._next(group_id), "at_ms": 5_000, "generation_id": 3} | fields
        )
        self._take(event)

    def publish(self, record: GroupRecord | OffsetRecord) -> None:
        offset = (
            ("offset", record.group_id, record.topic, record.partition) if isinstance(record, OffsetRecord) else None
        )
        self._take(Published(record.group_id, offset or ("group", record.group_id), record, record.version))

    def group(self, group_id: str = "g", **fields: Any) -> None:
        self.publish(GroupRecord(**{
            "group_id": group_id, "state": Phase.STABLE, "since_ms": 4_000, "generation_id": 3,
            "protocol_type": "consumer", "protocol_name": "range", "leader": "ana", "subscribed_topics": ("t",),
            "members": (), "version": self._next(group_id)} | fields))  # fmt: skip

    def commit(self, partition: int, offset: int, topic: str = "t", group_id: str = "g") -> None:
        self.publish(OffsetRecord(
            group_id=group_id, topic=topic, partition=partition, offset=offset, leader_epoch=-1, metadata="",
            commit_timestamp_ms=6_000 + partition, expire_timestamp_ms=None, generation_id=3, member_id="ana",
            version=self._next(group_id)))  # fmt: skip

    def scraped(self, groups_max: int = 1_000, *, of_partitions: bool = False) -> dict[tuple[str, ...], float]:
        @contextlib.contextmanager
        def look() -> Any:
            with self.lock:
                yield self.views, self.ends

        registry = CollectorRegistry()
        registry.register(GroupFigures(look, groups_max=groups_max, of_partitions=of_partitions))
        text = generate_latest(registry).decode()
        return {
            (sample.name, *(sample.labels[label] for label in _in_order(sample.labels))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def _next(self, group_id: str) -> int:
        self._version[group_id] = self._version.get(group_id, 0) + 1
        return self._version[group_id]

    def _take(self, output: Any) -> None:
        row = to_row(output, TOPICS, 0)
        self.views.take(Raw(row.topic, 0, self._offset, 0, row.key or b"", row.value), 0)  # type: ignore[arg-type]
        self._offset += 1


def member(member_id: str, **assigned: list[int]) -> GroupMember:
    return GroupMember(member_id=member_id, group_instance_id=None, client_id="c", client_host="h",
                       session_timeout_ms=1, rebalance_timeout_ms=1, assignment=b"", assigned=assigned)  # fmt: skip


def test_how_a_group_is() -> None:
    told = Told()
    told.group(members=(member("ana", t=[0, 1], u=[0]), member("bo", t=[2]), member("cy")))
    told.commit(0, 90)
    told.commit(1, 50)
    told.commit(0, 7, topic="u")
    told.ends = {("t", 0): 100, ("t", 1): 80}
    figures = told.scraped()
    assert figures["groupcoord_group_state", "g", "Stable"] == 1
    assert figures["groupcoord_group_state_since_timestamp_seconds", "g"] == 4.0
    assert figures["groupcoord_group_generation", "g"] == 3
    assert figures["groupcoord_group_members", "g"] == 3
    assert figures["groupcoord_group_idle_members", "g"] == 1
    assert figures["groupcoord_group_assigned_partitions", "g"] == 4
    assert figures["groupcoord_group_lag", "g"] == 40
    assert figures["groupcoord_group_lag_max", "g"] == 30
    assert figures["groupcoord_group_last_commit_timestamp_seconds", "g"] == 6.001
    assert figures["groupcoord_commits_total", "g"] == 3


def test_boards_for_kminion_find_their_names() -> None:
    told = Told()
    told.group(members=(member("ana", t=[0, 1], u=[0]), member("bo", t=[2]), member("cy")))
    told.commit(0, 90)
    told.commit(1, 50)
    told.ends = {("t", 0): 100, ("t", 1): 80}
    figures = {name[len("kminion_kafka_consumer_group_"):]: value for (name, *rest), value in told.scraped().items()
               if name.startswith("kminion_") and rest[:1] == ["g"] and "u" not in rest}  # fmt: skip
    assert figures == {
        "info": 1, "members": 3, "empty_members": 1, "topic_members": 2, "topic_assigned_partitions": 3,
        "topic_offset_sum": 140, "topic_lag": 40, "offset_commits_total": 2,
    }  # fmt: skip


def test_what_has_happened() -> None:
    """S14: rebalances by cause, how long they took, who came, left or was dropped, which commits were refused."""
    told = Told()
    started: dict[str, Any] = {**WHO, "reason": None, "members": 2, "joins_until_ms": 0}
    ended: dict[str, Any] = {
        "duration_ms": 700, "joins_ms": 500, "syncs_ms": 200, "protocol_name": "range", "leader": "ana",
        "members_before": (), "members_after": ("ana",), "joined": (), "gone": (),
    }  # fmt: skip
    told.group()
    told.tell(MemberJoined, **MEMBER, reason=None)
    told.tell(RebalanceStarted, cause="member_joined", **started)
    told.tell(RebalanceStarted, cause="session_expired", **started)
    told.tell(RebalanceCompleted, **ended)
    told.tell(RebalanceStarted, cause="member_left", **started)
    told.tell(GroupEmptied)
    told.tell(RebalanceStarted, cause="member_joined", **started)
    told.tell(RebalanceCompleted, **{**ended, "duration_ms": 400_000})
    told.tell(MemberLeft, **MEMBER, reason=None)
    told.tell(MemberExpired, **MEMBER, why="session_expired", silence_ms=1, reason=None)
    told.tell(MemberFenced, **MEMBER, replaced_by="x", replaced_by_client_id="", replaced_by_client_host="")
    told.tell(CommitRejected, **WHO, claimed_generation_id=1, error="ILLEGAL_GENERATION", partitions=2)
    figures = told.scraped()
    assert figures["groupcoord_rebalances_total", "g", "member_joined"] == 2
    assert figures["groupcoord_rebalances_total", "g", "member_left"] == 1
    assert figures["groupcoord_rebalances_total", "g", "session_expired"] == 0
    assert figures["groupcoord_rebalances_begun_anew_total", "g"] == 1
    assert figures["groupcoord_rebalance_duration_seconds_bucket", "g", "0.5"] == 0
    assert figures["groupcoord_rebalance_duration_seconds_bucket", "g", "1.0"] == 1
    assert figures["groupcoord_rebalance_duration_seconds_bucket", "g", "300.0"] == 1
    assert figures["groupcoord_rebalance_duration_seconds_count", "g"] == 2
    assert figures["groupcoord_rebalance_duration_seconds_sum", "g"] == 400.7
    assert figures["groupcoord_rebalance_join_seconds_total", "g"] == 1.0
    assert figures["groupcoord_rebalance_sync_seconds_total", "g"] == 0.4
    assert figures["groupcoord_members_joined_total", "g"] == 1
    assert figures["groupcoord_members_left_total", "g"] == 1
    assert figures["groupcoord_members_dropped_total", "g", "session_expired"] == 1
    assert figures["groupcoord_members_fenced_total", "g"] == 1
    assert figures["groupcoord_commits_refused_total", "g", "ILLEGAL_GENERATION"] == 1


def test_what_was_there_before_does_not_count() -> None:
    """A counter begins at 0 when a process does: a restart is no burst of rebalances."""
    told = Told()
    told.views.is_live = False
    told.group()
    told.tell(MemberJoined, **MEMBER, reason=None)
    told.commit(0, 9)
    told.views.begin()
    told.tell(MemberJoined, **MEMBER, reason=None)
    figures = told.scraped()
    assert figures["groupcoord_members_joined_total", "g"] == 1
    assert figures["groupcoord_commits_total", "g"] == 0


def test_figures_are_bounded() -> None:
    """However many groups strangers make up."""
    told = Told()
    for n in range(30):
        told.group(f"g{n:02}")
    few, all_ = told.scraped(10), told.scraped()
    assert few["groupcoord_views_groups",] == all_["groupcoord_views_groups",] == 30
    assert few["groupcoord_views_groups_left_out",] == 20
    assert sum(name[0] == "groupcoord_group_members" for name in few) == 10


def test_groups_that_did_something_last_have_figures() -> None:
    """By their latest event or commit, or else by when they came to be as they are."""
    told = Told()
    for n in range(9):
        told.group(f"g{n}", since_ms=n)
    told.commit(0, 7, group_id="g2")
    told.tell(GroupEmptied, "g4", at_ms=9_000)
    figures = told.scraped(3)
    assert [name[1] for name in figures if name[0] == "groupcoord_group_members"] == ["g2", "g4", "g8"]


def test_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever commits makes their names up: those with owners have figures first, then those that there are."""
    monkeypatch.setattr(metrics, "TOPICS_OF_A_GROUP_MAX", 3)
    monkeypatch.setattr(metrics, "TOPICS_MAX", 4)
    told = Told()
    for group_id in ("a", "b"):
        told.group(group_id, members=(member("ana", owned=[0]),))
        for topic in ("aaa", "bbb", "ccc", "real", "owned"):
            told.commit(0, 7, topic=topic, group_id=group_id)
    told.ends = {("real", 0): 9}
    figures = told.scraped(of_partitions=True)
    assert figures["groupcoord_views_topics_left_out",] == 6
    assert not [name for name in figures if {"aaa", "bbb", "ccc"} & set(name)]
    assert figures["kminion_kafka_consumer_group_topic_lag", "b", "real"] == 2
    assert figures["kminion_kafka_consumer_group_topic_members", "b", "owned"] == 1
    assert figures["groupcoord_commits_total", "b"] == 5
    monkeypatch.setattr(metrics, "TOPICS_MAX", 100)
    assert told.scraped()["groupcoord_views_topics_left_out",] == 4


def test_single_partitions_are_shown_on_request() -> None:
    told = Told()
    told.group()
    told.commit(3, 90)
    told.ends = {("t", 3): 100}
    of_partitions = {"groupcoord_last_commit_timestamp_seconds", "kminion_kafka_consumer_group_topic_partition_lag"}
    assert of_partitions.isdisjoint(name for name, *_ in told.scraped())
    figures = told.scraped(of_partitions=True)
    assert figures["groupcoord_last_commit_timestamp_seconds", "g", "t", "3"] == 6.003
    assert figures["kminion_kafka_consumer_group_topic_partition_lag", "g", "t", "3"] == 10


def test_hostile_names_stay_names() -> None:
    """Quotes, newlines and escapes in an id change no other line."""
    told = Told()
    name = 'a"} 1\ngroupcoord_views_alarms 99\n\\'
    told.group(name)
    figures = told.scraped()
    assert figures["groupcoord_group_members", name] == 0
    assert figures["groupcoord_views_alarms",] == 0


def test_a_lag_is_told_where_an_end_is_known() -> None:
    """0 would say that all is read."""
    told = Told()
    told.group()
    told.commit(0, 90)
    told.commit(-1, 90)
    lags = {"groupcoord_group_lag", "groupcoord_group_lag_max", "kminion_kafka_consumer_group_topic_lag"}
    assert lags.isdisjoint(name for name, *_ in told.scraped())
    told.ends = {("t", 0): 100}
    assert [value for (name, *_), value in told.scraped().items() if name in lags] == [10] * 3


def test_before_all_is_read_there_is_one_figure() -> None:
    told = Told()
    told.views.is_live = False
    told.group()
    assert told.scraped() == {("groupcoord_views_live",): 0}
    told.views.begin()
    figures = told.scraped()
    assert figures["groupcoord_views_live",] == figures["groupcoord_views_groups",] == 1


def test_counters_are_there_before_they_count() -> None:
    """`increase` does not see what a series is born with."""
    told = Told()
    told.group()
    figures = told.scraped()
    for name, values in (("rebalances", CAUSES), ("members_dropped", WHYS), ("commits_refused", ERRORS)):
        assert [figures[f"groupcoord_{name}_total", "g", value] for value in values] == [0] * len(values)


def test_they_are_all_that_the_coordinator_names() -> None:
    source = "".join(map(inspect.getsource, (administration, leaving, membership, rebalance)))
    causes = set(re.findall(r'(?:blame\(.+?, |Blame\(\s*|cause = )"([a-z_]+)"', source))
    causes |= set(re.findall(r'"([a-z_]+)" if is_leader and asks_as_before else "([a-z_]+)"', source)[0])
    assert causes == set(CAUSES)
    assert set(re.findall(r'drop\(group, member, "([a-z_]+)"', source)) == set(WHYS)
    told = " ".join(check.__doc__ or "" for check in KINDS[OffsetCommit].of_the_group)
    assert set(re.findall(r"([A-Z_]+): ", told)) == set(ERRORS)


def test_alarms_are_counted() -> None:
    told = Told()
    told.views.take(Raw("events", 0, 0, 1, b"", b"no event"), 0)
    told.views.alarms.clear()  # as when a thousand others have come since
    figures = told.scraped()
    assert (figures["groupcoord_views_alarms",], figures["groupcoord_views_alarms_told_total",]) == (0, 1)
