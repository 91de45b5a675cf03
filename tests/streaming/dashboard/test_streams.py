"""Tests of the events that are pushed to browsers, over a real socket, with records that a real shard writes."""

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
from streaming.dashboard.live import Feed, LiveViews, Phase, Status
from streaming.dashboard.server import WebServer
from streaming.dashboard.streams import STATUS_EVENTS, Stream
from streaming.errors import PortTaken
from streaming.views import Raw
from streaming.views.api import fold
from streaming.views.api.answers import json_schema, to_json
from tests.streaming.dashboard.stage import Stage
from tests.system.waiting import HANG_S

NOW_MS = 1_790_000_000_000
CHANGES_MAX = 50


SCHEMA = json.loads(to_json(json_schema(ANSWERS, STATUS_EVENTS)))


class SentEvent(NamedTuple):
    """One server-sent event."""

    name: str
    id: str | None
    data: Any


class Following:
    """A browser that follows a stream and waits for each event."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = self._split(response.iter_bytes())

    @staticmethod
    def _split(chunks: Iterator[bytes]) -> Iterator[str]:
        rest = b""
        for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\r\n")
            yield from (line.decode() for line in lines)

    def next(self) -> SentEvent:
        fields: dict[str, str] = {}
        until_s = time.monotonic() + HANG_S
        for line in self._lines:
            assert time.monotonic() < until_s, "nothing but pings"
            if not line and "event" in fields:
                event = SentEvent(fields["event"], fields.get("id"), json.loads(fields["data"]))
                jsonschema.Draft202012Validator({**SCHEMA, **SCHEMA["stream"][event.name]}).validate(event.data)
                return event
            name, _, value = line.partition(": ")
            fields[name] = value
        raise AssertionError("the stream has ended")

    def until(self, name: str) -> SentEvent:
        while (event := self.next()).name != name:
            pass
        return event


@pytest.fixture
def stage() -> Stage:
    stage = Stage(LiveViews(now_ms=lambda: NOW_MS, feed=Feed(CHANGES_MAX)), NOW_MS - 600_000).begins()
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


def test_a_new_stream_begins_with_a_status_and_a_reset(url: str) -> None:
    with following(url) as stream:
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        assert "content-security-policy" in stream.response.headers
        status, reset = stream.next(), stream.next()
        assert (status.name, status.data["phase"], reset.name) == ("status", "live", "reset")
        assert reset.id


def test_a_changed_group_is_sent_as_a_row(stage: Stage, url: str) -> None:
    """S10: the page gets the group's present state, whatever has happened since the last check."""
    with following(url) as stream:
        stream.until("reset")
        stage.joins("pay", "bo")
        stage.shares("pay", [("orders", 0), ("orders", 1)])
        while (group := stream.until("group").data)["state"] != "Stable" or group["members"] != 2:
            assert group["group_id"] == "pay"
        assert group["partitions"] == 2
        (row,) = httpx.get(f"{url}/api/groups").json()["groups"]
        assert row == group


def test_many_changes_of_a_group_are_sent_as_one_event(stage: Stage, url: str) -> None:
    with following(url) as stream:
        stream.until("reset")
        ana = stage.members["pay"][0]
        with stage.live.lock:  # no stream reads before all changes are made
            for offset in range(20):
                stage.commits("pay", ana, {("orders", 0): offset})
            stage.joins("other", "cy")
        groups = [stream.until("group").data["group_id"] for _ in range(2)]
        assert sorted(groups) == ["other", "pay"]
        stage.commits("pay", ana, {("orders", 0): 100})
        assert stream.until("group").data["group_id"] == "pay"


def test_a_resumed_stream_sends_the_missed_changes(stage: Stage, url: str) -> None:
    with following(url) as stream:
        stream.until("reset")
        stage.joins("first", "ana")
        last = stream.until("group").id
    stage.joins("second", "ana")
    for params in ({}, {"last": str(last)}):
        with following(url, None if params else last, **params) as stream:
            missed = stream.until("group").data
            assert missed["group_id"] == "second"


