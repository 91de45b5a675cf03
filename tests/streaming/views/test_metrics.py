"""Tests of the metrics of groups, read as Prometheus reads them."""

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

from coordinator.base.states import GroupType, Phase
from coordinator.classic import admin, join, leave, policy_deadlines, rebalance
from coordinator.consumer import admin as consumer_administration
from coordinator.consumer import classic_members, deadlines, describe, heartbeat
from coordinator.consumer import leave as consumer_leaving
from coordinator.consumer.checks import may_commit
from coordinator.messages.events import (
    AnyEvent,
    CommitRejected,
    GroupEmptied,
    MemberExpired,
    MemberFenced,
    MemberJoined,
    MemberLeft,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.messages.group_records import GroupMember, GroupRecord, OffsetRecord, Published
from coordinator.messages.requests import OffsetCommit
from coordinator.shard import converting
from coordinator.shard.handlers import HANDLERS
from streaming.views import Raw, Views
from streaming.views.metrics import metrics
from streaming.views.metrics.metrics import CAUSES, ERRORS, STATES, WHYS, GroupFigures
from streaming.views.state.lag import Bounds, Ends
from streaming.wire.records import OutputTopics, to_row
from tests.streaming.views.consumers import ENDED_MS, REVOKING_MS, ConsumerTopics, Member, life_at
from tests.streaming.views.test_views import folded, raws
from tests.streaming.views.test_waits import away

TOPICS = OutputTopics("replies", "groups", "events", "requests")
WHO: dict[str, Any] = {"member_id": "ana", "client_id": "c", "client_host": "h"}
MEMBER: dict[str, Any] = {**WHO, "group_instance_id": None}


ORDER = ("group", "group_id", "topic", "topic_name", "partition", "partition_id")


def _in_order(labels: Iterable[str]) -> list[str]:
    """Return a sample's labels in the order of `ORDER`, and other labels after them."""
    return sorted(labels, key=lambda label: ORDER.index(label) if label in ORDER else len(ORDER))


def scraped(
    views: Views, ends: Ends, groups_max: int = 1_000, *, of_partitions: bool = False
) -> dict[tuple[str, ...], float]:
    """Return the values that a scrape of views returns, by name and labels."""
    registry = CollectorRegistry()
    look = contextlib.nullcontext((views, ends))
    registry.register(GroupFigures(lambda: look, groups_max=groups_max, of_partitions=of_partitions))
    text = generate_latest(registry).decode()
    return {
        (sample.name, *(sample.labels[label] for label in _in_order(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class ScrapedViews:
    """Views that receive records, and the values that a scrape of the views returns, by name and labels."""

    def __init__(self) -> None:
        self.views, self.ends, self.lock = Views(is_live=True), dict[tuple[str, int], Bounds](), threading.Lock()
        self._version: dict[str, int] = {}
        self._offset = 0

    def add_event(self, kind: type[AnyEvent], group_id: str = "g", **fields: Any) -> None:
        event = kind(
            **{"group_id": group_id, "version": self._next(group_id), "at_ms": 5_000, "generation_id": 3} | fields
        )
        self._add(event)

    def add_record(self, record: GroupRecord | OffsetRecord) -> None:
        offset = (
            ("offset", record.group_id, record.topic, record.partition) if isinstance(record, OffsetRecord) else None
        )
        self._add(Published(record.group_id, offset or ("group", record.group_id), record, record.version))

    def group(self, group_id: str = "g", **fields: Any) -> None:
        self.add_record(GroupRecord(**{
            "group_id": group_id, "state": Phase.STABLE, "since_ms": 4_000, "generation_id": 3,
            "protocol_type": "consumer", "protocol_name": "range", "leader": "ana", "subscribed_topics": ("t",),
            "members": (), "version": self._next(group_id)} | fields))  # fmt: skip

    def commit(self, partition: int, offset: int, topic: str = "t", group_id: str = "g") -> None:
        self.add_record(OffsetRecord(
            group_id=group_id, topic=topic, partition=partition, offset=offset, leader_epoch=-1, metadata="",
            commit_timestamp_ms=6_000 + partition, expire_timestamp_ms=None, generation_id=3, member_id="ana",
            version=self._next(group_id)))  # fmt: skip

    def scraped(self, groups_max: int = 1_000, *, of_partitions: bool = False) -> dict[tuple[str, ...], float]:
        with self.lock:
            return scraped(self.views, self.ends, groups_max, of_partitions=of_partitions)

    def _next(self, group_id: str) -> int:
        self._version[group_id] = self._version.get(group_id, 0) + 1
        return self._version[group_id]

    def _add(self, output: Any) -> None:
        row = to_row(output, TOPICS, 0)
        self.views.fold(Raw(row.topic, 0, self._offset, 0, row.key or b"", row.value), 0)  # type: ignore[arg-type]
        self._offset += 1


def member(member_id: str, **assigned: list[int]) -> GroupMember:
    return GroupMember(member_id=member_id, group_instance_id=None, client_id="c", client_host="h",
                       session_timeout_ms=1, rebalance_timeout_ms=1, assignment=b"", assigned=assigned)  # fmt: skip


def test_metrics_of_a_groups_state() -> None:
    shown = ScrapedViews()
    shown.group(members=(member("ana", t=[0, 1], u=[0]), member("bo", t=[2]), member("cy")))
    shown.commit(0, 90)
    shown.commit(1, 50)
    shown.commit(0, 7, topic="u")
    shown.ends = {("t", 0): Bounds(0, 100), ("t", 1): Bounds(0, 80)}
    figures = shown.scraped()
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


def test_an_offset_beyond_the_end_of_its_log_hides_no_lag() -> None:
    """As of a topic that was made anew. Its lag would be negative, and is 0 in each figure that may be summed."""
    shown = ScrapedViews()
    shown.group(members=())
    shown.commit(0, 90)
    shown.commit(1, 1_000)
    shown.ends = {("t", 0): Bounds(0, 100), ("t", 1): Bounds(0, 0, beyond=1_000)}
    figures = shown.scraped()
    assert figures["groupcoord_group_beyond_end", "g"] == 1
    assert (figures["groupcoord_group_lag", "g"], figures["groupcoord_group_lag_max", "g"]) == (10, 10)
    assert figures["kminion_kafka_consumer_group_topic_lag", "g", "t"] == 10


def test_dashboards_for_kminion_find_their_metrics() -> None:
    shown = ScrapedViews()
    shown.group(members=(member("ana", t=[0, 1], u=[0]), member("bo", t=[2]), member("cy")))
    shown.commit(0, 90)
    shown.commit(1, 50)
    shown.ends = {("t", 0): Bounds(0, 100), ("t", 1): Bounds(0, 80)}
    figures = {name[len("kminion_kafka_consumer_group_"):]: value for (name, *rest), value in shown.scraped().items()
               if name.startswith("kminion_") and rest[:1] == ["g"] and "u" not in rest}  # fmt: skip
    assert figures == {
        "info": 1, "members": 3, "empty_members": 1, "topic_members": 2, "topic_assigned_partitions": 3,
        "topic_offset_sum": 140, "topic_lag": 40, "offset_commits_total": 2,
    }  # fmt: skip


def test_metrics_of_a_groups_events() -> None:
    """S14: metrics count rebalances by cause, durations, joined, left and dropped members, and refused commits."""
    shown = ScrapedViews()
    started: dict[str, Any] = {**WHO, "reason": None, "members": 2, "joins_until_ms": 0}
    ended: dict[str, Any] = {
        "duration_ms": 700, "joins_ms": 500, "syncs_ms": 200, "protocol_name": "range", "leader": "ana",
        "members_before": (), "members_after": ("ana",), "joined": (), "gone": (),
    }  # fmt: skip
    shown.group()
    shown.add_event(MemberJoined, **MEMBER, reason=None)
    shown.add_event(RebalanceStarted, cause="member_joined", **started)
    shown.add_event(RebalanceStarted, cause="session_expired", **started)
    shown.add_event(RebalanceCompleted, **ended)
    shown.add_event(RebalanceStarted, cause="member_left", **started)
    shown.add_event(GroupEmptied)
    shown.add_event(RebalanceStarted, cause="member_joined", **started)
    shown.add_event(RebalanceCompleted, **{**ended, "duration_ms": 400_000})
    shown.add_event(MemberLeft, **MEMBER, reason=None)
    shown.add_event(MemberExpired, **MEMBER, why="session_expired", silence_ms=1, reason=None)
    shown.add_event(MemberFenced, **MEMBER, replaced_by="x", replaced_by_client_id="", replaced_by_client_host="")
    shown.add_event(CommitRejected, **WHO, claimed_generation_id=1, error="ILLEGAL_GENERATION", partitions=2)
    figures = shown.scraped()
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


def test_records_from_before_the_start_are_not_counted() -> None:
    """A counter begins at 0 when its process starts, so that a restart does not look like many rebalances."""
    shown = ScrapedViews()
    shown.views.is_live = False
    shown.group()
    shown.add_event(MemberJoined, **MEMBER, reason=None)
    shown.commit(0, 9)
    shown.views.begin()
    shown.add_event(MemberJoined, **MEMBER, reason=None)
    figures = shown.scraped()
    assert figures["groupcoord_members_joined_total", "g"] == 1
    assert figures["groupcoord_commits_total", "g"] == 0


def test_groups_with_metrics_are_bounded() -> None:
    """Strangers may create any number of groups."""
    shown = ScrapedViews()
    for n in range(30):
        shown.group(f"g{n:02}")
    few, all_ = shown.scraped(10), shown.scraped()
    assert few["groupcoord_views_groups",] == all_["groupcoord_views_groups",] == 30
    assert few["groupcoord_views_groups_left_out",] == 20
    assert sum(name[0] == "groupcoord_group_members" for name in few) == 10


def test_the_latest_active_groups_have_metrics() -> None:
    """Groups are sorted by their latest event or commit, or else by the time of their last change of state."""
    shown = ScrapedViews()
    for n in range(9):
        shown.group(f"g{n}", since_ms=n)
    shown.commit(0, 7, group_id="g2")
    shown.add_event(GroupEmptied, "g4", at_ms=9_000)
    figures = shown.scraped(3)
    assert [name[1] for name in figures if name[0] == "groupcoord_group_members"] == ["g2", "g4", "g8"]


def test_topics_with_metrics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that commits may invent topics: topics with owners have figures first, then topics that exist."""
    monkeypatch.setattr(metrics, "TOPICS_OF_A_GROUP_MAX", 3)
    monkeypatch.setattr(metrics, "TOPICS_MAX", 4)
    shown = ScrapedViews()
    for group_id in ("a", "b"):
        shown.group(group_id, members=(member("ana", owned=[0]),))
        for topic in ("aaa", "bbb", "ccc", "real", "owned"):
            shown.commit(0, 7, topic=topic, group_id=group_id)
    shown.ends = {("real", 0): Bounds(0, 9)}
    figures = shown.scraped(of_partitions=True)
    assert figures["groupcoord_views_topics_left_out",] == 6
    assert not [name for name in figures if {"aaa", "bbb", "ccc"} & set(name)]
    assert figures["kminion_kafka_consumer_group_topic_lag", "b", "real"] == 2
    assert figures["kminion_kafka_consumer_group_topic_members", "b", "owned"] == 1
    assert figures["groupcoord_commits_total", "b"] == 5
    monkeypatch.setattr(metrics, "TOPICS_MAX", 100)
    assert shown.scraped()["groupcoord_views_topics_left_out",] == 4


def test_metrics_of_partitions_are_optional() -> None:
    shown = ScrapedViews()
    shown.group()
    shown.commit(3, 90)
    shown.ends = {("t", 3): Bounds(0, 100)}
    of_partitions = {"groupcoord_last_commit_timestamp_seconds", "kminion_kafka_consumer_group_topic_partition_lag"}
    assert of_partitions.isdisjoint(name for name, *_ in shown.scraped())
    figures = shown.scraped(of_partitions=True)
    assert figures["groupcoord_last_commit_timestamp_seconds", "g", "t", "3"] == 6.003
    assert figures["kminion_kafka_consumer_group_topic_partition_lag", "g", "t", "3"] == 10


def test_a_hostile_name_stays_in_its_label() -> None:
    """Quotes, newlines and escapes in an id change no other line."""
    shown = ScrapedViews()
    name = 'a"} 1\ngroupcoord_views_alarms 99\n\\'
    shown.group(name)
    figures = shown.scraped()
    assert figures["groupcoord_group_members", name] == 0
    assert figures["groupcoord_views_alarms",] == 0


def test_a_lag_is_shown_only_if_an_end_offset_is_known() -> None:
    """A lag of 0 would mean that every record is read."""
    shown = ScrapedViews()
    shown.group()
    shown.commit(0, 90)
    shown.commit(-1, 90)
    lags = {"groupcoord_group_lag", "groupcoord_group_lag_max", "kminion_kafka_consumer_group_topic_lag"}
    assert lags.isdisjoint(name for name, *_ in shown.scraped())
    shown.ends = {("t", 0): Bounds(0, 100)}
    assert [value for (name, *_), value in shown.scraped().items() if name in lags] == [10] * 3


def test_before_all_is_read_one_metric_is_shown() -> None:
    shown = ScrapedViews()
    shown.views.is_live = False
    shown.group()
    assert shown.scraped() == {("groupcoord_views_live",): 0}
    shown.views.begin()
    figures = shown.scraped()
    assert figures["groupcoord_views_live",] == figures["groupcoord_views_groups",] == 1


def test_counters_begin_at_zero() -> None:
    """The function `increase` of Prometheus ignores the first value of a series."""
    shown = ScrapedViews()
    shown.group()
    figures = shown.scraped()
    for name, values in (("rebalances", CAUSES), ("members_dropped", WHYS), ("commits_refused", ERRORS)):
        of_classic = values[GroupType.CLASSIC]
        assert [figures[f"groupcoord_{name}_total", "g", value] for value in of_classic] == [0] * len(of_classic)


def test_labels_have_every_cause_reason_and_error_of_the_coordinator() -> None:
    source = "".join(map(inspect.getsource, (admin, leave, join, rebalance, converting, policy_deadlines)))
    causes = set(re.findall(r'(?:member_cause\(.+?, |RebalanceCause\(\s*|cause = )"([a-z_]+)"', source))
    causes |= set(re.findall(r'"([a-z_]+)" if is_leader and asks_as_before else "([a-z_]+)"', source)[0])
    causes.remove("group_full")  # a group drops a member for want of room only in a join phase, so that none begins
    assert causes == set(CAUSES[GroupType.CLASSIC])
    assert set(re.findall(r'(?:expel_member|expired)\(group, member, "([a-z_]+)"', source)) == set(
        WHYS[GroupType.CLASSIC]
    )
    docstrings = " ".join(check.__doc__ or "" for check in HANDLERS[OffsetCommit].of_the_group)
    assert set(re.findall(r"([A-Z_]+): ", docstrings)) == set(ERRORS[GroupType.CLASSIC])


def test_labels_have_every_cause_reason_and_error_of_consumer_groups() -> None:
    modules = (classic_members, consumer_administration, deadlines, describe, heartbeat, consumer_leaving)
    source = "".join(map(inspect.getsource, modules))
    causes = set(
        re.findall(r'(?:member_cause\(.+?, |RebalanceCause\(\s*|cause = (?:cause or )?|return )"([a-z_]+)"', source)
    )
    assert causes | set(deadlines.OVERDUE.values()) == set(CAUSES[GroupType.CONSUMER])
    dropped = set(re.findall(r'expel_member\(group, member, "([a-z_]+)"', source)) | set(deadlines.OVERDUE.values())
    assert dropped == set(WHYS[GroupType.CONSUMER])
    errors = set(re.findall(r"([A-Z]+_[A-Z_]+)", may_commit.__doc__ or ""))
    assert errors == set(ERRORS[GroupType.CONSUMER])


def test_metrics_of_a_consumer_group() -> None:
    """The epochs, the states of the members, and the partitions that wait for a member."""
    shown = ScrapedViews()
    shown.views = life_at(REVOKING_MS)
    figures = shown.scraped()
    assert {
        name: figures[f"groupcoord_group_{name}", "g"]
        for name in ("generation", "assignment_epoch", "members", "assigned_partitions", "revoking_partitions")
    } == {"generation": 3, "assignment_epoch": 3, "members": 2, "assigned_partitions": 4, "revoking_partitions": 2}
    states = {state: figures["groupcoord_group_members_in_state", "g", state] for state in STATES}
    assert states == {"stable": 0, "unrevoked": 1, "unreleased": 1, "away": 0}
    assert figures["groupcoord_group_type", "g", "consumer"] == 1
    assert figures["groupcoord_group_state", "g", "Reconciling"] == 1
    assert figures["groupcoord_group_idle_members", "g"] == 1


def test_a_member_that_is_away_is_not_counted_as_stable() -> None:
    """Its record has the state `stable`, and epoch -2."""
    shown = ScrapedViews()
    shown.views = folded(raws(away()))
    shown.views.is_live = True
    figures = shown.scraped()
    states = {state: figures["groupcoord_group_members_in_state", "g", state] for state in STATES}
    assert states == {"stable": 0, "unrevoked": 0, "unreleased": 0, "away": 1}


def test_metrics_of_a_whole_life_of_a_consumer_group() -> None:
    """Every label of the consumer protocol begins with 0, and counts what has happened."""
    shown = ScrapedViews()
    shown.views = life_at(ENDED_MS)
    figures = shown.scraped()
    counted = {cause: figures["groupcoord_rebalances_total", "g", cause] for cause in CAUSES[GroupType.CONSUMER]}
    assert counted == dict.fromkeys(CAUSES[GroupType.CONSUMER], 0) | {"member_joined": 4, "session_expired": 1}
    assert ("groupcoord_rebalances_total", "g", "leader_rejoined") not in figures
    assert figures["groupcoord_members_dropped_total", "g", "session_expired"] == 1
    assert (figures["groupcoord_plans_total", "g"], figures["groupcoord_plan_moved_partitions_total", "g"]) == (5, 10)
    assert figures["groupcoord_heartbeats_fenced_total", "g", "FENCED_MEMBER_EPOCH"] == 0
    assert figures["groupcoord_rebalance_sync_seconds_total", "g"] == pytest.approx(3.3 + 0.2 + 0.8 + 3.2)


def test_a_fenced_heartbeat_is_counted() -> None:
    world = ConsumerTopics(T=2)
    world.join("ana", "T")
    world.members["ana"] = Member(7, {})
    world.beat("ana")
    shown = ScrapedViews()
    shown.views = folded(raws(world))
    assert shown.scraped()["groupcoord_heartbeats_fenced_total", "g", "FENCED_MEMBER_EPOCH"] == 1


def test_alarms_are_counted() -> None:
    shown = ScrapedViews()
    shown.views.fold(Raw("events", 0, 0, 1, b"", b"no event"), 0)
    shown.views.alarms.clear()  # as after a thousand other alarms
    figures = shown.scraped()
    assert (figures["groupcoord_views_alarms",], figures["groupcoord_views_alarms_told_total",]) == (0, 1)
