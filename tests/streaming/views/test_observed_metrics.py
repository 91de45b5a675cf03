"""The metrics of groups that Kafka's own coordinator keeps: what it does not record has no metric."""

from contextlib import nullcontext

import pytest
from msgspec import UNSET, structs
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from coordinator.base.states import GroupType
from streaming.views import Views
from streaming.views.metrics.metrics import GroupFigures
from streaming.views.metrics.observed import CAUSES, LABELS, LIKELY, NOT_RECORDED, SeveralFigures
from streaming.views.state.lag import Bounds
from tests.streaming.views.golden_views import example_views
from tests.streaming.views.observing import Observed, member_id

ANA, BO = member_id("ana"), member_id("bo")


def figures(views: Views, labels: dict[str, str] | None = None) -> GroupFigures:
    views.is_live = True
    return GroupFigures(
        lambda: nullcontext((views, {("orders", 0): Bounds(0, 20)})), groups_max=100, of_partitions=True, labels=labels
    )


def scraped(*collectors: GroupFigures) -> list[tuple[str, dict[str, str], float]]:
    registry = CollectorRegistry()
    registry.register(SeveralFigures(collectors))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]


def observed(kind: str = "classic") -> Observed:
    observed = Observed(kind=kind).begins(founded=True).to(1).record(0, {ANA: [0]}).commits(10, 0, 17, stands_for=3)
    observed.to(2).started(1_000, "member_gone", BO).gone(1_000, BO, 900, "left").completed(1_004, ANA, took_ms=None)
    return observed.gone(1_100, member_id("cy"))


def test_all_metrics_have_the_label_of_kafkas_coordinator() -> None:
    samples = scraped(figures(observed().views(), dict(LABELS)))
    assert len(samples) > 30
    assert all(labels["coordinator"] == "kafka" for _, labels, _ in samples)


@pytest.mark.parametrize("kind", [GroupType.CLASSIC, GroupType.CONSUMER])
def test_facts_that_kafka_does_not_record_have_no_metric(kind: GroupType) -> None:
    names = {name for name, labels, _ in scraped(figures(observed(kind.value).views())) if labels.get("group")}
    left_out = {f"{name}{end}" for name in NOT_RECORDED[kind] for end in ("", "_total", "_bucket", "_sum", "_count")}
    assert not names & left_out
    assert "groupcoord_rebalance_sync_seconds_total" in names
    assert ("groupcoord_rebalance_duration_seconds_count" in names) == (kind is GroupType.CONSUMER)


@pytest.mark.parametrize("kind", [GroupType.CLASSIC, GroupType.CONSUMER])
def test_rebalances_and_members_that_are_gone_are_counted_by_what_is_known(kind: GroupType) -> None:
    samples = scraped(figures(observed(kind.value).views()))
    causes = {labels["cause"]: value for name, labels, value in samples if name == "groupcoord_rebalances_total"}
    assert causes == {**dict.fromkeys(CAUSES[kind], 0), "member_gone": 1}
    gone = {labels["likely"]: value for name, labels, value in samples if name == "groupcoord_members_gone_total"}
    assert gone == {**dict.fromkeys(LIKELY, 0), "left": 1, "unknown": 1}
    commits = [value for name, _, value in samples if name == "groupcoord_commits_total"]
    assert commits == [3]


def test_groups_of_two_coordinators_share_a_metric() -> None:
    """A group of one id in both is two: only the label tells them apart, and each name is declared once."""
    ours, theirs = example_views(), observed().views()
    theirs.groups["orders"] = theirs.groups.pop("clicks")
    theirs.groups["orders"].group_id = "orders"
    registry = CollectorRegistry()
    registry.register(SeveralFigures([figures(ours), figures(theirs, dict(LABELS))]))
    text = generate_latest(registry).decode()
    heads = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))
    members = [line for line in text.splitlines() if line.startswith("groupcoord_group_members{")]
    of_orders = [line for line in members if '"orders"' in line]
    assert sorted("coordinator" in line for line in of_orders) == [False, True]


def test_groups_of_this_coordinator_have_no_members_that_are_gone() -> None:
    assert not [name for name, *_ in scraped(figures(example_views())) if name == "groupcoord_members_gone_total"]


@pytest.mark.parametrize("kind", ["share", "streams"])
def test_groups_of_other_types_have_metrics(kind: str) -> None:
    samples = scraped(figures(Observed(kind=kind).begins().record(0, {}).views()))
    types = [labels["type"] for name, labels, _ in samples if name == "groupcoord_group_type"]
    assert types == [kind]


@pytest.mark.parametrize(
    ("assignors", "value"),
    [(["range", "uniform"], [1.0]), (["range", "range", "uniform"], [0.0]), (["range"], [0.0]), ([None, None], [0.0])],
)
def test_tie_of_server_assignors_has_a_metric(assignors: list[str | None], value: list[float]) -> None:
    observed = Observed(kind="consumer").begins(founded=True).to(1)
    observed.record(0, {member_id(f"m{number}"): [number] for number in range(len(assignors))})
    record = observed.written[-1]
    members = [
        structs.replace(member, server_assignor=UNSET if assignor is None else assignor)
        for member, assignor in zip(record.members, assignors, strict=True)
    ]
    observed.written[-1] = structs.replace(record, members=tuple(members))
    assert tied(observed.views()) == value
    assert tied(Observed().begins().to(1).record(0, {ANA: [0]}).views()) == [], "classic members prefer none"


def tied(views: Views) -> list[float]:
    return [value for name, _, value in scraped(figures(views)) if name == "groupcoord_group_assignors_tied"]
