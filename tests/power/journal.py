"""The recorder of processes' changes of files (`journal.c`), and its journal."""

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.tools import missing

SOURCE = Path(__file__).with_name("journal.c")
_HEADER = struct.Struct("=cQQQII")


class NoCompiler(Exception):
    """The recorder is written in C, and no C compiler was found."""


class Note(NamedTuple):
    """One change.

    Args:
        what: `C`reate, `W`rite, set the `L`ength, `S`ync a file, sync a fol`D`er, `R`ename, `U`nlink, li`N`k, `M`kdir.
        at_ns: The time of the machine's monotonic clock, in nanoseconds.
        file: The file's inode; 0 if only names change.
        offset: The offset of a write, or the new length.
        data: The written bytes.
        path: The path that was created, renamed, linked, unlinked or synced.
        to: The new name of the path.
    """

    what: str
    at_ns: int
    file: int
    offset: int
    data: bytes
    path: str
    to: str


def compile_recorder(folder: Path) -> Path:
    """Compile the recorder into a folder.

    Raises:
        NoCompiler: there is no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoCompiler(missing("cc"))
    library = folder / "journal.so"
    flags = ("-O2", "-shared", "-fPIC", "-Wno-nonnull-compare")
    subprocess.run([compiler, *flags, "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)
    return library


def environment(library: Path, journal: Path, folders: list[Path]) -> dict[str, str]:
    """Return the environment that makes the recorder record a process and its children."""
    watched = ":".join(str(folder) for folder in folders)
    return {**os.environ, "LD_PRELOAD": str(library), "POWER_JOURNAL": str(journal), "POWER_FOLDERS": watched}


def read(journal: Path) -> Iterator[Note]:
    """Yield the notes of a journal.

    Raises:
        AssertionError: a file was changed in a way that is not recorded.
    """
    data, at = journal.read_bytes(), 0
    while at < len(data):
        what, at_ns, file, offset, first_bytes, second_bytes = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        first, second = data[at : at + first_bytes], data[at + first_bytes : at + first_bytes + second_bytes]
        at += first_bytes + second_bytes
        kind = what.decode()
        assert kind != "?", f"a file was changed by {first!r} {second!r}, which is not recorded"
        is_data = kind in "WL"
        yield Note(
            kind, at_ns, file, offset, first if is_data else b"", "" if is_data else first.decode(), second.decode()
        )
