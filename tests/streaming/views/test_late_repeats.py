"""A batch that is written again after later ones, as a writer does that was paused: no reader goes back, whatever is
left by compaction is judged, and the topic is put right."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from coordinator.outputs import GroupRecord, OffsetRecord
from coordinator.requests import DeleteGroup, OffsetCommit, OffsetToCommit, RepublishGroup
from streaming.administration.committed import Past
from streaming.query import repeats
from streaming.query.repeats import SETTLING_MS, Repeats
from streaming.verify.findings import Kind
from streaming.views import Views
from streaming.views.reading import Reading
from streaming.views.watching import Fetched, Reader
from streaming.wire.standing import order_in
from tests.streaming.verify.test_verify import judge, kinds
from tests.streaming.views.test_views import AT_MS, LATER_MS, folded, known, raw, raws
from tests.streaming.views.written import World, Written, converse

SEEDS = range(60)


@pytest.fixture(params=SEEDS)
def chance(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.param)


def commit(world: World, offset: int, *partitions: int, group_id: str = "a") -> None:
    """Commit from outside, in a batch of its own."""
    world.now_ms += 10
    offsets = tuple(OffsetToCommit("t", partition, offset) for partition in partitions)
    world.ask(OffsetCommit, group_id, offsets=offsets)
    world.batch()


def two_commits() -> World:
    """Batch 0 commits 10 of two partitions, batch 1 commits 500 of one; then batch 0 is written again."""
    world = World(["a"])
    commit(world, 10, 0, 1)
    commit(world, 500, 0)
    world.now_ms += 60_000
    world.repeat(0)
    return world


def conversation(chance: random.Random) -> World:
    world = World(["a", "b"])
    converse(world, chance, 30)
    return world


def standing(views: Views) -> Any:
    return [(g.group_id, g.record, g.offsets) for g in views.present()]


def newest(world: World) -> dict[bytes, tuple[GroupRecord | OffsetRecord, int]]:
    """Say what each key held before anything was repeated late."""
    return {record.key: record.value for record in world.topics["groups"]}  # type: ignore[misc]


# -- views -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_live", [True, False])
def test_views_do_not_go_back(chance: random.Random, is_live: bool) -> None:
    """A whole batch or a few, once or often, of groups that were deleted and founded anew since: I8."""
    world = conversation(chance)
    before = folded(raws(world), Views(is_live=is_live))
    for _ in range(chance.randrange(1, 4)):
        world.now_ms += 1_000
        world.repeat(chance.randrange(len(world.batches)))
    after = folded(raws(world), Views(is_live=is_live))
    told = [known(views) for views in (before, after)]
    for each in told:
        for name in ("positions", "records"):
            del each[name]
    assert told[0]["groups"] == told[1]["groups"]
    assert not list(after.missing(LATER_MS, AT_MS))
    assert not after.alarms


class _Told(Reading):
    """A reading of records that are given, without Kafka."""

    def __init__(self, records: list[Written]) -> None:
        self.views, self._records = Views(), records

    def backlog(self, tell: Any = None) -> Iterator[Any]:
        return map(raw, self._records)

    def _take(self, raw: Any) -> Any:
        return self.views.take(raw, 0)


def test_who_catches_up_takes_the_newest_record_of_a_key(chance: random.Random) -> None:
    """Commands look at one record of each key, wherever the newest one stands."""
    world = conversation(chance)
    before = folded(raws(world), Views())
    world.repeat(chance.randrange(len(world.batches)))
    records = [*world.topics["groups"], *world.topics["events"]]
    assert standing(_Told(records).catch_up(lambda read, of: None)) == standing(before)


def test_a_group_that_is_deleted_and_back_and_deleted_in_a_batch_is_no_alarm(chance: random.Random) -> None:
    """Parts of the batch are repeated: which of its lives a tombstone is of, its time tells."""
    world = World(["a"])
    for _ in range(3):
        for _ in range(chance.randrange(1, 4)):
            for partition in range(chance.randrange(1, 3)):
                world.ask(OffsetCommit, "a", offsets=(OffsetToCommit("t", partition, 5),))
            world.now_ms += chance.choice([0, 1, 50])
            world.ask(DeleteGroup, "a")
        world.batch(chance)
    views = folded(raws(world))
    assert not list(views.missing(LATER_MS, AT_MS))
    assert not views.present()
    assert judge(world) == []


# -- watch -------------------------------------------------------------------------------------------------------------


def test_watch_tells_nothing_twice(chance: random.Random) -> None:
    world = conversation(chance)
    records = sorted((r for t in ("groups", "events") for r in world.topics[t]), key=lambda r: r.timestamp)
    reader = Reader()
    list(reader.read((Fetched(r.topic, r) for r in records), 0))
    ends = {topic: len(world.topics[topic]) for topic in ("groups", "events")}
    world.now_ms += 1_000
    world.repeat(chance.randrange(len(world.batches)))
    late = [Fetched(topic, r) for topic, end in ends.items() for r in world.topics[topic][end:]]
    of_groups = [line for line in reader.read(late, 0) if line.group_id is not None]
    assert of_groups == []
    assert not list(reader.missing(10 * LATER_MS))


# -- verify ------------------------------------------------------------------------------------------------------------


def test_an_older_record_that_stands_last_is_told() -> None:
    found = judge(two_commits())
    assert [(f.kind, f.group_id) for f in found] == [(Kind.STANDS_OLD, "a")]
    assert "version 2 is the last record of the offset of t-0, after version 4" in found[0].text


def test_one_that_was_written_again_since_is_a_note() -> None:
    world = two_commits()
    world.ask(RepublishGroup, "a", group=True, offsets=())
    ask_again(world)
    world.batch()
    assert judge(world) == []


def test_where_compaction_took_the_newer_record_it_is_told_that_it_may_have() -> None:
    """The group's other records tell: a higher version of it stands before the last record of the key."""
    world = two_commits()
    commit(world, 7, 2)  # a higher version than all that is repeated
    world.repeat(0)
    world.compact(len(world.topics["groups"]))
    found = [f for f in judge(world) if f.kind is Kind.STANDS_OLD]
    assert len(found) == 3, found
    assert all("compaction may have removed a newer record" in f.text for f in found)


