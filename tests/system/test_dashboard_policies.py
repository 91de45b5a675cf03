"""The page in a real browser, with a group under policies that a real shard has written."""

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from streaming.dashboard import LiveViews
from streaming.dashboard.live import Phase, Status
from streaming.dashboard.server import WebServer
from tests.streaming.views.seated import SeatedTopics, deployed
from tests.streaming.views.test_views import raws
from tests.system.browser import chromium, page, shot
from tests.system.test_dashboard import ROW, SHOTS, a, opened

__all__ = ["chromium", "page"]


@pytest.fixture
def world() -> SeatedTopics:
    return deployed(time.time_ns() // 1_000_000 - 200_000)


@pytest.fixture
def url(world: SeatedTopics) -> Iterator[str]:
    live = LiveViews()
    for raw in raws(world):
        live.handle(raw)
    live.set_status(Status(Phase.LIVE))
    with WebServer(live, "127.0.0.1", 0) as web:
        yield web.url


def test_the_effect_of_policies_is_shown_beside_the_state(url: str, page: Page, world: SeatedTopics) -> None:
    """policies.md 3.4: held for how long, until when and why; members in quarantine."""
    opened(page, url, "g")
    strip = page.locator(".strip")
    expect(strip).to_contain_text(
        re.compile(r"Heldfor \d+ (s|min), until .* at the latest: 1 vacant seat \(n-[0-9a-f]{4}\)")
    )
    expect(strip).to_contain_text(re.compile(r"In quarantinef-[0-9a-f]{4} until"))
    expect(page.locator(a("in quarantine"))).to_have_count(1)
    expect(page.locator(".why")).to_contain_text("departures became")
    shot(page, "policies-members", SHOTS)


def test_seats_that_passed_on_are_drawn(url: str, page: Page) -> None:
    """policies.md 3.4: a vacancy is a gap, its taker has the colour of the lane before, and a hold is a band."""
    opened(page, url, "g", "timeline")
    page.get_by_role("button", name="All", exact=True).click()
    lane = page.locator(".lane[data-lane=t-1]")
    gaps = lane.locator(".vacancy")
    expect(gaps.first).to_be_attached()
    told = gaps.locator("title").all_text_contents()
    assert re.fullmatch(r"Nobody's from .*: the seat of c-\w{4}, kept by succession; d-\w{4} has it since", told[0]), (
        told
    )
    colours = lane.locator(".span rect").evaluate_all("all => all.map((each) => each.getAttribute('class'))")
    assert colours[0] == colours[1], "d2 took the seat of c2"
    assert len(set(colours)) > 1
    bands = page.locator(".axis .hold title").all_text_contents()
    assert any("held by succession" in band and "there was none" in band for band in bands), bands
    assert any("held by settle" in band and "then it began" in band for band in bands), bands
    expect(page.locator(".legend")).to_contain_text("a vacant seat")
    expect(page.locator(f"{ROW}:has-text('seat taken')")).to_have_count(3)
    expect(page.locator(f"{ROW}:has-text('30.0 s')").first).to_be_visible()
    shot(page, "policies-timeline", SHOTS)
