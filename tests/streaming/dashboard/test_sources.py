"""Tests of a page that shows the groups of this coordinator and those of Kafka's own one: `of=PREFIX`."""

import httpx
import pytest

from streaming.dashboard.app import App
from streaming.dashboard.live import LiveViews, Phase, Status
from streaming.dashboard.server import WebServer
from tests.streaming.dashboard.test_app import Browser
from tests.streaming.dashboard.test_streams import Following
from tests.streaming.views.golden_views import example_views
from tests.streaming.views.observing import Observed, T, member_id
from tests.system.waiting import HANG_S

ANA, BO = member_id("ana"), member_id("bo")


def live_of(views: object) -> LiveViews:
    live = LiveViews(views, now_ms=lambda: T + 60_000)  # type: ignore[arg-type]
    live.set_status(Status(Phase.CATCHING_UP))
    live.set_status(Status(Phase.LIVE))
    return live


@pytest.fixture
def theirs() -> LiveViews:
    observed = Observed("orders").begins().to(1).record(0, {ANA: [0]}).commits(10, 0, 17)
    observed.to(2).started(1_000, "member_joined", BO).joined(1_000, BO).completed(1_004, ANA, BO)
    return live_of(observed.views())


@pytest.fixture
def browser(theirs: LiveViews) -> Browser:
    """A page with two groups of one id: one of this coordinator, and one of Kafka's."""
    return Browser(App(live_of(example_views()), others={"observed": theirs}).asgi(None))


def test_groups_of_one_id_are_two(browser: Browser) -> None:
    assert browser.get("/api/sources").json() == {"others": ["observed"]}
    ours, theirs = (browser.get(f"/api/groups{of}").json()["groups"] for of in ("", "?of=observed"))
    assert {group["kept_by"] for group in ours} == {None}
    assert [(group["group_id"], group["kept_by"]) for group in theirs] == [("orders", "kafka")]


@pytest.mark.parametrize("path", ["group", "timeline", "why", "owner"])
def test_each_answer_is_about_the_group_of_a_prefix(browser: Browser, path: str) -> None:
    place = "&topic=orders&partition=0" if path == "owner" else ""
    ours, theirs = (browser.get(f"/api/{path}?id=orders{place}{of}") for of in ("", "&of=observed"))
    assert (ours.status_code, theirs.status_code) == (200, 200)
    assert ours.json() != theirs.json()


def test_what_kafka_does_not_record_is_null(browser: Browser) -> None:
    told = browser.get("/api/timeline?id=orders&of=observed").json()
    (row,) = told["rebalances"]
    assert (row["duration_ms"], row["how_known"], row["why"]["is_avoidable"]) == (None, "inferred", False)
    (offset,) = browser.get("/api/group?id=orders&of=observed").json()["offsets"]
    assert (offset["committed_by"], offset["commit_generation_id"]) == (None, None)


@pytest.mark.parametrize("path", ["groups?", "group?id=orders&", "stream?", "stream?id=orders&"])
def test_an_unknown_prefix_is_refused(browser: Browser, path: str) -> None:
    answer = browser.get(f"/api/{path}of=other")
    assert (answer.status_code, answer.json()) == (404, {"error": "This page does not show that prefix."})


def test_each_prefix_catches_up_by_itself() -> None:
    waiting = LiveViews()
    waiting.set_status(Status(Phase.CATCHING_UP, read=5, of=9))
    browser = Browser(App(live_of(example_views()), others={"observed": waiting}).asgi(None))
    assert browser.get("/api/groups").status_code == 200
    answer = browser.get("/api/groups?of=observed")
    assert (answer.status_code, answer.json()["error"]) == (503, "Catching up: 5 of about 9 records are read.")
    assert browser.get("/healthz?of=observed").json()["phase"] == "catching up"


def test_a_stream_follows_the_groups_of_its_prefix(theirs: LiveViews) -> None:
    web = WebServer(live_of(example_views()), "127.0.0.1", 0, others={"observed": theirs})
    path = "/api/stream?of=observed&id=orders"
    with web, httpx.stream("GET", web.url + path, timeout=HANG_S) as response:
        browser = Following(response)
        browser.until("reset")
        theirs.publish(theirs.views.groups["orders"].events[-1])
        assert browser.until("detail").data["summary"]["kept_by"] == "kafka"
    assert theirs.is_closed
