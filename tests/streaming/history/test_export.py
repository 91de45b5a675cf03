"""Tests of the export of several coordinators, with readers of records instead of a broker."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.config.peers import PEERS_MAX
from streaming.config.settings import Settings
from streaming.errors import Exit, NoCoordinator
from streaming.history import export as module
from streaming.history.export import export
from streaming.views.api.fold import Raw, Views
from tests.streaming.views.test_views import raws
from tests.streaming.views.written import WrittenTopics

RECORDS: dict[str, list[Raw]] = {}
"""The records of each coordinator, by its prefix."""

OPEN: list["Reader"] = []
"""The readers that are not closed."""


class Reader:
    """Reads the records of one coordinator, as `ViewReader` does."""

    def __init__(self, settings: Settings, groups: object) -> None:
        if settings.topic_prefix not in RECORDS:
            raise NoCoordinator.without(settings.groups_topic, settings.bootstrap_servers)
        self._records, self.views = RECORDS[settings.topic_prefix], Views()
        self.length = len(self._records)
        OPEN.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        OPEN.remove(self)

    def catch_up(self, tell: Callable[[int, int], None], take: Callable[[Any], object]) -> None:
        assert not any(reader.views.groups for reader in OPEN), "the views of another coordinator are still in memory"
        for number, raw in enumerate(self._records, 1):
            if (told := self.views.fold(raw, 0)) is not None:
                take(told)
            tell(number, self.length)


@pytest.fixture(autouse=True)
def records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two coordinators have a group of one name, of different lengths."""
    RECORDS.clear()
    for prefix, joins in (("a", 1), ("b", 2)):
        world = WrittenTopics(["g"])
        for _ in range(joins):
            world.join("g")
        world.batch()
        RECORDS[prefix] = raws(world)
    monkeypatch.setattr(module, "ViewReader", Reader)


def prefixes(folder: Path) -> list[str]:
    return [str(row) for row in pq.read_table(folder / "events.parquet")["topic_prefix"].to_pylist()]


def of(*peers: str) -> Settings:
    return Settings(topic_prefix="a").model_copy(update={"peers": peers})


def test_each_row_has_the_prefix_of_its_coordinator(tmp_path: Path) -> None:
    assert set(prefixes_of(tmp_path)) == {"a"}
    alone = len(prefixes(tmp_path))
    told = prefixes_of(tmp_path, "b")
    assert told == ["a"] * alone + ["b"] * (len(told) - alone)
    assert len(told) > alone
    assert OPEN == []


def prefixes_of(folder: Path, *peers: str) -> list[str]:
    """Export a coordinator and peers, and return the prefix of each event."""
    export(of(*peers), folder)
    return prefixes(folder)


def test_the_progress_counts_the_records_of_all_coordinators(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    export(of("b"), tmp_path, tell=lambda read, total: told.append((read, total)))
    whole = len(RECORDS["a"]) + len(RECORDS["b"])
    assert told == [(read, whole) for read in range(1, whole + 1)]


def test_a_peer_without_topics_leaves_the_earlier_files_as_they_are(tmp_path: Path) -> None:
    before = prefixes_of(tmp_path, "b")
    with pytest.raises(NoCoordinator, match=r"There is no topic nowhere\.groups at "):
        export(of("nowhere"), tmp_path)
    assert (prefixes(tmp_path), OPEN) == (before, [])


def test_the_command_reads_the_peers_that_are_named(tmp_path: Path) -> None:
    typed = ["export", "--topic-prefix", "a", "-o", str(tmp_path)]
    done = CliRunner().invoke(app, [*typed, "--peer", "b", "--peer", "a"])
    assert (done.exit_code, set(prefixes(tmp_path))) == (0, {"a", "b"}), done.output
    many = [word for number in range(PEERS_MAX + 1) for word in ("--peer", f"p{number}")]
    refused = CliRunner().invoke(app, [*typed, *many])
    assert (refused.exit_code, f"{PEERS_MAX} are allowed" in refused.output) == (Exit.USAGE, True), refused.output
