"""The page in a real browser: with the real broker and query, and with groups that the tests simulate.

With `SHOTS=folder`, pictures are written to that folder.
"""

import os
import time
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from coordinator.base.consumer_protocol import CONSUMERS, Subscription, write_assignment, write_subscription
from coordinator.base.states import Cause
from coordinator.messages.requests import Protocol
from streaming.dashboard import Dashboard, LiveViews
from streaming.dashboard.live import Phase, Status
from streaming.dashboard.server import WebServer
from streaming.query.coordinator import Coordinator
from tests.streaming.dashboard.stage import Stage
from tests.streaming.views.consumers import REVOKING_MS, life_at
from tests.system.asking import Asker
from tests.system.browser import WITHIN_MS, chromium, page, scrolls_sideways, shot, texts
from tests.system.reading import Reader

__all__ = ["chromium", "page"]

SHOTS = os.environ.get("SHOTS")
SEEN_WITHIN_MS = 2_000
"""The longest time from the record to the page."""

PLAN = write_assignment({"orders": [0, 1, 2]})
ROW = "tbody tr"


def a(member: str) -> str:
    return f"{ROW}:has-text('{member}')"


def opened(page: Page, url: str, group_id: str | None = None, tab: str = "") -> None:
    page.goto(url + ("/" if group_id is None else f"/#/g/{quote(group_id, safe='')}/{tab}"))
    expect(page.locator("#badge")).to_have_text("Live", timeout=WITHIN_MS)


# -- the real system ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dashboard(coordinator: Coordinator) -> Iterator[Dashboard]:
    with Dashboard(coordinator.settings.model_copy(update={"dashboard_port": 0})) as dashboard:
        yield dashboard


class Consumer:
    """A member that sends raw requests in Kafka's own formats."""

    def __init__(self, asker: Asker, client_id: str = "ana", **fields: object) -> None:
        self.asker = asker
        metadata = write_subscription(Subscription(("orders",)))
        protocols = (Protocol("range", metadata),)
        self.fields = {"protocol_type": CONSUMERS, "protocols": protocols, "client_id": client_id, **fields}
        if "group_instance_id" in fields:
            joined = asker.ask(asker.joining(**self.fields))
        else:
            joined = asker.ask(asker.joining(asker.new_id(**self.fields), **self.fields))
        self.member_id, self.generation = joined.member_id, joined.generation_id
        asker.ask(asker.syncing(self.generation, self.member_id, {self.member_id: PLAN}))


SHOWN_AT_MS = """([selector, text]) => new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error("not seen: " + document.body.innerText)), 20_000);
    const look = () => {
        const found = [...document.querySelectorAll(selector)].some((each) => each.textContent.includes(text));
        if (found) { watcher.disconnect(); resolve(Date.now()); }
        return found;
    };
    const watcher = new MutationObserver(look);
    watcher.observe(document.body, { childList: true, subtree: true, characterData: true });
    look();
})"""


def watches(page: Page, selector: str, text: str) -> None:
    """Make the page record the time at which it first shows a text; `seen_at_ms` returns that time."""
    page.evaluate(f"(about) => {{ window.seen = ({SHOWN_AT_MS})(about) }}", [selector, text])


def seen_at_ms(page: Page) -> int:
    return int(page.evaluate("window.seen"))


def written_ms(asker: Asker, coordinator: Coordinator, name: str) -> list[int]:
    """Return the times at which the broker appended a group's events of a name."""
    events = Reader(coordinator.settings, asker.group_id).events()
    return [int(e["_appended_ms"]) for e in events if e["event"] == name]


