"""The members of one group, each a process of its own, and who owns what by their rebalance callbacks.

A process is up, with everything imported, before its member is asked for: what is measured is how a consumer begins,
not how Python does. It has one thread, which makes the consumer, polls it over and over and closes it, as an ordinary
application does. All moments are of the one monotonic clock that the processes of a machine share.
"""

import multiprocessing
import signal
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer
from kafka import ConsumerRebalanceListener

from streaming.client import GroupConsumer
from tests.benchmarks.bench import BenchFailed

POLL_MS = 100
REST_WAIT_S = 120.0
END_WAIT_S = 10.0  # longer than a member of ours waits for the answer to its leave
QUIET_S = 1.0
"""How long a group that is shared out evenly must keep still to be at rest."""

START, CLOSE, END = "START", "CLOSE", "END"  # what a process is asked
READY, STARTING, CLOSING, CLOSED = "READY", "STARTING", "CLOSING", "CLOSED"  # what it tells of itself
ASSIGNED, REVOKED, LOST = "ASSIGNED", "REVOKED", "LOST"  # and of its member's callbacks


class Told(NamedTuple):
    """What a member's process has to say, from when, and which partitions it is about."""

    what: str
    at_s: float
    partitions: tuple[int, ...] = ()


class Group(NamedTuple):
    """A group of `way.members`, and how to be one of them. The timeouts given here are both sides' defaults."""

    way: "Way"
    bootstrap_servers: str
    topic_prefix: str
    topic: str
    partitions: int
    group_id: str
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000

    def __str__(self) -> str:
        return f"the group {self.group_id}"


Tell = Callable[[str, Collection[Any]], None]


class Ours(ConsumerRebalanceListener):
    """A member of a group that our coordinator keeps."""

    def __init__(self, group: Group, tell: Tell) -> None:
        self._tell = tell
        self._consumer = GroupConsumer(
            bootstrap_servers=group.bootstrap_servers,
            topic_prefix=group.topic_prefix,
            group_id=group.group_id,
            session_timeout_ms=group.session_timeout_ms,
            heartbeat_interval_ms=group.heartbeat_interval_ms,
            partition_assignment_strategy=[group.way.strategy],
        )
        self._consumer.subscribe([group.topic], listener=self)

    def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        self._tell(ASSIGNED, assigned)

    def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        self._tell(REVOKED, revoked)

    def on_partitions_lost(self, lost: Collection[Any]) -> None:
        self._tell(LOST, lost)

    def poll(self) -> None:
        self._consumer.poll(POLL_MS)

    def close(self) -> None:
        self._consumer.close()


class Kafkas:
    """A member of a group that the broker's own coordinator keeps, in the classic protocol."""

    def __init__(self, group: Group, tell: Tell) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": group.bootstrap_servers,
                "group.id": group.group_id,
                "group.protocol": "classic",
                "partition.assignment.strategy": group.way.strategy,
                "session.timeout.ms": group.session_timeout_ms,
                "heartbeat.interval.ms": group.heartbeat_interval_ms,
            }
        )
        self._consumer.subscribe(
            [group.topic],
            on_assign=lambda _, partitions: tell(ASSIGNED, partitions),
            on_revoke=lambda _, partitions: tell(REVOKED, partitions),
            on_lost=lambda _, partitions: tell(LOST, partitions),
        )

    def poll(self) -> None:
        message = self._consumer.poll(POLL_MS / 1000)
        assert message is None or message.error() is None, f"a poll brought {message.error()}"

    def close(self) -> None:
        self._consumer.close()


class Way(NamedTuple):
    """Whose coordinator keeps a group, by whose client, and how its members share."""

    name: str
    side: type[Ours] | type[Kafkas]
    strategy: str


# -- a member's process ------------------------------------------------------------------------------------------------


def run(group: Group, pipe: Connection) -> None:
    """Be a member from each START to the next CLOSE, until the END, or until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that ends this one
    pipe.send(Told(READY, time.monotonic()))
    with suppress(EOFError, BrokenPipeError):
        while pipe.recv() == START:
            _be_a_member(group, pipe)


def _be_a_member(group: Group, pipe: Connection) -> None:
    def tell(what: str, partitions: Collection[Any] = ()) -> None:
        at_s = time.monotonic()
        pipe.send(Told(what, at_s, tuple(sorted(p.partition for p in partitions))))

    tell(STARTING)
    member = group.way.side(group, tell)
    while not pipe.poll():
        member.poll()
    assert pipe.recv() == CLOSE, "a member is closed, or its process killed"
    tell(CLOSING)
    member.close()
    tell(CLOSED)


# -- all of them -------------------------------------------------------------------------------------------------------


class Process:
    """One member's process, what it told, and what its member owns."""

    def __init__(self, group: Group, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=run, args=(group, theirs), name=name, daemon=True)
        self._process.start()
        theirs.close()  # so that the process's end is the pipe's end
        self.moments: dict[str, float] = {}
        self.owned: set[int] = set()

    def ask(self, what: str) -> None:
        """Send a command to the process; its later messages are about that command."""
        self.moments.clear()
        self.pipe.send(what)

    def take(self, told: Told) -> None:
        """Note what the process has told."""
        self.moments[told.what] = told.at_s
        if told.what == ASSIGNED:
            self.owned.update(told.partitions)
        elif told.what in (REVOKED, LOST):
            self.owned.difference_update(told.partitions)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self._process.kill()
        self._process.join()
        self.pipe.close()

    def dismiss(self) -> None:
        """Close the member, if it exists, and end the process."""
        with suppress(OSError):
            if not {READY, CLOSED} & self.moments.keys():
                self.pipe.send(CLOSE)
            self.pipe.send(END)

    def end(self, wait_s: float) -> None:
        """Wait for the process to end, and kill it if it has not after so many seconds."""
        self._process.join(wait_s)
        self.kill()


