"""What is installed: the product, Python, the packages of each extra, Java and the jars."""

import importlib.metadata
import platform
from collections.abc import Iterator, Mapping

from streaming import __version__
from streaming.doctor.case import Case, Finding, ok, warning
from streaming.embedded.jars import BROKER, Bundle, connector, unusable
from streaming.embedded.java import find_java, version_of
from streaming.errors import JarsUnavailable, JavaMissing

PACKAGES: Mapping[str, tuple[str, ...]] = {
    # extra         the distributions that it installs
    "":            ("confluent-kafka", "google-re2", "kafka-python", "msgspec", "platformdirs", "pydantic",
                    "pydantic-settings", "rich", "typer"),
    "coordinator": ("pandas", "prometheus-client", "pyarrow", "pybase64", "pyspark", "xxhash"),
    "gateway":     ("prometheus-client",),
    "page":        ("prometheus-client", "sse-starlette", "starlette", "uvicorn"),
}  # fmt: skip
"""The packages of the base installation and of the extras, as in pyproject.toml."""

COMMANDS = {"coordinator": "run, observe, export and checkpoint", "gateway": "gateway", "page": "dashboard"}
"""The commands that need an extra."""


def check(_case: Case) -> Iterator[Finding]:
    """Yield the versions of what is installed, and what is missing."""
    yield ok(f"groupcoord {__version__}, Python {platform.python_version()}, {platform.platform()}.")
    for extra, names in PACKAGES.items():
        yield _packages(extra, {name: _version(name) for name in names})
    if _version("pyspark") is None:
        return
    yield _java()
    try:
        yield _jars(connector())
        yield _jars(BROKER)
    except JarsUnavailable as error:
        yield warning(str(error), "`coordinator run` cannot start with it.")


def _packages(extra: str, versions: Mapping[str, str | None]) -> Finding:
    what = f"the extra {extra}" if extra else "the base installation"
    installed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    missing = [name for name, version in versions.items() if version is None]
    if not missing:
        return ok(f"Packages of {what}: {installed}{_librdkafka() if not extra else ''}.")
    found = f" ({installed})" if installed else ""
    remedy = f"If this machine runs {COMMANDS[extra]}: pip install 'groupcoord[{extra}]'." if extra else ""
    return warning(f"Of {what}, these packages are not installed: {', '.join(missing)}{found}.", remedy)


def _librdkafka() -> str:
    from confluent_kafka import libversion

    return f", librdkafka {libversion()[0]}"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _java() -> Finding:
    try:
        java = find_java()
        return ok(f"Java {version_of(java)} at {java}.")
    except JavaMissing as error:
        return warning(str(error), "`coordinator run` needs it.")


def _jars(bundle: Bundle) -> Finding:
    """Return whether the jars of a bundle are there. None is downloaded."""
    try:
        missing = unusable(bundle)
    except OSError as error:
        return warning(f"The jars of {bundle.purpose} cannot be read ({error.strerror}).", "Check their folder.")
    if not missing:
        return ok(f"The jars of {bundle.purpose} ({bundle.name}) are there.")
    return warning(
        f"{len(missing)} jars of {bundle.purpose} ({bundle.name}) are missing or damaged.",
        "The first start that needs them downloads them; `coordinator prepare` does it in advance.",
    )
