"""Prometheus metrics of groups: their state, and counts of what happened since this process began to read.

Names begin with `groupcoord_`, or with `kminion_` for dashboards that were made for KMinion. Until all existing records
are read, the only metric shows that. Clients choose the names of groups and topics, so only `groups_max`
groups have metrics of their own: the most recently active ones. The number of topics is limited too. Metrics report the
number of omitted groups and topics. Metrics of single partitions are optional.

A counter starts at 0 for each group and label. Otherwise its first increment would not be visible.

Source: the list in redpanda's issue 7392; KMinion's docs/metrics.md for its names.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator.base.connect_protocol import Work
from coordinator.base.states import GroupType, Phase
from coordinator.messages.group_records import GroupMember
from streaming.views.api.fold import Views
from streaming.views.metrics import observed, policies
from streaming.views.metrics.families import Family, Figure, Histogram, Sample, by_label, histogram, one_value
from streaming.views.state.fields import AWAY, held, known, state_of
from streaming.views.state.group import DURATIONS_MS, GroupView, Tallied
from streaming.views.state.lag import Ends, gone_unread, lags

TOPICS_OF_A_GROUP_MAX = 200
"""The limit for one group. Topics with owners come first, then topics that the brokers have, then all others."""

TOPICS_MAX = 10_000
"""The limit for all groups together: about 40,000 lines."""

CAUSES: Mapping[GroupType, tuple[str, ...]] = {
    GroupType.CLASSIC: (
        "member_joined", "member_left", "session_expired", "sync_overdue", "static_member_replaced",
        "metadata_changed", "leader_rejoined", "cooperative_round", "operator", "group_converted", "partitions_added",
    ),
    GroupType.CONSUMER: (
        "member_joined", "member_left", "session_expired", "revocation_overdue", "joins_overdue", "syncs_overdue",
        "subscription_changed", "topics_changed", "regex_resolved", "assignor_changed", "operator",
    ),
}  # fmt: skip
"""The causes for which the coordinator begins a rebalance."""

WHYS: Mapping[GroupType, tuple[str, ...]] = {
    GroupType.CLASSIC: ("session_expired", "joins_overdue", "syncs_overdue", "group_full", "expelled"),
    GroupType.CONSUMER: ("session_expired", "revocation_overdue", "joins_overdue", "syncs_overdue", "expelled"),
}
"""The reasons for which the coordinator expels members."""

ERRORS: Mapping[GroupType, tuple[str, ...]] = {
    GroupType.CLASSIC: ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID"),
    GroupType.CONSUMER: ("STALE_MEMBER_EPOCH", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "UNSUPPORTED_VERSION"),
}
"""The errors with which the coordinator refuses commits."""

FENCES = {GroupType.CLASSIC: (), GroupType.CONSUMER: ("FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID")}
"""The errors with which the coordinator refuses heartbeats of the consumer protocol."""

STATES = ("stable", "unrevoked", "unreleased", AWAY)
"""The states of a member of a group of the consumer protocol."""

Shown = tuple[GroupView, set[str]]
"""A group with metrics of its own, and its topics that have metrics."""

_OF_A_TOPIC = (("topic",), ("topic_name",))


def _from_zero(labels: Mapping[GroupType, tuple[str, ...]], counts: Callable[[Tallied], Mapping[str, float]]) -> Figure:
    """Return a figure that has every label of the group's protocol from the beginning, with 0."""
    return by_label(lambda g: {**dict.fromkeys(labels.get(g.type, ()), 0), **counts(g.tallied)})


def _causes(group: GroupView) -> Mapping[str, float]:
    return {**dict.fromkeys(observed.causes_of(group, CAUSES), 0), **group.tallied.rebalances}


def _of_consumers(figure: Callable[[GroupView], float | None]) -> Figure:
    return one_value(lambda g: figure(g) if g.type.has_epochs else None)


def _states(group: GroupView) -> Mapping[str, float]:
    if not group.type.has_epochs:
        return {}
    counts = Counter(map(state_of, group.members))
    return {state: counts[state] for state in STATES}


def _revoking(group: GroupView) -> float:
    return sum(len(numbers) for member in group.members for numbers in (known(member.revoking) or {}).values())


def _last_commit_s(group: GroupView) -> float | None:
    times_ms = [offset.commit_timestamp_ms for offset in group.committed().values()]
    return max(times_ms) / 1_000 if times_ms else None


def _lags(group: GroupView, ends: Ends) -> Iterator[tuple[str, int, int]]:
    """Yield the lag of each partition. One that is negative is 0, so that sums in Prometheus hide no other lag."""
    for (topic, partition), lag_records in lags(group, ends).items():
        if lag_records is not None:
            yield topic, partition, max(0, lag_records)


