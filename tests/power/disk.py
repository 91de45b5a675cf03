"""The possible contents of a disk after a loss of power: all synced changes, and some of the later ones.

The kernel keeps writes in memory; they go to the disk in any order, some seconds later or when they are synced. So each
file may have all later writes, none, the beginning, or some blocks; a file may have its length without its data. The
loss of later changes of names (created, renamed, unlinked) depends on the file system:

    ordered     a journaling file system keeps the beginning of all changes of names, in whatever folder
    by folder   the same for each folder alone
    free        POSIX promises nothing about a change that no sync of its folder followed
"""

import random
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.power.journal import Note

BLOCK_BYTES = 512
"""The size of the unit that a disk writes completely or not at all, in bytes."""

LAGS_S = (0.05, 0.5, 2.0, 5.0, 30.0)
"""The times after which the kernel writes back unsynced data, in seconds. Linux uses 5 and 30."""

ORDERS = ("ordered", "by folder", "free")
DATA = ("all", "none", "beginning", "blocks", "length alone", "mixed")


class Loss(NamedTuple):
    """The kind of a loss of power. The module's docstring and constants describe the fields."""

    lag_s: float
    order: str
    data: str


NO_LOSS = Loss(0.0, "ordered", "all")
"""The state after a killed process: the kernel's memory has all of its writes."""


def draw_loss(chance: random.Random) -> Loss:
    return Loss(chance.choice(LAGS_S), chance.choice(ORDERS), chance.choice(DATA))


@dataclass
class File:
    """The changes of one file: the indexes of its notes, and the index of its last sync."""

    changes: list[int] = field(default_factory=list)
    synced: int = -1
    is_folder: bool = False


class Naming(NamedTuple):
    """A change of names: the index of its note, and the file that it created."""

    place: int
    file: File | None


Tree = dict[str, bytes | None]
"""Files by their recorded paths; a folder is None."""


