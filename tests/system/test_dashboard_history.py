"""The page in a real browser, with long histories and with groups that rebalance often."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from coordinator.messages.requests import OffsetCommit, OffsetToCommit
from streaming.dashboard import LiveViews, live
from streaming.dashboard.server import WebServer
from tests.streaming.dashboard.stage import Stage
from tests.system.browser import chromium, page
from tests.system.test_dashboard import ROW, opened

pytestmark = pytest.mark.long

__all__ = ["chromium", "page"]

RESTARTS = 30


@pytest.fixture
def stage() -> Stage:
    """Make a group whose member leaves and joins again and again, for twelve minutes."""
    stage = Stage(LiveViews(), time.time_ns() // 1_000_000 - 780_000).begins()
    for _ in range(RESTARTS):
        (ana,) = stage.joins("pay", "ana")
        stage.shares("pay", [("orders", 0)])
        stage.passes(20_000)
        stage.leaves("pay", ana)
    return stage


@pytest.fixture
def url(stage: Stage) -> Iterator[str]:
    with WebServer(stage.live, "127.0.0.1", 0) as web:
        yield web.url


def test_timeline_can_be_moved_back_to_the_beginning(
    stage: Stage, url: str, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S12: a response has the end of a long history; the page requests older parts when they are shown."""
    monkeypatch.setattr(live, "TIMELINE_WEIGHT_MAX", 70)
    opened(page, url, "pay", "timeline")
    unknown = page.locator(".swim > rect[fill='url(#unknown)']")
    expect(unknown).to_have_count(1)
    expect(page.locator(".stripe[role=img]").first).to_be_visible()
    page.locator(".swim").focus()
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    expect(unknown).to_have_count(0)
    expect(page.locator(".lane[data-lane=orders-0] .span").first).to_be_visible()


def test_stripes_at_the_same_place_are_drawn_once(stage: Stage, url: str, page: Page) -> None:
    opened(page, url, "pay", "timeline")
    stripes = page.locator(".stripe[role=img]")
    expect(stripes.first).to_be_visible()
    assert stripes.count() > RESTARTS
    page.locator(".swim").focus()
    for _ in range(12):
        page.keyboard.press("-")
    expect(stripes).to_have_count(2)  # one for the avoidable rebalances, one for the others
    page.keyboard.press("p")
    expect(page.locator(".stripe.chosen")).to_have_count(1)


def test_commits_and_refusals_are_fetched_once_and_then_streamed(stage: Stage, url: str, page: Page) -> None:
    """S14: each event is shown, and the page does not fetch the history again for it."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    (ana,) = stage.joins("pay", "ana")
    opened(page, url, "pay", "commits")
    rows = page.locator(f"{ROW}:has-text('commit rejected')")
    for number in range(1, 4):
        offsets = (OffsetToCommit("orders", 0, number),)
        stage.world.ask(OffsetCommit, "pay", member_id=ana, generation_id=1, offsets=offsets)
        stage.passes(10)
        expect(rows).to_have_count(number)
    assert sum("/api/timeline" in each for each in asked) == 1


def test_awaited_members_are_shown_next_to_the_state(stage: Stage, url: str, page: Page) -> None:
    """S43, S47."""
    stage.joins("pay", "ana", "bo")
    opened(page, url, "pay")
    second = page.locator(".strip > div").nth(2)
    expect(second).to_contain_text("Waits for the plan of")
    stage.shares("pay", [("orders", 0)])
    expect(second).to_contain_text("Members")
    stage.world.join("pay", client_id="cy")
    stage.passes(10)
    expect(second).to_contain_text("May wait for")
    expect(second).to_contain_text("ana-")
    expect(second).to_contain_text("bo-")