def _lag(group: GroupView, ends: Ends) -> Iterable[Sample]:
    return [((), sum(lag_records))] if (lag_records := [each for *_, each in _lags(group, ends)]) else ()


def _lag_max(group: GroupView, ends: Ends) -> Iterable[Sample]:
    return [((), max(lag_records))] if (lag_records := [each for *_, each in _lags(group, ends)]) else ()


def _gone_unread(group: GroupView, ends: Ends) -> Iterable[Sample]:
    found = [gone_unread(ends.get(place), offset.offset) for place, offset in group.committed().items()]
    return [((), sum(told))] if (told := [each for each in found if each is not None]) else ()


def _beyond_end(group: GroupView, ends: Ends) -> Iterable[Sample]:
    told = [each for each in lags(group, ends).values() if each is not None]
    return [((), sum(each < 0 for each in told))] if told else ()


def _topic_lags(group: GroupView, ends: Ends) -> Iterable[Sample]:
    sums: dict[str, int] = {}
    for topic, _, lag_records in _lags(group, ends):
        sums[topic] = sums.get(topic, 0) + lag_records
    return (((topic,), lag_records) for topic, lag_records in sums.items())


def _topic_offsets(group: GroupView, ends: Ends) -> Iterable[Sample]:
    return (((topic,), sum(o.offset for o in each.values())) for topic, each in group.offsets.items())


def _by_topic(group: GroupView) -> dict[str, list[int]]:
    """Return, for each topic with partition owners, how many partitions each owner has."""
    owned: dict[str, list[int]] = {}
    for member in group.members:
        counts = Counter[str]()
        for topic, partitions in held(member):
            counts[topic] += len(partitions)
        for topic, number in counts.items():
            owned.setdefault(topic, []).append(number)
    return owned


def _topic_members(group: GroupView) -> Mapping[str, float]:
    return {topic: len(each) for topic, each in _by_topic(group).items()}


def _topic_partitions(group: GroupView) -> Mapping[str, float]:
    return {topic: sum(each) for topic, each in _by_topic(group).items()}


def _assigned(group: GroupView) -> float:
    return sum(map(sum, _by_topic(group).values()))


def _idle_members(group: GroupView) -> float:
    return sum(not any(numbers for _, numbers in held(member)) and not _works(member) for member in group.members)


def _works(member: GroupMember) -> bool:
    """Return whether a member is a worker of Kafka Connect that has connectors or tasks."""
    return isinstance(member.work, Work) and not member.work.is_empty


def _info(group: GroupView, ends: Ends) -> Iterable[Sample]:
    record = group.record
    protocol, protocol_type = (record.protocol_name, record.protocol_type) if record else (None, None)
    return [((protocol or "", protocol_type or "", group.state.value), float(group.state is Phase.STABLE))]


GAUGES: tuple[Family, ...] = (
    Family("groupcoord_group_state", "1 for the group's current state.", ("state",),
           by_label(lambda g: {g.state.value: 1})),
    Family("groupcoord_group_state_since_timestamp_seconds", "The time of the last change of the state.", (),
           one_value(lambda g: g.record.since_ms / 1_000 if g.record else None)),
    Family("groupcoord_group_type", "1 for the protocol of the group's members.", ("type",),
           by_label(lambda g: {g.type.value: 1})),
    Family("groupcoord_group_generation", "The group's generation, or its group epoch.", (),
           one_value(lambda g: g.record.generation_id if g.record else None)),
    Family("groupcoord_group_assignment_epoch", "The group epoch of the latest plan, of consumer groups.", (),
           _of_consumers(lambda g: known(g.record.assignment_epoch) if g.record else None)),
    Family("groupcoord_group_members", "Members.", (), one_value(lambda g: len(g.members))),
    Family("groupcoord_group_members_in_state", "Members of consumer groups, by their state.", ("state",),
           by_label(_states)),
    Family("groupcoord_group_revoking_partitions", "Partitions that members of consumer groups have to give up.", (),
           _of_consumers(_revoking)),
    Family("groupcoord_group_idle_members", "Members that own no partition.", (), one_value(_idle_members)),
    Family("groupcoord_group_assigned_partitions", "Partitions that members own.", (), one_value(_assigned)),
    observed.ASSIGNORS_TIED,
    Family("groupcoord_group_lag", "Records that are not committed, of partitions with a commit and a known end.", (),
           _lag),
    Family("groupcoord_group_lag_max", "The largest lag of a partition.", (), _lag_max),
    Family("groupcoord_group_gone_unread", "Records below the logs' starts that were not committed.", (), _gone_unread),
    Family("groupcoord_group_beyond_end", "Partitions whose committed offset is beyond the log's end.", (),
           _beyond_end),
    Family("groupcoord_group_last_commit_timestamp_seconds", "The time of the group's last commit.", (),
           one_value(_last_commit_s)),
)  # fmt: skip

