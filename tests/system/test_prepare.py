"""The class archive: it is made once, and every Spark on this machine starts from it."""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from streaming.cli.services.prepare import NoArchive, prepare
from streaming.embedded import archive, find_java
from tests.system.conftest import Service
from tests.system.waiting import HANG_S

pytestmark = pytest.mark.long


@pytest.fixture
def made() -> Path:
    """Return the archive of this environment, and make it first if it is missing."""
    if archive.find() is None:
        subprocess.run([sys.executable, "-m", "streaming", "prepare"], check=True, timeout=HANG_S)
    made = archive.find()
    assert made is not None
    return made


def test_coordinator_starts_from_the_archive(made: Path, run_service: Callable[..., Service]) -> None:
    service = run_service("prepared")
    service.await_ready()
    (java,) = (p for p in psutil.Process(service.process.pid).children(recursive=True) if p.name() == "java")
    assert str(made) in {mapped.path for mapped in java.memory_maps()}, "Java refused the archive"
    assert service.stop() == 0


def test_incomplete_archive_is_not_used_and_is_replaced(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "folder", lambda: tmp_path)
    assert (archive.find(), archive.using()) == (None, "")
    cut_short = tmp_path / made.name
    cut_short.write_bytes(made.read_bytes()[: 2**20])
    assert (archive.find(), archive.using()) == (None, "")
    new = tmp_path / "new"
    new.write_bytes(b"an archive")
    assert archive.store(new) == archive.find() == tmp_path / "spark-10.jsa"
    assert not cut_short.exists()


def test_java_ignores_an_archive_of_other_jars(made: Path) -> None:
    """Java prints nothing and starts without the archive, only slower."""
    java = [find_java(), *shlex.split(archive.using()), "-version"]
    started = subprocess.run(java, capture_output=True, text=True, timeout=HANG_S)
    assert str(made) in archive.using()
    assert (started.returncode, started.stdout) == (0, "")
    assert not re.search("warn|error|archive", started.stderr, re.IGNORECASE)


def test_archive_that_cannot_be_stored_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(archive, "folder", lambda: tmp_path / "file")
    with pytest.raises(NoArchive, match=r"^The class archive cannot be stored in .*/file: .+\.$"):
        prepare(lambda _: None)
