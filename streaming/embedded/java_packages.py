"""The command that installs Java, by operating system."""

import platform
from collections.abc import Mapping

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
