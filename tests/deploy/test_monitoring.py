"""The board and the alerts ask for figures that there are, by labels that these have."""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from streaming.config.settings import Settings
from streaming.gateway.metrics import Metrics
from streaming.kafka.pulse import Pulse
from streaming.query.coordinator import Coordinator
from streaming.query.health import QueryHealth
from streaming.views import Views
from streaming.views.metrics import COUNTERS, GAUGES, OF_KMINION, OF_PARTITIONS, Family, GroupFigures
from tests.deploy.reading import DEPLOY
from tests.deploy.test_health import Brokers, progress

MONITORING = DEPLOY / "monitoring"
BOARD = json.loads((MONITORING / "grafana.json").read_text())
RULES = [rule for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"] for rule in group["rules"]]

SUFFIXES = {"gauge": ("",), "counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}


def figures() -> dict[str, set[str]]:
    """Say by name which labels each figure has, of the query, the gateway and the page."""
    coordinator = Coordinator(Settings())
    brokers = Brokers()
    pulse = Pulse(brokers, coordinator.tallies)
    brokers.ends = {0: 30, 1: 0}
    coordinator.tallies.take(progress(0, 10))
    pulse.look()
    groups = CollectorRegistry()
    groups.register(
        GroupFigures(lambda: contextlib.nullcontext((Views(is_live=True), {})), groups_max=1, of_partitions=True)
    )
    labels: dict[str, set[str]] = {}
    for registry in (QueryHealth(coordinator, pulse).registry, Metrics().registry, groups):
        for metric in registry.collect():
            for suffix in SUFFIXES[metric.type]:
                labels[metric.name + suffix] = {name for sample in metric.samples for name in sample.labels}
    of_groups: tuple[Family, ...] = GAUGES + COUNTERS + OF_PARTITIONS + OF_KMINION
    for family in of_groups:
        name = family.name + ("_total" if family in COUNTERS else "")
        labels[name] = {"group_id" if family.name.startswith("kminion") else "group", *family.labels}
    for suffix in SUFFIXES["histogram"]:
        labels["groupcoord_rebalance_duration_seconds" + suffix] = {"group", "le"}
    return labels


def expressions() -> Iterator[tuple[str, str]]:
    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for rule in RULES:
        yield rule["alert"], rule["expr"]


FIGURES = figures()


@pytest.mark.parametrize(("where", "asked"), list(expressions()))
def test_every_figure_that_is_asked_for_exists(where: str, asked: str) -> None:
    names = set(re.findall(r"\b(?:groupcoord|kminion)_[a-z0-9_]+", asked))
    assert names, f"{where} asks for nothing of ours"
    assert names <= FIGURES.keys()
    has = {"instance", "job"}.union(*(FIGURES[name] for name in names))
    used = {label for inside in re.findall(r"\{([^}]*)\}", asked) for label in re.findall(r"(\w+)\s*[=!]", inside)}
    used |= {
        name.strip() for inside in re.findall(r"\b(?:by|on|ignoring) \(([^)]*)\)", asked) for name in inside.split(",")
    }
    assert used <= has
    assert asked.count("(") == asked.count(")")


@pytest.mark.parametrize("rule", [rule for rule in RULES if "for" in rule], ids=lambda rule: rule["alert"])
def test_what_has_to_last_is_one_series_all_the_while(rule: dict[str, Any]) -> None:
    """A label that changes meanwhile, as `state` does, is gathered up, or the time would begin anew with each."""
    names = re.findall(r"\bgroupcoord_[a-z0-9_]+", rule["expr"])
    if any("state" in FIGURES[name] for name in names):
        assert re.match(r"max by \(group\) ", rule["expr"])
        assert "$labels.state" not in rule["annotations"]["summary"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_gives_its_reason_and_where_to_look(rule: dict[str, Any]) -> None:
    assert rule["annotations"].keys() == {"summary", "reason", "look"}
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert labels <= {"instance"}.union(*(FIGURES[n] for n in re.findall(r"\bgroupcoord_[a-z0-9_]+", rule["expr"])))


def test_what_is_looked_at_are_commands_and_settings_that_there_are() -> None:
    told = " ".join(rule["annotations"]["look"] for rule in RULES)
    from typer.main import get_command

    from streaming.cli.main import app

    commands: Any = get_command(app)
    for words in re.findall(r"coordinator ((?:[a-z-]+ ?)+)", told):
        at = commands
        for word in words.split():
            if (inner := getattr(at, "commands", {}).get(word)) is None:
                break
            at = inner
        assert at is not commands, words
    assert set(re.findall(r"\bdashboard_\w+", told)) <= Settings.model_fields.keys()


def test_the_board_is_laid_out_without_overlaps() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert taken.isdisjoint(cells), panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_the_pages_port_is_the_one_that_is_scraped() -> None:
    scraped = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
    targets = [target for job in scraped for each in job["static_configs"] for target in each["targets"]]
    assert f"dashboard:{Settings.model_fields['dashboard_port'].default}" in targets