def test_join_expiry_and_fencing_are_shown_within_two_seconds(
    asker: Asker, coordinator: Coordinator, dashboard: Dashboard, page: Page
) -> None:
    """S10, S14: the page shows them within two seconds of the record. Broker and browser have the same clock."""
    lags = {}
    ana = Consumer(asker, "ana", group_instance_id="worker-1")
    opened(page, dashboard.url, asker.group_id, "commits")
    expect(page.locator(".strip")).to_contain_text("Stable")

    watches(page, f"{ROW} td", "member replaced")
    Consumer(asker, "ana", group_instance_id="worker-1")
    lags["fence"] = seen_at_ms(page) - max(written_ms(asker, coordinator, "member_fenced"))

    watches(page, ".strip dd", "PreparingRebalance")
    newcomer = ana.fields | {"client_id": "bo", "group_instance_id": None}
    parked = asker.begin(asker.joining(asker.new_id(**newcomer), **newcomer))
    lags["join"] = seen_at_ms(page) - max(written_ms(asker, coordinator, "rebalance_started"))
    assert not parked.done(), "the page must show it before its client has the response"

    silent = Asker(asker.transport, f"{asker.group_id}-silent")
    Consumer(silent, "cy", session_timeout_ms=4_000)
    opened(page, dashboard.url, silent.group_id, "commits")
    expect(page.locator(".strip")).to_be_visible()
    watches(page, f"{ROW} td", "was dropped: ")
    lags["death"] = seen_at_ms(page) - max(written_ms(silent, coordinator, "member_expired"))
    print(f"page_lag_ms: {lags}")
    assert max(lags.values()) <= SEEN_WITHIN_MS


def test_timeline_agrees_with_the_events(
    asker: Asker, coordinator: Coordinator, dashboard: Dashboard, page: Page
) -> None:
    """S12, S10: the page shows each completed rebalance, its duration, and the owners of each partition in order."""
    ana = Consumer(asker)
    asker.leave(ana.member_id, reason="shift is over")
    bo = Consumer(asker, "bo")
    events = Reader(coordinator.settings, asker.group_id).events()
    completed = [e for e in events if e["event"] == "rebalance_completed"]
    opened(page, dashboard.url, asker.group_id, "timeline")
    expect(page.locator(".lane")).to_have_count(3)
    lane = page.locator(".lane[data-lane=orders-1] .span")
    expect(lane).to_have_count(2)
    owners = [lane.nth(index).get_attribute("data-member") for index in range(2)]
    assert owners == [ana.member_id, bo.member_id]
    told = httpx.get(f"{dashboard.url}/api/timeline", params={"id": asker.group_id}).json()
    assert [r["duration_ms"] for r in told["rebalances"] if r["members"]] == [e["duration_ms"] for e in completed]
    assert page.locator(".stripe[role=img]").count() == len(told["rebalances"])
    first, second = told["lanes"][1]["spans"]
    left = next(e for e in events if e["event"] == "member_left")
    assert (first["to_ms"], first["because"]) == (left["at_ms"], "left")
    assert second["from_ms"] == completed[-1]["at_ms"]
    words = texts(page, f"{ROW} .wide, {ROW} td.wide")
    assert any("shift is over" in each for each in words)


def test_hostile_names_are_shown_as_text(asker: Asker, dashboard: Dashboard, page: Page) -> None:
    """The names of a group and of a member hold markup, a change of text direction and control characters."""
    hostile = "<img src=x onerror=alert(1)>\u202e\x1b[31m/%2F"
    asker.group_id = f"<script>alert(2)</script>{time.time_ns()}\u202egnp"
    Consumer(asker, hostile, client_host="/<b>host</b>")
    opened(page, dashboard.url)
    link = page.locator(f"{ROW} a", has_text="<script>alert(2)</script>")
    expect(link).to_contain_text("\\u{202e}gnp")
    link.click()
    for tab in ("Members", "Partitions", "Timeline", "Commits & refusals"):
        page.get_by_role("tab", name=tab, exact=True).click()
        expect(page.get_by_role("tab", name=tab, exact=True)).to_have_attribute("aria-selected", "true")
        if tab in ("Members", "Partitions"):
            expect(page.locator(ROW).first).to_contain_text("<img src=x onerror=alert(1)>\\u{202e}")
    assert page.locator("main img, main script, main b:has-text('host')").count() == 0


# -- simulated groups --------------------------------------------------------------------------------------------------


