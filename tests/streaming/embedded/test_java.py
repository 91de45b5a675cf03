"""Tests of finding Java, and of the errors if Java is missing or too old."""

from pathlib import Path

import pytest

from streaming.embedded.java import find_java, install_command, install_command_here, version_of
from streaming.errors import JavaMissing

HERE = install_command_here()
ADVICE = (
    f"install Java 17 or newer, on this system with `{HERE}`, or set JAVA_HOME to the folder of one"
    if HERE
    else "install Java 17 or newer, or set JAVA_HOME to the folder of one"
)


def write_java(home: Path, *lines: str) -> Path:
    """Write a `java` into `home` that answers `-version` with the given lines."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in lines))
    java.chmod(0o755)
    return java


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = write_java(tmp_path / "chosen", 'openjdk version "21.0.4" 2024-07-16')
    other = write_java(tmp_path / "other", 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("PATH", str(other.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "chosen"))
    assert find_java() == chosen
    monkeypatch.delenv("JAVA_HOME")
    assert find_java() == other


def test_the_version_is_found_after_javas_note_on_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = write_java(tmp_path, "Picked up JAVA_TOOL_OPTIONS: -Xmx9g", 'openjdk version "25" 2025-09-16')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == java
    assert version_of(java) == "25"


def test_a_missing_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing) as caught:
        find_java()
    assert str(caught.value) == f"Java was not found: {ADVICE}."


def test_a_java_home_without_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing) as caught:
        find_java()
    assert str(caught.value) == (f"JAVA_HOME is {tmp_path}, which has no bin/java: {ADVICE}, or unset it to use PATH.")


@pytest.mark.parametrize(
    ("says", "release"),
    [
        ('openjdk version "11.0.22" 2024-01-16', 11),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "16" 2021-03-16', 16),
    ],
)
def test_an_old_java_is_reported(says: str, release: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = write_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing) as caught:
        find_java()
    assert str(caught.value) == (f"Java {release} at {java} is too old: {ADVICE}.")


@pytest.mark.parametrize("says", [(), ("The operation couldn't be completed",)])
def test_a_program_without_a_version_is_refused(
    says: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = write_java(tmp_path, *(line.replace("'", "") for line in says))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match=f"^{java} does not print its version: install Java 17"):
        find_java()


@pytest.mark.parametrize(
    ("system", "os_release", "command"),
    [
        ("Linux", {"ID": "debian", "VERSION_ID": "12"}, "sudo apt-get install openjdk-17-jre-headless"),
        ("Linux", {"ID": "debian", "VERSION_ID": "13"}, "sudo apt-get install openjdk-21-jre-headless"),
        ("Linux", {"ID": "ubuntu", "ID_LIKE": "debian"}, "sudo apt-get install openjdk-21-jre-headless"),
        ("Linux", {"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "sudo apt-get install openjdk-21-jre-headless"),
        ("Linux", {"ID": "fedora"}, "sudo dnf install java-latest-openjdk-headless"),
        ("Linux", {"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, "sudo dnf install java-21-openjdk-headless"),
        ("Darwin", {}, "brew install --cask temurin@21"),
        (
            "Windows",
            {},
            "wsl --install, and inside of that Linux sudo apt-get install openjdk-21-jre-headless",
        ),
        ("Linux", {"ID": "unheard-of"}, None),
        ("FreeBSD", {}, None),
    ],
)
def test_the_command_that_installs_java_is_that_of_the_system(
    system: str, os_release: dict[str, str], command: str | None
) -> None:
    assert install_command(system, os_release) == command