class Disk:
    """All changes up to a moment.

    Args:
        notes: The changes in their order; the power is lost after the last one.
    """

    def __init__(self, notes: Sequence[Note]) -> None:
        self._notes = notes
        self._namings: list[Naming] = []
        self._names: dict[str, File] = {}
        self._files: dict[int, File] = {}
        self._syncs: list[int] = []
        self._folder_syncs: dict[str, list[int]] = {}
        self._made = {note.path for note in notes if note.what == "M"}
        for place, note in enumerate(notes):
            self._take(place, note)

    def _take(self, place: int, note: Note) -> None:
        if note.what == "C":
            if note.path not in self._names or self._names[note.path] is not self._files.get(note.file):
                self._names[note.path] = self._files[note.file] = File()
                self._namings.append(Naming(place, self._files[note.file]))
        elif note.what in "WL":
            self._files[note.file].changes.append(place)
        elif note.what == "S":
            self._files[note.file].synced = place
            self._syncs.append(place)
            for folder in {_folder(path) for path, file in self._names.items() if file is self._files[note.file]}:
                self._folder_syncs.setdefault(folder, []).append(-place)
        elif note.what == "D":
            self._syncs.append(place)
            self._folder_syncs.setdefault(note.path, []).append(place)
        else:
            self._namings.append(Naming(place, File(is_folder=True) if note.what == "M" else None))
            self._rename(self._names, self._namings[-1])

    def left(self, loss: Loss, chance: random.Random) -> Tree:
        """Return the files that this loss of power may leave."""
        end_ns = self._notes[-1].at_ns - int(loss.lag_s * 1e9)
        written_back = (
            bisect_right([note.at_ns for note in self._notes], end_ns) - 1 if loss != NO_LOSS else len(self._notes)
        )
        names: dict[str, File] = {}
        for naming in self._surviving(loss, written_back, chance):
            self._rename(names, naming)
        return {
            path: None if file.is_folder else self._data(file, loss, written_back, chance)
            for path, file in names.items()
        }

    # -- names ---------------------------------------------------------------------------------------------------------

    def _surviving(self, loss: Loss, written_back: int, chance: random.Random) -> Iterable[Naming]:
        if loss.order == "ordered":
            last = max([written_back, *self._syncs])
            return _beginning(self._namings, last, chance)
        if loss.order == "by folder":
            kept: set[int] = set()
            for folder in {self._home(naming) for naming in self._namings}:
                last = max([written_back, *map(abs, self._folder_syncs.get(folder, ()))])
                here = [naming for naming in self._namings if self._home(naming) == folder]
                kept |= {naming.place for naming in _beginning(here, last, chance)}
            return [naming for naming in self._namings if naming.place in kept]
        share = chance.random()
        return [
            naming
            for naming in self._namings
            if naming.place <= max([written_back, *self._folder_syncs.get(self._home(naming), ())])
            or chance.random() < share
        ]

    def _rename(self, names: dict[str, File], naming: Naming) -> None:
        """Change the names as a note records, if the named files exist."""
        note = self._notes[naming.place]
        parent = _folder(note.to or note.path)
        if parent in self._made and parent not in names:
            return
        if naming.file is not None:
            names[note.path] = naming.file
        elif note.what == "U":
            names.pop(note.path, None)
        elif note.what == "N" and note.path in names:
            names[note.to] = names[note.path]
        elif note.what == "R":
            for path in [p for p in names if p == note.path or p.startswith(note.path + "/")]:
                names[note.to + path[len(note.path) :]] = names.pop(path)

    def _home(self, naming: Naming) -> str:
        note = self._notes[naming.place]
        return _folder(note.to or note.path)

    # -- data ----------------------------------------------------------------------------------------------------------

    def _data(self, file: File, loss: Loss, written_back: int, chance: random.Random) -> bytes:
        durable = max(file.synced, written_back)
        known = [place for place in file.changes if place <= durable]
        pending = [place for place in file.changes if place > durable]
        how = chance.choice(DATA[:-1]) if loss.data == "mixed" else loss.data
        before = self._written(known)
        if how == "none" or not pending:
            return bytes(before)
        if how == "beginning":
            return bytes(self._torn(before, pending, chance))
        after = self._written([*known, *pending])
        if how == "length alone":
            return bytes(before[: len(after)].ljust(len(after), b"\0"))
        if how == "blocks":
            return bytes(_some_blocks(before, after, chance))
        return bytes(after)

    def _written(self, places: Iterable[int]) -> bytearray:
        data = bytearray()
        for place in places:
            _apply(data, self._notes[place])
        return data

    def _torn(self, data: bytearray, pending: list[int], chance: random.Random) -> bytearray:
        count = chance.randrange(len(pending))
        for place in pending[:count]:
            _apply(data, self._notes[place])
        torn = self._notes[pending[count]]
        if torn.what == "W":
            blocks = chance.randrange(len(torn.data) // BLOCK_BYTES + 1)
            _apply(data, torn._replace(data=torn.data[: blocks * BLOCK_BYTES]))
        return data


def write(tree: Tree, recorded: Path, folder: Path) -> None:
    """Write a tree whose paths are below `recorded` into a folder."""
    for path, data in tree.items():
        place = folder / Path(path).relative_to(recorded)
        if data is None:
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _beginning(namings: list[Naming], last: int, chance: random.Random) -> list[Naming]:
    """Return all changes up to an index, and none, all or the beginning of the later ones."""
    safe = sum(naming.place <= last for naming in namings)
    return namings[: chance.choice((safe, len(namings), chance.randint(safe, len(namings))))]


def _apply(data: bytearray, note: Note) -> None:
    if note.what == "L":
        del data[note.offset :]
        data.extend(bytes(note.offset - len(data)))
        return
    if not note.data:
        return
    data.extend(bytes(max(0, note.offset - len(data))))
    data[note.offset : note.offset + len(note.data)] = note.data


def _some_blocks(before: bytearray, after: bytearray, chance: random.Random) -> bytearray:
    mixed = bytearray(after)
    before = before[: len(after)].ljust(len(after), b"\0")
    for begin in range(0, len(after), BLOCK_BYTES):
        if chance.random() < 0.5:
            mixed[begin : begin + BLOCK_BYTES] = before[begin : begin + BLOCK_BYTES]
    return mixed
