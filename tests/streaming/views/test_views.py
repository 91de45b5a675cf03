"""Tests of the views without Kafka: folding in any pieces and order of topics, missing records, and owners."""

import random
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from coordinator.base.states import Phase
from coordinator.messages.events import AssignmentChanged, Handover, MemberExpired, RebalanceCompleted
from coordinator.messages.requests import DeleteGroup, LeaveGroup, Leaving
from coordinator.messages.responses import Reply
from streaming.kafka.reader import Record
from streaming.views import GroupView, Raw, Views
from streaming.views.api import answers, fold
from streaming.views.api.view_reader import ViewReader
from streaming.views.history.owners import owner_at, spans_of_owners
from streaming.views.history.rebalances import rebalances
from streaming.views.sentences.records import Gap
from streaming.views.state.version_follower import PATIENCE_MS
from streaming.wire.records import OutputTopics, decode_event, decode_group_record, to_row
from tests.simulation.simulation import Simulation as WholeSimulation
from tests.streaming.views.written import Written, WrittenTopics, converse

SEEDS = range(40)
GROUP_IDS = ["a", "b", "c"]
LATER_MS = 10 * PATIENCE_MS
AT_MS = 1_790_000_000_000


def raws(world: WrittenTopics) -> list[Raw]:
    """Return the records of both topics, sorted by the time of writing."""
    records = [*world.topics["groups"], *world.topics["events"]]
    return [record.raw for record in sorted(records, key=lambda r: r.timestamp)]


def folded(records: Iterable[Raw], views: Views | None = None) -> Views:
    """Return the views of some records; new views are live."""
    views = views or Views(is_live=True)
    for record in records:
        views.fold(record, now_ms=0)
    return views


def known(views: Views) -> Any:
    """Return the whole content of views, without the order in which they met their groups."""
    content = msgspec.to_builtins(views)
    content["ended"] = sorted(content["ended"])
    for each in content["groups"].values():
        del each["versions"]
    return content


@pytest.fixture(params=SEEDS)
def chance(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.param)


@pytest.fixture
def world(chance: random.Random) -> WrittenTopics:
    world = WrittenTopics(GROUP_IDS)
    converse(world, chance, 40)
    return world


# -- folding -----------------------------------------------------------------------------------------------------------


def test_folding_in_pieces_gives_the_same_views(world: WrittenTopics, chance: random.Random) -> None:
    """The reading may be interrupted at any record, and may resume at an earlier one."""
    records, again = raws(world), list[Raw]()
    views = Views(is_live=True)
    while records:
        piece, records = records[: (cut := chance.randrange(1, 50))], records[cut:]
        views = folded(again + piece, views)
        again = piece[chance.randrange(len(piece)) :]  # a resumed reading may repeat some records
    assert known(views) == known(folded(raws(world)))


def test_either_topic_can_be_read_first(world: WrittenTopics) -> None:
    records = raws(world)
    groups, events = ([r for r in records if r.topic == topic] for topic in ("groups", "events"))
    assert known(folded(groups + events)) == known(folded(events + groups)) == known(folded(records))


def test_each_event_is_kept_once_and_in_order(world: WrittenTopics) -> None:
    """Batches of this world are cut short and repeated; groups are deleted and created again."""
    views = folded(raws(world))
    for group_id, view in views.groups.items():
        written = [decode_event(r.value or b"") for r in world.topics["events"] if r.key == group_id.encode()]
        once = {msgspec.json.encode(event): event for event in written}
        assert view.events == list(once.values())


def test_a_group_equals_its_latest_records(world: WrittenTopics) -> None:
    latest = {record.key: record.value for record in world.topics["groups"]}
    read = [decode_group_record(key, value) for key, value in latest.items()]
    views = folded(raws(world))
    assert {g.group_id: g.record for g in views.present()} == {k[1]: r for k, r in read if r and k[0] == "group"}
    offsets = {(g.group_id, t, p): o for g in views.present() for t, each in g.offsets.items() for p, o in each.items()}
    assert offsets == {tuple(k[1:]): r for k, r in read if r and k[0] == "offset"}


def test_compaction_does_not_change_the_views(world: WrittenTopics, chance: random.Random) -> None:
    whole = folded(raws(world))
    world.compact(chance.randrange(len(world.topics["groups"])), tombstones_too=chance.random() < 0.5)
    left = folded(raws(world), Views())
    left.begin()
    assert [(g.group_id, g.record, g.offsets, g.events) for g in left.present()] == [
        (g.group_id, g.record, g.offsets, g.events) for g in whole.present()
    ]
    assert not list(left.missing(LATER_MS, AT_MS))


