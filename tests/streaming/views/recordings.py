"""Recorded conversations of released clients with the coordinator, replayed into views.

A file of `recorded` has the requests of one group in the order of the log, with their offsets and times. Member ids
follow from the secret, the shard and the offset, so a replay hands out the ids that the requests contain.
"""

import json
from pathlib import Path

import msgspec

from coordinator.base.config import Config
from coordinator.messages.requests import Received, Request
from coordinator.shard.shard import Shard
from streaming.views import GroupView, Raw, Views
from streaming.wire.records import OutputTopics, to_row
from tests.coordinator.waking import wake

HERE = Path(__file__).parent / "recorded"
TOPICS = OutputTopics("replies", "groups", "events", "requests")
CONFIG = Config(group_initial_rebalance_delay_ms=300, group_min_session_timeout_ms=1_000, clock_slack_ms=0)
TICK_MS = 100
"""The time between two batches in which only deadlines fire."""

_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)


class Replay:
    """A recorded conversation. `until` replays it up to a time, which counts from the first request."""

    def __init__(self, name: str) -> None:
        head, *lines = (HERE / f"{name}.jsonl").read_text().splitlines()
        facts = json.loads(head)
        self.group_id: str = facts["group_id"]
        self.views = Views(is_live=True)
        self._shard = Shard(facts["shard"], facts["shards"], bytes.fromhex(facts["secret"]), CONFIG)
        self._offsets = {"groups": 0, "events": 0}
        self._requests = []
        for line in map(json.loads, lines):
            request = _requests.decode(json.dumps(line["request"]))
            self._requests.append(Received(line["offset"], line["at_ms"], request))
        self.begin_ms = self.now_ms = self._requests[0].at_ms
        self.end_ms = self._requests[-1].at_ms

    @property
    def group(self) -> GroupView:
        return self.views.groups[self.group_id]

    def until(self, after_ms: int) -> GroupView:
        """Replay the requests up to a time, and return the group."""
        to_ms = self.begin_ms + after_ms
        while self._requests and self._requests[0].at_ms <= to_ms:
            request = self._requests.pop(0)
            self._pass(request.at_ms)
            self._step([request])
        self._pass(to_ms)
        return self.group

    def all(self, more_ms: int = 0) -> GroupView:
        """Replay all requests, and the deadlines of some time after them."""
        return self.until(self.end_ms - self.begin_ms + more_ms)

    def _pass(self, to_ms: int) -> None:
        """Run batches in which only deadlines fire, up to a time."""
        while (due_ms := self._shard.next_deadline_ms) is not None and due_ms < to_ms:
            self.now_ms = max(self.now_ms + TICK_MS, due_ms)
            self._step([wake(self.now_ms)])
        self.now_ms = max(self.now_ms, to_ms)

    def _step(self, received: list[Received]) -> None:
        for output in self._shard.step(received, self.now_ms):
            row = to_row(output, TOPICS, 0)
            if row.topic in self._offsets:
                offset = self._offsets[row.topic]
                self._offsets[row.topic] += 1
                headers = {name: int(value) for name, value in row.headers or ()}
                at = headers.get("version"), headers.get("at_ms")
                self.views.fold(Raw(row.topic, 0, offset, self.now_ms, row.key, row.value, *at), now_ms=0)  # type: ignore[arg-type]
