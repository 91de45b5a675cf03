"""`coordinator-consumer-groups` prints the same as kafka-consumer-groups.sh, to the column and to the blank.

Each command is run with both tools in the same situation. Kafka's own tool reaches the groups through the gateway. The
tests compare standard output, without the coordinator's address and without the order of lines, which varies in Kafka.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from streaming.cli.consumer_groups import main
from streaming.gateway import Gateway
from streaming.query.coordinator import Coordinator
from tests.clients import java
from tests.clients.kinds import LIBRDKAFKA, LIBRDKAFKA_848
from tests.clients.play import Play, Venue, playing
from tests.system.asking import Asker
from tests.system.waiting import HANG_S, wait_until
from tests.tiers import sampled

pytestmark = pytest.mark.long

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
EVIL = "evil\n\x1b[31m" + "\u202e" * 20
"""The id of another group, which is longer when it is escaped."""

READING: list[tuple[str, int, str]] = [
    # arguments                                                exit code, part of the output, with single blanks
    ("--list --state", 0, "like-busy Stable"),
    ("--list --state stable,empty --type classic", 0, "like-idle Classic Empty"),
    ("--list --state --type consumer", 0, "like-next Consumer Stable"),
    ("--describe --group like-next", 0, "like-next like 0"),
    ("--describe --group like-next --members", 0, "like-next"),
    ("--describe --group like-next --members --verbose", 0, "TARGET-EPOCH TARGET-ASSIGNMENT"),
    ("--describe --group like-next --state --verbose", 0, "uniform Stable"),
    ("--delete --group like-next", 1, "The group is not empty."),
    ("--describe --group like-busy", 0, "like-busy like 0 10 13 3"),
    ("--describe --group like-busy --offsets --verbose", 0, "LEADER-EPOCH"),
    ("--describe --group like-busy --members", 0, "GROUP-INSTANCE-ID"),
    ("--describe --group like-busy --members --verbose", 0, "like:2,3"),
    ("--describe --group like-busy --state", 0, "range"),
    ("--describe --group like-idle --group like-busy", 0, "like-idle"),
    ("--describe --group like-idle --members", 0, "CONSUMER-ID"),
    ("--describe --group like-nobody", 3, "Group like-nobody not found."),
    ("--reset-offsets --group like-busy --topic like --to-earliest --dry-run", 1, "current state is Stable"),
    ("--reset-offsets --group like-idle --topic like:0,2 --shift-by -4 --dry-run", 0, "like 2 6"),
    ("--reset-offsets --group like-idle --all-topics --to-current --dry-run --export", 0, "like,0,10\n"),
    ("--reset-offsets --group like-idle --group like-x --topic like:1 --to-offset 0 --dry-run --export", 0, "like-x,"),
    ("--reset-offsets --group like-new --topic like --to-offset 999 --dry-run", 0, "like 0 13"),
    ("--reset-offsets --group like-new --topic like --to-datetime 2020-01-01T00:00:00.000 --dry-run", 0, "like 0 0"),
    ("--delete-offsets --group like-busy --topic like:1", 1, "GroupSubscribedToTopicException"),
    ("--delete-offsets --group like-idle --topic like-nowhere", 1, "UnknownTopicOrPartitionException"),
    ("--delete --group like-busy", 1, "The group is not empty."),
    ("--delete --group like-nobody", 3, "The group id does not exist."),
]  # fmt: skip
SAMPLE = [row for row in READING if "--verbose" in row[0] or row[0].startswith(("--list --state", "--delete "))]

WRITING: list[tuple[str, str]] = [
    # arguments, with one GROUP for each tool                        part of the output, with single blanks
    ("--reset-offsets --group GROUP --topic like --to-latest --execute", "13"),
    ("--reset-offsets --group GROUP --topic like:0,1 --shift-by -3 --execute", "10"),
    ("--delete-offsets --group GROUP --topic like:1", "Successful"),
    ("--describe --group GROUP", "like 0 10 13 3"),
    ("--delete --group GROUP", "was successful"),
]


class Said(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def theirs(address: str, typed: str) -> Said:
    return _run(java.run(CONSUMER_GROUPS, "--bootstrap-server", address, *typed.split()))


def ours(coordinator: Coordinator, typed: str) -> Said:
    settings = coordinator.settings
    which = ("--bootstrap-server", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix)
    tool = (sys.executable, "-m", "streaming.cli.consumer_groups", *which, "--timeout", "30000")
    return _run([*tool, *typed.split()])


def _run(command: list[str]) -> Said:
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    return Said(done.returncode, done.stdout, done.stderr)


def neutral(printed: str) -> list[str]:
    """Remove the coordinator's address, other groups, and the order of lines; widths and blanks stay."""
    printed = re.sub(r"127\.0\.0\.1:\d+ +\(1\) +", "ADDRESS ", printed)
    kept = [line for line in printed.splitlines() if "like" in line or not line or line[0].isupper()]
    return sorted(kept)


def single_spaced(printed: str) -> str:
    """Remove the widths of columns, which follow the longest name on the broker."""
    return re.sub(" +", " ", printed)


def of_a_list(printed: str) -> list[str]:
    """Remove other groups, the widths, and the order of lines."""
    return sorted(line for line in single_spaced(printed).splitlines() if line.startswith(("GROUP ", "like-")))


def is_as_wide_as_its_longest_id(listed: str) -> bool:
    """Return whether a list's first column has the width that Kafka's tool gives it for these ids."""
    head, *lines = listed.splitlines()
    width = re.match("GROUP +", head).end()  # type: ignore[union-attr]
    return width == max([15, *(len(line[:width].rstrip()) for line in lines)]) + 10 + len(" ")


