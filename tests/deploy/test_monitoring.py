"""The dashboard and the alerts use metrics and labels that exist."""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from coordinator.base.states import Phase
from streaming.config.settings import Settings
from streaming.gateway.connection.metrics import Metrics
from streaming.gateway.server.server import GatewayHealth
from streaming.health import Readiness, Subject
from streaming.kafka.broker_monitor import BrokerMonitor
from streaming.observe.health import ObserverHealth
from streaming.query.coordinator import Coordinator
from streaming.query.health import QueryHealth
from streaming.views import Views
from streaming.views.metrics import policies
from streaming.views.metrics.families import Family
from streaming.views.metrics.metrics import COUNTERS, DURATIONS, GAUGES, OF_KMINION, OF_PARTITIONS, GroupFigures
from tests.deploy.reading import DEPLOY
from tests.deploy.test_health import Brokers, progress
from tests.streaming.observe.test_health import NAMES as OF_THE_OBSERVER
from tests.streaming.observe.test_health import running as observing

MONITORING = DEPLOY / "monitoring"
BOARD = json.loads((MONITORING / "grafana.json").read_text())
RULES = [rule for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"] for rule in group["rules"]]

SUFFIXES = {"gauge": ("",), "counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}


def figures() -> dict[str, set[str]]:
    """Return the labels of each metric of the query, the gateway and the page, by the metric's name."""
    coordinator = Coordinator(Settings())
    brokers = Brokers()
    pulse = BrokerMonitor(brokers, coordinator.tallies)
    brokers.ends = {0: 30, 1: 0}
    coordinator.tallies.handle(progress(0, 10))
    pulse.check()
    query = QueryHealth(coordinator, pulse)
    groups = CollectorRegistry()
    groups.register(
        GroupFigures(lambda: contextlib.nullcontext((Views(is_live=True), {})), groups_max=1, of_partitions=True)
    )
    labels: dict[str, set[str]] = {}
    for registry in (
        query.registry,
        Readiness(query),
        Metrics().registry,
        groups,
        ObserverHealth(observing()[0]).registry,
    ):
        for metric in registry.collect():
            for suffix in SUFFIXES[metric.type]:
                labels[metric.name + suffix] = {name for sample in metric.samples for name in sample.labels}
    counters = COUNTERS + policies.COUNTERS
    of_groups: tuple[Family, ...] = GAUGES + policies.GAUGES + counters + OF_PARTITIONS + OF_KMINION
    for family in of_groups:
        name = family.name + ("_total" if family in counters else "")
        labels[name] = {"group_id" if family.name.startswith("kminion") else "group", *family.labels}
    for suffix in SUFFIXES["histogram"]:
        for family_name in (DURATIONS.name, policies.UNOWNED.name):
            labels[family_name + suffix] = {"group", "le"}
    return labels


def expressions() -> Iterator[tuple[str, str]]:
    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for rule in RULES:
        yield rule["alert"], rule["expr"]


FIGURES = figures()


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_used_metric_exists(where: str, expression: str) -> None:
    names = set(re.findall(r"\b(?:groupcoord|kminion)_[a-z0-9_]+", expression))
    assert names, f"{where} uses no metric of the product"
    assert names <= FIGURES.keys()
    has = {"instance", "job"}.union(*(FIGURES[name] for name in names))
    used = {label for inside in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)\s*[=!]", inside)}
    used |= {
        name.strip()
        for inside in re.findall(r"\b(?:by|on|ignoring) \(([^)]*)\)", expression)
        for name in inside.split(",")
    }
    assert used <= has
    assert expression.count("(") == expression.count(")")


@pytest.mark.parametrize("rule", [rule for rule in RULES if "for" in rule], ids=lambda rule: rule["alert"])
def test_an_alert_with_a_duration_has_one_series_per_group(rule: dict[str, Any]) -> None:
    """A label that can change, such as `state`, is aggregated. Otherwise each new value would restart the duration."""
    names = re.findall(r"\bgroupcoord_[a-z0-9_]+", rule["expr"])
    if any("state" in FIGURES[name] for name in names):
        assert re.match(r"max by \(group\) ", rule["expr"])
        assert "$labels.state" not in rule["annotations"]["summary"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_has_a_reason_and_a_hint(rule: dict[str, Any]) -> None:
    assert rule["annotations"].keys() == {"summary", "reason", "look"}
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert labels <= {"instance"}.union(*(FIGURES[n] for n in re.findall(r"\bgroupcoord_[a-z0-9_]+", rule["expr"])))


def test_hints_of_alerts_name_existing_commands_and_settings() -> None:
    hints = " ".join(rule["annotations"]["look"] for rule in RULES)
    from typer.main import get_command

    from streaming.cli.main import app

    commands: Any = get_command(app)
    for words in re.findall(r"coordinator ((?:[a-z-]+ ?)+)", hints):
        at = commands
        for word in words.split():
            if (inner := getattr(at, "commands", {}).get(word)) is None:
                break
            at = inner
        assert at is not commands, words
    assert set(re.findall(r"\bdashboard_\w+", hints)) <= Settings.model_fields.keys()


AT_REST = {Phase.EMPTY, Phase.STABLE, Phase.DEAD, Phase.NOT_READY}


@pytest.mark.parametrize("expression", [e for _, e in expressions() if "groupcoord_group_state{state=~" in e])
def test_an_expression_of_rebalancing_groups_has_every_state_that_is_not_at_rest(expression: str) -> None:
    """The groups of both protocols."""
    (states,) = re.findall(r'groupcoord_group_state\{state=~"([^"]+)"\}', expression)
    assert {phase for phase in Phase if re.fullmatch(states, phase.value)} == set(Phase) - AT_REST


@pytest.mark.parametrize(
    "family", [f for f in GAUGES + COUNTERS if "of consumer groups" in f.help], ids=lambda f: f.name
)
def test_the_dashboard_has_every_metric_of_the_consumer_protocol(family: Family) -> None:
    assert any(re.search(rf"\b{family.name}(_total)?\b", expression) for _, expression in expressions())


@pytest.mark.parametrize("name", [f.name for f in (*policies.GAUGES, *policies.COUNTERS, policies.UNOWNED)])
def test_the_dashboard_has_every_metric_of_policies(name: str) -> None:
    """policies.md 3.4."""
    assert any(re.search(rf"\b{name}(_total|_bucket)?\b", expression) for _, expression in expressions())


@pytest.mark.parametrize("name", ["groupcoord_group_lag", "groupcoord_group_gone_unread"])
def test_the_dashboard_has_a_panel_of_records_to_read_and_of_records_gone_unread(name: str) -> None:
    panels = [panel for panel in BOARD["panels"] if panel["type"] == "timeseries"]
    assert [name in str(panel["targets"]) for panel in panels].count(True) == 1


@pytest.mark.parametrize("name", ["records_total", "unreadable_total", "behind_records", "held_back_seconds"])
def test_the_dashboard_shows_how_far_the_observer_is(name: str) -> None:
    assert f"groupcoord_observe_{name}" in OF_THE_OBSERVER
    assert any(f"groupcoord_observe_{name}" in expression for _, expression in expressions())


@pytest.mark.parametrize("subject", [QueryHealth, GatewayHealth])
def test_an_alert_tells_of_a_process_that_is_not_ready(subject: type[Subject]) -> None:
    rules = [rule for rule in RULES if "groupcoord_ready" in rule["expr"]]
    assert [rule["for"] for rule in rules if f'{{process="{subject.process}"}} == 0' in rule["expr"]] == ["1m"]


def test_the_dashboard_shows_which_processes_are_ready() -> None:
    assert any(panel["type"] == "stat" and "groupcoord_ready" in str(panel["targets"]) for panel in BOARD["panels"])


def test_an_alert_tells_of_fenced_heartbeats() -> None:
    assert any("groupcoord_heartbeats_fenced_total" in rule["expr"] for rule in RULES)


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert taken.isdisjoint(cells), panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_prometheus_scrapes_the_dashboards_port() -> None:
    scraped = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
    targets = [target for job in scraped for each in job["static_configs"] for target in each["targets"]]
    assert f"dashboard:{Settings.model_fields['dashboard_port'].default}" in targets
