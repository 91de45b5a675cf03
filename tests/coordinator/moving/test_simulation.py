"""The promises of moving.md 6 in random runs of two real shards, and the seeded bugs that break them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from coordinator.base.slots import slots_in
from coordinator.messages.move_requests import AdoptSlots, Elsewhere
from coordinator.messages.outputs import Output
from coordinator.moves import drain, slot_source, slot_target, source, target
from coordinator.moves.custody import MoveStore
from tests.coordinator.moving.simulation import Broken, Simulation
from tests.tiers import sampled

EVENTS = 300
RUNS = 25


@pytest.mark.parametrize("seed", range(RUNS))
def test_no_run_breaks_a_promise(seed: int):
    Simulation(seed).run(EVENTS)


@pytest.mark.long
@pytest.mark.parametrize("seed", sampled(range(1_000, 1_150), range(1_000, 1_050)))
def test_no_longer_run_breaks_a_promise(seed: int):
    Simulation(seed).run(2 * EVENTS)


def test_groups_move_in_these_runs():
    moves = [Simulation(seed) for seed in range(10)]
    for run in moves:
        run.run(EVENTS)
    assert sum(len(run.numbers) for run in moves) > 20
    assert sum(run.clients["g"].acked for run in moves) > 25
    assert sum(run.adopted_slots for run in moves) > 8
    assert sum(run.producer.acked for run in moves) > 10
    assert sum(run.drained for run in moves) > 3
    assert sum(client.deleted > 0 for run in moves for client in run.clients.values()) > 5


def run_many(runs: int, **options: bool) -> None:
    for seed in range(runs):
        Simulation(seed, **options).run(EVENTS)


@contextmanager
def verdicts_are_forgotten() -> Iterator[None]:
    with patch.object(MoveStore, "remember", lambda *_: None):
        yield


@contextmanager
def sessions_are_those_of_the_source() -> Iterator[None]:
    with patch.object(target, "resume", lambda *_: None), patch.object(source, "resume", lambda *_: None):
        yield


@contextmanager
def numbers_begin_at_the_own_floor() -> Iterator[None]:
    with patch.object(MoveStore, "number_of", lambda *_: 0):
        yield


@contextmanager
def a_cancel_wins_over_an_adoption() -> Iterator[None]:
    known = MoveStore.verdict_of

    def forgets_adoptions(kept: MoveStore, group_id: str, move_id: str) -> object:
        verdict = known(kept, group_id, move_id)
        return None if verdict is not None and verdict.verdict == "adopted" else verdict

    with patch.object(MoveStore, "verdict_of", forgets_adoptions):
        yield


@contextmanager
def slots_go_without_the_names_that_are_elsewhere() -> Iterator[None]:
    with patch.object(slot_source, "_cut", lambda elsewhere: [()]):
        yield


@contextmanager
def slots_go_with_living_groups_alone_while_a_name_is_in_transit() -> Iterator[None]:
    known, why_not = slot_source._known, slot_source._why_not_now

    def living(kept: MoveStore, slots: frozenset[int]) -> Iterator[Elsewhere]:
        return (each for each in known(kept, slots) if each.name in kept.groups.stored)

    def in_transit_or_not(kept: MoveStore, made_ms: int, slots: frozenset[int]) -> str | None:
        why = why_not(kept, made_ms, slots)
        return None if why is not None and "in transit" in why else why

    with patch.object(slot_source, "_known", living), patch.object(slot_source, "_why_not_now", in_transit_or_not):
        yield


@contextmanager
def late_slots_count() -> Iterator[None]:
    adopt = slot_target.adopt_slots

    def counts(kept: MoveStore, record: AdoptSlots, at_ms: int) -> Iterator[Output]:
        latest = max(map(kept.slots.owners.number_of, slots_in(record.slots)))
        return adopt(kept, replace(record, number=max(record.number, latest + 1)), at_ms)

    with patch.object(slot_target, "adopt_slots", counts):
        yield


@contextmanager
def groups_are_created_in_foreign_slots() -> Iterator[None]:
    with patch.object(MoveStore, "owns", lambda *_: True):
        yield


@contextmanager
def groups_go_with_open_transactions() -> Iterator[None]:
    with patch.object(drain, "has_open_transactions", lambda *_: False):
        yield


@pytest.mark.parametrize(
    ("bug", "promises"),
    [
        (verdicts_are_forgotten, {"OneServes", "VerdictsAreFinal", "VersionsHaveNoGap"}),
        (sessions_are_those_of_the_source, {"MovesAreQuiet"}),
        (numbers_begin_at_the_own_floor, {"NumbersGrow", "OneServes"}),
        (a_cancel_wins_over_an_adoption, {"OneServes", "VerdictsAreFinal"}),
        (slots_go_without_the_names_that_are_elsewhere, {"OneServes", "MovedCommitsAreKept"}),
        (
            slots_go_with_living_groups_alone_while_a_name_is_in_transit,
            {"NeverNowhere", "MovedCommitsAreKept", "OneServes"},
        ),
        (late_slots_count, {"OneServes"}),
        (groups_are_created_in_foreign_slots, {"OneServes", "OneFounds"}),
        (groups_go_with_open_transactions, {"TransactionsStay"}),
    ],
)
def test_a_seeded_bug_is_found(bug: Callable, promises: set[str]):
    with bug(), pytest.raises(Broken) as broken:
        run_many(200)
    assert str(broken.value).split(":")[0] in promises


def test_a_client_that_sends_elsewhere_on_silence_breaks_a_promise():
    with pytest.raises(Broken, match="MovedCommitsAreKept"):
        run_many(300, sends_on_silence=True)
