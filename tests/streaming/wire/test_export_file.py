"""The file of exported groups: its bytes, and each way in which a file is refused."""

import base64
import hashlib
import json
import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.base.hashing import crc32c
from coordinator.base.limits import MOVE_INFLATED_BYTES_MAX
from coordinator.moves import transfer
from coordinator.state import codec
from streaming.errors import BadExport
from streaming.wire import export_file
from streaming.wire.export_file import ExportFile, write
from tests.streaming.exports import CHECKPOINT, every_phase, exported, head_of, lines_of, names_of

BOMB = transfer.encode(transfer.Living(b"", zlib.compress(b"\0" * (MOVE_INFLATED_BYTES_MAX + 1), 9)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file with five lines of groups."""
    path = tmp_path / "groups.jsonl"
    exported(path, names_of(every_phase().shard.to_bytes()))
    return path


def refused(file: Path) -> str:
    """Return the sentence with which a file is refused."""
    with pytest.raises(BadExport) as caught, ExportFile(file) as opened:
        opened.check()
    told = str(caught.value)
    assert (told.startswith(str(file)), told.endswith("."), told.count("\n")) == (True, True, 0), told
    return told


def sealed(lines: list[bytes]) -> bytes:
    """Return the bytes of a file with a correct foot."""
    body = b"".join(line + b"\n" for line in lines)
    return (
        body
        + json.dumps({"lines": len(lines), "sha256": hashlib.sha256(body).hexdigest()}, separators=(",", ":")).encode()
        + b"\n"
    )


def test_a_file_is_read_as_it_was_written(file: Path) -> None:
    names = names_of(every_phase().shard.to_bytes())
    told: list[tuple[int, int]] = []
    with ExportFile(file) as opened:
        opened.check(lambda done, of: told.append((done, of)))
        assert opened.head == head_of(names)
        assert list(opened.lines()) == lines_of(names)
        assert [line.group_id for line in opened.lines()] == ["completing", "empty", "g", "preparing", "removed"]
    assert told == [(done, 5) for done in range(1, 6)]
    head, *_, foot = map(json.loads, file.read_bytes().splitlines())
    assert (head["format"], head["version"], head["checkpoint"]) == ("groupcoord-export", 1, CHECKPOINT)
    assert foot["lines"] == 6
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "it has member ids"


def test_the_same_state_gives_the_same_bytes(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    exported(other, names_of(every_phase().shard.to_bytes()))
    assert other.read_bytes() == file.read_bytes()


def test_no_other_file_is_replaced(file: Path) -> None:
    before = file.read_bytes()
    names = names_of(every_phase().shard.to_bytes())
    with pytest.raises(BadExport, match="exists already: name another file"):
        write(file, head_of(names), lines_of(names))
    assert file.read_bytes() == before


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    names = names_of(every_phase().shard.to_bytes())
    with pytest.raises(BadExport, match=r"cannot be written \(No such file or directory\)"):
        write(tmp_path / "no" / "folder", head_of(names), lines_of(names))


def test_an_export_that_fails_leaves_no_file(tmp_path: Path) -> None:
    names = names_of(every_phase().shard.to_bytes())

    def full(done: int, of: int) -> None:
        if done == 2:
            raise OSError(28, "No space left on device")

    with pytest.raises(BadExport, match="No space left on device"):
        write(tmp_path / "x", head_of(names), lines_of(names), full)
    assert not (tmp_path / "x").exists()


def test_each_bit_of_a_file_is_protected(file: Path) -> None:
    """A changed bit is found wherever it is, and no group is imported before."""
    before = file.read_bytes()
    for place in range(0, len(before), 7):
        changed = bytearray(before)
        changed[place] ^= 1 << place % 8
        file.write_bytes(changed)
        refused(file)
    file.write_bytes(before)
    with ExportFile(file) as opened:
        opened.check()


def test_each_shorter_file_is_refused(file: Path) -> None:
    before = file.read_bytes()
    for size in range(0, len(before), 11):
        file.write_bytes(before[:size])
        refused(file)
    file.write_bytes(before[:-1])
    assert "ends in line 7: copy the file again, or export the groups again." in refused(file)


CHANGES: dict[str, Callable[[list[bytes]], object]] = {
    "a line twice": lambda lines: lines.__setitem__(2, lines[1]),
    "two lines exchanged": lambda lines: lines.insert(1, lines.pop(2)),
    "a line less": lambda lines: lines.pop(2),
    "no lines": list.clear,
}


@pytest.mark.parametrize("name", CHANGES)
def test_lines_that_an_export_does_not_write_are_refused(name: str, file: Path) -> None:
    """Also if somebody has computed the checksum of the whole file again."""
    lines = file.read_bytes().splitlines()[:-1]
    CHANGES[name](lines)
    file.write_bytes(sealed(lines))
    refused(file)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"group_id": "f"}, "does not match the first line"),
        ({"move_id": "import/x/36/g"}, "does not match the first line"),
        ({"number": 2**53}, "does not match the first line"),
        ({"crc": 1}, "the checksum of the group is wrong"),
        ({"bytes": 1}, "the checksum of the group is wrong"),
        ({"bytes": 0}, "Expected `int` >= 1"),
        ({"number": 0}, "Expected `int` >= 1"),
        ({"more": 1}, "contains unknown field"),
        ({"kind": "group_adopted"}, "Invalid value"),
        ({"group_id": "g" * 250}, "length <= 249"),
        ({"codec": 0}, "Expected `int` >= 1"),
    ],
)
def test_each_field_of_a_line_is_checked(fields: dict[str, object], why: str, file: Path) -> None:
    lines = file.read_bytes().splitlines()[:-1]
    lines[3] = json.dumps({**json.loads(lines[3]), **fields}).encode()
    file.write_bytes(sealed(lines))
    told = refused(file)
    assert "line 4: " in told
    assert why in told


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (transfer.encode(transfer.Nothing()), "it has no group"),
        (b"\x93\x02\xc4\x00\xc4\x00", "the group cannot be read"),
        (b"?", "the group cannot be read"),
        (BOMB, "the group inflates to too many bytes"),
    ],
)
def test_each_state_is_read(state: bytes, why: str, file: Path) -> None:
    lines = file.read_bytes().splitlines()[:-1]
    changed = {"state": base64.b64encode(state).decode(), "bytes": len(state), "crc": crc32c(state)}
    lines[3] = json.dumps({**json.loads(lines[3]), **changed}).encode()
    file.write_bytes(sealed(lines))
    assert f"line 4: {why}" in refused(file)


def test_the_state_of_another_group_is_refused(file: Path) -> None:
    lines = file.read_bytes().splitlines()[:-1]
    other = json.loads(lines[1])
    lines[3] = json.dumps(
        {**json.loads(lines[3]), "state": other["state"], "bytes": other["bytes"], "crc": other["crc"]}
    ).encode()
    file.write_bytes(sealed(lines))
    assert "line 4: it has another group" in refused(file)


def test_something_behind_the_last_line_is_refused(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\n")
    assert "line 8: it is behind the last line" in refused(file)


@pytest.mark.parametrize("number", [0, export_file.VERSION + 1, 999])
def test_another_format_is_refused(number: int, file: Path) -> None:
    head, *lines = file.read_bytes().splitlines()
    other = {**json.loads(head), "version": number, "another_field": 1}
    file.write_bytes(sealed([json.dumps(other).encode(), *lines[:-1]]))
    assert f"was written with format {number}; this version reads format 1:" in refused(file)


@pytest.mark.parametrize("number", [codec.VERSION - 1, codec.VERSION + 1])
def test_another_codec_is_refused(number: int, file: Path) -> None:
    lines = file.read_bytes().splitlines()[:-1]
    lines[1] = json.dumps({**json.loads(lines[1]), "codec": number}).encode()
    file.write_bytes(sealed(lines))
    assert f"was written with codec {number}; this version reads codec {codec.VERSION}:" in refused(file)


@pytest.mark.parametrize("content", [b"", b"{}\n", b"[]\n", b"\xff\n", b"{" * 100_000, b'{"format":"x","version":1}\n'])
def test_a_file_of_another_kind_is_refused(content: bytes, file: Path) -> None:
    file.write_bytes(content)
    assert "is no export of groups: name a file of `coordinator checkpoint export`." in refused(file)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert "cannot be read (No such file or directory)." in refused(tmp_path / "none")
    assert "cannot be read (Is a directory)." in refused(tmp_path)


def test_the_bounds_of_lines_and_files(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = max(len(line) + 1 for line in file.read_bytes().splitlines())
    size = os.path.getsize(file)
    monkeypatch.setattr(export_file, "LINE_BYTES_MAX", longest)
    monkeypatch.setattr(export_file, "FILE_BYTES_MAX", size)
    with ExportFile(file) as opened:
        opened.check()
    monkeypatch.setattr(export_file, "LINE_BYTES_MAX", longest - 1)
    assert f"it is longer than {longest - 1} bytes" in refused(file)
    monkeypatch.setattr(export_file, "LINE_BYTES_MAX", longest)
    monkeypatch.setattr(export_file, "FILE_BYTES_MAX", size - 1)
    assert f"has {size} bytes; an export has {size - 1} at most." in refused(file)


@pytest.mark.parametrize(("groups", "is_read"), [(export_file.GROUPS_MAX, True), (export_file.GROUPS_MAX + 1, False)])
def test_the_bound_of_groups(groups: int, is_read: bool, file: Path) -> None:
    head, *lines = file.read_bytes().splitlines()
    file.write_bytes(sealed([json.dumps({**json.loads(head), "groups": groups}).encode(), *lines[:-1]]))
    assert ("line 1: " not in refused(file)) is is_read


def test_the_bound_of_the_first_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(file.read_bytes().splitlines(keepends=True)[0])
    monkeypatch.setattr(export_file, "HEAD_BYTES_MAX", size)
    with ExportFile(file) as opened:
        opened.check()
    monkeypatch.setattr(export_file, "HEAD_BYTES_MAX", size - 2)
    assert "is no export of groups" in refused(file)


def test_the_longest_state_fits_a_line() -> None:
    assert export_file.LINE_BYTES_MAX > -(-export_file.STATE_BYTES_MAX // 3) * 4 + 249 * 6 * 2 + 1_000
