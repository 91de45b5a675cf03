"""Losses of power and flipped bits with real processes: some of the runs that `make soak KIND=power` repeats."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.power.journal import NoCompiler
from tests.power.record import CHECKPOINT, TOPIC_PREFIX
from tests.power.runs import CONTROL, KINDS, Recording, make_recording, run
from tests.power.serving import Serving, serving

pytestmark = [pytest.mark.long, pytest.mark.nightly]

RECORDED_S = 4.0


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    try:
        return make_recording(tmp_path_factory.mktemp("recorded"), RECORDED_S)
    except NoCompiler as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def coordinators() -> Iterator[Serving]:
    with serving() as other:
        yield other


def test_a_kill_alone_loses_no_data(recording: Recording, coordinators: Serving, tmp_path: Path) -> None:
    """A control without a loss: a broker and a coordinator are killed and restarted, and no data are lost."""
    done, verdict = run(recording, CONTROL, random.Random(0), tmp_path, coordinators)
    assert verdict.kind == "whole", f"{done}: {verdict.text}"


def test_a_plan_is_synced_before_its_outputs_are_written(recording: Recording) -> None:
    """F8: without the sync, a loss of power removes the plan, and another plan handles the same requests again."""
    plans_folder = f"{recording.folder}/{CHECKPOINT}/query/offsets"
    names: dict[str, int] = {}
    unsynced: set[int | str] = set()
    plans = writes = 0
    outputs = tuple(
        f"{recording.folder}/broker/data/{TOPIC_PREFIX}.{topic}-" for topic in ("replies", "groups", "events")
    )
    logs: set[int] = set()
    for note in recording.notes:
        if note.what == "C":
            names[note.path] = note.file
            if note.path.startswith(outputs) and note.path.endswith(".log"):
                logs.add(note.file)
        elif note.what == "R":
            names[note.to] = names.pop(note.path, 0)
            folder, _, name = note.to.rpartition("/")
            if folder == plans_folder:
                assert name.isdigit()
                unsynced |= {names[note.to], folder}
                plans += 1
        elif note.what == "M" and f"{plans_folder}/".startswith(f"{note.path}/"):
            unsynced.add(note.path.rpartition("/")[0])
        elif note.what in "SD":
            unsynced.discard(note.file if note.what == "S" else note.path)
        elif note.what == "W" and note.file in logs:
            assert not unsynced, f"{note} is written before plan {plans} is synced"
            writes += 1
    assert plans > 1
    assert writes > 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_after_a_loss_is_whole_refused_or_told(
    kind: str, recording: Recording, coordinators: Serving, tmp_path: Path
) -> None:
    """F8: no data are wrong without a report."""
    done, verdict = run(recording, kind, random.Random(kind), tmp_path, coordinators)
    assert verdict.kind in ("whole", "refused", "told"), f"{done}: {verdict.text}"
