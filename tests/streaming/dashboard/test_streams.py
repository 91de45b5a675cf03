"""What is pushed to browsers: over a real socket, from groups that a real shard lives through."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import jsonschema
import pytest

from streaming.dashboard.app import ANSWERS, STREAMS_MAX
from streaming.dashboard.feed import Feed
from streaming.dashboard.live import Live, Phase, Status
from streaming.dashboard.server import WebServer
from streaming.dashboard.streams import TOLD, Stream
from streaming.errors import PortTaken
from streaming.views import Raw, fold
from streaming.views.answers import json_schema, to_json
from tests.streaming.dashboard.stage import Stage
from tests.system.waiting import HANG_S

NOW_MS = 1_790_000_000_000
CHANGES_MAX = 50


SCHEMA = json.loads(to_json(json_schema(ANSWERS, TOLD)))


class Told(NamedTuple):
    """One server-sent event."""

    name: str
    id: str | None
    data: Any


class Following:
    """A browser that follows; each event is waited for."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = self._split(response.iter_bytes())

    @staticmethod
    def _split(chunks: Iterator[bytes]) -> Iterator[str]:
        rest = b""
        for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\r\n")
            yield from (line.decode() for line in lines)

    def next(self) -> Told:
        fields: dict[str, str] = {}
        until_s = time.monotonic() + HANG_S
        for line in self._lines:
            assert time.monotonic() < until_s, "nothing but pings"
            if not line and "event" in fields:
                told = Told(fields["event"], fields.get("id"), json.loads(fields["data"]))
                jsonschema.Draft202012Validator({**SCHEMA, **SCHEMA["stream"][told.name]}).validate(told.data)
                return told
            name, _, value = line.partition(": ")
            fields[name] = value
        raise AssertionError("the stream has ended")

    def until(self, name: str) -> Told:
        while (told := self.next()).name != name:
            pass
        return told


@pytest.fixture
def stage() -> Stage:
    stage = Stage(Live(now_ms=lambda: NOW_MS, feed=Feed(CHANGES_MAX)), NOW_MS - 600_000).begins()
    stage.joins("pay", "ana")
    stage.shares("pay", [("orders", 0)])
    return stage


@pytest.fixture
def url(stage: Stage) -> Iterator[str]:
    with WebServer(stage.live, "127.0.0.1", 0) as web:
        yield web.url


@contextlib.contextmanager
def following(url: str, resumes: str | None = None, **params: str) -> Iterator[Following]:
    headers = {"Last-Event-ID": resumes} if resumes else {}
    with httpx.stream("GET", f"{url}/api/stream", params=params, headers=headers, timeout=HANG_S) as response:
        yield Following(response)


# -- all groups --------------------------------------------------------------------------------------------------------


def test_a_new_stream_says_how_it_is_and_to_fetch_everything(url: str) -> None:
    with following(url) as told:
        assert told.response.headers["content-type"].startswith("text/event-stream")
        assert "content-security-policy" in told.response.headers
        status, reset = told.next(), told.next()
        assert (status.name, status.data["phase"], reset.name) == ("status", "live", "reset")
        assert reset.id


def test_a_group_that_changes_is_told_in_a_line(stage: Stage, url: str) -> None:
    """S10: the page has the group as it is, whatever has happened since the last look."""
    with following(url) as told:
        told.until("reset")
        stage.joins("pay", "bo")
        stage.shares("pay", [("orders", 0), ("orders", 1)])
        while (group := told.until("group").data)["state"] != "Stable" or group["members"] != 2:
            assert group["group_id"] == "pay"
        assert group["partitions"] == 2
        (row,) = httpx.get(f"{url}/api/groups").json()["groups"]
        assert row == group


def test_many_changes_of_a_group_between_two_looks_are_told_once(stage: Stage, url: str) -> None:
    with following(url) as told:
        told.until("reset")
        ana = stage.members["pay"][0]
        with stage.live.lock:  # nobody looks before all of it has happened
            for offset in range(20):
                stage.commits("pay", ana, {("orders", 0): offset})
            stage.joins("other", "cy")
        groups = [told.until("group").data["group_id"] for _ in range(2)]
        assert sorted(groups) == ["other", "pay"]
        stage.commits("pay", ana, {("orders", 0): 100})
        assert told.until("group").data["group_id"] == "pay"


