"""Tests of the responses of the page's server, with records that a real shard has written."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any
from urllib.parse import quote

import httpx
import jsonschema
import pytest
from prometheus_client import CollectorRegistry, Counter

from streaming.dashboard import live as live_module
from streaming.dashboard.app import ANSWERS, HEADERS, LOOPBACK_NAMES, App, names_of
from streaming.dashboard.live import LiveViews, Phase, Status
from streaming.views import GroupView, Raw
from streaming.views.api import answers
from streaming.views.state.lag import Bounds
from tests.streaming.dashboard.stage import Stage
from tests.streaming.views.consumers import ENDED_MS, REVOKING_MS, life_at
from tests.streaming.views.test_views import folded, raws
from tests.streaming.views.test_waits import away
from tests.system.waiting import HANG_S

NOW_MS = 1_790_000_000_000
PLACES = [("orders", partition) for partition in range(4)]


@pytest.fixture
def stage() -> Stage:
    """Return a group in which two members own four partitions, one becomes silent, and the other continues."""
    stage = Stage(LiveViews(now_ms=lambda: NOW_MS), NOW_MS - 600_000).begins()
    ana, bo = stage.joins("pay", "ana", "bo")
    stage.shares("pay", PLACES)
    stage.commits("pay", ana, {("orders", 0): 40})
    for _ in range(3):
        stage.passes(20_000)
        stage.beats("pay", bo)
    stage.members["pay"].remove(bo)
    stage.joins("pay")
    stage.shares("pay", PLACES)
    stage.live.publish_lag_changes({("orders", 0): Bounds(0, 100)}, {})
    return stage


class Browser:
    """A client that sends requests to the application as a browser does."""

    def __init__(self, app: Any, host: str = "127.0.0.1:9494") -> None:
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._host = host

    def get(self, path: str, method: str = "GET", **headers: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url=f"http://{self._host}") as client:
                return await client.request(method, path, headers={n.replace("_", "-"): v for n, v in headers.items()})

        return run(ask())


def run(asking: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(asking, 20))


@pytest.fixture
def browser(stage: Stage) -> Browser:
    return Browser(App(stage.live).asgi(LOOPBACK_NAMES))


def described(browser: Browser, path: str) -> jsonschema.Draft202012Validator:
    """Return a validator of the responses of a path, or of errors for an empty path."""
    whole = browser.get("/api/schema").json()
    answer = whole["paths"][path] if path else {"$ref": "#/$defs/Error"}
    return jsonschema.Draft202012Validator({**whole, **answer})


# -- answers -----------------------------------------------------------------------------------------------------------


def test_responses_about_a_consumer_group_match_their_schemas() -> None:
    """The page gets its epochs, targets and waits, during a rebalance and after it."""
    for views in (folded(raws(away())), life_at(REVOKING_MS), life_at(ENDED_MS)):
        live = LiveViews(views)
        live.set_status(Status(Phase.LIVE))
        browser = Browser(App(live).asgi(LOOPBACK_NAMES))
        for path in ("/api/groups", "/api/group?id=g", "/api/timeline?id=g", "/api/why?id=g"):
            described(browser, path.partition("?")[0]).validate(browser.get(path).json())
    detail = browser.get("/api/group?id=g").json()
    assert detail["summary"] | {"type": "consumer", "generation_id": 6, "assignment_epoch": 6} == detail["summary"]
    assert {m["member_id"]: (m["member_epoch"], m["target"]) for m in detail["members"]} == {
        "ana": (6, {"T": [0, 1]}), "cy": (6, {"U": [0, 1]}), "dan": (6, {"T": [2, 3]}),
    }  # fmt: skip


PATHS = [
    "/api/groups",
    "/api/group?id=pay",
    "/api/timeline?id=pay",
    "/api/why?id=pay",
    "/api/why?id=pay&at=0",
    "/api/owner?id=pay&topic=orders&partition=0",
    "/api/owner?id=pay&topic=nothing&partition=9&at=0",
    "/api/sources",
    "/api/schema",
    "/healthz",
]


@pytest.mark.parametrize("path", PATHS)
def test_each_response_matches_its_schema(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.headers["cache-control"] == "no-store"
    described(browser, path.partition("?")[0]).validate(answer.json())


def test_every_path_is_in_the_schema(stage: Stage) -> None:
    """The schema has every path except the page, its files, metrics and streams, which are not JSON."""
    schema = Browser(App(stage.live).asgi(None)).get("/api/schema").json()
    assert set(schema["paths"]) == set(ANSWERS) == {path.partition("?")[0] for path in PATHS}
    assert {"Overview", "GroupDetail", "Timeline", "Why", "Owner", "EventRow", "Status", "Error"} <= set(
        schema["$defs"]
    )
    assert {"type": "null"} in schema["paths"]["/api/why"]["anyOf"]


def test_the_list_and_the_group_have_the_same_summary(browser: Browser) -> None:
    (row,) = browser.get("/api/groups").json()["groups"]
    assert (row["group_id"], row["state"], row["members"], row["total_lag"]) == ("pay", "Stable", 1, 60)
    assert browser.get("/api/group?id=pay").json()["summary"] == row


def test_a_partition_has_at_most_one_owner_at_a_time(browser: Browser) -> None:
    """S10: the test requests times before, between and after two owners of a partition."""
    lane = browser.get("/api/timeline?id=pay").json()["lanes"][2]
    bo, ana = lane["spans"]
    assert (bo["client_id"], bo["because"], ana["client_id"], ana["to_ms"]) == ("bo", "expired", "ana", None)

    def owner(at_ms: int) -> Any:
        return browser.get(f"/api/owner?id=pay&topic=orders&partition=2&at={at_ms}").json()

    assert owner(bo["to_ms"] - 1)["owner"] == bo
    assert owner(ana["from_ms"])["owner"] == ana
    between = owner((bo["to_ms"] + ana["from_ms"]) // 2)
    assert (between["owner"], between["before"], between["after"]) == (None, bo, ana)


def test_a_timeline_can_be_limited_to_a_period(browser: Browser) -> None:
    """S12: the response has the rebalances and events of the requested period, and no others."""
    whole = browser.get("/api/timeline?id=pay").json()
    first, second = whole["rebalances"]
    later = browser.get(f"/api/timeline?id=pay&from={second['started_ms']}&to={second['ended_ms']}").json()
    assert later["rebalances"] == [second]
    assert second["duration_ms"] == second["ended_ms"] - second["started_ms"] > 0
    assert first["ended_ms"] < second["started_ms"]
    assert {e["at_ms"] for e in later["events"]} <= set(range(second["started_ms"], second["ended_ms"] + 1))


def test_why_explains_the_last_rebalance_before_a_time(browser: Browser) -> None:
    """S14: the answer names the silent client, and the rebalance was avoidable."""
    latest = browser.get("/api/why?id=pay").json()
    assert (latest["cause"], latest["client_id"], latest["is_avoidable"]) == ("session_expired", "bo", True)
    earlier = browser.get(f"/api/why?id=pay&at={latest['at_ms'] - 1}").json()
    assert earlier["cause"] == "member_joined"
    assert browser.get("/api/why?id=pay&at=0").json() is None


def test_a_future_time_has_no_owner(browser: Browser) -> None:
    """S10: the present owner is the owner before that time."""
    ask = "/api/owner?id=pay&topic=orders&partition=2"
    now, later = browser.get(ask).json(), browser.get(f"{ask}&at={NOW_MS + 1}").json()
    assert (now["is_known"], now["at_ms"], now["before"]) == (True, NOW_MS, None)
    assert (later["is_known"], later["owner"], later["before"]) == (False, None, now["owner"])


# -- long histories ----------------------------------------------------------------------------------------------------


def test_the_timeline_of_an_active_group_is_bounded(
    stage: Stage, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = browser.get("/api/timeline?id=pay").json()
    monkeypatch.setattr(live_module, "TIMELINE_WEIGHT_MAX", 5)
    stage.live.publish(stage.live.views.groups["pay"].events[-1])
    short = browser.get("/api/timeline?id=pay").json()
    assert 0 < len(short["events"]) < len(whole["events"])
    assert short["known_from_ms"] > whole["known_from_ms"] == 0


def test_cached_responses_are_bounded(stage: Stage, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is their total size; a response that is larger than the bound is not kept."""

    def kept() -> int:
        return sum(len(written) for _, written in stage.live._kept.values())

    size = len(browser.get("/api/timeline?id=pay").content)
    assert kept() == size
    monkeypatch.setattr(live_module, "ANSWERS_KEPT_BYTES", 3 * size)
    for to_ms in range(NOW_MS, NOW_MS + 9):
        browser.get(f"/api/timeline?id=pay&to={to_ms}")
    assert kept() == 3 * size
    monkeypatch.setattr(live_module, "ANSWERS_KEPT_BYTES", 1)
    assert len(browser.get("/api/timeline?id=pay").content) == size
    assert kept() == 0


