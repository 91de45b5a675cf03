"""Rolling deployments: all members of a group are replaced, one by one, by stock clients that know of nothing.

The clients are librdkafka and, with `--rolling-java`, Java's consumer. Three groups of each client run on one broker:
under succession and without policies, both through our gateway, and a group of Kafka's own coordinator. One member of
each group is replaced every `--rolling-pause-s` seconds, and the groups take turns within this time. All members are
replaced leave first, and then all newcomer first:

    leave first      the old member is closed, nothing happens for 3 s, the new one starts
    newcomer first   the new member starts, the old one is closed 5 s later

All settings are the clients' defaults. Members are threads, so the start of a process is not measured. A partition has
no owner from its owner's callback, or from just before its owner's close, until another member's callback. The figures
`beyond` leave out the time from a member's close to the start of its replacement, for the partitions of this member.
"""

import argparse
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from kafka import KafkaAdminClient

from coordinator.base.policies import Policy, Succession
from streaming.administration.policies import set_policies
from streaming.config.settings import Settings
from streaming.moments import unix_ms
from tests.benchmarks import bench, rolling_members
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.rolling_members import ASSIGNED, CLOSING, LOST, READ, REVOKED, Members, Message
from tests.system.reading import Reader

TOPIC, PARTITIONS = "orders", 60
RECORDS_PER_S = 2  # of each partition
WARM_UP = 4  # members of each group that are replaced before the measured ones: a young JVM compiles meanwhile
ABSENCE_S, OVERLAP_S = 3.0, 5.0

SUCCESSION, OFF, KAFKA = "ours", "off", "kafka"
VARIANTS = (SUCCESSION, OFF, KAFKA)
LEAVE, NEWCOMER = "leave", "newcomer"

LIBRDKAFKA = "librdkafka"
CLIENTS: Mapping[str, Callable[[Path], AbstractContextManager[Members]]] = {
    LIBRDKAFKA: rolling_members.librdkafka,
    "java": rolling_members.java,
}


