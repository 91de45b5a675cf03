"""The Java that Spark and Kafka run on, and the command that installs it, by operating system.

`JAVA_HOME` is used if it is set, since Spark's own scripts look there first. Otherwise the first `java` on `PATH` is
used.
"""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from streaming.errors import JavaMissing

# -- how Java is installed ---------------------------------------------------------------------------------------------


_FROM_DEBIAN = "sudo apt-get install openjdk-{release}-jre-headless"
_COMMANDS = {
    # ID or ID_LIKE of os-release   the command
    "debian": _FROM_DEBIAN.format(release=21),
    "fedora": "sudo dnf install java-latest-openjdk-headless",
    "rhel":   "sudo dnf install java-21-openjdk-headless",
    "suse":   "sudo zypper install java-21-openjdk-headless",
    "arch":   "sudo pacman -S jre21-openjdk-headless",
    "alpine": "sudo apk add openjdk21-jre-headless",
}  # fmt: skip
_DEBIAN_12 = _FROM_DEBIAN.format(release=17)  # it has no newer Java
_MACOS = "brew install --cask temurin@21"
_WINDOWS = f"wsl --install, and inside of that Linux {_COMMANDS['debian']}"


def install_command(system: str, os_release: Mapping[str, str]) -> str | None:
    """Return the command that installs a Java that is new enough; None for an unknown system.

    Args:
        system: The name of the system, as `platform.system()` returns it. Windows runs this package inside of WSL.
        os_release: The fields of a Linux distribution's os-release file; empty on other systems.
    """
    if system == "Darwin":
        return _MACOS
    if system == "Windows":
        return _WINDOWS
    if os_release.get("ID") == "debian" and os_release.get("VERSION_ID") == "12":
        return _DEBIAN_12
    names = [os_release.get("ID", ""), *os_release.get("ID_LIKE", "").split()]
    return next((_COMMANDS[name] for name in names if name in _COMMANDS), None)


def install_command_here() -> str | None:
    """Return the command that installs Java on this machine; None for an unknown system."""
    try:
        os_release = platform.freedesktop_os_release()
    except OSError:  # not Linux, or a Linux without this file
        os_release = {}
    return install_command(platform.system(), os_release)


RELEASE_MIN = 17  # Spark 4 and Kafka 4 brokers need at least this release
VERSION_WAIT_S = 30.0  # a cold JVM on a busy machine


def find_java() -> Path:
    """Return a `java` program that is new enough.

    Raises:
        JavaMissing: none is installed, it does not run, or it is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    java = _in_home(home) if home else _on_path()
    release = _release(version_of(java))
    if release < RELEASE_MIN:
        raise JavaMissing(f"Java {release} at {java} is too old: {_advice()}.")
    return java


def _in_home(home: str) -> Path:
    java = shutil.which("java", path=str(Path(home) / "bin"))
    if java is None:
        raise JavaMissing(f"JAVA_HOME is {home}, which has no bin/java: {_advice()}, or unset it to use PATH.")
    return Path(java)


def _on_path() -> Path:
    java = shutil.which("java")
    if java is None:
        raise JavaMissing(f"Java was not found: {_advice()}.")
    return Path(java)


def version_of(java: Path) -> str:
    """Return the version that a `java` program prints, as `17.0.15` or `1.8.0_402`.

    Raises:
        JavaMissing: it does not run, or prints no version.
    """
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=VERSION_WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"{java} does not run ({error}): {_advice()}.") from error
    found = re.search(r'version "((?:1\.)?\d[^"]*)"', done.stderr + done.stdout)
    if found is None:
        raise JavaMissing(f"{java} does not print its version: {_advice()}.")
    return found[1]


def _release(version: str) -> int:
    """Return the feature release of a version: 17 for `17.0.15`, 8 for `1.8.0_402`."""
    return int(re.split(r"\D", version.removeprefix("1."))[0])


def _advice() -> str:
    command = install_command_here()
    here = f", on this system with `{command}`," if command else ","
    return f"install Java {RELEASE_MIN} or newer{here} or set JAVA_HOME to the folder of one"
