"""One run: make a disk from a recording, start a broker and the coordinator on it, and judge the result.

kind | checkpoint | broker's disk |
--- | --- | --- |
nothing-cut | whole, as a killed coordinator leaves it | whole, as a killed broker leaves it |
checkpoint-cut | loses power | whole, as a killed broker leaves it |
broker-cut | whole, as a killed coordinator leaves it | loses power |
machine-cut | loses power | loses power, in the same way at the same moment |
checkpoint-flip | stopped cleanly, then one bit is flipped | stopped cleanly |
broker-flip | stopped cleanly | stopped or killed, then one bit is flipped |

Broker, coordinator, requests and file systems are real. Only the loss itself is computed. The coordinators of many runs
share one Spark session, as in `tests.system.starting`. Every run has its own broker process.
"""

import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kafka.errors import KafkaError, KafkaTimeoutError

from streaming.embedded import Broker
from streaming.errors import UserError
from tests.power import disk, journal
from tests.power.disk import NO_LOSS, Disk
from tests.power.journal import Note
from tests.power.judge import Verdict, judge
from tests.power.record import BROKER, CHECKPOINT, DISK, settings_for
from tests.power.serving import Serving, ask
from tests.system.waiting import HANG_S

CONTROL = "nothing-cut"
"""The kind of run without a loss, which must lose no data."""

KINDS = ("checkpoint-cut", "broker-cut", "machine-cut", "checkpoint-flip", "broker-flip")

BROKERS_LOSE = ("broker-cut", "machine-cut", "broker-flip")


class Recording(NamedTuple):
    """The recorded changes of files below a folder."""

    folder: Path
    notes: Sequence[Note]

    @property
    def begin(self) -> int:
        """The index of the first note after which a loss matters: the coordinator has completed its first batch."""
        first = f"{self.folder}/{CHECKPOINT}/query/commits/0"
        return next(place for place, note in enumerate(self.notes) if note.to == first)


def make_recording(folder: Path, seconds: float) -> Recording:
    """Run the broker and the coordinator under load for `seconds`, and record their changes of files.

    Raises:
        NoCompiler: there is no C compiler.
    """
    library, notes = journal.compile_recorder(folder), folder / "journal"
    watched = [folder / "broker" / "data", folder / DISK]
    (folder / DISK).mkdir()
    command = [sys.executable, "-m", "tests.power.record", str(folder), str(seconds)]
    subprocess.run(command, env=journal.environment(library, notes, watched), check=True)
    return Recording(folder, list(journal.read(notes)))


def run(recording: Recording, kind: str, chance: random.Random, folder: Path, serving: Serving) -> tuple[str, Verdict]:
    """Run once in an empty folder; return a description of the change of the disk, and the verdict."""
    done = prepare(recording, kind, chance, folder)
    clients_first = chance.random() < 0.5
    broker = Broker(folder / "broker", properties=BROKER)
    try:
        broker.start()
    except UserError as error:
        return done, Verdict("refused", f"broker: {error}")
    try:
        verdict = _serve(broker, folder, serving, clients_first=clients_first)
        if kind == "checkpoint-flip":
            _restore_old_plans(recording, folder)
        return done, verdict or _judged(broker, folder, brokers_lost=kind in BROKERS_LOSE)
    finally:
        broker.kill()


def _serve(broker: Broker, folder: Path, serving: Serving, *, clients_first: bool) -> Verdict | None:
    """Run the coordinator until it has handled all requests; return a verdict if it did not, else None."""
    settings = settings_for(broker.bootstrap_servers, folder)
    if clients_first:
        with suppress(KafkaTimeoutError):  # the brokers have lost the topic: the start of the coordinator is refused
            ask(settings)
    ending = serving.serve(settings, ask_late=not clients_first)
    if ending.is_refused:
        return Verdict("refused", ending.told)
    return Verdict("wrong", ending.told) if ending.told else None


def _restore_old_plans(recording: Recording, folder: Path) -> None:
    """Restore all plans except the recording's newest two. No start reads them, and the judge does."""
    tree = Disk(recording.notes).left(NO_LOSS, random.Random(0))
    plans = f"{recording.folder}/{CHECKPOINT}/query/offsets/"
    numbers = sorted(int(path.removeprefix(plans)) for path in tree if path.removeprefix(plans).isdigit())
    old = {f"{plans}{number}" for number in numbers[:-2]}
    disk.write({path: data for path, data in tree.items() if path in old}, recording.folder, folder)


def _judged(broker: Broker, folder: Path, *, brokers_lost: bool) -> Verdict:
    """Return the judge's verdict, or "wrong" after a time limit: an unreadable topic must raise an error."""
    settings = settings_for(broker.bootstrap_servers, folder)
    verdict = Verdict("wrong", f"a topic cannot be read within {HANG_S:.0f} s, and no error was raised")

    def read() -> None:
        nonlocal verdict
        try:
            verdict = judge(settings, brokers_lost=brokers_lost)
        except KafkaError as error:
            verdict = Verdict("told" if brokers_lost else "wrong", f"a reader gets {type(error).__name__}: {error}")
        except Exception as error:
            verdict = Verdict("wrong", f"the judge failed: {type(error).__name__}: {error}")

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(HANG_S)
    return verdict


def prepare(recording: Recording, kind: str, chance: random.Random, folder: Path) -> str:
    """Make the disk of a run; return a description of its change."""
    what, _, how = kind.partition("-")
    if how == "flip":
        return _with_a_flipped_bit(recording, what, chance, folder)
    end = chance.randrange(recording.begin, len(recording.notes)) + 1
    loss, seed = disk.draw_loss(chance), chance.randrange(2**31)
    held = Disk(recording.notes[:end])
    lost, whole = (held.left(each, random.Random(seed)) for each in (loss, NO_LOSS))
    state = str(recording.folder / DISK)
    tree = {
        path: data
        for source, is_cut in ((lost, True), (whole, False))
        for path, data in source.items()
        if (what in ("machine", "checkpoint" if path.startswith(state) else "broker")) is is_cut
    }
    disk.write(tree, recording.folder, folder)
    return f"after note {end} of {len(recording.notes)}, {loss}"


def _with_a_flipped_bit(recording: Recording, what: str, chance: random.Random, folder: Path) -> str:
    notes = recording.notes
    tree = Disk(notes).left(NO_LOSS, chance)
    killed = what == "broker" and chance.random() < 0.5
    if killed:
        tree = {path: data for path, data in tree.items() if not path.endswith("/.kafka_cleanshutdown")}
    disk.write(tree, recording.folder, folder)
    root = folder / (CHECKPOINT if what == "checkpoint" else "broker")
    files = sorted(file for file in root.rglob("*") if file.is_file() and file.stat().st_size)
    file = chance.choice(files)
    data = bytearray(file.read_bytes())
    place, bit = chance.randrange(len(data)), chance.randrange(8)
    data[place] ^= 1 << bit
    file.write_bytes(data)
    return f"bit {bit} of byte {place} of {len(data)} in {file.relative_to(folder)}{', killed' * killed}"


def clean(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
