"""Simulations keep every promise, give the same outputs each time, and find bugs."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from coordinator.messages.requests import SettleTransactions, TxnOffsetCommit
from coordinator.messages.responses import OffsetFetchAnswer, Reply, TxnOffsetCommitAnswer
from tests.simulation.audits import AUDITS, audit
from tests.simulation.bugs import BUGS
from tests.simulation.bugs.hunt import hunt
from tests.simulation.judge import Broken, Judge, damaged, replayed
from tests.simulation.runs import Outcome, Tally, keep, live, lives, trace_of
from tests.simulation.script import Batch, Script, read, write
from tests.simulation.shrink import broken_by, minimal
from tests.simulation.simulation import Simulation
from tests.simulation.worlds import Members
from tests.system.waiting import HANG_S
from tests.tiers import sampled

ROOT = Path(__file__).parents[2]
KEPT = sorted(Path(__file__).with_name("traces").glob("*.txt"))
STEPS = 10_000_000 if "NIGHTLY" in os.environ else 50_000


def first_broken(seed: str, simulations: int, promise: str) -> Outcome | None:
    """Run simulations until one of them breaks a promise; return its outcome, or None."""
    outcomes = (live(f"{seed}/{n}") for n in range(simulations))
    return next((o for o in outcomes if o.broken is not None and o.broken[0] == promise), None)


# -- simulations -------------------------------------------------------------------------------------------------------


def test_simulations_keep_every_promise():
    """I1 to I22, F1 to F9: every promise holds under random faults; all groups come to rest in the calm at the end."""
    tally = Tally()
    for outcome in lives(f"made {STEPS}", jobs=os.cpu_count() or 1):
        tally.count(outcome)
        if outcome.broken is not None:
            pytest.fail(f"simulation {outcome.name}; `python -m tests.simulation --only {outcome.name}` keeps it:\n"
                        f"{trace_of(outcome)}")  # fmt: skip
        if tally.steps >= STEPS:
            break
    assert tally.simulations > 1


def test_every_kind_of_fault_occurs():
    """Fault model: every kind of fault and of request occurs in forty simulations."""
    scripts = []
    for n in range(40):
        simulation = Simulation(f"faults/{n}", 500)
        simulation.run()
        scripts.append(simulation.script)
    batches = [batch for script in scripts for _, batch in script.batches()]
    assert any(0 < share < 1_000 for batch in batches for share in batch.killed)
    assert max(len(batch.killed) for batch in batches) == 3
    assert any(batch.damaged is not None for batch in batches)
    assert any(later.now_ms < earlier.now_ms for s in scripts for earlier, later in _pairs([b for _, b in s.batches()]))
    assert any(later.at_ms < earlier.at_ms for s in scripts for earlier, later in _pairs(_log(s)))
    assert {s.is_exact for s in scripts} == {True, False}
    kinds = {type(record.request).__name__ for script in scripts for record in _log(script)}
    assert len(kinds) == 21, f"expected nineteen requests, Wake and Unreadable, got {sorted(kinds)}"


def test_every_kind_of_fault_of_transactions_occurs():
    """docs/transactions.md: who stands still, ends, repeats or is fenced, in forty simulations."""
    requests, answers, facts = [], [], []
    for n in range(40):
        simulation = Simulation(f"transactions/{n}", 1_000)
        simulation.run()
        log = [record.request for record in _log(simulation.script)]
        reports = [request for request in log if isinstance(request, SettleTransactions)]
        requests += [request for request in log if isinstance(request, TxnOffsetCommit)]
        answers += [o.answer for outputs in simulation.judge.outputs for o in outputs if isinstance(o, Reply)]
        facts += [
            ("a report comes twice", len({report.request_id for report in reports}) < len(reports)),
            ("a report begins again", any(b.settled_from < a.settled_from for a, b in pairwise(reports))),
            ("the topic is made anew", len({report.topic_id for report in reports}) > 1),
            ("records are deleted", simulation.producers.brokers.oldest > 0),
            ("a transaction is aborted", not all(simulation.producers.brokers.ended.values())),
        ]
    places = Counter((r.group_id, r.producer_id, r.producer_epoch, r.offsets) for r in requests)
    facts += [
        ("a commit is repeated with another place", max(places.values()) > 1),
        ("a process is fenced", any(request.producer_epoch > 0 for request in requests)),
        ("a commit comes too late", _is_answered(answers, TxnOffsetCommitAnswer, "INVALID_PRODUCER_EPOCH")),
        ("a stable fetch has to wait", _is_answered(answers, OffsetFetchAnswer, "UNSTABLE_OFFSET_COMMIT")),
        ("a commit is of a member", any(request.member_id for request in requests)),
        ("a commit is of no member", any(not request.member_id for request in requests)),
    ]
    occurred = {fact for fact, has_occurred in facts if has_occurred}
    assert occurred == {fact for fact, _ in facts}


def _is_answered(answers: list, kind: type, error: str) -> bool:
    return any(p.error == error for answer in answers if isinstance(answer, kind) for p in answer.partitions)


def _log(script: Script) -> list:
    return [record for records, _ in script.batches() for record in records]


def _pairs(items: list) -> Iterator[tuple]:
    return pairwise(items)


# -- determinism -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_same_seed_gives_the_same_bytes():
    """I16: the digest is equal in several processes, under several hash seeds, with one job and with two."""
    told = {_run(hash_seed, "--steps", "4000", "--seed", "twice", "--jobs", jobs) for hash_seed, jobs in _RUNS}
    assert len(told) == 1
    assert _run("0", "--steps", "4000", "--seed", "otherwise") not in told


_RUNS = (("0", "1"), ("4242", "1"), ("1", "2"))


def _run(hash_seed: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANG_S, check=True
    )
    return done.stdout.splitlines()[-1]


def test_a_replayed_script_gives_the_same_digest():
    """I16: the script of a simulation is the whole input of the coordinator."""
    for n in range(5):
        simulation = Simulation(f"alone/{n}", 1_000)
        simulation.run()
        assert replayed(simulation.script).digest == simulation.judge.digest


@pytest.mark.parametrize("n", range(3))
def test_a_trace_is_read_back_as_it_was_written(n: int, tmp_path: Path):
    simulation = Simulation(f"text/{n}", 500)
    simulation.run()
    path = tmp_path / "trace.txt"
    path.write_text(write(simulation.script, ["a remark"]))
    assert read(path) == simulation.script


# -- kept traces -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_trace_breaks_no_promise(path: Path):
    """Each trace once broke the promise that its first lines name."""
    broken = broken_by(read(path))
    assert broken is None, str(broken)


# -- bugs --------------------------------------------------------------------------------------------------------------


HANDFUL = (
    # these bugs are found within seconds; `python -m tests.simulation --bugs` hunts them all
    "a repeated join adds a second member",
    "Iceberg connect #17551",
    "Redpanda #31483",
    "sessions are rounded down",
    "a heartbeat of another generation renews the session",
    "a heartbeat is answered NONE in PreparingRebalance",
    "the process that replaces a static member has no assignment",
    "a group's tombstone is lost",
    "changes by heartbeats are not stored",
    "the previous owners are lost between batches",
    "no request is sent for late repeats",
    "a member keeps what it was told to give up",
    "a member that does not say what it owns has given all up",
    "a member that waits for partitions counts as stable",
    "a member that waits for partitions never gets them",
    "a member that has to give up partitions may wait for ever",
    "a plan has an epoch above the group's",
    "a plan leaves out the members of the classic protocol",
    "a heartbeat of any epoch renews a settled member",
    "a heartbeat that brings news renews no session",
    "a commit of any older epoch is accepted",
    "a member takes a partition with its earlier token",
    "a release of partitions is not reported",
    "a pending offset is visible to a plain fetch",
    "a stable fetch is answered while a transaction is open",
    "a group with pending commits is forgotten",
    "an offset expires while a transaction may replace it",
    "an aborted commit is stored",
    "a committed commit is dropped",
    "an earlier transaction drops the offsets of later ones",
    "a seat that was taken is offered again",
    "a seat is taken with the token of its generation",
    "a called member is not told so",
    "a rebalance leaves pending holds",
    "a vacancy has no deadline",
    "a member in quarantine is in the roll",
)


SEEDS = dict.fromkeys(("a pending offset is visible to a plain fetch", "no request is sent for late repeats"), "bugs")
"""The seeds of bugs that the seed of the others meets only after more steps."""


@pytest.mark.parametrize("name", HANDFUL)
def test_a_bug_is_found(name: str):
    """Promises.md 4: the checker whose promise a bug breaks finds the bug."""
    found = hunt(name, SEEDS.get(name, "bug"), 150_000)
    assert found.by == BUGS[name].found_by, found.why


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_can_be_put_in(name: str, monkeypatch: pytest.MonkeyPatch):
    """The core still contains the text that the bug changes."""
    BUGS[name].plant(monkeypatch)


SHORT = {"KAFKA-20938, joins": 4, "librdkafka #2631": 6}


@pytest.mark.long
@pytest.mark.parametrize("name", sampled(SHORT, ["KAFKA-20938, joins"]))
def test_a_trace_of_a_bug_is_shortened(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The short trace breaks the same promise as the simulation. Without the bug it breaks none."""
    with monkeypatch.context() as patch:
        BUGS[name].plant(patch)
        outcome = first_broken("bugs", 60, BUGS[name].found_by)
        assert outcome is not None
        assert outcome.script is not None
        path = keep(trace_of(outcome), outcome, tmp_path)
        short, broken = read(path), broken_by(read(path))
    assert broken is not None
    assert broken.promise == BUGS[name].found_by
    assert len(short.happenings) <= SHORT[name] < len(outcome.script.happenings), path.read_text()
    assert broken_by(short) is None


