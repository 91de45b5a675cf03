"""Synced data survive each loss of power, other data may be lost in each way, and a journal records all changes."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.power import journal
from tests.power.disk import BLOCK_BYTES, DATA, NO_LOSS, ORDERS, Disk, Loss, Tree
from tests.power.journal import NoCompiler, Note, compile_recorder

HOME = "/d"
SECOND_NS = 10**9
LONG_S = 1_000.0
SEEDS = range(200)


def note(
    what: str, at_s: int, *, file: int = 0, offset: int = 0, data: bytes = b"", path: str = "", to: str = ""
) -> Note:
    return Note(what, at_s * SECOND_NS, file, offset, data, path, to)


def all_left(notes: list[Note], order: str, data: str, lag_s: float = LONG_S) -> list[Tree]:
    return [Disk(notes).left(Loss(lag_s, order, data), random.Random(seed)) for seed in SEEDS]


CREATED = [note("C", 1, file=7, path=f"{HOME}/a"), note("W", 2, file=7, data=b"x" * 1_000)]
SYNCED = [*CREATED, note("S", 3, file=7), note("D", 4, path=HOME)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("data", DATA)
def test_synced_data_survive(order: str, data: str) -> None:
    """Neither later writes to the file nor later names undo a sync."""
    later = [note("W", 5, file=7, offset=1_000, data=b"y" * 1_000), note("C", 6, file=8, path=f"{HOME}/b")]
    for tree in all_left([*SYNCED, *later], order, data):
        kept = tree[f"{HOME}/a"]
        assert kept is not None
        assert kept[:1_000] == b"x" * 1_000


def test_unsynced_data_are_lost_or_torn() -> None:
    """A beginning ends at a block; if single blocks survive, holes read as zeros."""
    named = [*CREATED, note("D", 3, path=HOME)]
    lengths = {len(tree[f"{HOME}/a"] or b"") for tree in all_left(named, "free", "beginning")}
    assert lengths == {0, BLOCK_BYTES}
    blocks = {tree[f"{HOME}/a"] for tree in all_left(named, "free", "blocks")}
    assert blocks == {
        b"x" * 1_000,
        b"x" * BLOCK_BYTES + bytes(1_000 - BLOCK_BYTES),
        bytes(BLOCK_BYTES) + b"x" * (1_000 - BLOCK_BYTES),
        bytes(1_000),
    }
    assert {tree[f"{HOME}/a"] for tree in all_left(named, "free", "none")} == {b""}
    assert {tree[f"{HOME}/a"] for tree in all_left(named, "free", "length alone")} == {bytes(1_000)}


def test_data_that_the_kernel_wrote_back_survive() -> None:
    for tree in all_left([*CREATED, note("D", 60, path="/elsewhere")], "free", "none", lag_s=30.0):
        assert tree == {f"{HOME}/a": b"x" * 1_000}


def test_names_are_lost_in_order_or_independently() -> None:
    """A journaling file system never keeps the second of two renames and loses the first."""
    renamed = [
        *SYNCED,
        note("R", 5, path=f"{HOME}/a", to=f"{HOME}/b"),
        note("C", 6, file=8, path=f"{HOME}/c"),
    ]
    ordered = {tuple(sorted(tree)) for tree in all_left(renamed, "ordered", "all")}
    assert ordered == {(f"{HOME}/a",), (f"{HOME}/b",), (f"{HOME}/b", f"{HOME}/c")}
    free = {tuple(sorted(tree)) for tree in all_left(renamed, "free", "all")}
    assert free == {*ordered, (f"{HOME}/a", f"{HOME}/c")}


def test_a_lost_folder_loses_its_files() -> None:
    made = [note("M", 1, path=f"{HOME}/f"), note("C", 2, file=9, path=f"{HOME}/f/a"), note("D", 3, path=f"{HOME}/f")]
    found = {tuple(sorted(tree)) for tree in all_left(made, "free", "all")}
    assert found == {(), (f"{HOME}/f", f"{HOME}/f/a")}


PROGRAM = """
import os, sys, mmap
folder = sys.argv[1]
with open(folder + "/a", "wb") as file:
    file.write(b"hello "); file.flush(); os.fsync(file.fileno()); file.write(b"world"); file.flush()
    os.pwrite(file.fileno(), b"J", 0)
os.mkdir(folder + "/f"); os.rename(folder + "/a", folder + "/f/b"); os.link(folder + "/f/b", folder + "/c")
with open(folder + "/m", "w+b") as file:
    file.truncate(4096)
    with mmap.mmap(file.fileno(), 4096) as held:
        held[:3] = b"map"; held.flush()
with open(folder + "/gone", "wb") as file:
    file.write(b"x")
os.unlink(folder + "/gone")
with open(folder + "/.." + "/elsewhere", "wb") as file:
    file.write(b"not watched")
"""


def test_a_journal_restores_all_writes_of_a_process(tmp_path: Path) -> None:
    """The journal has all writes up to the kill, and the sync in its place."""
    try:
        library = compile_recorder(tmp_path)
    except NoCompiler as error:
        pytest.skip(str(error))
    watched = tmp_path / "watched"
    watched.mkdir()
    notes_file = tmp_path / "journal"
    environment = journal.environment(library, notes_file, [watched])
    subprocess.run([sys.executable, "-c", PROGRAM, str(watched)], env=environment, check=True)
    notes = list(journal.read(notes_file))
    tree = Disk(notes).left(NO_LOSS, random.Random(0))
    on_disk = {str(file): file.read_bytes() if file.is_file() else None for file in watched.rglob("*")}
    assert tree == on_disk
    assert on_disk[f"{watched}/c"] == b"Jello world"
    first = next(place for place, each in enumerate(notes) if each.what == "S")
    assert [each.data for each in notes[:first] if each.what == "W"] == [b"hello "]
    assert not os.path.exists(watched / "gone")