def test_who_was_away_is_told_what_it_missed(stage: Stage, url: str) -> None:
    with following(url) as told:
        told.until("reset")
        stage.joins("first", "ana")
        last = told.until("group").id
    stage.joins("second", "ana")
    for params in ({}, {"last": str(last)}):
        with following(url, None if params else last, **params) as told:
            missed = told.until("group").data
            assert missed["group_id"] == "second"


FOREIGN = ["another-5", "{epoch}-99999", "{epoch}-", "{epoch}--1", "{epoch}-\u0661", "nonsense", "-"]


@pytest.mark.parametrize("last", FOREIGN)
def test_who_comes_from_elsewhere_fetches_everything(stage: Stage, url: str, last: str) -> None:
    epoch = stage.live.cursor_of_overview().partition("-")[0]
    with following(url, last=last.format(epoch=epoch)) as told:
        told.next()
        assert told.next().name == "reset"


def test_who_missed_too_much_fetches_everything(stage: Stage, url: str) -> None:
    with following(url) as told:
        last = told.until("reset").id
    ana = stage.members["pay"][0]
    for offset in range(CHANGES_MAX):
        stage.commits("pay", ana, {("orders", 0): offset})
    with following(url, last) as told:
        told.next()
        assert told.next().name == "group", "as many as are kept can be told"
    stage.commits("pay", ana, {("orders", 0): 0})
    with following(url, last) as told:
        told.next()
        assert told.next().name == "reset"


def test_after_a_gap_in_the_reading_everything_is_fetched(stage: Stage, url: str) -> None:
    with following(url) as told:
        told.until("reset")
        stage.live.say(Status(Phase.AWAY, why="nobody answers"))
        assert told.until("status").data == {"phase": "reconnecting", "read": 0, "of": 0, "why": "nobody answers"}
        stage.live.say(Status(Phase.CATCHING_UP, 3, 9))
        stage.live.say(Status(Phase.LIVE))
        told.until("reset")


def test_an_overview_is_never_older_than_the_reset_that_asked_for_it(stage: Stage, url: str) -> None:
    """The overview is kept for a moment; what changes in that moment is told after the reset."""
    httpx.get(f"{url}/api/groups")
    stage.joins("pay", "bo")
    with following(url) as told:
        told.until("reset")
        assert told.until("group").data["members"] == 2


def test_a_group_that_is_deleted_is_told_as_dead(stage: Stage, url: str) -> None:
    with following(url) as told:
        told.until("reset")
        stage.leaves("pay", stage.members["pay"][0])
        stage.deletes("pay")
        while told.until("group").data["state"] != "Dead":
            pass


def test_alarms_are_told_of(stage: Stage, url: str) -> None:
    with following(url) as told:
        told.until("reset")
        stage.live.take(Raw("events", 0, 1 << 40, NOW_MS, b"", b"nonsense"))
        told.until("alarm")
    assert httpx.get(f"{url}/api/groups").json()["alarms"][0]["kind"] == "unreadable"


def test_alarms_are_told_of_though_no_more_are_kept(stage: Stage, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "ALARMS_MAX", 1)
    with following(url) as told:
        told.until("reset")
        for offset in range(2):
            stage.live.take(Raw("events", 0, (1 << 40) + offset, NOW_MS, b"", b"nonsense"))
            told.until("alarm")


def test_while_it_catches_up_a_stream_says_only_that() -> None:
    live = Live()
    with WebServer(live, "127.0.0.1", 0) as web, following(web.url) as told:
        assert told.next().data["phase"] == "catching up"
        live.say(Status(Phase.CATCHING_UP, 5, 10))
        assert told.next().data["read"] == 5
        live.say(Status(Phase.LIVE))
        assert [told.next().name, told.next().name] == ["status", "reset"]


# -- one group ---------------------------------------------------------------------------------------------------------


