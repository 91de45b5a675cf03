"""The metrics of groups that Kafka's own coordinator keeps: those that are left out, and the label of all."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from coordinator.base.states import GroupType
from streaming.views.metrics.families import Family, by_label, one_value
from streaming.views.state.fields import known
from streaming.views.state.group import GroupView

LABELS: Mapping[str, str] = {"coordinator": "kafka"}
"""The label of each metric of such groups, so that a group here and one there with the same id are two."""

CAUSES: Mapping[GroupType, tuple[str, ...]] = {
    GroupType.CLASSIC: (
        "member_joined", "member_gone", "static_member_replaced", "metadata_changed", "leader_rejoined",
        "cooperative_round", "protocol_upgraded", "protocol_downgraded", "unknown",
    ),
    GroupType.CONSUMER: (
        "member_joined", "member_gone", "subscription_changed", "topics_changed", "regex_resolved",
        "assignor_changed", "assignors_tied", "revocation_overdue", "brokers_upgraded", "protocol_upgraded", "unknown",
    ),
    GroupType.STREAMS: (
        "member_joined", "member_gone", "member_changed", "topics_changed", "topology_ready", "topology_not_ready",
        "configs_changed", "revocation_overdue", "unknown",
    ),
    GroupType.SHARE: (
        "member_joined", "member_gone", "subscription_changed", "topics_changed", "share_state_ready", "unknown",
    ),
}  # fmt: skip
"""The causes of rebalances that Kafka's log shows."""

NOT_RECORDED: Mapping[GroupType, frozenset[str]] = {
    GroupType.CLASSIC: frozenset({
        "groupcoord_rebalance_duration_seconds", "groupcoord_rebalance_join_seconds", "groupcoord_members_left",
        "groupcoord_members_dropped", "groupcoord_commits_refused", "groupcoord_rebalances_begun_anew",
    }),
    **dict.fromkeys((GroupType.CONSUMER, GroupType.STREAMS, GroupType.SHARE), frozenset({
        "groupcoord_members_left", "groupcoord_members_dropped", "groupcoord_commits_refused",
        "groupcoord_heartbeats_fenced", "groupcoord_plans", "groupcoord_plan_moved_partitions",
    })),
}  # fmt: skip
"""The metrics about facts that Kafka does not record. They are left out, since 0 would be a claim."""

LIKELY = ("left", "expired", "revocation_overdue", "unknown")
"""What a member that is gone likely did."""

GONE = Family(
    "groupcoord_members_gone", "Members that are gone, by what they likely did.", ("likely",),
    by_label(lambda g: {**dict.fromkeys(LIKELY, 0), **g.tallied.gone} if g.kept_by is not None else {}),
)  # fmt: skip


def _is_tied(group: GroupView) -> float | None:
    """Return 1 if as many members prefer one server assignor as another, and 0 if not; None if it is not recorded."""
    if group.kept_by is None or group.type is not GroupType.CONSUMER:
        return None
    counts = sorted(Counter(filter(None, (known(member.server_assignor) for member in group.members))).values())
    return float(len(counts) > 1 and counts[-1] == counts[-2])


ASSIGNORS_TIED = Family(
    "groupcoord_group_assignors_tied",
    "1 if as many members prefer one server assignor as another: Kafka 4.4.0 may rebalance at every heartbeat.", (),
    one_value(_is_tied),
)  # fmt: skip


def is_recorded(name: str, group: GroupView) -> bool:
    """Return whether a group has a metric."""
    return group.kept_by is None or name not in NOT_RECORDED.get(group.type, frozenset())


def causes_of(group: GroupView, own: Mapping[GroupType, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the causes that a group's rebalances may have.

    Args:
        own: The causes in groups of this coordinator.
    """
    return (own if group.kept_by is None else CAUSES).get(group.type, ())


def labelled(metrics: Iterable[Metric], labels: Mapping[str, str]) -> Iterator[Metric]:
    """Yield metrics with further labels on all samples."""
    for metric in metrics:
        metric.samples = [sample._replace(labels={**sample.labels, **labels}) for sample in metric.samples]
        yield metric


class SeveralFigures(Collector):
    """The metrics of several coordinators' groups. A metric of all of them has one name and one description."""

    def __init__(self, collectors: Iterable[Collector]) -> None:
        self._collectors = tuple(collectors)

    def describe(self) -> Iterable[Metric]:
        """Return no description, as the collectors do."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return all metrics."""
        merged: dict[str, Metric] = {}
        for collector in self._collectors:
            for metric in collector.collect():
                if (known := merged.setdefault(metric.name, metric)) is not metric:
                    known.samples.extend(metric.samples)
        return list(merged.values())
