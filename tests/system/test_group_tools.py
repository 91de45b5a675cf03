"""Kafka's own command line tools print the same for this coordinator's groups as for Kafka's.

The same commands run one after another, in the same situation, with the broker and with the gateway: the groups `busy`
and `next` have two members, and `idle` and `next-idle` have offsets but no member. Members of `next` and `next-idle`
use the consumer protocol (KIP-848).
"""

import re
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streaming.embedded import Broker
from streaming.gateway import Gateway
from tests.clients import go_programs, java
from tests.clients.kinds import FRANZ_GO, LIBRDKAFKA, LIBRDKAFKA_848
from tests.clients.play import Play, Venue, playing
from tests.system.waiting import HANG_S
from tests.tiers import sampled

pytestmark = pytest.mark.long

GROUPS = "org.apache.kafka.tools.GroupsCommand"
COMMANDS = {
    # arguments, in this order                                          part of the output
    "--list": "tools-busy",
    "--list --state": "tools-busy Stable",
    "--list --type": "tools-idle Classic",
    "--list --state Empty": "tools-idle Empty",
    "--list --state stable,empty --type classic": "tools-idle Classic Empty",
    "--list --state --type consumer": "tools-next Consumer Stable",
    "--describe --group tools-busy": "tools-busy tools 0 10 13 3 desk-1-ID /127.0.0.1 ana",
    "--describe --group tools-busy --verbose": "tools-busy tools 3 0 10 13 3 bo-ID /127.0.0.1 bo",
    "--describe --group tools-busy --members": "tools-busy bo-ID /127.0.0.1 bo 2",
    "--describe --group tools-busy --members --verbose": "tools:2,3",
    "--describe --group tools-busy --state": "tools-busy ADDRESS (1) range Stable 2",
    "--describe --group tools-busy --state --verbose": "tools-busy ADDRESS (1) range Stable",
    "--describe --group tools-idle": "tools-idle tools 0 10 13 3 - - -",
    "--describe --group tools-idle --members": "Consumer group 'tools-idle' has no active members.",
    "--describe --group tools-idle --state": "tools-idle ADDRESS (1) - Empty 0",
    "--describe --group tools-idle --group tools-busy": "tools-busy tools 3 10 13 3 bo-ID /127.0.0.1 bo",
    "--describe --group tools-nobody": "Group tools-nobody not found.",
    "--describe --group tools-next": "tools-next tools 0 10 13 3 ID /127.0.0.1 WHO",
    "--describe --group tools-next --members": "tools-next ID /127.0.0.1 bo 2",
    "--describe --group tools-next --members --verbose": "tools:0,1",
    "--describe --group tools-next --state": "tools-next ADDRESS (1) uniform Stable 2",
    "--describe --group tools-next --state --verbose": "tools-next ADDRESS (1) uniform Stable",
    "--describe --group tools-next-idle --state": "tools-next-idle ADDRESS (1) uniform Empty 0",
    "--reset-offsets --group tools-busy --topic tools --to-earliest --execute": "current state is Stable",
    "--reset-offsets --group tools-next --topic tools --to-earliest --execute": "current state is Stable",
    "--reset-offsets --group tools-idle --topic tools --to-earliest --dry-run": "tools-idle tools 3 0",
    "--reset-offsets --group tools-idle --topic tools:0,2 --shift-by -4 --execute": "tools-idle tools 2 6",
    "--reset-offsets --group tools-next-idle --topic tools:0,2 --shift-by -4 --execute": "tools-next-idle tools 2 6",
    "--reset-offsets --group tools-idle --all-topics --to-current --dry-run --export": "tools,0,6",
    "--reset-offsets --group tools-idle --group tools-x --topic tools:1 --to-offset 0 --dry-run --export": "tools-x,",
    "--reset-offsets --group tools-new --topic tools --to-offset 999 --dry-run": "tools-new tools 0 13",
    "--reset-offsets --group tools-new --topic tools --to-datetime 2020-01-01T00:00:00.000 --dry-run": "tools 0 0",
    "--reset-offsets --group tools-new --topic tools --to-latest --execute": "tools-new tools 3 13",
    "--reset-offsets --group tools-new --from-file plan.csv --execute": "tools-new tools 1 13",
    "--describe --group tools-new": "tools-new tools 0 2 13 11 - - -",
    "--delete-offsets --group tools-idle --topic tools:1": "Successful",
    "--delete-offsets --group tools-idle --topic tools-nowhere": "UnknownTopicOrPartitionException",
    "--delete-offsets --group tools-next-idle --topic tools:1": "Successful",
    "--delete-offsets --group tools-busy --topic tools": "is actively subscribed to it",
    "--delete-offsets --group tools-next --topic tools": "is actively subscribed to it",
    "--describe --group tools-idle --offsets": "tools-idle tools 2 6 13 7 - - -",
    "--describe --group tools-next-idle --offsets": "tools-next-idle tools 2 6 13 7 - - -",
    "--delete --group tools-busy": "The group is not empty.",
    "--delete --group tools-next": "The group is not empty.",
    "--delete --group tools-idle --group tools-new": "was successful",
    "--delete --group tools-next-idle": "was successful",
    "--delete --group tools-nobody": "could not be deleted",
    f"{GROUPS} --list": "tools-busy Classic consumer",
    f"{GROUPS} --list --consumer": "tools-busy Classic consumer",
    f"{GROUPS} --list --group-type consumer": "tools-next Consumer consumer",
}
PLAN = "tools,0,2\ntools,1,99\n"
"""The file `plan.csv`: as `--export` writes it, with an offset beyond the end."""

