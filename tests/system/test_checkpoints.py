"""`coordinator checkpoint inspect`, `verify` and `export` on a real checkpoint: intact, damaged, in use."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.testing

from streaming.cli.main import app
from streaming.config.settings import Settings
from streaming.errors import BadExport, CheckpointMismatch, InUse, NoCheckpoint
from streaming.query.checkpoint.exporting import Unfinished
from streaming.query.checkpoint.inspection import examine
from streaming.query.coordinator import Coordinator
from streaming.wire.export_file import ExportFile
from tests.system.asking import Asker
from tests.system.replaying import SECRET
from tests.system.test_refused_starts import DAMAGES, flip_a_state, newest
from tests.tiers import sampled

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("coordinator")]  # it has a Spark session, which all share

CHECKPOINT = Path(__file__).parent / "checkpoints" / "codec-8.zip"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return settings with a new copy of a checkpoint of seven groups in four shards.

    Six groups have one member and a commit. One group waits for its first member to join again, and the join of its
    second member is parked.
    """
    with zipfile.ZipFile(CHECKPOINT) as archive:
        archive.extractall(tmp_path / "state")
    return Settings.load(checkpoint=str(tmp_path / "state"))


def run(*arguments: str) -> tuple[int, str]:
    """Run the command in this process, which has a Spark session, and return its exit code and its output."""
    done = typer.testing.CliRunner().invoke(app, ["checkpoint", *arguments], catch_exceptions=False)
    return done.exit_code, done.stdout


def test_reading_reports_its_progress_up_to_the_total(settings: Settings) -> None:
    told: list[tuple[int, int]] = []
    contents = examine(settings, lambda read, of: told.append((read, of)))
    assert [read for read, _ in told] == list(range(1, len(told) + 1))
    assert {of for _, of in told} == {len(told)}
    assert len(told) > len(contents.shards)


def fingerprints(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(file): (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns)
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_intact_checkpoint_is_shown_and_not_changed(settings: Settings) -> None:
    """The output has groups, members, offsets, deadlines and versions, never the secret. No file is changed."""
    before = fingerprints(Path(settings.checkpoint))
    code, told = run("verify", settings.checkpoint)
    assert (code, told) == (0, "Nothing found: 7 groups in 4 shards, 36 is finished, of 2026-11-22T08:10:37Z.\n")
    code, told = run("inspect", settings.checkpoint)
    assert code == 0
    rows = [line.split() for line in told.splitlines() if line[:1].isdigit()]
    assert [sum(int(row[place]) for row in rows) for place in (1, 2, 3)] == [7, 8, 6], told
    code, whole = run("inspect", settings.checkpoint, "-o", "json")
    groups = {g["group_id"]: g for shard in json.loads(whole)["shards"] for g in shard["groups"]}
    assert groups["waiting"]["state"] == "PreparingRebalance"
    assert groups["waiting"]["deadline"] == "session"
    assert {g["state"] for name, g in groups.items() if name != "waiting"} == {"Stable"}
    assert SECRET not in told + whole
    assert fingerprints(Path(settings.checkpoint)) == before


def lose(name: str) -> Callable[[Path], None]:
    return lambda query: (query / name).unlink()


def plan_of(query: Path, change: Callable[[dict[str, int]], None]) -> None:
    """Change the end offsets of the requests in the newest plan."""
    file = newest(query / "offsets")
    version, planned, source = file.read_text().splitlines()
    ends = json.loads(source)
    change(ends["earlier.requests"])
    file.write_text("\n".join((version, planned, json.dumps(ends))))


MORE_DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a bit of a state": (flip_a_state, "The groups' state after batch 36 cannot be read"),
    "a hole in the plans": (lose("offsets/20"), "offsets/20 is missing"),
    "a hole in the commits": (lose("commits/20"), "commits/20 is missing"),
    "no newest plan": (lose("offsets/36"), "offsets/36 is missing, and that batch is finished"),
    "two batches not finished": (
        lambda query: [lose(f"commits/{number}")(query) for number in (35, 36)],
        "commits/35 is missing, and 36 is planned already",
    ),
    "a plan that goes back": (lambda query: plan_of(query, lambda ends: ends.update({"0": 1})), "goes back in request"),
    "a plan of another topic's partitions": (
        lambda query: plan_of(query, lambda ends: ends.update({"4": 1})),
        "is for 5 request partitions, not 4",
    ),
}  # fmt: skip

SAMPLE = ("a bit of a plan's ends", "an identity that is none", "a bit of a state", "a hole in the commits")
"""The damages of `make test-all`: one of each kind of file."""


