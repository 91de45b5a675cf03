"""The file of exported groups, which `coordinator checkpoint export` writes and `coordinator checkpoint import` reads.

    {"format": "groupcoord-export", "version": 1, "prefix": ..., "groups": N, ...}    the head
    {"kind": "adopt_group", "group_id": ..., "state": "<base 64>", ...}               N lines, in the order of group ids
    {"lines": N + 1, "sha256": ...}                                                   the foot

One JSON object is on each line, in UTF-8, and a line feed ends each line. The foot has the number of lines before it,
and the SHA-256 of their bytes. So a file that was changed, or that ends too early, is refused before its first group is
imported. The file contains nothing that changes from one export of a state to the next.

Source: moving.md 7.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import msgspec
from msgspec import Meta, Struct

from coordinator.base import limits
from coordinator.base.errors import CorruptState
from coordinator.base.hashing import crc32c
from coordinator.messages.fields import Name
from coordinator.messages.move_requests import GroupId, MoveId, Number, Time
from coordinator.moves import transfer
from coordinator.state import codec
from streaming.errors import BadExport

FORMAT = "groupcoord-export"
VERSION = 1

STATE_BYTES_MAX = limits.MOVE_PART_BYTES * limits.MOVE_PARTS_MAX
"""The state of one group, as for a group that moves."""

LINE_BYTES_MAX = STATE_BYTES_MAX * 4 // 3 + 2**16
"""One line: the state in base 64, and its other fields."""

HEAD_BYTES_MAX = 2**16
"""The first line."""

GROUPS_MAX = 10_000_000
"""The groups of one file."""

FILE_BYTES_MAX = 2**40
"""The whole file: 1 TiB."""

_State = Annotated[bytes, Meta(max_length=STATE_BYTES_MAX)]

Tell = Callable[[int, int], None]
"""Called with the number of groups that are done, and the number of all groups."""


class Head(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line.

    Args:
        prefix: The topic prefix of the coordinator that had the groups.
        checkpoint: A hash of the identity of its checkpoint.
        batch: The batch after which the state was written.
        made_ms: The time for which that batch was planned. Later commits are not in the file.
        unfinished: A later batch was planned too. Some of its responses may have been sent.
        groups: The number of lines with groups.
        highest_token: The highest fencing token of the groups.
    """

    format: str = FORMAT
    version: int = VERSION
    prefix: Name
    checkpoint: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
    batch: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    made_ms: Time
    unfinished: bool = False
    groups: Annotated[int, Meta(ge=0, le=GROUPS_MAX)]
    highest_token: Annotated[int, Meta(ge=0, le=limits.MOVE_NUMBER_MAX)]


class Line(Struct, frozen=True, kw_only=True, tag="adopt_group", tag_field="kind", forbid_unknown_fields=True):
    """The group of a name, or the end of a group that was removed.

    Args:
        move_id: "import/CHECKPOINT/BATCH/NAME".
        number: The highest fencing token that the group has given, at least 1.
        codec: The version of the codec that wrote the state.
        bytes: The size of the state.
        crc: The CRC-32C of the state.
        state: As a group that moves is sent (moving.md 1).
    """

    group_id: GroupId
    move_id: MoveId
    number: Number
    codec: Annotated[int, Meta(ge=1, le=255)]
    bytes: Annotated[int, Meta(ge=1, le=STATE_BYTES_MAX)]
    crc: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    state: _State

    @property
    def carried(self) -> transfer.Carried:
        """The state, which has been checked."""
        return transfer.read(self.state)


class _Foot(Struct, frozen=True, forbid_unknown_fields=True):
    lines: int
    sha256: str


class _Version(Struct):
    format: str
    version: int


def move_id(head: Head, group_id: str) -> str:
    """Return the id of the import of a group: the same for each import of one export."""
    return f"import/{head.checkpoint}/{head.batch}/{group_id}"


def line_of(head: Head, group_id: str, token: int, state: bytes) -> Line:
    """Return the line of a group."""
    return Line(
        group_id=group_id,
        move_id=move_id(head, group_id),
        number=max(token, 1),
        codec=codec.VERSION,
        bytes=len(state),
        crc=crc32c(state),
        state=state,
    )


# -- writing -----------------------------------------------------------------------------------------------------------