class Crew:
    """The processes of one group's members, by number: a `with` block, at whose end all members leave.

    Whenever the group is at rest, its members' callbacks are gone through in the order of their moments: no partition
    may be assigned to one member while another one has it.
    """

    def __init__(self, group: Group, members: int) -> None:
        self.group = group
        self._members = range(members)
        self._processes: dict[int, Process] = {}
        self._callbacks: list[tuple[Told, int]] = []  # since the group was last at rest
        self._owners: dict[int, int] = {}  # at that time

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._end)
            for who in self._members:
                self.revive(who)
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for process in self._processes.values():
            process.dismiss()
        for process in self._processes.values():
            process.end(END_WAIT_S)

    def revive(self, who: int) -> None:
        """Make a process for a member; the member itself is yet to be started."""
        self._processes[who] = Process(self.group, f"{self.group.group_id} {who}")
        self._await(who, READY)

    def start(self, who: int) -> float:
        """Start a member; return the time just before."""
        self._processes[who].ask(START)
        return self._await(who, STARTING)

    def close(self, who: int) -> float:
        """Close a member, and wait until it is closed; return the time just before."""
        self._processes[who].ask(CLOSE)
        self._await(who, CLOSED)
        return self._processes[who].moments[CLOSING]

    def kill(self, who: int) -> float:
        """Kill a member's process; return the time just before. Its partitions have no owner then."""
        process = self._processes.pop(who)
        at_s = time.monotonic()
        process.kill()
        self._callbacks.append((Told(LOST, at_s, tuple(process.owned)), who))
        return at_s

    def settle(self, members: Collection[int]) -> float:
        """Wait until these members share all partitions evenly and keep still; tells the moment of the last change.

        Raises:
            BenchFailed: they do not in time, or a partition has had two owners on the way.
        """
        until_s = time.monotonic() + REST_WAIT_S
        while self._listen(QUIET_S) or not self._is_even(members):
            if time.monotonic() > until_s:
                raise BenchFailed(f"{self.group} did not come to rest within {REST_WAIT_S:.0f} s: {self.shares()}")
        changes = sorted((at for at in self._callbacks if at[0].partitions), key=lambda at: at[0].at_s)
        self._callbacks.clear()
        for told, who in changes:
            self._check(told, who)
        return changes[-1][0].at_s

    def shares(self) -> str:
        """Return the owners of the partitions, by the members' own callbacks."""
        return ", ".join(f"{who}: {sorted(process.owned)}" for who, process in sorted(self._processes.items()))

    def _is_even(self, members: Collection[int]) -> bool:
        counts = {who: len(process.owned) for who, process in self._processes.items() if process.owned}
        return counts == dict.fromkeys(members, self.group.partitions // len(members))

    def _check(self, told: Told, who: int) -> None:
        """Apply a callback to the owners of the partitions."""
        for partition in told.partitions:
            owner = self._owners.pop(partition, None)
            if owner != (None if told.what == ASSIGNED else who):
                raise BenchFailed(f"{self.group}: partition {partition} of member {owner} was {told.what} by {who}")
            if told.what == ASSIGNED:
                self._owners[partition] = who

    def _await(self, who: int, what: str) -> float:
        """Wait until a member's process has sent this message; return the message's time."""
        until_s = time.monotonic() + REST_WAIT_S
        moments = self._processes[who].moments
        while what not in moments:
            if time.monotonic() > until_s:
                raise BenchFailed(f"{self.group}: member {who} was not {what} within {REST_WAIT_S:.0f} s")
            self._listen(QUIET_S)
        return moments[what]

    def _listen(self, wait_s: float) -> bool:
        """Read the processes' messages; return whether any came within the time."""
        ready = connection.wait([process.pipe for process in self._processes.values()], wait_s)
        for who, process in self._processes.items():
            if process.pipe not in ready:
                continue
            try:
                told = process.pipe.recv()
            except (EOFError, OSError):
                raise BenchFailed(f"{self.group}: member {who} has failed, as told above") from None
            process.take(told)
            if told.what in (ASSIGNED, REVOKED, LOST):
                self._callbacks.append((told, who))
        return bool(ready)
