"""Two coordinators whose published records are kept as their topics have them, and what `verify` finds there."""

import heapq
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import attrgetter
from typing import Any

from coordinator.messages.move_requests import ImportGroup
from coordinator.messages.outputs import Output, ToPeer
from coordinator.messages.requests import Received
from streaming.verify.custody import Custody, StayCollector
from streaming.verify.findings import Finding, Kind
from streaming.verify.published import Published
from streaming.views.api.fold import Raw, Views
from streaming.views.state.version_follower import EVENTS, GROUPS
from streaming.wire.records import to_row
from tests.coordinator.moving.pair import Coordinator, Pair
from tests.coordinator.moving.test_importing import exported
from tests.coordinator.moving.test_kinds_of_groups import Consumers
from tests.streaming.views.written import TOPICS, Written

START_MS = 1_000_000


class Topics:
    """The topics of a coordinator, as its published records fill them."""

    prefix: str
    now_ms: int

    def __init__(self, *names: str, **config: Any) -> None:
        super().__init__(*names, **config)
        self.topics: dict[str, list[Written]] = {name: [] for name in TOPICS}
        self.begins = dict.fromkeys(TOPICS, 0)
        self.groups_end: int | None = None

    def keep(self, outputs: Iterable[Output], now_ms: int) -> None:
        """Write the outputs of a batch."""
        for output in outputs:
            if not isinstance(output, ToPeer):
                row = to_row(output, TOPICS, 0)
                kept = self.topics[row.topic]
                offset = kept[-1].offset + 1 if kept else 0
                kept.append(Written(row.topic, 0, offset, now_ms, row.key, row.value, row.headers or []))

    def read(self) -> list[Written]:
        """Return the records of both topics, by their times."""
        return list(heapq.merge(self.topics["groups"], self.topics["events"], key=attrgetter("timestamp")))

    def judge(self, following: StayCollector | None = None) -> list[Finding]:
        """Return the findings of `verify` at this coordinator alone."""
        published, found = Published(None, self.begins["events"], collector=following), list[Finding]()
        for record in self.read():
            found += published.judge(EVENTS if record.topic == "events" else GROUPS, record)
        return [*found, *published.end(self.now_ms)]

    def verify(self) -> list[tuple[Kind, str]]:
        """Return the kinds and texts of the findings at this coordinator alone."""
        return [(each.kind, each.text) for each in self.judge()]

    # -- changes of the topics -----------------------------------------------------------------------------------------

    def alter(self, topic: str, is_wanted: Callable[[Any], Any], change: Callable[[Any], None]) -> None:
        """Change the contents of the last record that is wanted."""
        records = self.topics[topic]
        for index, record in reversed(list(enumerate(records))):
            value = json.loads(record.value or b"{}")
            if is_wanted(value):
                change(value)
                records[index] = replace(record, value=json.dumps(value).encode())
                return
        raise AssertionError("no record is wanted")

    def lose(self, topic: str, is_wanted: Callable[[Any], Any]) -> None:
        """Remove the wanted records as if they had never been written."""
        kept = [each for each in self.topics[topic] if not is_wanted(json.loads(each.value or b"{}"))]
        assert len(kept) < len(self.topics[topic])
        self.topics[topic] = [replace(each, offset=offset) for offset, each in enumerate(kept)]

    def compact(self, until: int | None = None) -> None:
        """Remove from the groups topic the records before an offset that have a successor there."""
        head = [each for each in self.topics["groups"] if until is None or each.offset < until]
        latest = {each.key: each.offset for each in head}
        self.topics["groups"] = [
            each for each in self.topics["groups"] if each.offset >= latest.get(each.key, 0) or each not in head
        ]

    def expire(self, until: int) -> None:
        """Remove the events before an offset."""
        self.topics["events"] = [each for each in self.topics["events"] if each.offset >= until]
        self.begins["events"] = until

    def views(self) -> Views:
        """Return the views of a reader that has read the topics from the first record on."""
        views = Views()
        views.begin()
        for record in self.read():
            headers = dict(record.headers)
            raw = Raw(
                topic=record.topic,
                partition=0,
                offset=record.offset,
                timestamp_ms=record.timestamp,
                key=record.key,
                value=record.value,
                version=headers.get("version"),
                at_ms=headers.get("at_ms"),
            )
            views.fold(raw, self.now_ms)
        return views


class Writing(Topics, Coordinator):
    """A coordinator whose published records are kept as its topics have them."""

    def step(self, log: list[Received], now_ms: int) -> list[Output]:
        outputs = super().step(log, now_ms)
        self.keep(outputs, now_ms)
        return outputs


class WritingConsumers(Topics, Consumers):
    """A coordinator of groups of the consumer protocol whose published records are kept."""

    def __init__(self, prefix: str, peer: str, **config: Any) -> None:
        super().__init__(prefix, peer, **config)
        self.prefix = prefix

    def steps(self, log: list[Received]) -> None:
        super().steps(log)
        self.keep(self.latest, log[-1].at_ms)


class WritingPair(Pair):
    """Two coordinators that write their topics."""

    a: Writing
    b: Writing

    @classmethod
    def blank(cls, **config: Any) -> "WritingPair":
        """Return two coordinators without groups."""
        return cls(Writing("A", "B", **config), Writing("B", "A", slots="none", **config))

    def carry_on(self, at_ms: int) -> "WritingPair":
        """Deliver all records between the coordinators at a later time."""
        self.a.at(at_ms)
        self.b.at(at_ms)
        self.carry()
        return self


def custody_of(*sides: Topics, settling_ms: int = 0, entries_max: int = 1_000) -> tuple[Custody, list[Finding]]:
    """Read the topics of several coordinators. Return their stays, and the findings at each one alone."""
    custody = Custody(tuple(side.prefix for side in sides), entries_max)
    found = list[Finding]()
    now_ms = max(side.now_ms for side in sides)
    for side in sides:
        custody.begin(side.prefix, 1, now_ms - settling_ms)
        is_cut = side.begins["events"] > 0
        kept = side.topics["groups"]
        end = side.groups_end or (kept[-1].offset + 1 if kept else 0)
        found += side.judge(custody.partition(side.prefix, 0, end, is_cut=is_cut))
    return custody, found


def verify_both(*sides: Topics, settling_ms: int = 0) -> list[Finding]:
    """Return the findings of `verify` at several coordinators, and between them."""
    custody, found = custody_of(*sides, settling_ms=settling_ms)
    return [*found, *custody.findings()]


def of(kind: str) -> Any:
    return lambda value: value.get("event") == kind


def go_back(pair: WritingPair) -> WritingPair:
    pair.b.at(START_MS + 3_000).release()
    pair.carry_on(START_MS + 3_500)
    pair.a.at(START_MS + 4_000).commit("c1", {("t", 0): 7})
    return pair


def import_from(pair: WritingPair) -> Writing:
    """Import the group of A into another coordinator B."""
    pair.b = Writing("B", "A").at(START_MS + 5_000)
    pair.b.ask("op", ImportGroup, **exported(pair.a.group, source="A"))
    assert pair.b.said.result == "adopted"
    return pair.b


def found(pair: WritingPair, **options: Any) -> set[tuple[str, str]]:
    """Return the kinds of the findings, with the prefix of each."""
    return {(each.kind, str(each.prefix)) for each in between(pair, **options)}


def between(pair: WritingPair, **options: Any) -> list[Finding]:
    """Return the findings that concern several coordinators."""
    return [each for each in verify_both(pair.a, pair.b, **options) if isinstance(each.prefix, str)]
