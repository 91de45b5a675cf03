"""Kafka's own command line tools print the same for this coordinator's groups as for Kafka's.

The same commands run one after another, in the same situation, with the broker and with the gateway: a group `busy`
has two members, and a group `idle` has offsets but no member.
"""

import re
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from streaming.embedded import Broker
from streaming.gateway import Gateway
from tests.clients import go_programs, java
from tests.clients.kinds import FRANZ_GO, LIBRDKAFKA
from tests.clients.play import Play, Venue, playing
from tests.system.waiting import HANG_S
from tests.tiers import sampled

pytestmark = [pytest.mark.long, pytest.mark.nightly]

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
COMMANDS = {
    # arguments, in this order                                          part of the output
    "--list": "tools-busy",
    "--list --state": "tools-busy Stable",
    "--list --type": "tools-idle Classic",
    "--list --state Empty": "tools-idle Empty",
    "--describe --group tools-busy": "tools-busy tools 0 10 13 3 desk-1-ID /127.0.0.1 ana",
    "--describe --group tools-busy --verbose": "tools-busy tools 3 0 10 13 3 bo-ID /127.0.0.1 bo",
    "--describe --group tools-busy --members": "tools-busy bo-ID /127.0.0.1 bo 2",
    "--describe --group tools-busy --members --verbose": "tools:2,3",
    "--describe --group tools-busy --state": "tools-busy ADDRESS (1) range Stable 2",
    "--describe --group tools-busy --state --verbose": "tools-busy ADDRESS (1) range Stable",
    "--describe --group tools-idle": "tools-idle tools 0 10 13 3 - - -",
    "--describe --group tools-idle --members": "Consumer group 'tools-idle' has no active members.",
    "--describe --group tools-idle --state": "tools-idle ADDRESS (1) - Empty 0",
    "--describe --group tools-nobody": "Group tools-nobody not found.",
    "--reset-offsets --group tools-busy --topic tools --to-earliest --execute": "current state is Stable",
    "--reset-offsets --group tools-idle --topic tools --to-earliest --dry-run": "tools-idle tools 3 0",
    "--reset-offsets --group tools-idle --topic tools:0,2 --shift-by -4 --execute": "tools-idle tools 2 6",
    "--reset-offsets --group tools-idle --all-topics --to-current --dry-run --export": "tools,0,6",
    "--reset-offsets --group tools-new --topic tools --to-latest --execute": "tools-new tools 3 13",
    "--delete-offsets --group tools-idle --topic tools:1": "Successful",
    "--delete-offsets --group tools-busy --topic tools": "is actively subscribed to it",
    "--describe --group tools-idle --offsets": "tools-idle tools 2 6 13 7 - - -",
    "--delete --group tools-busy": "The group is not empty.",
    "--delete --group tools-idle --group tools-new": "was successful",
    "--delete --group tools-nobody": "could not be deleted",
    f"{GROUPS} --list": "tools-busy Classic consumer",
    f"{GROUPS} --list --consumer": "tools-busy Classic consumer",
    f"{GROUPS} --list --group-type consumer": "",
}


SAMPLE = (
    "--list --state",
    "--describe --group tools-busy",
    "--describe --group tools-idle --state",
    "--reset-offsets --group tools-busy --topic tools --to-earliest --execute",
    "--reset-offsets --group tools-idle --topic tools:0,2 --shift-by -4 --execute",
    "--delete --group tools-busy",
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
    addresses = {"Kafka": broker.bootstrap_servers, "the gateway": gateway.bootstrap_servers}
    with playing(Venue(broker.bootstrap_servers, "", folder), "tools") as play:
        play.topic(partitions=4, records=10)
        with ThreadPoolExecutor(len(addresses)) as pool:
            ready = [pool.submit(set_up, play, address) for address in addresses.values()]
            for each in ready:
                each.result()
            play.produce("tools", 3)
            said = {side: pool.submit(run_all, address, commands) for side, address in addresses.items()}
    return {side: future.result() for side, future in said.items()}


def set_up(play: Play, address: str) -> None:
    """Make group `busy` with two members that have committed all records, and `idle`, whose member has left."""
    idle = play.start(LIBRDKAFKA, bootstrap=address, group="tools-idle", client_id="cy")
    ana = play.start(FRANZ_GO, bootstrap=address, group="tools-busy", client_id="ana", instance="desk-1")
    bo = play.start(LIBRDKAFKA, bootstrap=address, group="tools-busy", client_id="bo")
    play.until_shared("tools", idle)
    play.until_shared("tools", ana, bo)
    for worker in (idle, ana, bo):
        play.until_read(worker)
        worker.order("commit")
        play.until(lambda worker=worker: worker.committed == dict.fromkeys(worker.owned, 10))
    idle.close()


def run_all(address: str, commands: Iterable[str]) -> dict[str, str]:
    return {typed: run(address, typed) for typed in commands}


def run(address: str, typed: str) -> str:
    """Run a command, and return its exit code in a line and its output."""
    words = typed.split()
    tool = words.pop(0) if words[0] == GROUPS else CONSUMER_GROUPS
    done = subprocess.run(
        java.run(tool, "--bootstrap-server", address, *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    return f"{done.returncode}\n{done.stdout}"


def neutral(printed: str) -> list[str]:
    """Remove all that differs between clusters: ids, addresses, widths, the order of lines, other groups."""
    printed = re.sub(r"\b(ana|bo|desk-1)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", r"\1-ID", printed)
    printed = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", printed)
    return sorted(line for line in (" ".join(line.split()) for line in printed.splitlines()) if is_told(line))


def is_told(line: str) -> bool:
    """Return whether a line is about our groups, a heading or an exit code, and no line of a stack trace."""
    is_ours = re.search(r"\btools\b", line) is not None and not line.startswith("at ")
    return line.isdigit() or line.startswith(("GROUP ", "Error: ")) or is_ours


@pytest.mark.parametrize("typed", sampled(COMMANDS, SAMPLE))
def test_output_equals_the_output_for_kafka(broker: Broker, said: dict[str, dict[str, str]], typed: str) -> None:
    """S16, S28: list, describe, reset and delete print the same, and no output has a broker's own address."""
    printed = neutral(said["Kafka"][typed])
    assert any(COMMANDS[typed] in line for line in printed), said["Kafka"][typed]
    assert neutral(said["the gateway"][typed]) == printed
    assert broker.bootstrap_servers not in said["the gateway"][typed]