# -- missing records ---------------------------------------------------------------------------------------------------


def test_complete_topics_have_no_missing_record(world: WrittenTopics) -> None:
    """I8: complete topics give no gap and no alarm."""
    views = folded(raws(world))
    assert not list(views.missing(LATER_MS, AT_MS))
    assert not views.alarms


def test_a_lost_record_is_reported_once(chance: random.Random) -> None:
    """I8: a gap raises an alarm, and the reading continues."""
    world = WrittenTopics(["a"])
    world.join("a")
    world.batch()
    for _ in range(12):
        world.join("a")
        world.batch()
    topic = chance.choice(("groups", "events"))
    lost = world.lose(topic, chance.randrange(len(world.topics[topic]) - 1))
    version = _version(lost)
    views = folded(raws(world))
    assert not list(views.missing(PATIENCE_MS - 1, AT_MS))
    assert list(views.missing(PATIENCE_MS, AT_MS)) == [Gap("a", version, version)]
    assert not list(views.missing(LATER_MS, AT_MS))
    assert [(alarm.kind, alarm.group_id, alarm.at_ms) for alarm in views.alarms] == [("gap", "a", AT_MS)]
    assert views.groups["a"].tallied.missing == 1


def _version(record: Written) -> int:
    return int(msgspec.json.decode(record.value or b"")["version"])


def test_the_history_before_the_start_may_have_holes(world: WrittenTopics, chance: random.Random) -> None:
    """Compaction and retention leave holes; later records are still checked."""
    world.compact(len(world.topics["groups"]))
    world.expire("events", chance.randrange(len(world.topics["events"])))
    views = folded(raws(world), Views())
    views.begin()
    assert not list(views.missing(LATER_MS, AT_MS))


def test_records_after_the_history_have_no_holes(world: WrittenTopics, chance: random.Random) -> None:
    """I8: the history may end anywhere, also in the middle of a batch or of a group's end."""
    kept = [len(world.topics[topic]) for topic in ("groups", "events")]
    until_ms = chance.choice(raws(world)).timestamp_ms
    history = [r for r in raws(world) if r.timestamp_ms < until_ms]
    views = folded(history, Views())
    views.begin()
    folded(raws(world)[len(history) :], views)
    assert not list(views.missing(LATER_MS, AT_MS))
    assert kept == [views.positions[topic][0] for topic in ("groups", "events")]


@pytest.mark.parametrize("value", [b"", b"{", b'{"event": "unheard of"}', b"[" * 100_000])
def test_an_unreadable_record_raises_an_alarm(value: bytes) -> None:
    views = Views()
    assert views.fold(Raw("events", 3, 7, 1, b"g", value), 0) is None
    assert views.fold(Raw("groups", 3, 7, 1, b'["group","g"]', value), 0) is None
    assert [alarm.kind for alarm in views.alarms] == ["unreadable"] * 2
    assert views.positions == {"groups": {3: 8}, "events": {3: 8}}


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_histories_are_bounded(world: WrittenTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest events are kept, and the views know from which time on the history is complete."""
    whole = folded(raws(world))
    monkeypatch.setattr(fold, "HISTORY_MAX", 40)
    monkeypatch.setattr(fold, "WEIGHT_MAX", 90)
    views = folded(raws(world))
    assert sum(g.weight for g in views.groups.values()) == views.weight <= 90
    for group_id, view in views.groups.items():
        before = whole.groups[group_id].events
        assert view.weight <= 40
        assert view.events == before[len(before) - len(view.events) :]
        if len(view.events) < len(before):
            assert view.known_from_ms > before[-len(view.events) - 1].at_ms


def test_views_of_one_group_keep_all_of_its_events(world: WrittenTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views of one group have all of its events, and events of other groups take no space."""
    whole = folded(raws(world))
    monkeypatch.setattr(fold, "HISTORY_MAX", 2)
    for group_id, view in whole.groups.items():
        alone = folded(raws(world), views=Views(only=frozenset({group_id})))
        assert list(alone.groups) == [group_id]
        assert alone.groups[group_id].events == view.events
        assert alone.positions == whole.positions


def test_remembered_deleted_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "ENDED_MAX", 3)
    world = WrittenTopics([f"g{n}" for n in range(8)])
    for group_id in world.group_ids:
        who = _joined(world, group_id)
        world.ask(LeaveGroup, group_id, members=(Leaving(who),))
        world.ask(DeleteGroup, group_id)
        world.batch()
    views = folded(raws(world))
    assert list(views.groups) == ["g5", "g6", "g7"]
    assert views.present() == []
    assert views.weight == sum(g.weight for g in views.groups.values())


