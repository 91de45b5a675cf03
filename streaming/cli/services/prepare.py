"""Preparations before the first start: the jars, and the class archive that halves the time of every start.

The archive contains all classes that Java loads during a short run of a coordinator. That coordinator starts with its
own broker, handles one request, and ends.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streaming.cli.admin.request import ask
from streaming.cli.services.service import settings_of
from streaming.embedded import BROKER, S3, Broker, archive, connector, fetch
from streaming.errors import UserError
from streaming.progress import Work, shown
from streaming.query.coordinator import Coordinator

REPLY_WAIT_S = 120.0
END_WAIT_S = 300.0


class NoArchive(UserError):
    """The class archive could not be made. The coordinator runs without it, but starts more slowly."""


def prepare(report: Callable[[str], None], *, with_s3: bool = False) -> Path:
    """Fetch the jars, make the class archive, and return its path.

    Args:
        with_s3: Fetch the jars for a checkpoint on s3a: as well. Otherwise the first start with one fetches them.

    Raises:
        NoArchive: Java wrote no archive, or the archive cannot be stored.
        UserError: The jars cannot be fetched, or the coordinator does not start.
    """
    for bundle in (connector(), BROKER, *([S3] if with_s3 else [])):
        fetch(bundle, report=report)
    folder = archive.folder()
    report("Starting a coordinator once to record the classes that Java loads. This takes a minute.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "made.jsa"
            with shown(Work("Recording the classes that Java loads"), report):
                _run_in_subprocess(made)
            if not made.exists():
                raise NoArchive(
                    "Java wrote no class archive. Check that 200 MB are free, and that this Java is HotSpot."
                )
            return archive.store(made)
    except OSError as error:
        raise NoArchive(f"The class archive cannot be stored in {folder}: {error.strerror}.") from error


def _run_in_subprocess(made: Path) -> None:
    """Run the coordinator in a subprocess, because many connections log errors when Java ends."""
    child = [sys.executable, "-m", "streaming.cli.services.prepare", str(made)]
    done = subprocess.run(child, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise NoArchive(
            f"No class archive could be made: {(done.stdout.strip() or 'it printed no error').splitlines()[-1]}"
        )


def _run_coordinator_once(made: Path) -> None:
    folder = made.parent
    with Broker(folder / "broker") as broker:
        settings = settings_of(broker, checkpoint=str(folder / "checkpoint"))
        coordinator = Coordinator(settings, java_options=archive.recording(made))
        try:
            coordinator.start()
            ask(settings, "join_group", [], "prepared", REPLY_WAIT_S)
        finally:
            coordinator.stop()
            _end_java()


def _end_java() -> None:
    """Stop Spark, and wait until its Java process has written the archive and ended."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        return
    java: Any = spark.sparkContext._gateway
    spark.stop()
    java.shutdown()
    java.proc.stdin.close()
    try:
        exit_code = java.proc.wait(END_WAIT_S)
    except subprocess.TimeoutExpired:
        java.proc.kill()
        raise NoArchive(f"Java did not end within {END_WAIT_S:.0f} s. Try again when the machine is idle.") from None
    if exit_code:
        raise NoArchive(f"Java exited with {exit_code} while writing a class archive.")


if __name__ == "__main__":
    _run_coordinator_once(Path(sys.argv[1]))