FOREIGN = ["another-5", "{epoch}-99999", "{epoch}-", "{epoch}--1", "{epoch}-\u0661", "nonsense", "-"]


@pytest.mark.parametrize("last", FOREIGN)
def test_an_unknown_last_event_id_causes_a_reset(stage: Stage, url: str, last: str) -> None:
    epoch = stage.live.cursor_of_overview().partition("-")[0]
    with following(url, last=last.format(epoch=epoch)) as stream:
        stream.next()
        assert stream.next().name == "reset"


def test_too_many_missed_changes_cause_a_reset(stage: Stage, url: str) -> None:
    with following(url) as stream:
        last = stream.until("reset").id
    ana = stage.members["pay"][0]
    for offset in range(CHANGES_MAX):
        stage.commits("pay", ana, {("orders", 0): offset})
    with following(url, last) as stream:
        stream.next()
        assert stream.next().name == "group", "the kept changes can still be sent"
    stage.commits("pay", ana, {("orders", 0): 0})
    with following(url, last) as stream:
        stream.next()
        assert stream.next().name == "reset"


def test_a_gap_in_the_reading_causes_a_reset(stage: Stage, url: str) -> None:
    with following(url) as stream:
        stream.until("reset")
        stage.live.set_status(Status(Phase.AWAY, why="nobody answers"))
        assert stream.until("status").data == {"phase": "reconnecting", "read": 0, "of": 0, "why": "nobody answers"}
        stage.live.set_status(Status(Phase.CATCHING_UP, 3, 9))
        stage.live.set_status(Status(Phase.LIVE))
        stream.until("reset")


def test_an_overview_is_never_older_than_its_reset(stage: Stage, url: str) -> None:
    """The overview is cached for a short time; changes within that time are sent after the reset."""
    httpx.get(f"{url}/api/groups")
    stage.joins("pay", "bo")
    with following(url) as stream:
        stream.until("reset")
        assert stream.until("group").data["members"] == 2


def test_a_deleted_group_is_sent_as_dead(stage: Stage, url: str) -> None:
    with following(url) as stream:
        stream.until("reset")
        stage.leaves("pay", stage.members["pay"][0])
        stage.deletes("pay")
        while stream.until("group").data["state"] != "Dead":
            pass


def test_an_alarm_is_sent(stage: Stage, url: str) -> None:
    with following(url) as stream:
        stream.until("reset")
        stage.live.handle(Raw("events", 0, 1 << 40, NOW_MS, b"", b"nonsense"))
        stream.until("alarm")
    assert httpx.get(f"{url}/api/groups").json()["alarms"][0]["kind"] == "unreadable"


def test_an_alarm_is_sent_although_no_more_are_kept(stage: Stage, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "ALARMS_MAX", 1)
    with following(url) as stream:
        stream.until("reset")
        for offset in range(2):
            stage.live.handle(Raw("events", 0, (1 << 40) + offset, NOW_MS, b"", b"nonsense"))
            stream.until("alarm")


def test_a_stream_sends_only_the_status_while_the_reading_catches_up() -> None:
    live = LiveViews()
    with WebServer(live, "127.0.0.1", 0) as web, following(web.url) as stream:
        assert stream.next().data["phase"] == "catching up"
        live.set_status(Status(Phase.CATCHING_UP, 5, 10))
        assert stream.next().data["read"] == 5
        live.set_status(Status(Phase.LIVE))
        assert [stream.next().name, stream.next().name] == ["status", "reset"]


# -- one group ---------------------------------------------------------------------------------------------------------


def test_every_event_of_one_group_is_sent_in_order(stage: Stage, url: str) -> None:
    """S03, S10: the events of a join come first, then the group with its new member."""
    with following(url, id="pay") as stream:
        stream.until("reset")
        stage.joins("other", "cy")
        stage.joins("pay", "bo")
        stage.shares("pay", [("orders", 0), ("orders", 1)])
        events = [stream.until("event").data for _ in range(4)]
        assert [e["event"] for e in events] == [
            "member_joined",
            "rebalance_started",
            "rebalance_completed",
            "assignment_changed",
        ]
        assert "bo" in events[0]["text"]
        while len((detail := stream.until("detail").data)["members"]) != 2 or detail["summary"]["state"] != "Stable":
            pass
        assert [m["partitions"] for m in detail["members"]] == [1, 1]