def test_minimal_keeps_only_the_needed_items():
    assert minimal(range(100), lambda left: {3, 50, 51} <= set(left)) == [3, 50, 51]


# -- the judge and the audits ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    """A simulation with an exact script and requests to several groups, which every version could store."""
    for n in range(100):
        simulation = Simulation(f"exact/{n}", 1_000)
        is_classic = set(simulation.protocols.values()) == {Members.CLASSIC} and not simulation.producers.all
        if simulation.script.is_exact and len(simulation.group_ids) > 1 and is_classic:
            simulation.run()
            return simulation
    raise AssertionError("none of a hundred simulations is exact with several groups")


def test_the_judge_detects_a_killed_attempt_with_other_outputs(simulation: Simulation, monkeypatch: pytest.MonkeyPatch):
    """F2 to F5, I16: the judge compares all attempts of a batch."""
    attempt, seen = Judge._attempt, []

    def forgetful(self: Judge, *arguments: object) -> object:
        seen.append(arguments)
        outputs, *kept = attempt(self, *arguments)
        return (outputs[:-1] if len(seen) == 2 else outputs, *kept)

    monkeypatch.setattr(Judge, "_attempt", forgetful)
    records, batch = next((r, b) for r, b in simulation.script.batches() if r)
    with pytest.raises(Broken, match="EqualBytes"):
        Judge(simulation.script.config).take(records, Batch(batch.now_ms, killed=(500,)))


