"""Tests of a page that shows two coordinators, of which one has a group that was at both."""

from contextlib import closing
from typing import Any

import pytest
from msgspec import json

from streaming.cli.lib.options import with_peers
from streaming.config.settings import Settings
from streaming.dashboard import Dashboard
from streaming.dashboard.app import App
from streaming.dashboard.live import LiveViews, Phase, Status
from tests.coordinator.moving.pair import Pair
from tests.streaming.dashboard.test_app import Browser
from tests.streaming.verify.test_verify_moves import moved_there_and_back
from tests.streaming.verify.test_verify_moves import pair as pair

MOVES = ["group_released", "group_moved", "group_arrived", "group_released", "group_moved", "group_arrived"]


def lives_of(pair: Pair) -> tuple[LiveViews, LiveViews]:
    sides: list[Any] = [pair.a, pair.b]
    lives = [LiveViews(side.views(), now_ms=lambda: 7_000) for side in sides]
    for live in lives:
        live.set_status(Status(Phase.LIVE))
        live.peers = dict(zip("AB", lives, strict=True))
    return lives[0], lives[1]


def moves_in(timeline: bytes) -> list[str]:
    return [row["event"] for row in json.decode(timeline)["events"] if row["event"] in MOVES]


@pytest.fixture
def lives(pair: Pair) -> tuple[LiveViews, LiveViews]:
    return lives_of(moved_there_and_back(pair))


def test_the_history_of_a_group_is_that_at_both(lives: tuple[LiveViews, LiveViews]) -> None:
    """S09, S10: whichever coordinator is asked."""
    assert [moves_in(live.timeline("g")) for live in lives] == [MOVES, MOVES]
    for live in lives:
        assert json.decode(live.owner("g", "t", 0, 4_500))["owner"]["because"] == "group moved to A"
        assert json.decode(live.why("g"))["cause"] == "member_joined"


def test_a_page_answers_for_both(lives: tuple[LiveViews, LiveViews]) -> None:
    browser = Browser(App(lives[0], others={"B": lives[1]}).asgi(None))
    for of in ("", "&of=B"):
        assert len(moves_in(browser.get(f"/api/timeline?id=g{of}").content)) == len(MOVES)


def test_a_change_at_the_other_coordinator_is_shown(lives: tuple[LiveViews, LiveViews]) -> None:
    """The answer is kept until anything changes at either of them."""
    at_a, at_b = lives
    assert at_a.timeline("g") is at_a.timeline("g")
    with at_b.lock:
        last = at_b.views.groups["g"].events.pop()
        at_b.publish(last)
    assert len(moves_in(at_a.timeline("g"))) == len(MOVES) - 1


def test_an_answer_about_one_coordinator_is_kept_while_the_other_one_changes(
    lives: tuple[LiveViews, LiveViews],
) -> None:
    at_a, at_b = lives
    kept = at_a.detail("g")
    at_b.publish(at_b.views.groups["g"].events[-1])
    assert at_a.detail("g") is kept


@pytest.mark.parametrize("lacks", ["the records", "the group", "the coordinator"])
def test_a_coordinator_that_cannot_be_asked_is_left_out(lives: tuple[LiveViews, LiveViews], lacks: str) -> None:
    at_a, at_b = lives
    if lacks == "the records":
        at_b.has_begun = False
    elif lacks == "the group":
        del at_b.views.groups["g"]
    else:
        at_a.peers = {"A": at_a}
    assert moves_in(at_a.timeline("g")) == ["group_released", "group_moved", "group_arrived"]


def test_a_dashboard_shows_its_peers_and_has_only_its_own_metrics(lives: tuple[LiveViews, LiveViews]) -> None:
    settings = Settings(topic_prefix="a", dashboard_port=0)
    dashboard = Dashboard(with_peers(settings, ["b", "a", "seen", "b"]), observe=["seen"])
    with closing(dashboard._web._socket):
        assert list(dashboard.others) == ["seen", "b"]
        assert dashboard.live.peers == dashboard.others["b"].peers == {"a": dashboard.live, "b": dashboard.others["b"]}
        assert dashboard.others["seen"].peers == {}
        browser = Browser(dashboard._web._server.config.app)
        for live, is_counted in ((dashboard.others["b"], False), (dashboard.live, True)):
            live.views = lives[0].views
            assert ('group="g"' in browser.get("/metrics").text) == is_counted