@pytest.mark.parametrize("name", sampled({**DAMAGES, **MORE_DAMAGES}, SAMPLE))
def test_each_damage_is_found_and_reported_in_a_sentence(name: str, settings: Settings) -> None:
    """F8: `verify` finds every damage that a start refuses, and also damages that a start does not check."""
    damage, told = MORE_DAMAGES.get(name) or (DAMAGES[name][0], "")
    damage(Path(settings.checkpoint) / "query")
    if name == "an identity that is none":
        with pytest.raises(Exception, match=r"identity\.json cannot be read .*: restore it from a back-up"):
            run("verify", settings.checkpoint)
        return
    code, findings = run("verify", settings.checkpoint)
    assert code == 1
    assert told in findings
    for line in findings.splitlines():
        assert line.endswith(": restore the checkpoint from a back-up."), findings
    with pytest.raises(Exception, match="lists all defects"):
        run("inspect", settings.checkpoint)


def test_unfinished_batch_is_no_damage(settings: Settings) -> None:
    """The next start begins with the unfinished batch."""
    lose("commits/36")(Path(settings.checkpoint) / "query")
    code, told = run("verify", settings.checkpoint)
    assert (code, told.splitlines()[0].partition("shards, ")[2]) == (
        0,
        "35 is finished; 36 is planned, and the next start begins with it.",
    )


def test_folder_without_a_checkpoint_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NoCheckpoint, match="There is no checkpoint at"):
        run("inspect", str(tmp_path))


def test_checkpoint_in_use_can_be_read(coordinator: Coordinator, asker: Asker) -> None:
    """The query continues to use the checkpoint."""
    ana, generation = asker.alone()
    contents = examine(coordinator.settings)
    assert contents.findings == []
    assert asker.group_id in {group.group_id for shard in contents.shards for group in shard.groups}
    assert asker.heartbeat(generation, ana).error == "NONE"


def exported(folder: str, file: Path, *flags: str) -> dict[str, Any]:
    code, told = run("export", folder, str(file), "-o", "json", *flags)
    assert code == 0
    return dict(json.loads(told))


def test_intact_checkpoint_is_exported_and_not_changed(settings: Settings, tmp_path: Path) -> None:
    """Twice the same bytes. No file of the checkpoint is changed, and the file does not have the secret."""
    before = fingerprints(Path(settings.checkpoint))
    file, again = tmp_path / "groups.jsonl", tmp_path / "again.jsonl"
    dry = exported(settings.checkpoint, file, "--dry-run")
    assert (dry["file"], dry["head"]["groups"], file.exists()) == (None, 7, False)
    done = exported(settings.checkpoint, file)
    assert (done["size_bytes"], done["removed"], done["in_transit"]) == (file.stat().st_size, 0, [])
    exported(settings.checkpoint, again)
    assert again.read_bytes() == file.read_bytes()
    assert fingerprints(Path(settings.checkpoint)) == before
    assert SECRET not in file.read_text()
    with ExportFile(file) as opened:
        opened.check()
        assert (opened.head.prefix, opened.head.batch, opened.head.made_ms) == ("earlier", 36, 1_795_335_037_598)
        assert [line.group_id for line in opened.lines()][-2:] == ["stable-5", "waiting"]
    with pytest.raises(BadExport, match="exists already: name another file"):
        run("export", settings.checkpoint, str(file))


def test_checkpoint_with_an_unfinished_batch_is_exported_only_on_request(settings: Settings, tmp_path: Path) -> None:
    """Responses of the batch may have been sent, so its commits must not be lost silently."""
    lose("commits/36")(Path(settings.checkpoint) / "query")
    with pytest.raises(Unfinished, match=r"Batch 36 of .* is planned and not finished"):
        run("export", settings.checkpoint, str(tmp_path / "groups.jsonl"))
    head = exported(settings.checkpoint, tmp_path / "groups.jsonl", "--unfinished")["head"]
    assert (head["batch"], head["unfinished"], head["groups"]) == (35, True, 7)


def test_damaged_checkpoint_is_not_exported(settings: Settings, tmp_path: Path) -> None:
    flip_a_state(Path(settings.checkpoint) / "query")
    with pytest.raises(CheckpointMismatch, match="The groups' state after batch 36 cannot be read"):
        run("export", settings.checkpoint, str(tmp_path / "groups.jsonl"))
    assert not (tmp_path / "groups.jsonl").exists()


def test_checkpoint_in_use_is_not_exported(coordinator: Coordinator, tmp_path: Path) -> None:
    with pytest.raises(InUse, match="A coordinator runs on the checkpoint"):
        run("export", coordinator.settings.checkpoint, str(tmp_path / "groups.jsonl"))