def test_late_repeats_are_no_other_finding(chance: random.Random) -> None:
    world = conversation(chance)
    for _ in range(chance.randrange(1, 4)):
        world.now_ms += 60_000
        world.repeat(chance.randrange(len(world.batches)))
    assert kinds(judge(world)) <= {Kind.STANDS_OLD}


# -- what was committed ------------------------------------------------------------------------------------------------


def past_of(world: World) -> Past:
    past = Past("a")
    for record in world.topics["groups"]:
        past.take(record.offset, record.timestamp, record.key, record.value, raw(record).order)
    past.end(world.topics["groups"][-1].offset + 1, world.now_ms)
    return past


def committed(past: Past, at_ms: int) -> int | None:
    found = past.at(("t", 0), at_ms)
    return found.offset if found else None


def test_what_was_committed_is_not_what_was_repeated() -> None:
    world = two_commits()
    assert committed(past_of(world), world.now_ms) == 500


def test_what_stands_behind_a_higher_version_is_uncertain_once_compacted() -> None:
    world = two_commits()
    commit(world, 7, 2)
    world.repeat(0)
    world.compact(len(world.topics["groups"]))
    past = past_of(world)
    assert committed(past, world.now_ms) == 10, "all that is left"
    assert not past.is_certain([("t", 0)], world.now_ms, of_all=False)
    assert past.certain_from_ms([("t", 0)], of_all=False) > world.now_ms


# -- and the topic is put right ----------------------------------------------------------------------------------------


def noticed(world: World, found: Repeats | None = None, now_ms: int = 0) -> list[RepublishGroup]:
    """Read all of the topic, and say what is asked for once it has settled."""
    found = found or Repeats()
    for record in world.topics["groups"]:
        found.take(0, record.key, raw(record).order, now_ms)
    assert not list(found.overdue(now_ms + SETTLING_MS - 1))
    return [request for _, request in found.overdue(now_ms + SETTLING_MS)]