def measure(options: argparse.Namespace) -> Figures:
    """Replace the members of the groups of each client, on one broker and one running query."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-rolling-", ignore_cleanup_errors=True) as name,
    ):
        folder, kafka = Path(name), broker.bootstrap_servers
        settings = Settings.load(bootstrap_servers=kafka, checkpoint=f"{name}/checkpoint")
        with KafkaAdminClient(bootstrap_servers=kafka) as admin:
            admin.create_topics(
                {TOPIC: {"num_partitions": PARTITIONS, "replication_factor": 1}}, wait_for_metadata=True
            )
        say("Starting the coordinator and a gateway.")
        with (
            bench.coordinator(settings, folder),
            bench.gateway(kafka, folder / "gateway") as (_, gateway),
            _traffic(kafka),
        ):
            clients = list(CLIENTS) if options.rolling_java else [LIBRDKAFKA]
            groups = {client: _groups(client, gateway, kafka, options) for client in clients}
            under = [Policy(name=each[SUCCESSION].group_id, succession=Succession()) for each in groups.values()]
            set_policies(settings, tuple(under), unix_ms())
            rolls = [roll for client, of in groups.items() for roll in _rolls(client, of, folder, settings, options)]
    return _figures(rolls, options.rolling_members)


@contextmanager
def _traffic(kafka: str) -> Iterator[None]:
    """Produce to each partition at a steady rate, in another thread."""
    ended = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": kafka})
        number, due_s = 0, time.monotonic()
        while not ended.wait(max(0.0, due_s - time.monotonic())):
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
            producer.poll(0)
            number, due_s = number + 1, due_s + 1 / (PARTITIONS * RECORDS_PER_S)
        producer.flush()

    thread = threading.Thread(target=produce, name="traffic")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


# -- the groups and their replacement ----------------------------------------------------------------------------------


class Absence(NamedTuple):
    """The time between the close of a member and the start of its replacement."""

    member: str
    closed_s: float
    started_s: float


@dataclass
class Group:
    """A group, the names of its present members, and the number of those that were started."""

    group_id: str
    servers: str
    offset_s: float
    members: list[str] = field(default_factory=list)
    started: int = 0

    def start(self, process: Members) -> float:
        """Start one more member; return the time just before its start."""
        name = f"{self.group_id}-{self.started}"
        self.started += 1
        at_s = process.start(name, self.group_id, self.servers, TOPIC)
        self.members.append(name)
        return at_s

    def replace_oldest(self, process: Members, order: str) -> Absence:
        """Replace the member that was started first."""
        old = self.members.pop(0)
        if order == LEAVE:
            closed_s = process.close(old)
            time.sleep(ABSENCE_S)
            started_s = self.start(process)
        else:
            started_s = self.start(process)
            time.sleep(OVERLAP_S)
            closed_s = process.close(old)
        return Absence(old, closed_s, started_s)


class Roll(NamedTuple):
    """What happened in a group while all its members were replaced."""

    client: str
    order: str
    variant: str
    rebalances: int
    unowned: "list[Unowned]"
    moved: int
    twice: int


def _groups(client: str, gateway: str, kafka: str, options: argparse.Namespace) -> dict[str, Group]:
    servers = {SUCCESSION: gateway, OFF: gateway, KAFKA: kafka}
    turn_s = options.rolling_pause_s / len(VARIANTS)
    return {
        variant: Group(f"rolling-{client}-{variant}", servers[variant], turn_s * number)
        for number, variant in enumerate(VARIANTS)
    }


def _rolls(
    client: str, groups: Mapping[str, Group], folder: Path, settings: Settings, options: argparse.Namespace
) -> Iterator[Roll]:
    """Start the groups of a client, and replace all their members in both orders."""
    say(f"Starting {options.rolling_members} members of {client} in each of {len(groups)} groups.")
    with CLIENTS[client](folder) as process:
        for group in groups.values():
            for _ in range(options.rolling_members):
                group.start(process)
        _settle(process, groups)
        _replace(process, groups, NEWCOMER, min(WARM_UP, options.rolling_members), options.rolling_pause_s)
        for order in (LEAVE, NEWCOMER):
            say(f"Replacing all members of {client}, {order} first.")
            began = {variant: _State.of(process, settings, variant, group) for variant, group in groups.items()}
            absences = _replace(process, groups, order, options.rolling_members, options.rolling_pause_s)
            for variant, group in groups.items():
                before, after = began[variant], _State.of(process, settings, variant, group)
                yield _shown(
                    Roll(
                        client,
                        order,
                        variant,
                        after.rebalances - before.rebalances,
                        list(_beyond(after.owners.unowned[len(before.owners.unowned) :], absences[variant])),
                        after.owners.moved - before.owners.moved,
                        after.owners.twice() - before.owners.twice(),
                    )
                )
        for group in groups.values():
            for member in group.members:
                process.close(member)


def _replace(
    process: Members, groups: Mapping[str, Group], order: str, count: int, pause_s: float
) -> Mapping[str, Sequence[Absence]]:
    """Replace some members of each group, the groups in parallel; return the absences by variant."""
    absences: dict[str, list[Absence]] = defaultdict(list)
    failed: list[BaseException] = []
    began_s = time.monotonic()

    def replace(variant: str, group: Group) -> None:
        try:
            for number in range(count):
                time.sleep(max(0.0, began_s + group.offset_s + number * pause_s - time.monotonic()))
                absences[variant].append(group.replace_oldest(process, order))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=replace, args=of, name=f"replace-{of[0]}") for of in groups.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    _settle(process, groups)
    return absences


def _settle(process: Members, groups: Mapping[str, Group]) -> None:
    for group in groups.values():
        process.until_owned(group.members, PARTITIONS)
    process.flush()


def _shown(roll: Roll) -> Roll:
    times = sorted(each.beyond_s for each in roll.unowned)
    say(
        f"{roll.client}, {roll.order} first, {roll.variant}: {roll.rebalances} rebalances, without an owner beyond "
        f"the absence {percentile(times, 50):.2f} s (p50), {percentile(times, 99):.2f} s (p99), {times[-1]:.2f} s "
        f"(longest), {sum(each.seconds for each in roll.unowned):.0f} partition-seconds in all, "
        f"{roll.moved} partitions moved, {roll.twice} records processed twice."
    )
    return roll


# -- from messages to figures ------------------------------------------------------------------------------------------


class Unowned(NamedTuple):
    """The time in which a partition had no owner, and the last owner; with the part beyond its owner's absence."""

    partition: int
    owner: str
    begun_s: float
    ended_s: float
    beyond_s: float

    @property
    def seconds(self) -> float:
        return self.ended_s - self.begun_s