@pytest.fixture
def stage() -> Stage:
    return Stage(LiveViews(), time.time_ns() // 1_000_000 - 900_000).begins()


@pytest.fixture
def url(stage: Stage) -> Iterator[str]:
    with WebServer(stage.live, "127.0.0.1", 0) as web:
        yield web.url


def test_list_is_navigated_by_keyboard(stage: Stage, url: str, page: Page) -> None:
    for name in ("cider", "apple", "beer"):
        stage.joins(name, "ana")
    opened(page, url)
    expect(page.locator(ROW)).to_have_count(3)
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    expect(page.locator("tr.current a")).to_have_text("beer")
    expect(page.locator("tr.current a")).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("apple")
    page.get_by_role("tab", selected=True).focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", selected=True)).to_have_text("Partitions")
    expect(page.get_by_role("tab", selected=True)).to_be_focused()
    page.go_back()
    expect(page.locator(ROW)).to_have_count(3)
    page.keyboard.press("/")
    page.keyboard.type("ci")
    expect(page.locator(ROW)).to_have_count(1)
    expect(page.locator(ROW)).to_contain_text("cider")
    page.keyboard.press("Escape")
    header = page.get_by_role("columnheader", name="Group")
    header.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(header).to_have_attribute("aria-sort", "descending")
    assert [each.split("\t")[0].strip() for each in texts(page, ROW)] == ["cider", "beer", "apple"]


def test_rebalance_shows_its_deadline_and_its_next_moves(stage: Stage, url: str, page: Page) -> None:
    """S47, S51, S86: the page shows the deadline, and the next moves in the coordinator's own table."""
    stage.joins("pay", "ana")
    stage.shares("pay", [("orders", 0)])
    opened(page, url, "pay", "members")
    moves = page.locator(".moves")
    expect(moves).to_have_text(f"From here it becomes PreparingRebalance when {Cause.MEMBERS_CHANGED.value}.")
    stage.world.join("pay", client_id="bo")
    stage.passes(10)
    expect(page.locator(".strip")).to_contain_text("Waits for joins until")
    expect(moves).to_contain_text(f"CompletingRebalance when {Cause.JOINS_COMPLETE.value}, or Empty when ")


def test_consumer_group_shows_its_epochs_and_targets(page: Page) -> None:
    """next-generation.md 10.4: ana gives up two partitions, and bo waits for them."""
    live = LiveViews(life_at(REVOKING_MS))
    live.set_status(Status(Phase.LIVE))
    with WebServer(live, "127.0.0.1", 0) as web:
        opened(page, web.url, "g", "members")
        strip = page.locator(".strip")
        for text in ("Group epoch", "Assignment epoch", "uniform", "Waits for", "ana to give up T 2-3"):
            expect(strip).to_contain_text(text)
        expect(page.locator(".why")).to_contain_text("ana has not given up T 2-3 yet, since 00:16:42.000; next: bo.")
        expect(page.locator(ROW).first).to_contain_text("gives up partitions")
        page.get_by_role("tab", name="Partitions", exact=True).click()
        expect(page.locator(ROW).last).to_contain_text("bo")


def test_timeline_is_navigated_by_keyboard(stage: Stage, url: str, page: Page) -> None:
    """S14: keys select one rebalance after another, each with its cause and an advice."""
    (ana,) = stage.joins("pay", "ana")
    stage.shares("pay", [("orders", 0), ("orders", 1)])
    stage.joins("pay", "bo")
    stage.shares("pay", [("orders", 0), ("orders", 1)])
    stage.leaves("pay", ana, "consumer poll timeout has expired.")
    opened(page, url, "pay", "timeline")
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.locator(".lane")).to_have_count(2)
    page.locator(".swim").focus()
    page.keyboard.press("p")
    chosen = page.locator("section.chosen")
    expect(chosen).to_contain_text("max.poll.interval.ms")
    expect(chosen.locator(".verdict")).to_have_text("Avoidable")
    page.keyboard.press("p")
    expect(chosen.locator(".verdict")).to_have_text("Unavoidable")
    now = page.get_by_role("button", name="Now", exact=True)
    expect(now).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("ArrowLeft")
    expect(now).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("End")
    expect(now).to_have_attribute("aria-pressed", "true")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_fits_the_width_of_a_telephone(stage: Stage, url: str, page: Page, scheme: str) -> None:
    stage.joins("x" * 249, "ana", client_host="/" + "h" * 200)
    stage.shares("x" * 249, [("t" * 200, partition) for partition in range(70)])
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": 375, "height": 800})
    opened(page, url)
    expect(page.locator(ROW)).to_have_count(1)
    assert not scrolls_sideways(page)
    for tab in ("members", "partitions", "timeline", "commits"):
        opened(page, url, "x" * 249, tab)
        expect(page.locator(".strip")).to_be_visible()
        assert not scrolls_sideways(page), tab
        shot(page, f"narrow-{tab}-{scheme}", SHOTS)


def test_theme_is_kept_after_a_reload(stage: Stage, url: str, page: Page) -> None:
    opened(page, url)
    for theme in ("light", "dark"):
        page.locator("#theme").click()
        page.reload()
        expect(page.locator("#theme")).to_have_text(f"Theme: {theme}")
        assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == theme