def ask_again(world: World) -> None:
    """Append what is asked for to the log, as the driver does."""
    for request in noticed(world):
        world.ask(RepublishGroup, request.group_id, group=request.group, offsets=request.offsets)


def test_what_was_repeated_late_is_asked_for() -> None:
    """Also partition 1, which nobody has committed since: a reader after compaction could not tell."""
    (request,) = noticed(two_commits())
    assert (request.group_id, request.group) == ("a", True)
    assert [(each.topic, each.partition) for each in request.offsets] == [("t", 0), ("t", 1)]


def test_an_ordinary_repeat_asks_for_nothing(chance: random.Random) -> None:
    """A driver that is killed leaves part of a batch, and the next one writes all of it."""
    assert noticed(conversation(chance)) == []


def test_the_topic_is_as_it_was_before_the_repeat(chance: random.Random) -> None:
    """A reader that has only the last record of each key is told what all records tell; and nothing is asked twice."""
    world = conversation(chance)
    for _ in range(chance.randrange(1, 4)):
        world.repeat(chance.randrange(len(world.batches)), ("groups",))
    world.now_ms += 1
    ask_again(world)
    world.batch()
    assert noticed(world) == []
    last = {record.key: record for record in world.topics["groups"]}.values()
    by_offset = sorted(last, key=lambda record: record.offset)
    assert standing(folded(map(raw, by_offset), Views())) == standing(folded(raws(world)))
    assert judge(world) == []


def test_the_newest_record_may_be_gone_and_the_key_is_asked_for() -> None:
    """At the start all of the topic is read; what compaction has left tells that a repeat came late."""
    world = two_commits()
    commit(world, 7, 2)
    world.repeat(0)
    world.compact(len(world.topics["groups"]))
    (request,) = noticed(world)
    assert [(each.topic, each.partition) for each in request.offsets] == [("t", 0), ("t", 1)]


def test_of_two_writers_at_once_the_older_record_is_found() -> None:
    """The batch is repeated up to its highest version, but one of its records came in between."""
    world = World(["a"])
    commit(world, 1, 0)
    commit(world, 2, 0)
    records = world.topics["groups"]
    records += [
        replace(r, offset=n) for n, r in enumerate([*records, records[0], records[-2], records[-1]], len(records))
    ]
    assert noticed(world) == []
    records += [replace(r, offset=n) for n, r in enumerate([records[1], records[0]], len(records))]
    (request,) = noticed(world)
    assert request.group


def test_keys_asked_for_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "KEYS_AT_ONCE", 3)
    world = World(["a"])
    commit(world, 1, *range(8))
    commit(world, 2, *range(8))
    world.repeat(0)
    found, asked = Repeats(), []
    for record in world.topics["groups"]:
        found.take(0, record.key, raw(record).order, 0)
    for now_ms in range(SETTLING_MS, SETTLING_MS + 3 * repeats.ASK_EVERY_MS, repeats.ASK_EVERY_MS // 2):
        asked.append(sum(len(r.offsets) + r.group for _, r in found.overdue(now_ms)))
    assert asked == [3, 0, 3, 0, 3, 0]


def test_keys_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that were silent longest are forgotten; nothing that is right is asked for because of that."""
    monkeypatch.setattr(repeats, "KEYS_MAX", 6)
    world = World(["a", "b", "c"])
    for group_id in world.group_ids:
        commit(world, 1, 0, 1, group_id=group_id)
    found = Repeats()
    assert noticed(world, found) == []
    assert list(found._groups) == ["b", "c"]
    world.repeat(0)
    assert noticed(world) == []


def test_what_cannot_be_read_is_passed_over() -> None:
    found = Repeats()
    for key, value in ((b"{", b"{}"), (b'["group","g"]', b"{}"), (b'["group","g"]', b"[" * 100_000)):
        found.take(0, key, order_in(value, None, None), 0)
    assert not list(found.overdue(SETTLING_MS))
