"""The groups of a stopped coordinator are exported, and imported into another one with other topics and partitions."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import structs
from typer.testing import CliRunner

from coordinator.base.states import Phase
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, TopicFact
from coordinator.messages.requests import DeleteGroup
from coordinator.messages.responses import AnyAnswer
from streaming.cli.main import app
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.errors import RequestRefused
from streaming.wire.export_file import ExportFile, line_of, write
from tests.system.asking import TOLD_BY_THE_TRANSPORT, Asker
from tests.system.conftest import Service
from tests.system.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.long, pytest.mark.nightly]

Run = Callable[..., Service]
LIVING = ("consumers", "offsets", "stable", "waiting")
OF_THE_HISTORY = {
    *("rebalances_1h", "last_rebalance_ms", "last_cause", "joins_until_ms", "why", "flapping"),
    *("committed_by", "commit_generation_id"),
}
"""Facts that events and requests on the old topics show, and that are in no state. They stay there."""


def heartbeat(transport: Transport, epoch: int, **fields: Any) -> AnyAnswer:
    """Send a heartbeat of the consumer protocol."""
    joining = {
        "rebalance_timeout_ms": 120_000,
        "topic_partitions": (),
        "subscribed_topic_names": ("T",),
        "topics": (TopicFact("T", "A" * 22, 2),),
    }
    who = {**TOLD_BY_THE_TRANSPORT, "group_id": "consumers", "member_id": "m1", "member_epoch": epoch}
    return transport.ask(ConsumerGroupHeartbeat(**who, **(joining if not epoch else {}), **fields), HANG_S)


def exported(checkpoint: Path, file: Path) -> "subprocess.CompletedProcess[str]":
    """Run the export in a process of its own, which has its own Spark session."""
    command = [sys.executable, "-m", "streaming", "checkpoint", "export", str(checkpoint), str(file), "-o", "json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


def run(settings: Settings, *words: str) -> Any:
    """Run a command about a coordinator, and return its JSON."""
    flags = ("-b", str(settings.bootstrap_servers), "--topic-prefix", settings.topic_prefix, "-o", "json")
    done = CliRunner().invoke(app, [*words, *flags])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def described(settings: Settings) -> dict[str, Any]:
    """Return the description of each group."""
    return {group_id: run(settings, "groups", "describe", group_id) for group_id in LIVING}


class Members(NamedTuple):
    """The members of the groups of the old coordinator."""

    ana: str
    generation: int
    epoch: int
    removed_generation: int


def populated(settings: Settings) -> Members:
    """Make a Stable group, one that waits for a join, one of the consumer protocol, offsets without members, and a
    removed group.
    """
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        stable = Asker(transport, "stable")
        ana, generation = stable.alone()
        assert stable.commit(generation, ana, 5).error == "NONE"
        assert Asker(transport, "offsets").commit(-1, "", 7).error == "NONE"
        waiting = Asker(transport, "waiting")
        waiting.alone(client_id="bo")
        waiting.begin(waiting.joining(waiting.new_id("cy"), "cy"))
        wait_until(lambda: waiting.describe().state is Phase.PREPARING, account=waiting.describe)
        removed = Asker(transport, "removed")
        di, removed_generation = removed.alone(client_id="di")
        removed.leave(di)
        assert removed.administer(DeleteGroup).error == "NONE"
        joined: Any = heartbeat(transport, 0)
        assert joined.error == "NONE", joined
        return Members(ana, generation, joined.member_epoch, removed_generation)


def check_that_members_continue(settings: Settings, members: Members, file: Path) -> None:
    """Send requests of the members to the new coordinator, as they would have sent them to the old one."""
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        there = Asker(transport, "stable")
        assert there.heartbeat(members.generation, members.ana).error == "NONE"
        assert there.fetch() == {("t", 0): 5}
        assert there.commit(members.generation, members.ana, 6).error == "NONE"
        assert there.ask(there.syncing(members.generation, members.ana)).assignment == b"mine"
        assert Asker(transport, "offsets").fetch() == {("t", 0): 7}
        beat: Any = heartbeat(transport, members.epoch)
        assert beat.error == "NONE", beat
        _, generation = Asker(transport, "removed").alone(client_id="di")
        assert generation > members.removed_generation
    with ExportFile(file) as opened:
        highest = opened.head.highest_token
    assert run(settings, "groups", "describe", "removed")["members"][0]["fencing_token"] > highest


def test_exported_groups_continue_at_another_coordinator(run_service: Run, tmp_path: Path) -> None:
    """The other coordinator has other topics, another checkpoint, and another number of request partitions."""
    service, file, copy = run_service("leaving"), tmp_path / "groups.jsonl", tmp_path / "again.jsonl"
    service.await_ready()
    source = service.settings
    members = populated(source)
    refused = exported(service.checkpoint, file)
    assert (refused.returncode, "A coordinator runs on the checkpoint" in refused.stderr) == (78, True), refused
    assert service.stop() == 0, service.log
    before = described(source)

    done = exported(service.checkpoint, file)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["head"]["prefix"], told["head"]["groups"], told["removed"]) == ("leaving", 5, 1)
    assert exported(service.checkpoint, copy).returncode == 0
    assert copy.read_bytes() == file.read_bytes(), "the same checkpoint gives the same bytes"

    other = run_service("arriving", checkpoint=str(tmp_path / "other"), request_partitions=3)
    other.await_ready()
    target = other.settings
    assert {r["status"] for r in run(target, "checkpoint", "import", str(file), "--dry-run")} == {"would be imported"}
    assert {r["status"] for r in run(target, "checkpoint", "import", str(file), "--yes")} == {"imported"}
    again = run(target, "checkpoint", "import", str(file), "--yes", "--retire", source.topic_prefix)
    assert {r["status"] for r in again} == {"there already"}
    assert changed(facts(before), facts(described(target))) == {}
    check_that_members_continue(target, members, file)
    assert run(source, "groups", "list") == []
    for settings in (source, target):
        run(settings, "verify")
    another = rewritten(file, tmp_path / "another.jsonl")
    with pytest.raises(RequestRefused, match="5 of 5 groups are refused"):
        run(target, "checkpoint", "import", str(another), "--yes")


def facts(value: Any, place: str = "") -> dict[str, Any]:
    """Return the values of a description by their places, without those that follow from the history of a topic."""
    if not isinstance(value, dict | list) or not value:
        return {place: value}
    each = value.items() if isinstance(value, dict) else enumerate(value)
    return {
        name: fact
        for key, part in each
        if key not in OF_THE_HISTORY
        for name, fact in facts(part, f"{place}/{key}").items()
    }


def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the facts that differ."""
    return {name: (before.get(name), after.get(name)) for name in before | after if before.get(name) != after.get(name)}


def rewritten(file: Path, place: Path) -> Path:
    """Write the file as an export after a later batch, and return its place."""
    with ExportFile(file) as opened:
        head = structs.replace(opened.head, batch=opened.head.batch + 1)
        write(place, head, [line_of(head, line.group_id, line.number, line.state) for line in opened.lines()])
    return place
