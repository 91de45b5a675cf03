"""All views of the page on a desktop and on a phone, light and dark: nothing is cut, and nothing scrolls sideways."""

import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from streaming.dashboard import LiveViews
from streaming.dashboard.live import Phase, Status
from streaming.dashboard.server import WebServer
from tests.streaming.dashboard.stage import Stage
from tests.streaming.views.consumers import REVOKING_MS, life_at
from tests.system.browser import chromium, page, scrolls_sideways, shot
from tests.system.test_dashboard import ROW, SHOTS, opened

__all__ = ["chromium", "page"]

TABS = ("members", "partitions", "timeline", "commits")
GROUP_IDS = ("billing", "nightly-exports", "orders-to-warehouse-eu-west-1")

CUT = """() => [...document.querySelectorAll("body *")].filter((each) => {
    const style = getComputedStyle(each);
    const isCell = each.matches("td, dd") || style.overflowX !== "visible";
    return isCell && each.clientWidth > 1 && each.scrollWidth > each.clientWidth + 1;
}).map((each) => `${each.tagName} ${each.className}: ${each.scrollWidth} in ${each.clientWidth}`)"""
"""Return the elements that hide or scroll a part of their width, and the cells whose text overlaps their neighbours.

Text for screen readers alone has one pixel.
"""


def classic() -> LiveViews:
    """Return three groups whose members joined, committed, left and died."""
    live = LiveViews()
    stage = Stage(live, time.time_ns() // 1_000_000 - 900_000).begins()
    places = [(topic, partition) for topic in ("orders", "refunds") for partition in range(8)]
    for group_id in GROUP_IDS:
        ana, bo = stage.joins(group_id, "ana-worker-1", "bo-worker-2")
        stage.shares(group_id, places)
        stage.commits(group_id, ana, {places[0]: 1_234_567, places[1]: 7})
        stage.commits(group_id, ana, {places[2]: 9}, generation=99)
        stage.joins(group_id, "cy-worker-3", topics=("orders", "refunds"))
        stage.shares(group_id, places)
        stage.leaves(group_id, bo, "consumer poll timeout has expired.")
    return live


def consumers() -> LiveViews:
    """Return a group of the consumer protocol in which a member gives up partitions."""
    live = LiveViews(life_at(REVOKING_MS))
    live.set_status(Status(Phase.LIVE))
    return live


@pytest.fixture(params=[(classic, GROUP_IDS[-1]), (consumers, "g")], ids=["classic", "consumer"])
def shown(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, str]]:
    """Start a page. Return the kind of its groups, its URL, and the id of a group."""
    made: Callable[[], LiveViews]
    made, group_id = request.param
    with WebServer(made(), "127.0.0.1", 0) as web:
        yield made.__name__, web.url, group_id


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1_360, 390])
def test_nothing_is_cut(shown: tuple[str, str, str], page: Page, width: int, scheme: str) -> None:
    kind, url, group_id = shown
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": 850})
    for tab in (None, *TABS):
        opened(page, url, None if tab is None else group_id, tab or "")
        expect(page.locator(ROW if tab in (None, "members") else ".strip").first).to_be_visible()
        shot(page, f"{width}-{kind}-{tab or 'list'}-{scheme}", SHOTS)
        assert not scrolls_sideways(page), tab
        assert page.evaluate(CUT) == [], tab
