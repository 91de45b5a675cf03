"""The download of the jars that no Python package contains. Only jars in the lock are accepted.

A `Bundle` is two files beside this module: `NAME.xml`, the modules to resolve, for the Apache Ivy that ships inside
pyspark; `NAME.sha256`, the resulting jars in the format of `sha256sum`. Jars are kept in a folder of the user's cache.
The folder's name contains the hash of the lock, so another lock never sees them. Each jar is checked at every request
(all in 0.1 s). A jar enters the folder by one rename after its check, so a download that was cut short or a second
process cannot cause damage.

After a change of a `NAME.xml`, call `write_lock` on its bundle and review the changes.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from streaming.embedded.java import find_java
from streaming.errors import JarsUnavailable
from streaming.progress import Work, shown

# -- progress ----------------------------------------------------------------------------------------------------------


_FOUND = re.compile(r"found (\S+)")  # Ivy first looks up every module, which may take longer than the jars
_STARTED = re.compile(r"downloading \S*?([^/\s]+\.jar)\b")


class Download(Work):
    """The jars that Ivy has downloaded so far.

    Args:
        jars: The number of jars to download.
    """

    def __init__(self, jars: int) -> None:
        super().__init__("Downloading", "jars", jars)

    def read(self, line: str) -> None:
        """Update the progress from a line of Ivy's output."""
        if found := _FOUND.match(line):
            self.step = f"found {found[1]}"
        elif started := _STARTED.match(line):
            self.step = f"downloading {started[1]}"
        elif line.startswith("[SUCCESSFUL"):
            self.done = min(self.done + 1, self.total)
            if self.done == self.total:
                self.step = ""


CACHE_VARIABLE = "COORDINATOR_CACHE_DIR"
RESOLVE_WAIT_S = 900.0  # 45 MB over a slow connection

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Jars that are used together: `name` names their two files, `purpose` completes "the jars of ..."."""

    name: str
    purpose: str
    folder: Path = Path(__file__).parent

    @property
    def module_file(self) -> Path:
        return self.folder / f"{self.name}.xml"

    @property
    def lock_file(self) -> Path:
        return self.folder / f"{self.name}.sha256"


CONNECTORS = {spark: Bundle(f"connector-{spark}", "Spark's Kafka connector") for spark in ("4.0", "4.2")}
"""By version of Spark. That of 4.1 (4.1.0 to 4.1.2) fails at the first progress report after a restart that repeats a
batch: its KafkaMicroBatchStream.metrics has no latest offsets then."""
BROKER = Bundle("broker", "the Kafka broker")
TOOLS = Bundle("tools", "Kafka's command line tools")  # beside the jars of BROKER, not without them
S3 = Bundle("s3", "Hadoop's file system for S3")


def connector() -> Bundle:
    """Return the connector's jars for the installed version of pyspark.

    Raises:
        JarsUnavailable: pyspark is not installed, or has another version.
    """
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        version = "none"
    bundle = CONNECTORS.get(".".join(version.split(".")[:2]))
    if bundle is None:
        raise JarsUnavailable(
            f"No Kafka connector is known for the installed pyspark ({version}): install pyspark"
            f" {', '.join(CONNECTORS)}, or a patch of one."
        )
    return bundle


def fetch(bundle: Bundle, *, cache_dir: Path | None = None, report: Report | None = None) -> tuple[Path, ...]:
    """Return the bundle's jars, each checked against the lock. Download those that are missing or damaged.

    Args:
        cache_dir: The folder for jars; `COORDINATOR_CACHE_DIR` or the user's cache folder unless given.
        report: Called with a sentence about each download, and about its progress unless standard error is a terminal,
            which gets a bar; not called if all jars are there. Without it, nothing is shown.

    Raises:
        JarsUnavailable: a jar could not be downloaded, is not in the lock, or differs from the lock.
        JavaMissing: jars have to be downloaded, and no Java is installed for that.
    """
    lock = read_lock(bundle)
    folder = _folder(bundle, cache_dir or default_cache_dir())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if missing := _missing(lock, folder):
            _download(bundle, lock, missing, folder, report)
    except OSError as error:
        raise JarsUnavailable(
            f"The jars of {bundle.purpose} cannot be stored in {folder} ({error.strerror})."
            f" Free space there, or set {CACHE_VARIABLE} to another folder."
        ) from error
    return tuple(folder / name for name in lock)


def unusable(bundle: Bundle, cache_dir: Path | None = None) -> list[str]:
    """Return the names of the jars that `fetch` would download: those that are missing or damaged. Nothing is written.

    Raises:
        OSError: a jar cannot be read.
    """
    return _unusable(read_lock(bundle), _folder(bundle, cache_dir or default_cache_dir()))


def default_cache_dir() -> Path:
    """Return the folder for jars if the caller gives none."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("groupcoord"))


def read_lock(bundle: Bundle) -> dict[str, str]:
    """Return the SHA-256 of each jar of the bundle, by file name."""
    lines = (line.split() for line in bundle.lock_file.read_text().splitlines())
    return {name: digest for digest, name in lines}