# -- owners ------------------------------------------------------------------------------------------------------------


def all_spans(views: Views) -> Iterator[tuple[Any, Any]]:
    for view in views.groups.values():
        yield from ((view, spans) for spans in spans_of_owners(view).items())


def test_a_partition_has_at_most_one_owner_at_any_time(world: WrittenTopics, chance: random.Random) -> None:
    """S10, I5: this holds for every remaining part of the history."""
    if chance.random() < 0.5:
        world.expire("events", chance.randrange(len(world.topics["events"])))
    for _, (_, spans) in all_spans(folded(raws(world))):
        for before, after in pairwise(spans):
            assert before.to_ms is not None
            assert after.from_ms is not None
            assert before.to_ms <= after.from_ms
        assert all(s.from_ms is None or s.to_ms is None or s.from_ms <= s.to_ms for s in spans)


def test_owners_are_those_of_the_assignment(world: WrittenTopics, chance: random.Random) -> None:
    """S10: the owners are compared at every `assignment_changed`, and at the end."""
    if chance.random() < 0.5:
        world.expire("events", chance.randrange(len(world.topics["events"])))
    for view in folded(raws(world)).groups.values():
        owners = spans_of_owners(view)
        for event in view.events:
            for h in event.handovers if isinstance(event, AssignmentChanged) else ():
                owner = owner_at(owners[h.topic, h.partition], event.at_ms)
                later = [e for e in view.events if e.at_ms == event.at_ms and (e.version or 0) > (event.version or 0)]
                assert (owner.member_id if owner else None) == h.after or later
        if view.state is Phase.STABLE:
            now = {place: spans[-1].member_id for place, spans in owners.items() if spans[-1].to_ms is None}
            assert now == {
                (t, p): m.member_id for m in view.members for t, ps in (m.assigned or {}).items() for p in ps
            }


def test_a_dropped_member_owns_no_partition() -> None:
    """S10: between the expiry of a member and the next assignment its partitions have no owner."""
    world = WrittenTopics(["a"])
    ana = _joined(world, "a")
    world.sync("a", 1, ana, {ana: [0, 1]})
    world.batch()
    owned_ms = world.now_ms
    world.now_ms += 6_000
    world.batch()
    views = folded(raws(world))
    expired = next(e for e in views.groups["a"].events if isinstance(e, MemberExpired))
    owned = answers.owner(views, views.groups["a"], "t", 0, owned_ms)
    assert owned.owner is not None
    assert (owned.owner.member_id, owned.owner.to_ms, owned.owner.because) == (ana, expired.at_ms, "expired")
    nobody = answers.owner(views, views.groups["a"], "t", 0, expired.at_ms)
    assert (nobody.owner, nobody.is_known) == (None, True)
    assert nobody.before is not None
    assert nobody.before.member_id == ana
    earlier = answers.owner(views, views.groups["a"], "t", 0, owned_ms - 1)
    assert earlier.owner is None
    assert earlier.after is not None


def test_the_end_of_an_owner_from_before_the_history_is_known() -> None:
    """S10: the owner's time ends when the member is gone, not with the next assignment."""
    common: dict[str, Any] = {"group_id": "a", "generation_id": 7}
    gone = MemberExpired(**common, version=10, at_ms=1_000, member_id="ana", group_instance_id=None, client_id="c",
                         client_host="h", why="session_expired", silence_ms=9, reason=None)  # fmt: skip
    moved = AssignmentChanged(**common, version=12, at_ms=1_400, handovers=(Handover("t", 0, "ana", "bo"),))
    (spans,) = spans_of_owners(GroupView("a", 0, events=[gone, moved])).values()
    assert [(s.member_id, s.from_ms, s.to_ms, s.because) for s in spans] == [
        ("ana", None, 1_000, "expired"),
        ("bo", 1_400, None, None),
    ]


# -- rebalances --------------------------------------------------------------------------------------------------------


