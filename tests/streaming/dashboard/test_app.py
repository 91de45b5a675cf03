"""What the page's server answers, over groups that a real shard has lived through."""

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
from streaming.dashboard.app import ANSWERS, App
from streaming.dashboard.guard import HEADERS, LOOPBACK_NAMES, names_of
from streaming.dashboard.live import Live, Phase, Status
from streaming.views import GroupView, Raw, answers
from tests.streaming.dashboard.stage import Stage

NOW_MS = 1_790_000_000_000
PLACES = [("orders", partition) for partition in range(4)]


@pytest.fixture
def stage() -> Stage:
    """Two members share four partitions; one falls silent, the other goes on."""
    stage = Stage(Live(now_ms=lambda: NOW_MS), NOW_MS - 600_000).begins()
    ana, bo = stage.joins("pay", "ana", "bo")
    stage.shares("pay", PLACES)
    stage.commits("pay", ana, {("orders", 0): 40})
    for _ in range(3):
        stage.passes(20_000)
        stage.beats("pay", bo)
    stage.members["pay"].remove(bo)
    stage.joins("pay")
    stage.shares("pay", PLACES)
    stage.live.look_for_changes_of_lag({("orders", 0): 100})
    return stage


class Browser:
    """Asks the application as a browser would."""

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
    """What the schema says that a path answers; where it names none, an error."""
    whole = browser.get("/api/schema").json()
    answer = whole["paths"][path] if path else {"$ref": "#/$defs/Error"}
    return jsonschema.Draft202012Validator({**whole, **answer})


# -- answers -----------------------------------------------------------------------------------------------------------


ASKED = [
    "/api/groups",
    "/api/group?id=pay",
    "/api/timeline?id=pay",
    "/api/why?id=pay",
    "/api/why?id=pay&at=0",
    "/api/owner?id=pay&topic=orders&partition=0",
    "/api/owner?id=pay&topic=nothing&partition=9&at=0",
    "/api/schema",
    "/healthz",
]


@pytest.mark.parametrize("asked", ASKED)
def test_each_answer_is_as_its_schema_says(browser: Browser, asked: str) -> None:
    answer = browser.get(asked)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.headers["cache-control"] == "no-store"
    described(browser, asked.partition("?")[0]).validate(answer.json())


def test_every_path_is_in_the_schema(stage: Stage) -> None:
    """But the page, its files, figures and streams, which are no JSON."""
    schema = Browser(App(stage.live).asgi(None)).get("/api/schema").json()
    assert set(schema["paths"]) == set(ANSWERS) == {asked.partition("?")[0] for asked in ASKED}
    assert {"Overview", "GroupDetail", "Timeline", "Why", "Owner", "EventRow", "Status", "Error"} <= set(
        schema["$defs"]
    )
    assert {"type": "null"} in schema["paths"]["/api/why"]["anyOf"]


def test_the_list_and_the_group_tell_the_same(browser: Browser) -> None:
    (row,) = browser.get("/api/groups").json()["groups"]
    assert (row["group_id"], row["state"], row["members"], row["total_lag"]) == ("pay", "Stable", 1, 60)
    assert browser.get("/api/group?id=pay").json()["summary"] == row


