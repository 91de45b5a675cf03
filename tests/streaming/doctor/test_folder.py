"""Tests of a checkpoint in a folder of this machine: each state that a start may find, without Spark and brokers."""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from coordinator.state.codec import VERSION
from streaming.config.settings import Settings
from streaming.doctor import Case, Finding, Level
from streaming.doctor.folder import check
from streaming.kafka.brokers import Brokers
from streaming.query.checkpoint.identity import Identity

IDS = {f"coordinator.{role}": role for role in ("requests", "groups", "events")}
GOOD = Identity(
    secret="hunter2",
    topic_ids=IDS,
    request_partitions=16,
    shuffle_partitions=2,
    state_store="hdfs",
)


def examined(folder: Path | str, **settings: object) -> list[Finding]:
    """Return what is found in a folder while no broker answers."""
    case = Case(Settings.load(checkpoint=str(folder), **settings))
    case.__dict__["brokers"] = Brokers("a:9092", error="it is down")  # as the cached property keeps it
    return list(check(case))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a checkpoint whose batch 7 has ended."""
    for part in ("offsets/6", "offsets/7", "commits/6", "commits/7", "state/0", "metadata"):
        (tmp_path / "query" / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "query" / part).write_text("")
    write(GOOD)(tmp_path)
    return tmp_path


def write(identity: Identity) -> Callable[[Path], object]:
    return lambda folder: (folder / "identity.json").write_bytes(msgspec.json.encode(identity.sealed))


def test_a_good_checkpoint_has_its_topics_and_its_batches(folder: Path) -> None:
    identity, batch = examined(folder)
    assert (identity.level, batch.level) == (Level.OK, Level.OK)
    assert identity.text == (
        f"{folder} fits the settings. It is that of coordinator.events, coordinator.groups and coordinator.requests,"
        f" made with codec {VERSION}."
    )
    assert re.fullmatch(r"Batch 7 was planned last, at \S+, and has ended\.", batch.text)


def test_a_batch_that_has_not_ended_is_no_fault(folder: Path) -> None:
    (folder / "query" / "commits" / "7").unlink()
    _, batch = examined(folder)
    assert (batch.level, "the last one that has ended is 6." in batch.text) == (Level.OK, True)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "another number of shards": (write(msgspec.structs.replace(GOOD, request_partitions=4)), "was 4 and is 16"),
    "another coordinator": (write(msgspec.structs.replace(GOOD, topic_ids={"other.requests": "x"})), "other.requests"),
    "an older codec": (write(msgspec.structs.replace(GOOD, codec_version=VERSION - 1)), f"codec {VERSION - 1}, and"),
    "a newer codec": (write(msgspec.structs.replace(GOOD, codec_version=VERSION + 1)), f"codec {VERSION + 1}, and"),
    "a changed secret": (
        lambda folder: (folder / "identity.json").write_bytes(
            (folder / "identity.json").read_bytes().replace(b"hunter2", b"hunter3")
        ),
        "it fails its checksum",
    ),
    "an observer's": (lambda folder: (folder / "identity.json").write_text('{"source_partitions": 1}'), "observe"),
    "no identity": (
        lambda folder: (folder / "identity.json").unlink(),
        "has the state of a query and no identity.json",
    ),
    "no metadata": (lambda folder: (folder / "query/metadata").unlink(), "query/metadata"),
    "no plans": (lambda folder: [each.unlink() for each in (folder / "query/offsets").iterdir()], "query/offsets"),
    "a folder for a file": (
        lambda folder: [(folder / "identity.json").unlink(), (folder / "identity.json").mkdir()],
        "cannot be read (Is a directory)",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_wrong_and_shows_no_secret(name: str, folder: Path) -> None:
    damage, text = DAMAGES[name]
    damage(folder)
    wrong = [each.text for each in examined(folder) if each.level is Level.WRONG]
    assert len(wrong) == 1, wrong
    assert text in wrong[0]
    assert "hunter" not in wrong[0]


def test_a_folder_without_a_batch_is_judged_by_the_topics(tmp_path: Path) -> None:
    (finding,) = examined(tmp_path)
    assert finding.text == f"{tmp_path} has no batch, and no broker shows whether there was one."
    (tmp_path / "replanned").mkdir()
    (planned,) = examined(tmp_path)
    assert planned.text == f"The plan of the first batch of {tmp_path} was moved aside: the next start makes a new one."
    (missing,) = examined(tmp_path / "none")
    assert missing.text.startswith(f"There is no folder {tmp_path / 'none'}, ")


def test_a_folder_elsewhere_is_not_looked_at() -> None:
    (finding,) = examined("s3a://bucket/main")
    assert (finding.level, "s3a://bucket/main is not on this machine" in finding.text) == (Level.OK, True)