def test_outputs_of_killed_attempts_are_repeated(simulation: Simulation):
    """F4: a client receives the outputs that a killed attempt wrote, and receives them again later."""
    records, batch = next((r, b) for r, b in simulation.script.batches() if r)
    outputs = Judge(simulation.script.config).take(records, Batch(batch.now_ms))
    told = Judge(simulation.script.config).take(records, Batch(batch.now_ms, killed=(0, 500, 1_000)))
    assert told == outputs[: len(outputs) // 2] + outputs + outputs


def test_a_damaged_state_differs_in_one_byte(simulation: Simulation):
    """F8: and keeps its length."""
    state = simulation.judge.state
    for place in (0, 500, 999):
        assert sum(a != b for a, b in zip(damaged(state, place), state, strict=True)) == 1


@pytest.mark.parametrize("name", AUDITS)
def test_an_audit_detects_different_outputs(simulation: Simulation, name: str):
    """I17 to I19: each audit raises if the judge's outputs differ."""
    audit(simulation.script, simulation.judge, (name,))
    other = replayed(simulation.script)
    at = next(n for n, outputs in enumerate(other.outputs) if outputs)
    other.outputs[at] = other.outputs[at][1:]
    with pytest.raises(Broken):
        audit(simulation.script, other, (name,))
