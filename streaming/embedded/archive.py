"""The class archive: Spark's classes as Java has them in memory, so that a start need not read and check them again.

That is half of what a start costs. As it ends, Java can write down what it made of the classes that it loaded (class
data sharing, JEP 350); later starts map that file. Java looks itself whether an archive is of its version and of the
jars at hand, and starts without one that is not. One that was cut short would crash it: so the name tells the size.
"""

import sys
from pathlib import Path

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def folder() -> Path:
    """Say where archives are kept: with the packages that they are made from, and gone with them."""
    return Path(sys.prefix) / "share" / "kafka-group-coordinator"


def find() -> Path | None:
    """Find the archive; None where there is no whole one."""
    found = folder().glob("spark-*.jsa")
    return next((file for file in found if file.name == _name(file)), None)


def keep(made: Path) -> Path:
    """Put an archive in the place of all others."""
    kept = folder() / _name(made)
    made.replace(kept)
    for other in folder().glob("spark-*.jsa"):
        if other != kept:
            other.unlink(missing_ok=True)  # a Java that has it mapped keeps it
    return kept


def using() -> str:
    """Return the options with which Java starts from the archive; none where there is none."""
    file = find()
    return f'"-XX:SharedArchiveFile={file}" {_QUIET}' if file else ""


def recording(file: Path) -> str:
    """Return the options with which Java writes an archive to `file` as it ends."""
    return f'"-XX:ArchiveClassesAtExit={file}" {_QUIET}'


def _name(archive: Path) -> str:
    return f"spark-{archive.stat().st_size}.jsa"