def test_a_moment_has_one_owner_or_none(browser: Browser) -> None:
    """S10: before, between and after two owners of a partition."""
    lane = browser.get("/api/timeline?id=pay").json()["lanes"][2]
    bo, ana = lane["spans"]
    assert (bo["client_id"], bo["because"], ana["client_id"], ana["to_ms"]) == ("bo", "expired", "ana", None)

    def owner(at_ms: int) -> Any:
        return browser.get(f"/api/owner?id=pay&topic=orders&partition=2&at={at_ms}").json()

    assert owner(bo["to_ms"] - 1)["owner"] == bo
    assert owner(ana["from_ms"])["owner"] == ana
    between = owner((bo["to_ms"] + ana["from_ms"]) // 2)
    assert (between["owner"], between["before"], between["after"]) == (None, bo, ana)


def test_a_timeline_may_be_bounded(browser: Browser) -> None:
    """S12: what touches a stretch of time, and no more."""
    whole = browser.get("/api/timeline?id=pay").json()
    first, second = whole["rebalances"]
    later = browser.get(f"/api/timeline?id=pay&from={second['started_ms']}&to={second['ended_ms']}").json()
    assert later["rebalances"] == [second]
    assert second["duration_ms"] == second["ended_ms"] - second["started_ms"] > 0
    assert first["ended_ms"] < second["started_ms"]
    assert {e["at_ms"] for e in later["events"]} <= set(range(second["started_ms"], second["ended_ms"] + 1))


def test_why_at_a_moment_is_the_rebalance_before_it(browser: Browser) -> None:
    """S14: whose silence it was, and that it was avoidable."""
    latest = browser.get("/api/why?id=pay").json()
    assert (latest["cause"], latest["client_id"], latest["is_avoidable"]) == ("session_expired", "bo", True)
    earlier = browser.get(f"/api/why?id=pay&at={latest['at_ms'] - 1}").json()
    assert earlier["cause"] == "member_joined"
    assert browser.get("/api/why?id=pay&at=0").json() is None


def test_what_is_to_come_has_no_owner_yet(browser: Browser) -> None:
    """S10: whose it is now stands before it."""
    ask = "/api/owner?id=pay&topic=orders&partition=2"
    now, later = browser.get(ask).json(), browser.get(f"{ask}&at={NOW_MS + 1}").json()
    assert (now["is_known"], now["at_ms"], now["before"]) == (True, NOW_MS, None)
    assert (later["is_known"], later["owner"], later["before"]) == (False, None, now["owner"])


# -- long histories ----------------------------------------------------------------------------------------------------


def test_a_timeline_of_a_restless_group_has_an_end(
    stage: Stage, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = browser.get("/api/timeline?id=pay").json()
    monkeypatch.setattr(live_module, "TIMELINE_WEIGHT_MAX", 5)
    stage.live.note(stage.live.views.groups["pay"].events[-1])
    short = browser.get("/api/timeline?id=pay").json()
    assert 0 < len(short["events"]) < len(whole["events"])
    assert short["known_from_ms"] > whole["known_from_ms"] == 0


def test_answers_that_are_kept_are_bounded(stage: Stage, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what they take together; one that is larger by itself is not kept at all."""

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
def test_records_do_not_wait_for_an_answer_in_the_making(
    stage: Stage, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The views change meanwhile, and the answer is of before."""
    make, before = getattr(answers, what), len(stage.live.views.groups["pay"].events)
    told = []

    def making(*arguments: Any) -> Any:
        joining = threading.Thread(target=stage.joins, args=("pay", "cy"))
        joining.start()
        joining.join(20)
        assert not joining.is_alive(), "records wait"
        told.append(next(len(each.events) for each in arguments if isinstance(each, GroupView)))
        return make(*arguments)

    monkeypatch.setattr(answers, what, making)
    if what == "summary":
        stage.live.summaries(["pay", "gone meanwhile"])
    else:
        getattr(stage.live, what)("pay", *(("orders", 0) if what == "owner" else ()))
    assert told == [before] != [len(stage.live.views.groups["pay"].events)]


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/group", 400),
        ("/api/group?id=nobody", 404),
        ("/api/timeline?id=pay&from=yesterday", 400),
        ("/api/timeline?id=pay&from=-1", 400),
        ("/api/timeline?id=pay&to=99999999999999999999999", 400),
        ("/api/timeline?id=pay&to=%D9%A3", 400),  # a digit, but not one of ours
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
def test_an_error_is_a_sentence_in_json(browser: Browser, path: str, status: int) -> None:
    answer = browser.get(path)
    assert answer.status_code == status
    described(browser, "").validate(answer.json())
    assert list(answer.json()) == ["error"]
    assert_guarded(answer)


def test_before_it_has_caught_up_it_says_how_far_it_is() -> None:
    live = Live()
    browser = Browser(App(live).asgi(None))
    live.say(Status(Phase.CATCHING_UP, 1_200, 5_000))
    answer = browser.get("/api/groups")
    assert (answer.status_code, answer.json()["error"]) == (503, "Catching up: 1200 of about 5000 records are read.")
    assert browser.get("/api/group?id=x").status_code == 503
    live.say(Status(Phase.AWAY, why="No Kafka broker answers."))
    assert browser.get("/api/groups").json()["error"] == "No Kafka broker answers."
    live.say(Status(Phase.CATCHING_UP))
    live.say(Status(Phase.LIVE))
    assert browser.get("/api/groups").json()["groups"] == []
    live.say(Status(Phase.AWAY, why="No Kafka broker answers."))
    assert browser.get("/api/groups").status_code == 200, "what is known is shown on"
    assert browser.get("/healthz").json() == {
        "phase": "reconnecting",
        "read": 0,
        "of": 0,
        "why": "No Kafka broker answers.",
    }


def test_a_bug_says_so_and_shows_nothing_of_itself(stage: Stage, browser: Browser) -> None:
    stage.live.views.alarms.append("no alarm")  # type: ignore[arg-type]
    stage.live.views.groups["pay"].events = None  # type: ignore[assignment]
    answer = browser.get("/api/timeline?id=pay")
    assert (answer.status_code, answer.json()) == (500, {"error": "The dashboard has a bug. Its log has the error."})
    assert_guarded(answer)


# -- who may ask -------------------------------------------------------------------------------------------------------


def assert_guarded(answer: httpx.Response) -> None:
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/api/groups", "/api/schema", "/healthz"])
def test_everything_is_guarded(browser: Browser, path: str) -> None:
    assert_guarded(browser.get(path))
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'self';")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_it_is_only_read(browser: Browser, method: str) -> None:
    answer = browser.get("/api/groups", method)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert_guarded(answer)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9494", "127.0.0.1:1", "[::1]:9494", "[::1]"])
def test_on_the_loopback_interface_it_is_asked_by_that_name(stage: Stage, host: str) -> None:
    browser = Browser(App(stage.live).asgi(names_of("127.0.0.1")))
    assert browser.get("/api/groups", host=host).status_code == 200


def test_a_proxy_may_ask_for_it_by_a_name_of_its_own(stage: Stage) -> None:
    browser = Browser(App(stage.live).asgi(names_of("127.0.0.1", ["Ops.example.com"])))
    assert browser.get("/api/groups", host="ops.example.com:443").status_code == 200
    assert browser.get("/api/groups", host="example.com").status_code == 400


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:9494", "localhost.evil.example", "", "[::2]:1"]
)
def test_a_name_that_a_stranger_leads_here_is_refused(stage: Stage, host: str) -> None:
    """DNS rebinding: a page from elsewhere would otherwise be of the same origin as this one."""
    app = App(stage.live)
    answer = Browser(app.asgi(names_of("127.0.0.1"))).get("/api/groups", host=host)
    assert (answer.status_code, "groups" in answer.json()) == (400, False)
    assert Browser(app.asgi(names_of("0.0.0.0"))).get("/api/groups", host=host).status_code == 200


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_file_is_fetched_once(browser: Browser) -> None:
    first = browser.get("/static/main.js")
    assert (first.status_code, first.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    again = browser.get("/static/main.js", if_none_match=first.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")
    assert browser.get("/static/main.js", if_none_match='"another"').status_code == 200


def test_figures_are_shown_where_there_are_any(stage: Stage) -> None:
    registry = CollectorRegistry()
    Counter("looks", "How often.", registry=registry).inc(3)
    answer = Browser(App(stage.live, registry).asgi(None)).get("/metrics")
    assert "looks_total 3.0" in answer.text


# -- strangers' ids ----------------------------------------------------------------------------------------------------

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
def test_a_strangers_id_comes_back_as_it_is(group_id: str) -> None:
    stage = Stage(Live(now_ms=lambda: NOW_MS), NOW_MS - 60_000).begins()
    stage.joins(group_id, "ana")
    browser = Browser(App(stage.live).asgi(LOOPBACK_NAMES))
    assert [g["group_id"] for g in browser.get("/api/groups").json()["groups"]] == [group_id]
    for path in ("group", "timeline", "why"):
        assert browser.get(f"/api/{path}?id={quote(group_id, safe='')}").status_code == 200


def test_an_id_of_any_length_is_only_not_known(browser: Browser) -> None:
    assert browser.get(f"/api/group?id={'x' * 10_000}").status_code == 404
    assert browser.get(f"/api/owner?id=pay&topic={'%F0%9F%98%80' * 5_000}&partition=0").json()["owner"] is None


def test_a_record_of_ten_thousand_characters_is_shown() -> None:
    """The coordinator takes no such id; a record of another's making must not end the page."""
    live = Live()
    live.say(Status(Phase.LIVE))
    group_id = "\u202e<" * 5_000
    value = (
        b'{"group_id":"%s","topic":"t","partition":0,"offset":1,"leader_epoch":-1,"metadata":"","commit_timestamp_ms":1,'
        b'"expire_timestamp_ms":null,"generation_id":-1,"member_id":"","version":1}' % group_id.encode()
    )
    live.take(Raw("groups", 0, 0, 1, b'["offset","%s","t",0]' % group_id.encode(), value))
    live.take(Raw("groups", 0, 1, 1, b"\xff\x00", b"\x00"))
    answer = Browser(App(live).asgi(None)).get("/api/groups").json()
    assert [g["group_id"] for g in answer["groups"]] == [group_id]
    assert [a["kind"] for a in answer["alarms"]] == ["unreadable"]
