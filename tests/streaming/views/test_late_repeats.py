"""Tests of a batch that a paused writer writes again after later batches.

No reader returns to older records, `verify` reports what compaction has left, and the topic is repaired.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from coordinator.messages.group_records import GroupRecord, OffsetRecord
from coordinator.messages.requests import DeleteGroup, OffsetCommit, OffsetToCommit, RepublishGroup
from streaming.administration.committed import Past
from streaming.query.watchers import repeats
from streaming.query.watchers.repeats import SETTLING_MS, Repeats
from streaming.verify.findings import Kind
from streaming.views import Views
from streaming.views.api.view_reader import ViewReader
from streaming.views.api.watching import Fetched, Reader
from streaming.wire.newest_records import order_in
from tests.streaming.verify.test_verify import judge, kinds
from tests.streaming.views.test_views import AT_MS, LATER_MS, folded, known, raws
from tests.streaming.views.written import Written, WrittenTopics, converse

SEEDS = range(60)


@pytest.fixture(params=SEEDS)
def chance(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.param)


def commit(world: WrittenTopics, offset: int, *partitions: int, group_id: str = "a") -> None:
    """Commit without a member, in a batch of its own."""
    world.now_ms += 10
    offsets = tuple(OffsetToCommit("t", partition, offset) for partition in partitions)
    world.ask(OffsetCommit, group_id, offsets=offsets)
    world.batch()


def two_commits() -> WrittenTopics:
    """Commit 10 for two partitions in batch 0, 500 for one of them in batch 1, and then write batch 0 again."""
    world = WrittenTopics(["a"])
    commit(world, 10, 0, 1)
    commit(world, 500, 0)
    world.now_ms += 60_000
    world.repeat(0)
    return world


def conversation(chance: random.Random) -> WrittenTopics:
    world = WrittenTopics(["a", "b"])
    converse(world, chance, 30)
    return world


def standing(views: Views) -> Any:
    return [(g.group_id, g.record, g.offsets) for g in views.present()]


def newest(world: WrittenTopics) -> dict[bytes, tuple[GroupRecord | OffsetRecord, int]]:
    """Return the last value of each key before any late repeat."""
    return {record.key: record.value for record in world.topics["groups"]}  # type: ignore[misc]


# -- views -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_live", [True, False])
def test_late_repeats_do_not_change_the_views(chance: random.Random, is_live: bool) -> None:
    """I8: one to three batches are repeated, also of groups that were deleted and created again since."""
    world = conversation(chance)
    before = folded(raws(world), Views(is_live=is_live))
    for _ in range(chance.randrange(1, 4)):
        world.now_ms += 1_000
        world.repeat(chance.randrange(len(world.batches)))
    after = folded(raws(world), Views(is_live=is_live))
    known_views = [known(views) for views in (before, after)]
    for each in known_views:
        for name in ("positions", "records"):
            del each[name]
    assert known_views[0]["groups"] == known_views[1]["groups"]
    assert not list(after.missing(LATER_MS, AT_MS))
    assert not after.alarms


class _ReadingOfRecords(ViewReader):
    """A reading of given records, without Kafka."""

    def __init__(self, records: list[Written]) -> None:
        self.views, self._records = Views(), records

    def backlog(self, tell: Any = None) -> Iterator[Any]:
        return (record.raw for record in self._records)

    def _handle(self, raw: Any) -> Any:
        return self.views.fold(raw, 0)


def test_catching_up_uses_the_newest_record_of_each_key(chance: random.Random) -> None:
    """Commands use one record of each key: the newest one, at any position."""
    world = conversation(chance)
    before = folded(raws(world), Views())
    world.repeat(chance.randrange(len(world.batches)))
    records = [*world.topics["groups"], *world.topics["events"]]
    assert standing(_ReadingOfRecords(records).catch_up(lambda read, of: None)) == standing(before)


def test_a_group_that_is_deleted_twice_in_a_batch_raises_no_alarm(chance: random.Random) -> None:
    """Parts of the batch are repeated: the time of a tombstone shows which of the group's lives it ends."""
    world = WrittenTopics(["a"])
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


def test_watch_prints_no_repeated_record(chance: random.Random) -> None:
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


def test_an_older_record_in_the_last_position_is_reported() -> None:
    found = judge(two_commits())
    assert [(f.kind, f.group_id) for f in found] == [(Kind.STANDS_OLD, "a")]
    assert "version 2 is the last record of the offset of t-0, after version 4" in found[0].text


def test_a_repaired_record_is_not_reported() -> None:
    world = two_commits()
    world.ask(RepublishGroup, "a", group=True, offsets=())
    append_requests(world)
    world.batch()
    assert judge(world) == []


def test_a_newer_record_that_compaction_may_have_removed_is_reported() -> None:
    """The group's other records show it: a higher version is before the last record of the key."""
    world = two_commits()
    commit(world, 7, 2)  # a higher version than every repeated record
    world.repeat(0)
    world.compact(len(world.topics["groups"]))
    found = [f for f in judge(world) if f.kind is Kind.STANDS_OLD]
    assert len(found) == 3, found
    assert all("compaction may have removed a newer record" in f.text for f in found)


def test_late_repeats_cause_no_other_finding(chance: random.Random) -> None:
    world = conversation(chance)
    for _ in range(chance.randrange(1, 4)):
        world.now_ms += 60_000
        world.repeat(chance.randrange(len(world.batches)))
    assert kinds(judge(world)) <= {Kind.STANDS_OLD}


