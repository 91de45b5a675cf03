"""Worlds keep every promise, are the same each time, and would tell of a bug."""

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from coordinator.clock import Clock
from coordinator.codec import VERSION
from tests.simulation.audits import AUDITS, audit
from tests.simulation.bugs import BUGS
from tests.simulation.bugs.hunt import hunt
from tests.simulation.judge import OLDER, Broken, Judge, damaged, replayed, written_as
from tests.simulation.runs import Outcome, Tally, keep, live, lives, trace_of
from tests.simulation.script import Batch, Script, read, write
from tests.simulation.shrink import broken_by, minimal
from tests.simulation.world import World

ROOT = Path(__file__).parents[2]
KEPT = sorted(Path(__file__).with_name("traces").glob("*.txt"))
STEPS = 10_000_000 if "NIGHTLY" in os.environ else 1_000_000
FEW_STEPS = 150_000


def first_broken(seed: str, worlds: int) -> Outcome | None:
    """Let some worlds live until one of them breaks a promise."""
    return next((o for o in (live(f"{seed}/{n}") for n in range(worlds)) if o.broken is not None), None)


# -- worlds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [FEW_STEPS, pytest.param(STEPS, marks=pytest.mark.long)])
def test_worlds_keep_every_promise(steps: int):
    """I1 to I22, F1 to F9: under swarms of faults, with calm at the end in which all groups come to rest."""
    tally = Tally()
    for outcome in lives(f"made {steps}", jobs=os.cpu_count() or 1):
        tally.count(outcome)
        if outcome.broken is not None:
            pytest.fail(f"world {outcome.name}; `python -m tests.simulation --world {outcome.name}` keeps this trace:\n"
                        f"{trace_of(outcome)}")  # fmt: skip
        if tally.steps >= steps:
            break
    assert tally.worlds > 1


def test_a_world_sees_every_kind_of_trouble():
    """Fault model: what the swarm may draw does come about."""
    scripts = []
    for n in range(40):
        world = World(f"trouble/{n}", 500)
        world.run()
        scripts.append(world.script)
    batches = [batch for script in scripts for _, batch in script.batches()]
    assert {batch.codec for batch in batches} == {None, *OLDER}
    assert any(0 < share < 1_000 for batch in batches for share in batch.killed)
    assert max(len(batch.killed) for batch in batches) == 3
    assert any(batch.damaged is not None for batch in batches)
    assert any(later.now_ms < earlier.now_ms for s in scripts for earlier, later in _pairs([b for _, b in s.batches()]))
    assert any(later.at_ms < earlier.at_ms for s in scripts for earlier, later in _pairs(_log(s)))
    assert {s.is_exact for s in scripts} == {True, False}
    kinds = {type(record.request).__name__ for script in scripts for record in _log(script)}
    assert len(kinds) == 15, f"thirteen requests, wake records, and what is none: {sorted(kinds)}"


def _log(script: Script) -> list:
    return [record for records, _ in script.batches() for record in records]


def _pairs(items: list) -> Iterator[tuple]:
    return pairwise(items)


# -- determinism -------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes():
    """I16: in two processes, under two hash seeds, one after another and side by side."""
    told = {_run(hash_seed, "--steps", "20000", "--seed", "twice", "--jobs", jobs) for hash_seed, jobs in _WAYS}
    assert len(told) == 1
    assert _run("0", "--steps", "20000", "--seed", "otherwise") not in told


_WAYS = (("0", "1"), ("4242", "1"), ("1", "2"))