def test_of_one_group_every_event_is_told_in_order(stage: Stage, url: str) -> None:
    """S03, S10: a join as it happens, then the group with its newcomer."""
    with following(url, id="pay") as told:
        told.until("reset")
        stage.joins("other", "cy")
        stage.joins("pay", "bo")
        stage.shares("pay", [("orders", 0), ("orders", 1)])
        events = [told.until("event").data for _ in range(4)]
        assert [e["event"] for e in events] == [
            "member_joined",
            "rebalance_started",
            "rebalance_completed",
            "assignment_changed",
        ]
        assert "bo" in events[0]["text"]
        while len((detail := told.until("detail").data)["members"]) != 2 or detail["summary"]["state"] != "Stable":
            pass
        assert [m["partitions"] for m in detail["members"]] == [1, 1]


def test_of_one_group_no_event_is_missed_and_none_is_told_twice(stage: Stage, url: str) -> None:
    seen: list[Any] = []
    with following(url, id="pay") as told:
        last = told.until("reset").id
    for client in ("bo", "cy", "di"):
        stage.joins("pay", client)
        stage.shares("pay", [("orders", 0)])
        with following(url, last, id="pay") as told:
            while not seen or seen[-1]["event"] != "rebalance_completed" or client not in seen[-1]["text"]:
                event = told.until("event")
                seen.append(event.data)
                last = event.id
    versions = [event["version"] for event in seen]
    assert versions == sorted(set(versions))
    assert sum(event["event"] == "member_joined" for event in seen) == 3


def test_a_resumed_stream_of_one_group_begins_with_the_group(stage: Stage, url: str) -> None:
    """It may have been cut between an event and the group that it led to."""
    with following(url, id="pay") as told:
        last = told.until("reset").id
    with following(url, last, id="pay") as told:
        assert told.until("detail").data["summary"]["group_id"] == "pay"


@pytest.mark.parametrize("group_id", ["a\r\nevent: reset\r\n\r\n", "\x00\u2028\u202e</script>", "x" * 249])
def test_a_strangers_id_ends_no_event(stage: Stage, url: str, group_id: str) -> None:
    with following(url) as told:
        told.until("reset")
        stage.joins(group_id, "ana")
        assert told.next().data["group_id"] == group_id
    with following(url, id=group_id) as told:
        told.until("reset")
        stage.joins(group_id, group_id[:100])
        assert told.next().data["record"]["client_id"] == group_id[:100]


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_streams_are_bounded_and_given_back(stage: Stage, url: str) -> None:
    with contextlib.ExitStack() as browsers:
        follow = [browsers.enter_context(following(url)) for _ in range(STREAMS_MAX)]
        for told in follow:
            told.until("reset")
        refused = httpx.get(f"{url}/api/stream")
        assert (refused.status_code, list(refused.json())) == (503, ["error"])
        assert httpx.get(f"{url}/api/groups").status_code == 200
    stage.joins("pay", "bo")
    for _ in range(100):  # a stream is given back when the server next looks after it
        if httpx.head(f"{url}/api/stream").status_code == 200:
            break
    with following(url) as told:
        told.until("reset")


def test_a_browser_that_takes_nothing_is_told_to_fetch_everything_once_it_does(stage: Stage) -> None:
    """What it missed is not kept for it."""

    async def follow() -> None:
        told = Stream(stage.live, "pay", None).events()
        assert [(await anext(told)).event for _ in range(2)] == ["status", "reset"]
        stage.joins("pay", "bo")
        stage.shares("pay", [("orders", 0)])
        assert (await anext(told)).event == "event"  # and more, which it does not take
        for offset in range(CHANGES_MAX + 1):
            stage.commits("pay", stage.members["pay"][0], {("orders", 0): offset})
        waiting = []
        while (event := (await anext(told)).event) != "reset":
            waiting.append(event)
        assert len(waiting) < 10, "what one look found, and no more"

    asyncio.run(asyncio.wait_for(follow(), HANG_S))


def test_it_ends_at_once_though_browsers_follow(stage: Stage) -> None:
    with WebServer(stage.live, "127.0.0.1", 0) as web:
        with following(web.url) as told:
            told.until("reset")
            ending = threading.Thread(target=web.__exit__)
            ending.start()
            with pytest.raises((AssertionError, httpx.HTTPError)):
                told.until("never")
            ending.join(HANG_S)
            assert not ending.is_alive()
        with pytest.raises(httpx.ConnectError):
            httpx.get(web.url)


def test_a_port_that_is_taken_is_said_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"Cannot listen on 127\.0\.0\.1:{port} .*Choose another port"):
            WebServer(Live(), "127.0.0.1", port)
