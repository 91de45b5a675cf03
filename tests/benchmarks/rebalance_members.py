"""The members of one group, each in its own process, and the partition owners according to their rebalance callbacks.

A process has started and imported all modules before its member is created. So the start of a consumer is measured,
and the start of Python is not. A process has one thread, which creates the consumer, polls it repeatedly and closes it,
as an ordinary application does. All times are read from the monotonic clock that the processes of a machine share.
"""

import multiprocessing
import signal
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, TopicPartition
from kafka import ConsumerRebalanceListener

from streaming.client import GroupConsumer
from tests.benchmarks.bench import BenchFailed

POLL_MS = 100
REST_WAIT_S = 120.0
END_WAIT_S = 10.0  # longer than a member of our coordinator waits for the response to its leave
QUIET_S = 1.0
"""A group is stable when its partitions are assigned evenly and no message arrives for this long."""

START, CLOSE, END = "START", "CLOSE", "END"  # the commands to a process
READY, STARTING, CLOSING, CLOSED = "READY", "STARTING", "CLOSING", "CLOSED"  # its messages about its own state
ASSIGNED, REVOKED, LOST = "ASSIGNED", "REVOKED", "LOST"  # its messages about its member's callbacks


class Message(NamedTuple):
    """A message of a member's process, with its time and the partitions that it is about."""

    what: str
    at_s: float
    partitions: tuple[int, ...] = ()


class Group(NamedTuple):
    """A group, and the arguments of its members. The timeouts here are the defaults of both coordinators."""

    variant: "Variant"
    bootstrap_servers: str
    topic_prefix: str
    topic: str
    partitions: int
    group_id: str
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000

    def __str__(self) -> str:
        return f"the group {self.group_id}"


Report = Callable[[str, Collection[Any]], None]


class Ours(ConsumerRebalanceListener):
    """A member of a group of our coordinator."""

    def __init__(self, group: Group, report: Report) -> None:
        self._report = report
        self._consumer = GroupConsumer(
            bootstrap_servers=group.bootstrap_servers,
            topic_prefix=group.topic_prefix,
            group_id=group.group_id,
            session_timeout_ms=group.session_timeout_ms,
            heartbeat_interval_ms=group.heartbeat_interval_ms,
            partition_assignment_strategy=[group.variant.strategy],
        )
        self._consumer.subscribe([group.topic], listener=self)

    def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        self._report(ASSIGNED, assigned)

    def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        self._report(REVOKED, revoked)

    def on_partitions_lost(self, lost: Collection[Any]) -> None:
        self._report(LOST, lost)

    def poll(self) -> None:
        self._consumer.poll(POLL_MS)

    def close(self) -> None:
        self._consumer.close()


class Stock:
    """A member with librdkafka's consumer, of a group of the coordinator at an address. Subclasses configure it."""

    def __init__(self, group: Group, report: Report) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": group.bootstrap_servers, "group.id": group.group_id, **self.config(group)}
        )
        self._consumer.subscribe(
            [group.topic],
            on_assign=lambda _, partitions: report(ASSIGNED, partitions),
            on_revoke=lambda _, partitions: report(REVOKED, partitions),
            on_lost=lambda _, partitions: report(LOST, partitions),
        )

    def config(self, group: Group) -> dict[str, Any]:
        """Return the consumer's configuration beside its group and its servers."""
        raise NotImplementedError

    def poll(self) -> None:
        message = self._consumer.poll(POLL_MS / 1000)
        assert message is None or message.error() is None, f"a poll returned {message.error()}"

    def close(self) -> None:
        self._consumer.close()


class Kafkas(Stock):
    """A member with the classic protocol."""

    def config(self, group: Group) -> dict[str, Any]:
        return {
            "group.protocol": "classic",
            "partition.assignment.strategy": group.variant.strategy,
            "session.timeout.ms": group.session_timeout_ms,
            "heartbeat.interval.ms": group.heartbeat_interval_ms,
        }


class NextGeneration(Stock):
    """A member with the consumer protocol (KIP-848). The coordinator has its timeouts, and assigns the partitions."""

    def config(self, group: Group) -> dict[str, Any]:
        return {"group.protocol": "consumer", "group.remote.assignor": group.variant.strategy}


class Committing(NextGeneration):
    """The same member, which commits an offset of each partition that it owns every second."""

    COMMIT_S = 1.0

    def __init__(self, group: Group, report: Report) -> None:
        super().__init__(group, report)
        self._commit_at_s = 0.0

    def config(self, group: Group) -> dict[str, Any]:
        return {**super().config(group), "enable.auto.commit": False}

    def poll(self) -> None:
        super().poll()
        if (now_s := time.monotonic()) >= self._commit_at_s:
            self._commit_at_s = now_s + self.COMMIT_S
            if owned := self._consumer.assignment():
                offsets = [TopicPartition(each.topic, each.partition, 0) for each in owned]
                self._consumer.commit(offsets=offsets, asynchronous=True)


class Variant(NamedTuple):
    """The coordinator and the client of a group, and the assignment strategy of its members."""

    name: str
    side: type[Ours] | type[Stock]
    strategy: str


# -- a member's process ------------------------------------------------------------------------------------------------