def _run(hash_seed: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.splitlines()[-1]


def test_a_script_alone_brings_the_judge_to_the_same_end():
    """I16: what a world leaves behind is all that the coordinator has seen; as text too."""
    for n in range(5):
        world = World(f"alone/{n}", 1_000)
        world.run()
        assert replayed(world.script).digest == world.judge.digest


@pytest.mark.parametrize("n", range(3))
def test_a_trace_is_read_back_as_it_was_written(n: int, tmp_path: Path):
    world = World(f"text/{n}", 500)
    world.run()
    path = tmp_path / "trace.txt"
    path.write_text(write(world.script, ["a remark"]))
    assert read(path) == world.script


# -- kept traces -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_was_broken_once_holds(path: Path):
    """Each trace is what a world once broke a promise with, as its first lines say."""
    broken = broken_by(read(path))
    assert broken is None, str(broken)


# -- bugs --------------------------------------------------------------------------------------------------------------


HANDFUL = (
    # found within seconds; `python -m tests.simulation --bugs` hunts them all
    "a repeated join makes a phantom",
    "Iceberg connect #17551",
    "Redpanda #31483",
    "sessions are rounded down",
    "a heartbeat of another generation renews",
    "a heartbeat hears NONE while joins are collected",
    "whoever replaces a member owns nothing",
    "a group's tombstone is lost",
    "what heartbeats alone change is not kept",
    "who owned what is lost between batches",
    "late repeats are not asked for",
)


@pytest.mark.parametrize("name", HANDFUL)
def test_a_bug_is_found(name: str):
    """Promises.md 4: by the checker whose promise it breaks."""
    found = hunt(name, "bug", 150_000)
    assert found.by == BUGS[name].found_by, found.why


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_can_be_put_in(name: str, monkeypatch: pytest.MonkeyPatch):
    """The core still says what the bug changes; otherwise a hunt would look for nothing."""
    BUGS[name].plant(monkeypatch)


SHORT = {"KAFKA-20938, joins": 6, "librdkafka #2631": 6}


@pytest.mark.parametrize("name", SHORT)
def test_a_bug_is_cut_down_to_a_short_trace(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The trace breaks the same promise as the world did; it is kept, and without the bug it holds."""
    with monkeypatch.context() as patch:
        BUGS[name].plant(patch)
        outcome = first_broken("bug", 60)
        assert outcome is not None
        assert outcome.script is not None
        path = keep(trace_of(outcome), outcome, tmp_path)
        short, broken = read(path), broken_by(read(path))
    assert broken is not None
    assert broken.promise == BUGS[name].found_by
    assert len(short.happenings) <= SHORT[name] < len(outcome.script.happenings), path.read_text()
    assert broken_by(short) is None


def test_nothing_more_can_be_left_out_of_a_minimal_list():
    assert minimal(range(100), lambda left: {3, 50, 51} <= set(left)) == [3, 50, 51]


# -- the judge and the audits ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world() -> World:
    """One that was cut exactly, with requests in it to several groups."""
    for n in range(100):
        world = World(f"exact/{n}", 1_000)
        if world.script.is_exact and len(world.group_ids) > 1:
            world.run()
            return world
    raise AssertionError("no world of a hundred is exact")


def test_a_killed_attempt_that_gives_other_bytes_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch):
    """F2 to F5, I16: the judge compares what it takes twice."""
    attempt, seen = Judge._attempt, []

    def forgetful(self: Judge, *arguments: object) -> object:
        seen.append(arguments)
        outputs, *kept = attempt(self, *arguments)
        return (outputs[:-1] if len(seen) == 2 else outputs, *kept)

    monkeypatch.setattr(Judge, "_attempt", forgetful)
    records, batch = next((r, b) for r, b in world.script.batches() if r)
    with pytest.raises(Broken, match="EqualBytes"):
        Judge(world.script.config).take(records, Batch(batch.now_ms, killed=(500,)))


def test_what_killed_attempts_had_out_comes_again(world: World):
    """F4: whoever listens hears the beginning twice."""
    records, batch = next((r, b) for r, b in world.script.batches() if r)
    outputs = Judge(world.script.config).take(records, Batch(batch.now_ms))
    told = Judge(world.script.config).take(records, Batch(batch.now_ms, killed=(0, 500, 1_000)))
    assert told == outputs[: len(outputs) // 2] + outputs + outputs


def test_states_of_older_versions_and_damaged_ones_are_what_they_say(world: World):
    """I18, F8."""
    judge = world.judge
    states = [written_as(version, judge.kept, judge.state) for version in (*OLDER, VERSION)]
    assert [state[0] for state in states] == [VERSION, *range(2, VERSION + 1)], "the first one could not write times"
    first = replace(judge.kept, graves={}, clock=Clock())
    assert written_as(1, first, judge.state)[:1] == b"\x01"
    assert damaged(states[-1], 999) != states[-1]
    assert len(damaged(states[-1], 0)) == len(states[-1])


@pytest.mark.parametrize("name", AUDITS)
def test_an_audit_notices_what_it_looks_for(world: World, name: str):
    """I17 to I19: another outcome than the judge's shows in each of them."""
    audit(world.script, world.judge, (name,))
    other = replayed(world.script)
    at = next(n for n, outputs in enumerate(other.outputs) if outputs)
    other.outputs[at] = other.outputs[at][1:]
    with pytest.raises(Broken):
        audit(world.script, other, (name,))