@pytest.mark.parametrize("what", ["summary", "detail", "timeline", "owner"])
def test_records_are_read_while_a_response_is_made(stage: Stage, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The views change meanwhile, and the response shows the state before."""
    make, before = getattr(answers, what), len(stage.live.views.groups["pay"].events)
    event_counts = []

    def making(*arguments: Any) -> Any:
        joining = threading.Thread(target=stage.joins, args=("pay", "cy"))
        joining.start()
        joining.join(HANG_S)
        assert not joining.is_alive(), "records wait"
        event_counts.append(next(len(each.events) for each in arguments if isinstance(each, GroupView)))
        return make(*arguments)

    monkeypatch.setattr(answers, what, making)
    if what == "summary":
        stage.live.summaries(["pay", "gone meanwhile"])
    else:
        getattr(stage.live, what)("pay", *(("orders", 0) if what == "owner" else ()))
    assert event_counts == [before] != [len(stage.live.views.groups["pay"].events)]


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/group", 400),
        ("/api/group?id=nobody", 404),
        ("/api/timeline?id=pay&from=yesterday", 400),
        ("/api/timeline?id=pay&from=-1", 400),
        ("/api/timeline?id=pay&to=99999999999999999999999", 400),
        ("/api/timeline?id=pay&to=%D9%A3", 400),  # a digit, but not an ASCII digit
        ("/api/why?id=pay&at=1.5", 400),
        ("/api/owner?id=pay&topic=orders", 400),
        ("/api/owner?id=pay&partition=1", 400),
        ("/api/nothing", 404),
        ("/static/nothing.js", 404),
        ("/static/..%2Fapp.py", 404),
        ("/static/../app.py", 404),
        ("/metrics", 404),
    ],
)
def test_an_error_is_returned_as_json(browser: Browser, path: str, status: int) -> None:
    answer = browser.get(path)
    assert answer.status_code == status
    described(browser, "").validate(answer.json())
    assert list(answer.json()) == ["error"]
    assert_guarded(answer)


def test_requests_are_refused_with_the_progress_until_the_page_has_caught_up() -> None:
    live = LiveViews()
    browser = Browser(App(live).asgi(None))
    live.set_status(Status(Phase.CATCHING_UP, 1_200, 5_000))
    answer = browser.get("/api/groups")
    assert (answer.status_code, answer.json()["error"]) == (503, "Catching up: 1200 of about 5000 records are read.")
    assert browser.get("/api/group?id=x").status_code == 503
    live.set_status(Status(Phase.AWAY, why="No Kafka broker answers."))
    assert browser.get("/api/groups").json()["error"] == "No Kafka broker answers."
    live.set_status(Status(Phase.CATCHING_UP))
    live.set_status(Status(Phase.LIVE))
    assert browser.get("/api/groups").json()["groups"] == []
    live.set_status(Status(Phase.AWAY, why="No Kafka broker answers."))
    assert browser.get("/api/groups").status_code == 200, "the known groups are still shown"
    assert browser.get("/healthz").json() == {
        "phase": "reconnecting",
        "read": 0,
        "of": 0,
        "why": "No Kafka broker answers.",
    }


def test_a_bug_is_reported_without_details(stage: Stage, browser: Browser) -> None:
    stage.live.views.alarms.append("no alarm")  # type: ignore[arg-type]
    stage.live.views.groups["pay"].events = None  # type: ignore[assignment]
    answer = browser.get("/api/timeline?id=pay")
    assert (answer.status_code, answer.json()) == (500, {"error": "The dashboard has a bug. Its log has the error."})
    assert_guarded(answer)


# -- allowed requests --------------------------------------------------------------------------------------------------


def assert_guarded(answer: httpx.Response) -> None:
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/api/groups", "/api/schema", "/healthz"])
def test_every_response_has_the_security_headers(browser: Browser, path: str) -> None:
    assert_guarded(browser.get(path))
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'self';")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_only_get_and_head_are_allowed(browser: Browser, method: str) -> None:
    answer = browser.get("/api/groups", method)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert_guarded(answer)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9494", "127.0.0.1:1", "[::1]:9494", "[::1]"])
def test_loopback_names_are_accepted_as_host(stage: Stage, host: str) -> None:
    browser = Browser(App(stage.live).asgi(names_of("127.0.0.1")))
    assert browser.get("/api/groups", host=host).status_code == 200


def test_a_configured_name_of_a_proxy_is_accepted_as_host(stage: Stage) -> None:
    browser = Browser(App(stage.live).asgi(names_of("127.0.0.1", ["Ops.example.com"])))
    assert browser.get("/api/groups", host="ops.example.com:443").status_code == 200
    assert browser.get("/api/groups", host="example.com").status_code == 400


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:9494", "localhost.evil.example", "", "[::2]:1"]
)
def test_an_unknown_host_name_is_refused(stage: Stage, host: str) -> None:
    """DNS rebinding: without the check a stranger's page would have the same origin as this one."""
    app = App(stage.live)
    answer = Browser(app.asgi(names_of("127.0.0.1"))).get("/api/groups", host=host)
    assert (answer.status_code, "groups" in answer.json()) == (400, False)
    assert Browser(app.asgi(names_of("0.0.0.0"))).get("/api/groups", host=host).status_code == 200


# -- files -------------------------------------------------------------------------------------------------------------


def test_an_unchanged_file_is_not_sent_again(browser: Browser) -> None:
    first = browser.get("/static/main.js")
    assert (first.status_code, first.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    again = browser.get("/static/main.js", if_none_match=first.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")
    assert browser.get("/static/main.js", if_none_match='"another"').status_code == 200


def test_metrics_are_returned_if_there_is_a_registry(stage: Stage) -> None:
    registry = CollectorRegistry()
    Counter("looks", "How often.", registry=registry).inc(3)
    answer = Browser(App(stage.live, registry).asgi(None)).get("/metrics")
    assert "looks_total 3.0" in answer.text


# -- hostile ids -------------------------------------------------------------------------------------------------------

HOSTILE = [
    "<script>alert(1)</script>",
    "a/b",
    "a%2Fb",
    "../../etc/passwd",
    "\x00",
    "nul\x00inside",
    "\x1b[31mred\x07",
    "\u202egnp.exe",
    "id=1&id=2#x?y",
    "line\r\nevent: reset\r\n\r\n",
    "消费者组",
    "😀" * 124,
    "x" * 249,
]


@pytest.mark.parametrize("group_id", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_id_is_returned_unchanged(group_id: str) -> None:
    stage = Stage(LiveViews(now_ms=lambda: NOW_MS), NOW_MS - 60_000).begins()
    stage.joins(group_id, "ana")
    browser = Browser(App(stage.live).asgi(LOOPBACK_NAMES))
    assert [g["group_id"] for g in browser.get("/api/groups").json()["groups"]] == [group_id]
    for path in ("group", "timeline", "why"):
        assert browser.get(f"/api/{path}?id={quote(group_id, safe='')}").status_code == 200


def test_a_very_long_id_is_not_found(browser: Browser) -> None:
    assert browser.get(f"/api/group?id={'x' * 10_000}").status_code == 404
    assert browser.get(f"/api/owner?id=pay&topic={'%F0%9F%98%80' * 5_000}&partition=0").json()["owner"] is None


def test_a_group_id_of_ten_thousand_characters_is_shown() -> None:
    """The coordinator accepts no such id; a record from another writer must not stop the page."""
    live = LiveViews()
    live.set_status(Status(Phase.LIVE))
    group_id = "\u202e<" * 5_000
    value = (
        b'{"group_id":"%s","topic":"t","partition":0,"offset":1,"leader_epoch":-1,"metadata":"","commit_timestamp_ms":1,'
        b'"expire_timestamp_ms":null,"generation_id":-1,"member_id":"","version":1}' % group_id.encode()
    )
    live.handle(Raw("groups", 0, 0, 1, b'["offset","%s","t",0]' % group_id.encode(), value))
    live.handle(Raw("groups", 0, 1, 1, b"\xff\x00", b"\x00"))
    answer = Browser(App(live).asgi(None)).get("/api/groups").json()
    assert [g["group_id"] for g in answer["groups"]] == [group_id]
    assert [a["kind"] for a in answer["alarms"]] == ["unreadable"]