class Owners:
    """The owners of a group's partitions according to the messages of its members.

    Attributes:
        unowned: Each time in which a partition had no owner, in the order of their ends.
        moved: How often a partition got another owner than the last one.
        generation: The highest generation that a member has heard.
    """

    def __init__(self) -> None:
        self.unowned: list[Unowned] = []
        self.moved = 0
        self.generation = 0
        self._owner: dict[int, str] = {}
        self._last: dict[int, tuple[str, float]] = {}  # of the partitions without an owner
        self._runs: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def take(self, message: Message) -> None:
        """Apply a message."""
        member, what = message["member"], message["what"]
        if what == ASSIGNED:
            self.generation = max(self.generation, message["generation"])
            for partition in message["partitions"]:
                self._assign(partition, member, message["at_s"])
        elif what in (REVOKED, LOST):
            self._release([p for p in message["partitions"] if self._owner.get(p) == member], message["at_s"])
        elif what == CLOSING:
            self._release([p for p, owner in self._owner.items() if owner == member], message["at_s"])
        elif what == READ:
            for partition, first, behind in message["runs"]:
                self._runs[partition].append((first, behind))

    def _assign(self, partition: int, member: str, at_s: float) -> None:
        before, since_s = self._last.pop(partition, (self._owner.get(partition, ""), at_s))
        if before:
            self.unowned.append(Unowned(partition, before, since_s, at_s, at_s - since_s))
            self.moved += before != member
        self._owner[partition] = member

    def _release(self, partitions: list[int], at_s: float) -> None:
        for partition in partitions:
            self._last[partition] = (self._owner.pop(partition), at_s)

    def twice(self) -> int:
        """Return how many records were read more than once; a record that was read three times counts twice."""
        again = 0
        for runs in self._runs.values():
            reached = 0
            for first, behind in sorted(runs):
                again += max(0, min(behind, reached) - first)
                reached = max(reached, behind)
        return again


class _State(NamedTuple):
    """The owners of a group's partitions until now, and the number of its rebalances."""

    owners: Owners
    rebalances: int

    @classmethod
    def of(cls, process: Members, settings: Settings, variant: str, group: Group) -> "_State":
        """Read the messages of a group's members, and the number of its rebalances.

        The rebalances of our coordinator are its events. Those of Kafka's are the generations that its members heard.
        """
        owners = Owners()
        with process.changed:
            mine = [each for each in process.messages if each["member"].rpartition("-")[0] == group.group_id]
        for message in sorted(mine, key=lambda each: float(each["at_s"])):
            owners.take(message)
        if variant == KAFKA:
            return cls(owners, owners.generation)
        events = Reader(settings, group.group_id).events()
        return cls(owners, sum(event["event"] == "rebalance_started" for event in events))


def _beyond(unowned: Sequence[Unowned], absences: Sequence[Absence]) -> Iterator[Unowned]:
    """Return the times with their part beyond the absence of their owner."""
    absent = {each.member: each for each in absences}
    for each in unowned:
        if (absence := absent.get(each.owner)) is not None:
            common_s = min(each.ended_s, absence.started_s) - max(each.begun_s, absence.closed_s)
            each = each._replace(beyond_s=each.seconds - max(0.0, common_s))
        yield each


def _figures(rolls: Sequence[Roll], members: int) -> Figures:
    """Return the figures of each client, order and variant, and those of all clients and both orders together."""
    found: dict[str, float] = {"rolling_members": members}
    for roll in rolls:
        name = f"rolling_{roll.client}_{roll.order}_{roll.variant}"
        found |= {f"{name}_{figure}": value for figure, value in _of([roll]).items()}
    for variant in VARIANTS:
        chosen = _of([roll for roll in rolls if roll.variant == variant])
        found[f"rolling_rebalances_{variant}"] = chosen["rebalances"]
        prefix = "rolling" if variant == SUCCESSION else f"rolling_{variant}"
        found |= {
            f"{prefix}_{figure}": chosen[figure] for figure in ("unowned_p50_s", "unowned_p99_s", "unowned_max_s")
        }
    for order in (LEAVE, NEWCOMER):
        ours, kafkas = (
            _of([roll for roll in rolls if (roll.order, roll.variant) == (order, variant)])["unowned_sum_s"]
            for variant in (SUCCESSION, KAFKA)
        )
        found[f"rolling_{order}_sum_ratio"] = ours / kafkas
    return found


def _of(rolls: Sequence[Roll]) -> dict[str, float]:
    """Return the figures of some rolls together."""
    times = sorted(each.beyond_s for roll in rolls for each in roll.unowned)
    return {
        "rebalances": sum(roll.rebalances for roll in rolls),
        "unowned_p50_s": percentile(times, 50),
        "unowned_p99_s": percentile(times, 99),
        "unowned_max_s": times[-1],
        "unowned_sum_s": sum(each.seconds for roll in rolls for each in roll.unowned),
        "moved": sum(roll.moved for roll in rolls),
        "twice": sum(roll.twice for roll in rolls),
    }


if __name__ == "__main__":
    bench.main(measure)