# -- committed offsets -------------------------------------------------------------------------------------------------


def past_of(world: WrittenTopics) -> Past:
    past = Past("a")
    for record in world.topics["groups"]:
        past.add(record.offset, record.timestamp, record.key, record.value, record.raw.order)
    past.end(world.topics["groups"][-1].offset + 1, world.now_ms)
    return past


def committed(past: Past, at_ms: int) -> int | None:
    found = past.at(("t", 0), at_ms)
    return found.offset if found else None


def test_a_late_repeat_does_not_change_the_committed_offset() -> None:
    world = two_commits()
    assert committed(past_of(world), world.now_ms) == 500


def test_a_record_after_a_higher_version_is_uncertain_after_compaction() -> None:
    world = two_commits()
    commit(world, 7, 2)
    world.repeat(0)
    world.compact(len(world.topics["groups"]))
    past = past_of(world)
    assert committed(past, world.now_ms) == 10, "the only record that is left"
    assert not past.is_certain([("t", 0)], world.now_ms, of_all=False)
    assert past.certain_from_ms([("t", 0)], of_all=False) > world.now_ms


# -- the topic is repaired ---------------------------------------------------------------------------------------------


def requested(world: WrittenTopics, found: Repeats | None = None, now_ms: int = 0) -> list[RepublishGroup]:
    """Read the whole topic, and return the requests that are due after the settling time."""
    found = found or Repeats()
    for record in world.topics["groups"]:
        found.handle(0, record.key, record.raw.order, now_ms)
    assert not list(found.overdue(now_ms + SETTLING_MS - 1))
    return [request for _, request in found.overdue(now_ms + SETTLING_MS)]


def append_requests(world: WrittenTopics) -> None:
    """Append the requests to the log, as the driver does."""
    for request in requested(world):
        world.ask(RepublishGroup, request.group_id, group=request.group, offsets=request.offsets)


def test_late_repeats_are_requested_again() -> None:
    """Partition 1 is requested too, though it has no later commit: after compaction a reader could not know that."""
    (request,) = requested(two_commits())
    assert (request.group_id, request.group) == ("a", True)
    assert [(each.topic, each.partition) for each in request.offsets] == [("t", 0), ("t", 1)]


def test_an_ordinary_repeat_causes_no_request(chance: random.Random) -> None:
    """A killed driver leaves part of a batch, and the next driver writes the whole batch."""
    assert requested(conversation(chance)) == []


def test_the_topic_is_repaired_after_late_repeats(chance: random.Random) -> None:
    """The last record of each key gives the same views as all records, and no record is requested twice."""
    world = conversation(chance)
    for _ in range(chance.randrange(1, 4)):
        world.repeat(chance.randrange(len(world.batches)), ("groups",))
    world.now_ms += 1
    append_requests(world)
    world.batch()
    assert requested(world) == []
    last = {record.key: record for record in world.topics["groups"]}.values()
    by_offset = sorted(last, key=lambda record: record.offset)
    assert standing(folded((record.raw for record in by_offset), Views())) == standing(folded(raws(world)))
    assert judge(world) == []


def test_a_key_without_its_newest_record_is_requested() -> None:
    """The whole topic is read at the start; the records that compaction has left show the late repeat."""
    world = two_commits()
    commit(world, 7, 2)
    world.repeat(0)
    world.compact(len(world.topics["groups"]))
    (request,) = requested(world)
    assert [(each.topic, each.partition) for each in request.offsets] == [("t", 0), ("t", 1)]


def test_an_older_record_of_two_concurrent_writers_is_found() -> None:
    """The batch is repeated up to its highest version, but one of its records was written between the others."""
    world = WrittenTopics(["a"])
    commit(world, 1, 0)
    commit(world, 2, 0)
    records = world.topics["groups"]
    records += [
        replace(r, offset=n) for n, r in enumerate([*records, records[0], records[-2], records[-1]], len(records))
    ]
    assert requested(world) == []
    records += [replace(r, offset=n) for n, r in enumerate([records[1], records[0]], len(records))]
    (request,) = requested(world)
    assert request.group


def test_keys_requested_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "KEYS_AT_ONCE", 3)
    world = WrittenTopics(["a"])
    commit(world, 1, *range(8))
    commit(world, 2, *range(8))
    world.repeat(0)
    found, counts = Repeats(), []
    for record in world.topics["groups"]:
        found.handle(0, record.key, record.raw.order, 0)
    for now_ms in range(SETTLING_MS, SETTLING_MS + 3 * repeats.ASK_EVERY_MS, repeats.ASK_EVERY_MS // 2):
        counts.append(sum(len(r.offsets) + r.group for _, r in found.overdue(now_ms)))
    assert counts == [3, 0, 3, 0, 3, 0]


def test_remembered_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups without records for the longest time are forgotten; no correct record is requested because of that."""
    monkeypatch.setattr(repeats, "KEYS_MAX", 6)
    world = WrittenTopics(["a", "b", "c"])
    for group_id in world.group_ids:
        commit(world, 1, 0, 1, group_id=group_id)
    found = Repeats()
    assert requested(world, found) == []
    assert list(found._groups) == ["b", "c"]
    world.repeat(0)
    assert requested(world) == []


def test_an_unreadable_record_is_ignored() -> None:
    found = Repeats()
    for key, value in ((b"{", b"{}"), (b'["group","g"]', b"{}"), (b'["group","g"]', b"[" * 100_000)):
        found.handle(0, key, order_in(value, None, None), 0)
    assert not list(found.overdue(SETTLING_MS))