def write_lock(bundle: Bundle) -> None:
    """Resolve the bundle again and write the result as the lock."""
    with tempfile.TemporaryDirectory() as scratch:
        jars = _resolve(bundle, Path(scratch), Path(scratch), print)
        bundle.lock_file.write_text("".join(f"{_sha256(jar)}  {jar.name}\n" for jar in jars))


def _folder(bundle: Bundle, cache_dir: Path) -> Path:
    return cache_dir / "jars" / f"{bundle.name}-{_sha256(bundle.lock_file)[:12]}"


def _download(bundle: Bundle, lock: Mapping[str, str], missing: list[str], folder: Path, report: Report | None) -> None:
    """Resolve the bundle beside its folder, check the result, and move the missing jars into the folder."""
    if report:
        report(f"Downloading the jars of {bundle.purpose} ({len(missing)} files) into {folder}. This is done once.")
    download = Download(len(lock))
    with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as scratch:
        with shown(download, report) if report else nullcontext():
            jars = _resolve(bundle, Path(scratch), folder, download.read)
        _check_all(jars, lock, bundle)
        for name in missing:
            os.replace(Path(scratch) / name, folder / name)


def _missing(lock: Mapping[str, str], folder: Path) -> list[str]:
    """Return the names of the missing jars, after deleting the jars that differ from the lock."""
    missing = _unusable(lock, folder)
    for name in missing:
        (folder / name).unlink(missing_ok=True)
    return missing


def _unusable(lock: Mapping[str, str], folder: Path) -> list[str]:
    """Return the names of the jars that are missing or differ from the lock."""
    return [name for name in lock if not (folder / name).exists() or _sha256(folder / name) != lock[name]]


def _check_all(jars: list[Path], lock: Mapping[str, str], bundle: Bundle) -> None:
    """Raise JarsUnavailable unless the downloaded jars are the jars of the lock. A refused download is not kept."""
    unknown = sorted({jar.name for jar in jars} - set(lock))
    absent = sorted(set(lock) - {jar.name for jar in jars})
    wrong = [jar.name for jar in jars if jar.name in lock and _sha256(jar) != lock[jar.name]]
    faults = {"not in the lock": unknown, "not delivered": absent, "not the file that the lock names": wrong}
    found = "; ".join(f"{what}: {', '.join(names)}" for what, names in faults.items() if names)
    if found:
        raise JarsUnavailable(
            f"The downloaded jars of {bundle.purpose} were refused and deleted ({found}):"
            f" try again. If it happens again, do not trust their source."
        )


def _resolve(bundle: Bundle, scratch: Path, folder: Path, progress: Report) -> list[Path]:
    """Download the bundle's jars into `scratch` with Ivy, and return them sorted by name.

    Args:
        progress: Called with each line of Ivy's output.

    Raises:
        JarsUnavailable: ivy failed; names its cause, and `folder`, where jars may be put by hand.
    """
    command = [
        *(find_java(), "-jar", _ivy(), "-cache", scratch / "ivy", "-ivy", bundle.module_file),
        *("-types", "jar", "bundle", "-retrieve", f"{scratch}/[artifact]-[revision].[ext]"),
    ]
    with subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as ivy:
        bound = threading.Timer(RESOLVE_WAIT_S, ivy.kill)
        bound.start()
        try:
            lines = _read(ivy, progress)
        finally:
            bound.cancel()
    if ivy.returncode != 0:
        raise JarsUnavailable(
            f"The jars of {bundle.purpose} could not be downloaded ({_cause(lines)}): go online and try again,"
            f" or put the jars that {bundle.lock_file} names into {folder} by hand."
        )
    return sorted(scratch.glob("*.jar"))


def _ivy() -> Path:
    """Return the Apache Ivy that ships inside pyspark, without importing pyspark, which is slow."""
    spec = importlib.util.find_spec("pyspark")
    homes = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    if spark_home := os.environ.get("SPARK_HOME"):
        homes.append(Path(spark_home))
    for ivy in (jar for home in homes for jar in sorted(home.glob("jars/ivy-*.jar"))):
        return ivy
    raise JarsUnavailable(
        "Apache Ivy was not found among pyspark's jars: install pyspark, or set SPARK_HOME to Spark's folder."
    )


def _read(ivy: subprocess.Popen[str], progress: Report) -> list[str]:
    """Return Ivy's output, after giving each line to `progress`."""
    assert ivy.stdout is not None
    lines = []
    for line in ivy.stdout:
        lines.append(line.strip())
        progress(lines[-1])
    return lines


def _cause(lines: list[str]) -> str:
    """Return the most informative line of Ivy's output."""
    for pattern in (r"\((java[\w.]+(?:Exception|Error): .+)\)", r":: (\S+: not found)", r"(.*\b(?:ERROR|FAILED)\b.*)"):
        for line in lines:
            if found := re.search(pattern, line):
                return found[1]
    return next((line for line in reversed(lines) if line), f"no end after {RESOLVE_WAIT_S:.0f} s")


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