def test_each_rebalance_is_complete(world: WrittenTopics) -> None:
    """S12: each rebalance has its causes, its end, and its duration."""
    for view in folded(raws(world)).groups.values():
        found = rebalances(view.events)
        assert [r.completed for r in found if r.completed] == [
            e for e in view.events if isinstance(e, RebalanceCompleted)
        ]
        for each in found:
            assert each.started
            if each.completed and each.ended_ms is not None:
                assert each.ended_ms - each.started_ms == each.completed.duration_ms
        for before, after in pairwise(found):
            assert before.ended_ms is not None
            assert before.ended_ms <= after.started_ms


# -- simulated worlds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_views_of_simulated_worlds_equal_the_coordinators_state(seed: int) -> None:
    """With members, strangers, operators and faults, the views equal the coordinator's state; no record is missing."""
    whole = WholeSimulation(f"views/{seed}", 2_000)
    whole.run()
    views, offsets = Views(is_live=True), {"groups": 0, "events": 0}
    topics = OutputTopics("replies", "groups", "events", "requests")
    for outputs in whole.judge.outputs:
        for output in outputs:
            if isinstance(output, Reply):
                continue
            row = to_row(output, topics, 0)
            header = {name: int(v) for name, v in row.headers or ()}
            views.fold(Raw(row.topic, 0, offsets[row.topic], 0, row.key or b"", row.value, **header), 0)  # type: ignore[arg-type]
            offsets[row.topic] += 1
    assert not list(views.missing(LATER_MS, AT_MS))
    assert not [alarm for alarm in views.alarms if alarm.kind != "clockahead"], (
        "this alarm is correct: clocks jump here"
    )
    there = {group_id: group for group_id, group in whole.judge.groups.items() if group.phase is not Phase.DEAD}
    assert {g.group_id: (g.state, [m.member_id for m in g.members]) for g in views.present()} == {
        group_id: (group.phase, list(group.members)) for group_id, group in there.items()
    }
    for view in views.present():
        answers.to_json(answers.detail(view, {}, 0))
        answers.to_json(answers.timeline(views, view))


def _joined(world: WrittenTopics, group_id: str) -> str:
    world.join(group_id)
    answer = next(o.answer for o in world.batch() if isinstance(o, Reply) and hasattr(o.answer, "member_id"))
    return str(answer.member_id)


# -- incomplete data ---------------------------------------------------------------------------------------------------


VERSION_12, AT_5_MS = ("version", b"12"), ("at_ms", b"5")


@pytest.mark.parametrize(
    ("headers", "kinds"),
    [
        ([("version", b"x"), AT_5_MS], ["unreadable"]),
        ([("version", b""), AT_5_MS], ["unreadable"]),
        ([VERSION_12, ("at_ms", b"x")], ["unreadable"]),
        ([VERSION_12], ["unreadable"]),
        ([VERSION_12, AT_5_MS], []),
        ([AT_5_MS], []),
    ],
)
def test_a_tombstone_with_an_invalid_header_raises_an_alarm(headers: list[tuple[str, bytes]], kinds: list[str]) -> None:
    record = Record("groups", 3, 7, 5, b'["group","g"]', None, headers)
    reading, views = ViewReader.__new__(ViewReader), Views()
    reading._kinds = {"groups": "groups"}
    views.fold(reading._raw(record), 0)
    assert [alarm.kind for alarm in views.alarms] == kinds


def test_alarms_are_counted_after_the_limit_of_kept_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "ALARMS_MAX", 2)
    views = folded(Raw("events", 3, offset, 1, b"g", b"{") for offset in range(5))
    assert (len(views.alarms), views.alarms_told) == (2, 5)


def test_if_all_events_have_expired_the_history_begins_with_the_reading(world: WrittenTopics) -> None:
    """S10, S12: the time before the reading is unknown, however few events follow."""
    views = Views()
    views.expired_before(0, AT_MS)
    folded((r for r in raws(world) if r.topic == "groups"), views)
    assert {views.known_from_ms(view) for view in views.groups.values()} == {AT_MS}
    event = next(r for r in raws(world) if r.topic == "events")
    folded([event._replace(timestamp_ms=AT_MS + 60_000)], views)
    assert views.from_ms == {0: AT_MS}


def test_if_some_events_are_left_the_history_begins_with_the_first(world: WrittenTopics) -> None:
    world.expire("events", len(world.topics["events"]) // 2)
    left = [r for r in raws(world) if r.topic == "events"]
    views = Views()
    views.expired_before(0, AT_MS)
    folded(left, views)
    assert views.from_ms == {0: left[0].timestamp_ms}