def run(group: Group, pipe: Connection) -> None:
    """Run a member from each START to the next CLOSE, until END arrives or the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C and ends this process
    pipe.send(Message(READY, time.monotonic()))
    with suppress(EOFError, BrokenPipeError):
        while pipe.recv() == START:
            _run_member(group, pipe)


def _run_member(group: Group, pipe: Connection) -> None:
    def report(what: str, partitions: Collection[Any] = ()) -> None:
        at_s = time.monotonic()
        pipe.send(Message(what, at_s, tuple(sorted(p.partition for p in partitions))))

    report(STARTING)
    member = group.variant.side(group, report)
    while not pipe.poll():
        member.poll()
    assert pipe.recv() == CLOSE, "the only command to a running member is CLOSE"
    report(CLOSING)
    member.close()
    report(CLOSED)


# -- all members -------------------------------------------------------------------------------------------------------


class Process:
    """One member's process, its messages, and the partitions that its member owns."""

    def __init__(self, group: Group, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=run, args=(group, theirs), name=name, daemon=True)
        self._process.start()
        theirs.close()  # so that the pipe closes when the process ends
        self.moments: dict[str, float] = {}
        self.owned: set[int] = set()

    def ask(self, what: str) -> None:
        """Send a command to the process, and forget the messages about earlier commands."""
        self.moments.clear()
        self.pipe.send(what)

    def take(self, message: Message) -> None:
        """Record a message of the process."""
        self.moments[message.what] = message.at_s
        if message.what == ASSIGNED:
            self.owned.update(message.partitions)
        elif message.what in (REVOKED, LOST):
            self.owned.difference_update(message.partitions)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
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
        """Wait for the process to end, and kill it if it has not ended after `wait_s` seconds."""
        self._process.join(wait_s)
        self.kill()


class MemberProcesses:
    """The processes of one group's members, by number. Use it in a `with` block: at its end, all members leave.

    Whenever the group is stable, the callbacks of its members are checked in the order of their times: no partition may
    be assigned to one member while another member owns it.
    """

    def __init__(self, group: Group, members: int) -> None:
        self.group = group
        self._members = range(members)
        self._processes: dict[int, Process] = {}
        self._callbacks: list[tuple[Message, int]] = []  # since the group was last stable
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
        """Start a process for a member. The member itself is started later."""
        self._processes[who] = Process(self.group, f"{self.group.group_id} {who}")
        self._await(who, READY)

    def start(self, who: int) -> float:
        """Start a member; return the time just before its start."""
        self._processes[who].ask(START)
        return self._await(who, STARTING)

    def close(self, who: int) -> float:
        """Close a member, and wait until it is closed; return the time just before the close."""
        self._processes[who].ask(CLOSE)
        self._await(who, CLOSED)
        return self._processes[who].moments[CLOSING]

    def kill(self, who: int) -> float:
        """Kill a member's process; return the time just before the kill. The member's partitions have no owner then."""
        process = self._processes.pop(who)
        at_s = time.monotonic()
        process.kill()
        self._callbacks.append((Message(LOST, at_s, tuple(process.owned)), who))
        return at_s

    def settle(self, members: Collection[int]) -> float:
        """Wait until all partitions are assigned evenly to these members; return the time of the last change.

        Raises:
            BenchFailed: the group is not stable within the time limit, or a partition had two owners.
        """
        until_s = time.monotonic() + REST_WAIT_S
        while self._listen(QUIET_S) or not self._is_even(members):
            if time.monotonic() > until_s:
                raise BenchFailed(f"{self.group} was not stable within {REST_WAIT_S:.0f} s: {self.assignments()}")
        changes = sorted((at for at in self._callbacks if at[0].partitions), key=lambda at: at[0].at_s)
        self._callbacks.clear()
        for message, who in changes:
            self._check(message, who)
        return changes[-1][0].at_s

    def assignments(self) -> str:
        """Return the partitions of each member, according to its own callbacks."""
        return ", ".join(f"{who}: {sorted(process.owned)}" for who, process in sorted(self._processes.items()))

    def _is_even(self, members: Collection[int]) -> bool:
        counts = {who: len(process.owned) for who, process in self._processes.items() if process.owned}
        return counts == dict.fromkeys(members, self.group.partitions // len(members))

    def _check(self, message: Message, who: int) -> None:
        """Apply a callback to the owners of the partitions."""
        for partition in message.partitions:
            owner = self._owners.pop(partition, None)
            if owner != (None if message.what == ASSIGNED else who):
                raise BenchFailed(f"{self.group}: partition {partition} of member {owner} was {message.what} by {who}")
            if message.what == ASSIGNED:
                self._owners[partition] = who

    def _await(self, who: int, what: str) -> float:
        """Wait until a member's process sends this message; return the time of the message."""
        until_s = time.monotonic() + REST_WAIT_S
        moments = self._processes[who].moments
        while what not in moments:
            if time.monotonic() > until_s:
                raise BenchFailed(f"{self.group}: member {who} was not {what} within {REST_WAIT_S:.0f} s")
            self._listen(QUIET_S)
        return moments[what]

    def _listen(self, wait_s: float) -> bool:
        """Read the processes' messages; return whether at least one arrived within `wait_s`."""
        ready = connection.wait([process.pipe for process in self._processes.values()], wait_s)
        for who, process in self._processes.items():
            if process.pipe not in ready:
                continue
            try:
                message = process.pipe.recv()
            except (EOFError, OSError):
                raise BenchFailed(f"{self.group}: member {who} has failed, see its error above") from None
            process.take(message)
            if message.what in (ASSIGNED, REVOKED, LOST):
                self._callbacks.append((message, who))
        return bool(ready)