COUNTERS: tuple[Family, ...] = (
    Family("groupcoord_rebalances", "Rebalances that began, by cause.", ("cause",),
           by_label(_causes)),
    Family("groupcoord_rebalances_begun_anew", "Further causes before the assignments.", (),
           one_value(lambda g: g.tallied.begun_anew)),
    Family("groupcoord_rebalance_join_seconds", "Time of rebalances until all had joined, or until the plan.", (),
           one_value(lambda g: g.tallied.joins_ms / 1_000)),
    Family("groupcoord_rebalance_sync_seconds", "Time from the joins, or from the plan, to the assignments.", (),
           one_value(lambda g: g.tallied.syncs_ms / 1_000)),
    Family("groupcoord_plans", "Plans of server assignors, of consumer groups.", (),
           _of_consumers(lambda g: g.tallied.plans)),
    Family("groupcoord_plan_moved_partitions", "Partitions that plans gave to another member.", (),
           _of_consumers(lambda g: g.tallied.moved)),
    Family("groupcoord_heartbeats_fenced", "Heartbeats of the consumer protocol refused, by error.", ("error",),
           _from_zero(FENCES, lambda t: t.epochs_fenced)),
    Family("groupcoord_members_joined", "Members that joined.", (), one_value(lambda g: g.tallied.joined)),
    Family("groupcoord_members_left", "Members that left by themselves.", (), one_value(lambda g: g.tallied.left)),
    Family("groupcoord_members_dropped", "Members that were expelled, by reason.", ("why",),
           _from_zero(WHYS, lambda t: t.dropped)),
    observed.GONE,
    Family("groupcoord_members_fenced", "Members that another process has replaced.", (),
           one_value(lambda g: g.tallied.fenced)),
    Family("groupcoord_commits", "Partitions committed.", (), one_value(lambda g: g.tallied.commits)),
    Family("groupcoord_commits_refused", "Commits refused, by error.", ("error",),
           _from_zero(ERRORS, lambda t: t.refused)),
    Family("groupcoord_records_missing", "Published records that are in no topic.", (),
           one_value(lambda g: g.tallied.missing)),
)  # fmt: skip

OF_KMINION: tuple[Family, ...] = (
    Family("kminion_kafka_consumer_group_info", "1 if Stable.", ("protocol", "protocol_type", "state"), _info),
    Family("kminion_kafka_consumer_group_members", "Members.", (), one_value(lambda g: len(g.members))),
    Family("kminion_kafka_consumer_group_empty_members", "Members without partitions.", (), one_value(_idle_members)),
    Family("kminion_kafka_consumer_group_topic_members", "Members by topic.", ("topic_name",),
           by_label(_topic_members)),
    Family("kminion_kafka_consumer_group_topic_assigned_partitions", "Owned partitions by topic.", ("topic_name",),
           by_label(_topic_partitions)),
    Family("kminion_kafka_consumer_group_topic_offset_sum", "Committed offsets by topic.", ("topic_name",),
           _topic_offsets),
    Family("kminion_kafka_consumer_group_topic_lag", "Lag by topic.", ("topic_name",), _topic_lags),
)  # fmt: skip

OF_PARTITIONS: tuple[Family, ...] = (
    Family("groupcoord_last_commit_timestamp_seconds", "The time of the last commit.", ("topic", "partition"),
           lambda g, ends: (((topic, str(partition)), offset.commit_timestamp_ms / 1_000)
                            for (topic, partition), offset in g.committed().items())),
    Family("kminion_kafka_consumer_group_topic_partition_lag", "Lag by partition.", ("topic_name", "partition_id"),
           lambda g, ends: (((topic, str(p)), records) for topic, p, records in _lags(g, ends))),
)  # fmt: skip

DURATIONS = Histogram(
    "groupcoord_rebalance_duration_seconds", "Duration of rebalances, from the first cause.", DURATIONS_MS,
    lambda g: (g.tallied.durations, g.tallied.duration_ms),
)  # fmt: skip

_COMMITS_OF_KMINION = Family(
    "kminion_kafka_consumer_group_offset_commits", "Partitions committed.", (), one_value(lambda g: g.tallied.commits)
)