def test_every_event_of_one_group_is_sent_exactly_once(stage: Stage, url: str) -> None:
    seen: list[Any] = []
    with following(url, id="pay") as stream:
        last = stream.until("reset").id
    for client in ("bo", "cy", "di"):
        stage.joins("pay", client)
        stage.shares("pay", [("orders", 0)])
        with following(url, last, id="pay") as stream:
            while not seen or seen[-1]["event"] != "rebalance_completed" or client not in seen[-1]["text"]:
                event = stream.until("event")
                seen.append(event.data)
                last = event.id
    versions = [event["version"] for event in seen]
    assert versions == sorted(set(versions))
    assert sum(event["event"] == "member_joined" for event in seen) == 3


def test_a_resumed_stream_of_one_group_begins_with_the_group(stage: Stage, url: str) -> None:
    """The stream may have been cut between an event and the group's state after it."""
    with following(url, id="pay") as stream:
        last = stream.until("reset").id
    with following(url, last, id="pay") as stream:
        assert stream.until("detail").data["summary"]["group_id"] == "pay"


@pytest.mark.parametrize("group_id", ["a\r\nevent: reset\r\n\r\n", "\x00\u2028\u202e</script>", "x" * 249])
def test_a_hostile_id_does_not_end_an_event(stage: Stage, url: str, group_id: str) -> None:
    with following(url) as stream:
        stream.until("reset")
        stage.joins(group_id, "ana")
        assert stream.next().data["group_id"] == group_id
    with following(url, id=group_id) as stream:
        stream.until("reset")
        stage.joins(group_id, group_id[:100])
        assert stream.next().data["record"]["client_id"] == group_id[:100]


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_the_number_of_streams_is_bounded(stage: Stage, url: str) -> None:
    with contextlib.ExitStack() as browsers:
        follow = [browsers.enter_context(following(url)) for _ in range(STREAMS_MAX)]
        for stream in follow:
            stream.until("reset")
        refused = httpx.get(f"{url}/api/stream")
        assert (refused.status_code, list(refused.json())) == (503, ["error"])
        assert httpx.get(f"{url}/api/groups").status_code == 200
    stage.joins("pay", "bo")
    for _ in range(100):  # a closed stream counts until the server checks it again
        if httpx.head(f"{url}/api/stream").status_code == 200:
            break
    with following(url) as stream:
        stream.until("reset")


def test_a_browser_that_does_not_read_gets_a_reset(stage: Stage) -> None:
    """The server does not keep the events that a slow browser missed."""

    async def follow() -> None:
        stream = Stream(stage.live, "pay", None).events()
        assert [(await anext(stream)).event for _ in range(2)] == ["status", "reset"]
        stage.joins("pay", "bo")
        stage.shares("pay", [("orders", 0)])
        assert (await anext(stream)).event == "event"  # more events follow, which the browser does not read
        for offset in range(CHANGES_MAX + 1):
            stage.commits("pay", stage.members["pay"][0], {("orders", 0): offset})
        waiting = []
        while (event := (await anext(stream)).event) != "reset":
            waiting.append(event)
        assert len(waiting) < 10, "the events of one check, and no more"

    asyncio.run(asyncio.wait_for(follow(), HANG_S))


def test_the_server_stops_at_once_with_open_streams(stage: Stage) -> None:
    with WebServer(stage.live, "127.0.0.1", 0) as web:
        with following(web.url) as stream:
            stream.until("reset")
            ending = threading.Thread(target=web.__exit__)
            ending.start()
            with pytest.raises((AssertionError, httpx.HTTPError)):
                stream.until("never")
            ending.join(HANG_S)
            assert not ending.is_alive()
        with pytest.raises(httpx.ConnectError):
            httpx.get(web.url)


def test_a_used_port_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"Cannot listen on 127\.0\.0\.1:{port} .*Choose another port"):
            WebServer(LiveViews(), "127.0.0.1", port)
