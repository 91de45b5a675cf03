"""The class archive: Spark's classes in Java's memory format, so that a start need not load and verify them again.

Loading and verifying is half of the time of a start. When Java ends, it can write the loaded classes to a file (class
data sharing, JEP 350), and later starts map that file. Java itself checks that an archive fits its version and the
jars, and otherwise starts without it. A truncated archive would crash Java, so the file name contains the size.
"""

import sys
from pathlib import Path

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def folder() -> Path:
    """Return the folder of the archives: beside the packages that they are made from, so it is removed with them."""
    return Path(sys.prefix) / "share" / "groupcoord"


def find() -> Path | None:
    """Return the archive; None if no complete one exists."""
    found = folder().glob("spark-*.jsa")
    return next((file for file in found if file.name == _name(file)), None)


def store(made: Path) -> Path:
    """Move an archive into the folder, and remove all others."""
    kept = folder() / _name(made)
    made.replace(kept)
    for other in folder().glob("spark-*.jsa"):
        if other != kept:
            other.unlink(missing_ok=True)  # a running Java that has mapped the file keeps it
    return kept


def using() -> str:
    """Return the options with which Java starts from the archive; an empty string without an archive."""
    file = find()
    return f'"-XX:SharedArchiveFile={file}" {_QUIET}' if file else ""


def recording(file: Path) -> str:
    """Return the options with which Java writes an archive to `file` when it ends."""
    return f'"-XX:ArchiveClassesAtExit={file}" {_QUIET}'


def _name(archive: Path) -> str:
    return f"spark-{archive.stat().st_size}.jsa"