class GroupFigures(Collector):
    """A collector of the metrics in the views, for each scrape of Prometheus.

    Args:
        snapshot: Returns a context manager that gives views and ends. They do not change inside its `with` block.
        groups_max: The number of groups with their own metrics: the most recently active ones.
        of_partitions: Whether to add metrics of single partitions.
        labels: Further labels of all metrics.
    """

    def __init__(
        self,
        snapshot: Callable[[], AbstractContextManager[tuple[Views, Ends]]],
        *,
        groups_max: int,
        of_partitions: bool,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._snapshot, self._groups_max, self._of_partitions = snapshot, groups_max, of_partitions
        self._labels = labels or {}

    def describe(self) -> Iterable[Metric]:
        """Return no description, since the views may not exist yet."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return all metrics. They are made at once, so that a slow reader does not block the views."""
        with self._snapshot() as (views, ends):
            is_kafkas = any(group.kept_by is not None for group in views.groups.values())
            labels = self._labels or (observed.LABELS if is_kafkas else {})
            return list(observed.labelled(self._collect(views, ends), labels))

    def _collect(self, views: Views, ends: Ends) -> Iterator[Metric]:
        yield GaugeMetricFamily("groupcoord_views_live", "1 when all existing records are read.", float(views.is_live))
        if not views.is_live:
            return
        groups = views.present()
        shown = _latest(groups, self._groups_max)
        topics, topics_left_out = _topics(shown, ends)
        yield GaugeMetricFamily("groupcoord_views_groups", "Existing groups.", len(groups))
        yield GaugeMetricFamily(
            "groupcoord_views_groups_left_out", "Existing groups without their own figures.", len(groups) - len(shown)
        )
        yield GaugeMetricFamily(
            "groupcoord_views_topics_left_out", "Topics without figures, of groups with figures.", topics_left_out
        )
        yield GaugeMetricFamily("groupcoord_views_alarms", "Alarms, at most the last thousand.", len(views.alarms))
        yield CounterMetricFamily("groupcoord_views_alarms_told", "Alarms, all of them.", views.alarms_told)
        yield CounterMetricFamily("groupcoord_views_records", "Records read of both topics.", views.records)
        for family in GAUGES + (OF_PARTITIONS[:1] if self._of_partitions else ()):
            yield _filled(GaugeMetricFamily, family, "group", topics, ends)
        for family in COUNTERS:
            yield _filled(CounterMetricFamily, family, "group", topics, ends)
        yield histogram(DURATIONS, [group for group in shown if observed.is_recorded(DURATIONS.name, group)])
        yield from _of_policies([(group, named) for group, named in topics if group.has_holds], ends)
        for family in OF_KMINION + (OF_PARTITIONS[1:] if self._of_partitions else ()):
            yield _filled(GaugeMetricFamily, family, "group_id", topics, ends)
        yield _filled(CounterMetricFamily, _COMMITS_OF_KMINION, "group_id", topics, ends)


def _of_policies(shown: list[Shown], ends: Ends) -> Iterator[Metric]:
    """Yield the metrics of the groups on which a policy has had an effect."""
    for family in policies.GAUGES:
        yield _filled(GaugeMetricFamily, family, "group", shown, ends)
    for family in policies.COUNTERS:
        yield _filled(CounterMetricFamily, family, "group", shown, ends)
    yield histogram(policies.UNOWNED, [group for group, _ in shown])


def _latest(groups: list[GroupView], groups_max: int) -> list[GroupView]:
    """Return the most recently active groups if there are too many, in their order."""
    if len(groups) <= groups_max:
        return groups
    chosen = {id(group) for group in heapq.nlargest(groups_max, groups, key=_active_ms)}
    return [group for group in groups if id(group) in chosen]


def _active_ms(group: GroupView) -> int:
    times_ms = [offset.commit_timestamp_ms for offset in group.committed().values()]
    times_ms += [event.at_ms for event in group.events[-1:]]
    return max(times_ms, default=group.record.since_ms if group.record else 0)


def _topics(groups: list[GroupView], ends: Ends) -> tuple[list[Shown], int]:
    """Return the topics that get metrics, and the number of omitted topics."""
    there = {topic for topic, _ in ends}
    wanted, count = list[tuple[bool, bool, str, str]](), 0
    for group in groups:
        owned = _by_topic(group).keys()
        of_this = sorted((t not in owned, t not in there, group.group_id, t) for t in owned | group.offsets.keys())
        wanted += of_this[:TOPICS_OF_A_GROUP_MAX]
        count += len(of_this)
    wanted = sorted(wanted)[:TOPICS_MAX]
    chosen: dict[str, set[str]] = {group.group_id: set() for group in groups}
    for *_, group_id, topic in wanted:
        chosen[group_id].add(topic)
    return [(group, chosen[group.group_id]) for group in groups], count - len(wanted)


def _filled(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    family: Family,
    group_label: str,
    shown: Iterable[Shown],
    ends: Ends,
) -> Metric:
    metric = kind(family.name, family.help, labels=(group_label, *family.labels))
    is_of_topics = family.labels[:1] in _OF_A_TOPIC
    for group, topics in shown:
        if not observed.is_recorded(family.name, group):
            continue
        for labels, value in family.of(group, ends):
            if not is_of_topics or labels[0] in topics:
                metric.add_metric((group.group_id, *labels), value)
    return metric