@pytest.fixture(scope="module")
def scene(coordinator: Coordinator, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Make both groups, and yield the gateway's address."""
    venue = Venue(coordinator.settings.bootstrap_servers, "", tmp_path_factory.mktemp("tool"))
    with playing(venue, "like") as play:
        play.topic(partitions=4, records=10)
        _set_up(play, gateway.bootstrap_servers)
        play.produce("like", 3)
        evil = Consumer({"bootstrap.servers": gateway.bootstrap_servers, "group.id": EVIL})
        evil.commit(offsets=[TopicPartition("like", 0, 1)], asynchronous=False)
        evil.close()
        wait_until(lambda: "like-idle" in ours(coordinator, "--list --state Empty").out)
        yield gateway.bootstrap_servers


def both(coordinator: Coordinator, address: str, typed: str) -> tuple[Said, Said]:
    """Run a command with both tools; GROUP stands for a group of each tool's own."""
    with ThreadPoolExecutor(1) as pool:
        their = pool.submit(theirs, address, typed.replace("GROUP", "like-they"))
        our = ours(coordinator, typed.replace("GROUP", "like-ours"))
        return their.result(), our


def _set_up(play: Play, address: str) -> None:
    """Make group `busy` with two members that have committed all records, and `idle`, whose member has left.

    `next` has two members of the consumer protocol.
    """
    idle = play.start(LIBRDKAFKA, bootstrap=address, group="like-idle", client_id="cy")
    ana = play.start(LIBRDKAFKA, bootstrap=address, group="like-busy", client_id="ana", instance="desk-1")
    bo = play.start(LIBRDKAFKA, bootstrap=address, group="like-busy", client_id="bo")
    play.until_shared("like", idle)
    play.until_shared("like", ana, bo)
    next_ana = play.start(LIBRDKAFKA_848, bootstrap=address, group="like-next", client_id="ana")
    next_bo = play.start(LIBRDKAFKA_848, bootstrap=address, group="like-next", client_id="bo", instance="desk-2")
    play.until_shared("like", next_ana, next_bo)
    for worker in (idle, ana, bo, next_ana, next_bo):
        play.until_read(worker)
        worker.order("commit")
        play.until(lambda worker=worker: worker.committed == dict.fromkeys(worker.owned, 10))
    idle.close()


@pytest.mark.parametrize(("typed", "code", "expected"), sampled(READING, SAMPLE), ids=[typed for typed, *_ in READING])
def test_output_equals_that_of_kafkas_tool(
    coordinator: Coordinator, scene: str, typed: str, code: int, expected: str
) -> None:
    """S16, S28."""
    their, our = both(coordinator, scene, typed)
    assert expected in single_spaced(their.out), their
    if typed.startswith("--list"):  # widths follow the longest id, which Kafka's tool prints raw and ours escaped
        assert is_as_wide_as_its_longest_id(our.out), our
        assert of_a_list(our.out) == of_a_list(their.out), our.err
    else:
        assert neutral(our.out) == neutral(their.out), our.err
    assert our.code == code, "Kafka's tool exits with 0 or 1 in every case"
    for line in their.err.splitlines():
        if line.startswith(("Consumer group", "Warning: Consumer group")):
            assert line in our.err


def test_effects_equal_those_of_kafkas_tool(coordinator: Coordinator, scene: str) -> None:
    """S16, S28: each tool runs all commands in order on its own group."""
    for typed, expected in WRITING:
        their, our = both(coordinator, scene, typed)
        assert expected in single_spaced(their.out), their
        assert neutral(our.out.replace("like-ours", "like-they")) == neutral(their.out), our.err
        assert our.code == 0


def test_exported_plan_can_be_executed(coordinator: Coordinator, scene: str, asker: Asker, tmp_path: Path) -> None:
    """--from-file accepts the output of --export. An offset out of range becomes the end offset, with a warning."""
    assert asker.commit(-1, "", 5, "like").partitions[0].error == "NONE"
    group = f"--group {asker.group_id}"
    exporting = f"--reset-offsets {group} --all-topics --to-current --dry-run --export"
    wait_until(lambda: ours(coordinator, exporting).out == "like,0,5\n\n")
    (plan := tmp_path / "plan.csv").write_text("like,0,2\nlike,1,99\n")
    done = ours(coordinator, f"--reset-offsets {group} --from-file {plan} --execute")
    assert done.code == 0, done
    assert asker.fetch() == {("like", 0): 2, ("like", 1): 13}
    assert "WARN New offset (99) is higher than latest offset for topic partition like-1" in done.err


WRONG = [
    "",
    "--list --describe",
    "--describe",
    "--describe --group g --members --offsets",
    "--describe --group g --state Stable",
    "--list --members",
    "--list --verbose",
    "--delete",
    "--delete --group g --topic t",
    "--delete-offsets --group g",
    "--delete-offsets --group g --group h --topic t",
    "--reset-offsets --group g --all-topics",
    "--reset-offsets --group g --to-latest",
    "--reset-offsets --group g --all-topics --to-latest --to-earliest",
    "--reset-offsets --group g --all-topics --to-latest --dry-run --execute",
    "--reset-offsets --group g --all-topics --topic t --to-latest",
    "--describe --group g --all-groups",
    "--describe --all-groups --type classic",
    "--list --timeout 0",
]


@pytest.mark.parametrize("typed", WRONG)
def test_wrong_usage_exits_with_2(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--bootstrap-server", "127.0.0.1:1", *typed.split()])
    assert ended.value.code == 2
    assert "usage: coordinator-consumer-groups" in capsys.readouterr().err
