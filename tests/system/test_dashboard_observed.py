"""The page with groups of Kafka's own coordinator beside our own, and with groups of other clients, in a browser."""

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from coordinator.base.states import Phase as GroupPhase
from streaming.dashboard.live import LiveViews, Phase, Status
from streaming.dashboard.server import WebServer
from streaming.moments import unix_ms
from streaming.views import Views
from tests.streaming.views.observing import Observed, member_id
from tests.streaming.views.recordings import Replay
from tests.system.browser import chromium, page, scrolls_sideways, shot, texts

__all__ = ["chromium", "page"]

ANA, BO = member_id("ana"), member_id("bo", "4b20")
MODERN = "B00WiDjmTFKJurcyAuofRg"
PICTURES = os.environ.get("PICTURES")
"""A folder for pictures of the page; none are taken without it."""


def live_of(views: Views) -> LiveViews:
    live = LiveViews(views)
    live.set_status(Status(Phase.CATCHING_UP))
    live.set_status(Status(Phase.LIVE))
    return live


def theirs() -> Views:
    """Return a classic group, one of the new protocol and a share group, which Kafka's coordinator keeps."""
    began_ms = unix_ms() - 300_000
    clicks = Observed("clicks", began_ms=began_ms).begins().to(1).record(0, {ANA: [0, 1]}).commits(100, 0, 17)
    clicks.to(2).started(60_000, "member_joined", BO, after_ms=30_000).joined(60_000, BO)
    clicks.completed(60_004, ANA, BO, joined=(BO,), p0=(ANA, BO)).record(60_004, {ANA: [1], BO: [0]})
    clicks.to(3).started(150_000, "member_gone", BO, after_ms=90_000).gone(150_000, BO, 140_000)
    clicks.completed(150_010, ANA, gone=(BO,), p0=(BO, ANA)).record(150_010, {ANA: [0, 1]})
    modern = Observed("modern", kind="consumer", session_ms=None, began_ms=began_ms).begins().to(2)
    modern.record(0, {MODERN: [0]}, clients={MODERN: "ana"})
    queue = Observed("queue", kind="share", began_ms=began_ms).begins().to(4)
    queue.record(0, {}, state=GroupPhase.STABLE, protocol_type=None)
    views = clicks.views()
    views.groups |= modern.views().groups | queue.views().groups
    return views


def ours() -> Views:
    """Return groups of cooperative consumers, of Kafka Streams and of Kafka Connect."""
    return replayed({"coop": 12_000, "streams": 90_000, "connect": 72_000})


def replayed(replays: dict[str, int]) -> Views:
    views = Views(is_live=True)
    for name, at_ms in replays.items():
        group = Replay(name).until(at_ms)
        views.groups[group.group_id] = group
    return views


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    others = {"observed": live_of(theirs()), "eu.peer": live_of(replayed({"static": 60_000}))}
    with WebServer(live_of(ours()), "127.0.0.1", 0, others=others) as web:
        yield web.url


def opened(page: Page, url: str, place: str, wanted: str) -> str:
    """Open a place of the page, wait for a text, and return all text."""
    page.goto(f"{url}/#{place}")
    page.reload()
    page.get_by_text(wanted).first.wait_for()
    return page.locator("main").inner_text()


def test_the_list_has_the_groups_of_all_and_shows_who_keeps_them(page: Page, url: str) -> None:
    opened(page, url, "/", "queue")
    page.get_by_text("static").first.wait_for()  # the groups of each source come by themselves
    assert "Kept by" in [text.strip() for text in texts(page, "th")]
    rows = {row.split()[0]: row for row in texts(page, "tbody tr")}
    keepers = dict.fromkeys(("coop", "word-count", "connectors"), "this coordinator") | {"static": "eu.peer"}
    keepers |= dict.fromkeys(("clicks", "modern", "queue"), "Kafka")
    assert rows.keys() == keepers.keys()
    assert [name for name, keeper in keepers.items() if keeper not in rows[name]] == []
    assert {len(texts(page, f"tbody tr:nth-child({number}) td")) for number in range(1, 7)} == {len(texts(page, "th"))}
    assert "share" in rows["queue"]
    assert "Avoidable" not in rows["clicks"]
    shot(page, "observed-list", PICTURES)
    page.get_by_role("link", name="clicks").click()
    page.get_by_text("left or was expired").first.wait_for()
    assert page.url.endswith("#/o/observed/clicks")


def test_a_group_of_kafka_shows_what_is_not_recorded(page: Page, url: str) -> None:
    told = opened(page, url, "/o/observed/clicks", "Why it last rebalanced")
    assert "Not known" in told
    assert "Kafka's coordinator" in told
    assert "as of its last record" in told
    assert "Its last commit was 10.0 s before, its session is 6.0 s." in told
    shot(page, "observed-group", PICTURES)
    told = opened(page, url, "/o/observed/clicks/commits", "Refused")
    assert "not recorded" in told
    told = opened(page, url, "/o/observed/clicks/timeline", "observation began")
    assert "by " in told
    assert "not recorded" in told
    assert not scrolls_sideways(page)
    shot(page, "observed-timeline", PICTURES)


def test_a_member_id_without_a_client_id_is_shown_with_it(page: Page, url: str) -> None:
    told = opened(page, url, "/o/observed/modern", "ana-B00W")
    assert MODERN not in told
    opened(page, url, "/o/observed/queue", "It has no members")


def test_a_cooperative_rebalance_is_one_line(page: Page, url: str) -> None:
    opened(page, url, "/g/coop/timeline", "Rebalances")
    page.get_by_role("button", name="All", exact=True).click()
    page.get_by_text("cooperative round").first.wait_for()
    rows = texts(page, "table[aria-label=Rebalances] tbody tr") or texts(page, "tbody tr")
    causes = [row for row in rows if "Unavoidable" in row]
    assert sum("member joined" in row for row in causes) == 2
    assert not any("cooperative round" in row for row in causes)
    told = opened(page, url, "/g/coop", "Why it last rebalanced")
    assert 'joined again, with the reason "asked by hand".' in told


def test_connectors_and_tasks_are_shown(page: Page, url: str) -> None:
    told = opened(page, url, "/g/connectors", "connectors orders-source")
    assert "connectors orders-source; tasks orders-source 0-1" in told
    shot(page, "observed-connect", PICTURES)
    told = opened(page, url, "/g/word-count", "active tasks")
    assert "active tasks 0_1 0_3 1_1 1_3; standby or warm-up tasks 1_0 1_2" in told
    shot(page, "observed-streams", PICTURES)
