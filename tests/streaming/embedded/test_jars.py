"""Tests of fetching jars: which files are trusted, which are refused, and what is reported.

Most tests use a stand-in for Java that answers `-version` and "downloads" the files of a folder; none needs a network.
"""

import hashlib
import re
import shutil
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from streaming.embedded.jars import BROKER, CONNECTORS, TOOLS, Bundle, fetch, read_lock, unusable, write_lock
from streaming.errors import JarsUnavailable

JAVA = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.15"' >&2; exit; fi
echo started >> {here}/starts
while [ "$1" != -retrieve ]; do shift; done
cp {here}/online/*.jar "$(dirname "$2")"
"""


class Online:
    """A bundle of two jars, and a stand-in for Java that delivers the files of the folder `online`."""

    def __init__(self, here: Path) -> None:
        self.folder, self.starts_file, self.cache = here / "online", here / "starts", here / "cache"
        self.folder.mkdir()
        java = here / "java" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(JAVA.format(here=here))
        java.chmod(0o755)
        self.bundle = Bundle("pair", "the pair", folder=here)
        self.deliver(one="first", two="second")
        names = {"one.jar": b"first", "two.jar": b"second"}
        self.bundle.lock_file.write_text(
            "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in names.items())
        )

    def deliver(self, **jars: str) -> None:
        for jar in self.folder.iterdir():
            jar.unlink()
        for name, content in jars.items():
            (self.folder / f"{name}.jar").write_text(content)

    def fetch(self) -> list[str]:
        return [jar.read_text() for jar in fetch(self.bundle, cache_dir=self.cache)]

    @property
    def starts(self) -> int:
        return len(self.starts_file.read_text().splitlines()) if self.starts_file.exists() else 0

    @property
    def kept(self) -> list[str]:
        return sorted(file.name for file in self.cache.rglob("*") if file.is_file())


@pytest.fixture
def online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Online:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    return Online(tmp_path)


def test_jars_are_downloaded_once(online: Online) -> None:
    assert online.fetch() == ["first", "second"]
    assert online.fetch() == ["first", "second"]
    assert online.starts == 1
    assert online.kept == ["one.jar", "two.jar"]


def test_a_download_is_reported_once(online: Online) -> None:
    reports: list[str] = []
    jars = fetch(online.bundle, cache_dir=online.cache, report=reports.append)
    assert reports == [f"Downloading the jars of the pair (2 files) into {jars[0].parent}. This is done once."]
    fetch(online.bundle, cache_dir=online.cache, report=reports.append)
    assert len(reports) == 1


def test_the_cache_folder_can_be_chosen(online: Online, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COORDINATOR_CACHE_DIR", str(tmp_path / "mine"))
    assert all(jar.is_relative_to(tmp_path / "mine") for jar in fetch(online.bundle))


@pytest.mark.parametrize(
    ("jars", "fault"),
    [
        ({"one": "first", "two": "secund"}, "not the file that the lock names: two.jar"),
        ({"one": "first", "two": "second", "three": ""}, "not in the lock: three.jar"),
        ({"one": "first"}, "not delivered: two.jar"),
    ],
)
def test_a_download_that_differs_from_the_lock_is_refused_and_deleted(
    jars: dict[str, str], fault: str, online: Online
) -> None:
    online.deliver(**jars)
    with pytest.raises(JarsUnavailable) as caught:
        online.fetch()
    assert str(caught.value) == (
        f"The downloaded jars of the pair were refused and deleted ({fault}):"
        " try again. If it happens again, do not trust their source."
    )
    assert online.kept == []


def test_a_jar_damaged_on_disk_is_fetched_again(online: Online) -> None:
    jars = fetch(online.bundle, cache_dir=online.cache)
    jars[1].write_text("sec")
    assert online.fetch() == ["first", "second"]
    assert online.starts == 2


def test_what_would_be_downloaded_is_known_and_nothing_is_written(online: Online) -> None:
    assert unusable(online.bundle, online.cache) == ["one.jar", "two.jar"]
    assert not online.cache.exists()
    online.fetch()
    assert unusable(online.bundle, online.cache) == []
    jar = next(online.cache.rglob("two.jar"))
    jar.write_text("damaged")
    assert unusable(online.bundle, online.cache) == ["two.jar"]
    assert jar.read_text() == "damaged"


def test_jars_copied_by_hand_need_no_download(online: Online) -> None:
    folder = fetch(online.bundle, cache_dir=online.cache)[0].parent
    by_hand = online.cache.with_name("by_hand") / folder.relative_to(online.cache)
    shutil.copytree(online.folder, by_hand)
    (by_hand / "stranger.jar").touch()
    jars = fetch(online.bundle, cache_dir=online.cache.with_name("by_hand"))
    assert [jar.name for jar in jars] == ["one.jar", "two.jar"]
    assert online.starts == 1


def test_another_lock_uses_another_folder(online: Online) -> None:
    before = fetch(online.bundle, cache_dir=online.cache)
    online.deliver(one="first", two="third")
    write_lock(online.bundle)
    assert online.fetch() == ["first", "third"]
    assert [jar.read_text() for jar in before] == ["first", "second"]


def test_two_concurrent_fetches_succeed(online: Online) -> None:
    came: list[list[str]] = []
    both = [threading.Thread(target=lambda: came.append(online.fetch())) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert came == [["first", "second"]] * 2
    assert online.kept == ["one.jar", "two.jar"]


def test_a_cache_that_cannot_be_written_is_reported(online: Online) -> None:
    online.cache.write_text("a file where a folder is needed")
    with pytest.raises(JarsUnavailable) as caught:
        online.fetch()
    assert re.fullmatch(
        rf"The jars of the pair cannot be stored in {online.cache}/jars/pair-\w{{12}} \(Not a directory\)."
        " Free space there, or set COORDINATOR_CACHE_DIR to another folder.",
        str(caught.value),
    )


def test_a_missing_network_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real Ivy cannot connect, as its proxy does not exist."""
    nowhere = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort=9" for scheme in ("http", "https"))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", nowhere)
    with pytest.raises(JarsUnavailable) as caught:
        fetch(TOOLS, cache_dir=tmp_path)
    (folder,) = (tmp_path / "jars").iterdir()
    assert str(caught.value) == (
        "The jars of Kafka's command line tools could not be downloaded"
        " (java.net.ConnectException: Connection refused):"
        f" go online and try again, or put the jars that {TOOLS.lock_file} names into {folder} by hand."
    )
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("bundle", [*CONNECTORS.values(), BROKER, TOOLS], ids=lambda bundle: bundle.name)
def test_the_lock_has_the_versions_of_the_module(bundle: Bundle) -> None:
    """Without this test, a version that is changed in one file only would be noticed only without a cache."""
    module = ElementTree.parse(bundle.module_file)
    required = {f"{each.get('name')}-{each.get('rev')}.jar" for each in module.iter("dependency")}
    lock = read_lock(bundle)
    assert required <= set(lock)
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in lock.values())
    assert not any(re.search(r"-(sources|javadoc|tests?)\.jar$", name) for name in lock)