def test_page_shows_a_lost_server_and_reconnects(stage: Stage, chromium: Browser) -> None:
    """The test uses a separate page, because a browser logs every refused connection."""
    stage.joins("pay", "ana")
    page = chromium.new_page()
    with WebServer(stage.live, "127.0.0.1", 0) as web:
        port = int(web.url.rsplit(":", 1)[1])
        opened(page, web.url)
        expect(page.locator(ROW)).to_have_count(1)
    expect(page.locator("#badge")).to_have_text("Reconnecting", timeout=WITHIN_MS)
    stage.live.is_closed = False
    stage.joins("other", "bo")
    with WebServer(stage.live, "127.0.0.1", port):
        expect(page.locator("#badge")).to_have_text("Live", timeout=WITHIN_MS)
        expect(page.locator(ROW)).to_have_count(2)
        page.close()


UPDATED_AFTER_MS = """(text) => new Promise((resolve) => {
    const began = performance.now();
    const watcher = new MutationObserver(() => {
        if (!document.querySelector("table").textContent.includes(text)) return;
        watcher.disconnect();
        resolve(performance.now() - began);
    });
    watcher.observe(document.body, { childList: true, subtree: true, characterData: true });
})"""

FIRST_ROWS_MS = "performance.getEntriesByName('rows')[0].startTime"
MARKS_ROWS = """new MutationObserver((_, watcher) => {
    if (document.querySelector("tbody tr")) { performance.mark("rows"); watcher.disconnect(); }
}).observe(document, { childList: true, subtree: true })"""
SLOW_MS = 5_000
LONG_TASKS = """window.longest = 0;
new PerformanceObserver((list) => {
    for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
}).observe({ type: "longtask", buffered: true })"""


def measured(page: Page, what: str) -> float:
    """Print the time from the address to the first rows and the longest task, and return the first in ms."""
    first_ms = float(page.evaluate(FIRST_ROWS_MS))
    print(f"{what}: rows after {first_ms:.0f} ms, longest task {page.evaluate('window.longest'):.0f} ms")
    return first_ms


def test_page_of_a_thousand_groups_responds_quickly(stage: Stage, url: str, page: Page) -> None:
    names = [f"group-{number:04}" for number in range(1_000)]
    stage.joins_alone(names)
    page.add_init_script(LONG_TASKS + ";" + MARKS_ROWS)
    opened(page, url)
    expect(page.locator("h1")).to_have_text("1,000 groups")
    assert page.locator(ROW).count() <= 100, "only one page of rows is drawn"
    assert measured(page, "1,000 groups") < SLOW_MS
    page.evaluate(f"() => {{ window.updated = ({UPDATED_AFTER_MS})('cy-came-later') }}")
    began_s = time.monotonic()
    stage.joins("a-cy-came-later", "cy")
    page.evaluate("window.updated")
    print(f"1,000 groups: a change is shown after {(time.monotonic() - began_s) * 1e3:.0f} ms")
    page.keyboard.press("/")
    page.keyboard.type("group-0999")
    expect(page.locator(ROW)).to_have_count(1)
    assert page.evaluate("window.longest") < SLOW_MS


def test_page_of_five_hundred_members_responds_quickly(stage: Stage, url: str, page: Page) -> None:
    """S12: of hundreds of members and partitions, only the visible ones are drawn."""
    stage.joins("crowd", *(f"worker-{number:03}" for number in range(500)))
    stage.shares("crowd", [("orders", partition) for partition in range(500)])
    page.add_init_script(LONG_TASKS + ";" + MARKS_ROWS)
    opened(page, url, "crowd", "members")
    expect(page.locator(".strip")).to_contain_text("500")
    assert page.locator(ROW).count() <= 100
    assert measured(page, "500 members") < SLOW_MS
    page.get_by_role("tab", name="Timeline").click()
    expect(page.locator(".lane").first).to_be_visible()
    assert page.locator(".lane").count() <= 100
    page.evaluate("document.querySelector('.lanes').scrollTop = 1e6")
    expect(page.locator(".lane[data-lane=orders-499]")).to_be_visible()
    print(f"500 lanes: longest task {page.evaluate('window.longest'):.0f} ms")
    assert page.evaluate("window.longest") < SLOW_MS