def write(path: Path, head: Head, lines: Iterable[Line], tell: Tell = lambda done, of: None) -> int:
    """Write the whole file or nothing, and return its size in bytes. Only the owner of the file may read it.

    Raises:
        BadExport: The file exists, or cannot be written.
    """
    refuse_taken(path)
    beside = path.with_name(f"{path.name}.new")
    try:
        with open(os.open(beside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            digest = hashlib.sha256()
            for done, written in enumerate(chain([_encoded(head)], map(_encoded, lines))):
                digest.update(written)
                file.write(written)
                tell(done, head.groups)
            file.write(_encoded(_Foot(head.groups + 1, digest.hexdigest())))
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        beside.rename(path)
    except OSError as error:
        raise BadExport(f"{path} cannot be written ({error.strerror}): name another file.") from error
    return size


def refuse_taken(path: Path) -> None:
    """Raise BadExport if the file exists: an export replaces no other file."""
    if path.exists():
        raise BadExport(f"{path} exists already: name another file.")


def _encoded(line: Head | Line | _Foot) -> bytes:
    return msgspec.json.encode(line) + b"\n"


# -- reading -----------------------------------------------------------------------------------------------------------


class ExportFile:
    """An open file of exported groups.

    Raises:
        BadExport: The file cannot be read, or is no export, or was written by another version. Each method can raise
            it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb")
            size = path.stat().st_size
        except OSError as error:
            raise BadExport(f"{path} cannot be read ({error.strerror}).") from error
        with ExitStack() as opened:
            opened.callback(self._file.close)
            if size > FILE_BYTES_MAX:
                raise BadExport(f"{path} has {size} bytes; an export has {FILE_BYTES_MAX} at most.")
            self.head = self._begin()
            opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def check(self, tell: Tell = lambda done, of: None) -> None:
        """Read the whole file, with the state of each group, and compare it with its foot."""
        self._file.seek(0)
        digest, before = hashlib.sha256(self._next(0)), None
        for number in range(self.head.groups):
            written = self._next(number + 1)
            digest.update(written)
            line = self._line(written, number + 1)
            if before is not None and line.group_id <= before:
                raise self._changed(number + 1, "its group is not behind the one before")
            before = line.group_id
            if (problem := _problem_of(line, self.head)) is not None:
                raise self._changed(number + 1, problem)
            tell(number + 1, self.head.groups)
        last = self.head.groups + 1
        if self._next(last) != _encoded(_Foot(last, digest.hexdigest())):
            raise self._changed(last, "the checksum of the whole file is wrong")
        if self._file.read(1):
            raise self._changed(last + 1, "it is behind the last line")

    def lines(self) -> Iterator[Line]:
        """Yield the lines of the groups. `check` has to be called before."""
        self._file.seek(0)
        self._next(0)
        for number in range(self.head.groups):
            yield self._line(self._next(number + 1), number + 1)

    def _begin(self) -> Head:
        written = self._file.readline(HEAD_BYTES_MAX)
        try:
            header = msgspec.json.decode(written, type=_Version)
        except (ValueError, RecursionError):
            header = _Version("", 0)
        if header.format != FORMAT:
            raise BadExport(f"{self._path} is no export of groups: name a file of `coordinator checkpoint export`.")
        if header.version != VERSION:
            raise self._of_another_version(f"format {header.version}; this version reads format {VERSION}")
        try:
            return msgspec.json.decode(written, type=Head)
        except (ValueError, RecursionError) as error:
            raise self._changed(0, str(error)) from None

    def _next(self, number: int) -> bytes:
        """Return the next line of the file, of which the first one has the number 0."""
        try:
            written = self._file.readline(LINE_BYTES_MAX + 1)
        except OSError as error:
            raise BadExport(f"{self._path} cannot be read ({error.strerror}).") from error
        if len(written) > LINE_BYTES_MAX:
            raise self._changed(number, f"it is longer than {LINE_BYTES_MAX} bytes")
        if not written.endswith(b"\n"):
            raise BadExport(f"{self._path} ends in line {number + 1}: copy the file again, or export the groups again.")
        return written

    def _line(self, written: bytes, number: int) -> Line:
        try:
            line = msgspec.json.decode(written, type=Line)
        except (ValueError, RecursionError) as error:
            raise self._changed(number, str(error)) from None
        if line.codec != codec.VERSION:
            raise self._of_another_version(f"codec {line.codec}; this version reads codec {codec.VERSION}")
        return line

    def _changed(self, number: int, why: str) -> BadExport:
        return BadExport(
            f"{self._path} was changed after its export (line {number + 1}: {why}):"
            " copy the file again, or export the groups again."
        )

    def _of_another_version(self, what: str) -> BadExport:
        return BadExport(f"{self._path} was written with {what}: import it with the version that wrote it.")


def _problem_of(line: Line, head: Head) -> str | None:
    """Return the reason why a line is not as an export writes it; None if it is."""
    if line.move_id != move_id(head, line.group_id) or line.number > max(head.highest_token, 1):
        return "it does not match the first line"
    if len(line.state) != line.bytes or crc32c(line.state) != line.crc:
        return "the checksum of the group is wrong"
    try:
        carried = transfer.read(line.state)
        if isinstance(carried, transfer.Nothing):
            return "it has no group"
        if isinstance(carried, transfer.Living):
            if transfer.is_too_large(carried):
                return "the group inflates to too many bytes"
            if transfer.group_of(carried).group_id != line.group_id:
                return "it has another group"
    except (CorruptState, KeyError):
        return "the group cannot be read"
    return None
