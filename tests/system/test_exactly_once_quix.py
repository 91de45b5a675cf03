"""Quix Streams with its guarantee "exactly-once": two instances of one group, killed in turn.

Each test has two sides, the gateway and the broker's own coordinator. It prints how long the other instance waited, and
how long partitions were unstable, for both of them.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from streaming.embedded import Broker
from tests.clients import quix
from tests.clients.copying import Committed, latest_offsets
from tests.clients.groups import Group
from tests.clients.kinds import QUIX_COPIER
from tests.clients.play import SESSION_MS, Play, Venue, playing
from tests.clients.worker import Worker
from tests.system.waiting import wait_until
from tests.tiers import NIGHTLY

pytestmark = [*NIGHTLY]

PARTITIONS = 6
RECORDS = 20
KILLS = 4
LOOK_EVERY_S = 0.1

TRANSACTION_MS = 10_000
"""After this time the brokers abort the transaction of a killed instance: a new one has another transactional id."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quix")
    quix.install(folder)
    return folder


@pytest.fixture(params=["gateway", "broker"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Return the clients' address."""
    return str(request.getfixturevalue(request.param).bootstrap_servers)


@pytest.fixture
def play(broker: Broker, bootstrap: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Play]:
    name = request.node.name.removeprefix("test_").replace("_", "-").replace("[", "-").rstrip("]")
    with playing(Venue(broker.bootstrap_servers, bootstrap, folder), name) as play:
        yield play


@dataclass(frozen=True)
class Wait:
    """What one kill cost.

    Args:
        other_s: The time until the other instance committed again, s.
        all_s: The time until it had copied the records of all partitions, s.
        own_s, others_s: The longest time for which a partition was unstable, s: one of the killed instance, and one of
            the other instance.
    """

    other_s: float
    all_s: float
    own_s: float
    others_s: float

    def __str__(self) -> str:
        return "/".join(f"{each:.1f}" for each in (self.other_s, self.all_s, self.own_s, self.others_s))


class Looking:
    """Looks for unstable partitions of a group until the end of the block.

    Attributes:
        longest_s: The longest time for which each partition was seen unstable without a break, s.
    """

    def __init__(self, group: Group) -> None:
        self.longest_s = dict.fromkeys(range(PARTITIONS), 0.0)
        self._group = group
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Looking":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        since: dict[int, float] = {}
        while not self._ended.wait(LOOK_EVERY_S):
            offsets, now_s = self._group.stable_offsets(), time.monotonic()
            unstable = {number for number, offset in offsets.items() if offset is None}
            since = {number: since.get(number, now_s) for number in unstable}
            for number, began_s in since.items():
                self.longest_s[number] = max(self.longest_s[number], now_s - began_s)


class Copying:
    """Two instances, and all that have been started."""

    def __init__(self, play: Play, bootstrap: str) -> None:
        self.play = play
        self.play.topic(partitions=PARTITIONS)
        self.sink = self.play.topic(partitions=PARTITIONS, suffix="-sink")
        self._group = Group(bootstrap, play.name, play.name, PARTITIONS)
        self.everybody = [self._start() for _ in range(2)]
        self.instances = list(self.everybody)
        self._await_both()
        self.play.produce(self.play.name, RECORDS)

    def _start(self) -> Worker:
        options = {"sink": self.sink, "session_ms": SESSION_MS, "transaction_ms": TRANSACTION_MS}
        return self.play.start(QUIX_COPIER, **options)

    def _await_both(self) -> None:
        wait_until(lambda: self._group.is_shared_by(2), account=lambda: (self._group.members(), self.instances))

    def kill(self, number: int, moment: str) -> Wait:
        """Kill one of the instances at its next event of this name, while it has records. Return the cost."""
        killed, other = self.instances[number], self.instances[1 - number]
        for instance in self.instances:
            self._await_copied(instance, *self.everybody)
        own = dict(self._group.members() or ())[killed.name]
        seen = len(killed.events_of(moment))
        if moment == "held":
            killed.order("hold")
        self.play.produce(self.play.name, RECORDS)
        self.play.until(lambda: len(killed.events_of(moment)) > seen)
        killed.kill()
        began_s = time.monotonic()
        with Looking(self._group) as looking:
            self.play.produce(self.play.name, RECORDS)
            done = len(other.events_of("committed"))
            self._until_alive(other, lambda: len(other.events_of("committed")) > done)
            other_s = time.monotonic() - began_s
            self._await_copied(other, *self.everybody)
            all_s = time.monotonic() - began_s
        self.instances[number] = self._start()
        self.everybody.append(self.instances[number])
        self._await_both()
        unstable_s = [
            max(seconds for number, seconds in looking.longest_s.items() if (number in own) is is_own)
            for is_own in (True, False)
        ]
        return Wait(other_s, all_s, *unstable_s)

    def _await_copied(self, *copiers: Worker) -> None:
        ends = {(self.play.name, number): end for number, end in self.play.ends()}
        self._until_alive(copiers[0], lambda: latest_offsets(copiers) == ends)

    def _until_alive(self, instance: Worker, is_so: Callable[[], object]) -> None:
        self.play.until(lambda: instance.has_ended or is_so())
        assert not instance.has_ended, f"the instance that was not killed has ended: {instance}"


@pytest.mark.parametrize("moment", ["sending", "held"])
def test_records_are_copied_once_when_an_instance_is_killed(
    play: Play, broker: Broker, bootstrap: str, moment: str
) -> None:
    """kill -9 while its TxnOffsetCommit is open, or after it, before the commit; then the same with the other one.

    Issue 51: all partitions of the group were unstable for 30 s in the first case, and the other instance ended.
    """
    copying = Copying(play, bootstrap)
    waits = [copying.kill(number % 2, moment) for number in range(KILLS)]
    print(f"{play.name}: other committed/all copied/own unstable/others unstable, s: {', '.join(map(str, waits))}")
    with Committed.of(broker.bootstrap_servers, copying.sink, PARTITIONS) as committed:
        committed.read_all()
        found = Counter((record.value() or b"").decode() for record in committed.records)
    expected = {f"{play.name} {number} {offset}" for number, end in play.ends() for offset in range(end)}
    twice = sorted(value for value, count in found.items() if count > 1)
    assert (sorted(expected - set(found)), twice) == ([], []), "records not copied, and records copied twice"