SAMPLE = (
    "--list --state",
    "--describe --group tools-busy",
    "--describe --group tools-idle --state",
    "--describe --group tools-next",
    "--describe --group tools-next --members --verbose",
    "--reset-offsets --group tools-busy --topic tools --to-earliest --execute",
    "--reset-offsets --group tools-idle --topic tools:0,2 --shift-by -4 --execute",
    "--delete --group tools-busy",
    "--delete --group tools-next-idle",
    f"{GROUPS} --list",
)


@pytest.fixture(scope="module")
def said(
    broker: Broker, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, dict[str, str]]:
    """Return the output of each command that this test run has selected, by side."""
    selected = {item.callspec.params.get("typed") for item in request.session.items if hasattr(item, "callspec")}
    commands = [typed for typed in COMMANDS if typed in selected]
    folder = tmp_path_factory.mktemp("tools")
    go_programs.build(folder)
    (folder / "plan.csv").write_text(PLAN)
    addresses = {"Kafka": broker.bootstrap_servers, "the gateway": gateway.bootstrap_servers}
    with playing(Venue(broker.bootstrap_servers, "", folder), "tools") as play:
        play.topic(partitions=4, records=10)
        with ThreadPoolExecutor(len(addresses)) as pool:
            ready = [pool.submit(set_up, play, address) for address in addresses.values()]
            for each in ready:
                each.result()
            play.produce("tools", 3)
            said = {side: pool.submit(run_all, address, commands, folder) for side, address in addresses.items()}
    return {side: future.result() for side, future in said.items()}


def set_up(play: Play, address: str) -> None:
    """Make the groups. All members commit all records, and those of `idle` and `next-idle` leave."""
    idle = play.start(LIBRDKAFKA, bootstrap=address, group="tools-idle", client_id="cy")
    ana = play.start(FRANZ_GO, bootstrap=address, group="tools-busy", client_id="ana", instance="desk-1")
    bo = play.start(LIBRDKAFKA, bootstrap=address, group="tools-busy", client_id="bo")
    next_idle = play.start(LIBRDKAFKA_848, bootstrap=address, group="tools-next-idle", client_id="cy")
    next_ana = play.start(LIBRDKAFKA_848, bootstrap=address, group="tools-next", client_id="ana")
    play.until_shared("tools", idle)
    play.until_shared("tools", ana, bo)
    play.until_shared("tools", next_idle)
    play.until_shared("tools", next_ana)
    next_bo = play.start(LIBRDKAFKA_848, bootstrap=address, group="tools-next", client_id="bo")
    play.until_shared("tools", next_ana, next_bo)
    for worker in (idle, ana, bo, next_idle, next_ana, next_bo):
        play.until_read(worker)
        worker.order("commit")
        play.until(lambda worker=worker: {worker.committed.get(each) for each in worker.owned} == {10})
    idle.close()
    next_idle.close()


def run_all(address: str, commands: Iterable[str], folder: Path) -> dict[str, str]:
    return {typed: run(address, typed, folder) for typed in commands}


def run(address: str, typed: str, folder: Path) -> str:
    """Run a command in a folder, and return its exit code in a line and its output."""
    words = typed.split()
    tool = words.pop(0) if words[0] == GROUPS else java.CONSUMER_GROUPS
    done = subprocess.run(
        java.run(tool, "--bootstrap-server", address, *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        timeout=HANG_S,
        check=False,
    )
    return f"{done.returncode}\n{done.stdout}"


def neutral(printed: str) -> list[str]:
    """Remove all that differs between clusters: ids, addresses, widths, the order of lines, other groups."""
    printed = re.sub(r"\b(ana|bo|desk-1)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", r"\1-ID", printed)
    printed = re.sub(r"(?<= )\S{22}(?= +/127)", "ID", printed)
    printed = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", printed)
    lines = (" ".join(line.split()) for line in printed.splitlines())
    return sorted(without_shares(line) for line in lines if is_told(line))


def without_shares(line: str) -> str:
    """Remove which member of `next` has which partitions: this follows from the ids that clients draw."""
    if not line.startswith("tools-next "):
        return line
    return re.sub(r" (ana|bo)$", " WHO", line).replace("tools:2,3", "tools:0,1")


def is_told(line: str) -> bool:
    """Return whether a line is about our groups, a heading or an exit code, and no line of a stack trace."""
    is_ours = re.search(r"\btools\b", line) is not None and not line.startswith("at ")
    return line.isdigit() or line.startswith(("GROUP ", "Error: ")) or is_ours


@pytest.mark.parametrize("typed", sampled(COMMANDS, SAMPLE))
def test_output_equals_the_output_for_kafka(broker: Broker, said: dict[str, dict[str, str]], typed: str) -> None:
    """S16, S28, check 12: the output is the same, also of what is refused, and has no broker's own address."""
    printed = neutral(said["Kafka"][typed])
    assert any(COMMANDS[typed] in line for line in printed), said["Kafka"][typed]
    assert neutral(said["the gateway"][typed]) == printed
    assert broker.bootstrap_servers not in said["the gateway"][typed]
