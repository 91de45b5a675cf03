"""Tests of the mark on a checkpoint folder, which shows that a coordinator uses it."""

import subprocess
import sys
from pathlib import Path

import pytest

from streaming.errors import InUse
from streaming.query.checkpoint.running import MARK, Mark, alone, local_folder, stopped

HOLD = """
import sys
from streaming.query.checkpoint.running import Mark
mark = Mark()
mark.set(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_two_coordinators_may_mark_one_checkpoint(tmp_path: Path) -> None:
    """The second one may start while the first one is stopped and has not ended; it takes over."""
    one, other = Mark(), Mark()
    one.set(str(tmp_path))
    other.set(str(tmp_path))
    with pytest.raises(InUse, match="A coordinator runs on"), alone(str(tmp_path)):
        pass
    one.remove()
    with pytest.raises(InUse), alone(str(tmp_path)):
        pass
    other.remove()
    with alone(str(tmp_path)) as is_known:
        assert is_known


def test_the_mark_ends_when_its_process_is_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(InUse), alone(str(tmp_path)):
        pass
    holder.kill()
    holder.communicate()
    with alone(str(tmp_path)) as is_known:
        assert is_known


def test_no_coordinator_starts_while_a_command_changes_the_checkpoint(tmp_path: Path) -> None:
    with alone(f"file://{tmp_path}"), pytest.raises(InUse, match="start again when it is done"):
        Mark().set(str(tmp_path))
    Mark().set(str(tmp_path))


def test_a_remote_checkpoint_has_no_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Mark().set("hdfs:///coordinator/main")
    with alone("s3a://bucket/main") as is_known:
        assert not is_known
    assert list(tmp_path.iterdir()) == []
    assert local_folder("file:/var/lib/main") == Path("/var/lib/main")


def test_setting_the_mark_ignores_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (file := tmp_path / "state").write_text("a file")
    Mark().set(str(file))
    with pytest.raises(InUse, match=MARK), alone(str(file)):
        pass


def test_reading_alone_writes_nothing_and_keeps_coordinators_away(tmp_path: Path) -> None:
    with stopped(str(tmp_path)) as is_known:
        assert (is_known, list(tmp_path.iterdir())) == (True, [])
    mark = Mark()
    mark.set(str(tmp_path))
    with pytest.raises(InUse, match="A coordinator runs on"), stopped(str(tmp_path)):
        pass
    mark.remove()
    (tmp_path / MARK).chmod(0o400)
    with stopped(str(tmp_path)) as is_known:
        assert is_known
        with pytest.raises(InUse, match="A command is changing"):
            Mark().set(str(tmp_path))
    with stopped("hdfs://host/checkpoint") as is_known:
        assert not is_known
