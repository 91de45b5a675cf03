"""Clients that commit offsets inside transactions, with the gateways that they use (docs/transactions.md).

IDLE      begins a transaction, and sends a commit
WAITING   for the response to the commit; without one, it sends the commit again, through another gateway
ANSWERED  commits further offsets, or ends the transaction

A gateway writes the record of a commit first, and may stand still before it sends the request. A producer commits its
transaction only after a response without an error, as all clients do.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from itertools import count
from random import Random

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.messages.group_records import OffsetRecord, Published
from coordinator.messages.outputs import Output
from coordinator.messages.requests import (
    OffsetFetch,
    OffsetToCommit,
    Request,
    TopicPartitions,
    TxnOffsetCommit,
)
from coordinator.messages.responses import AnyAnswer, TxnOffsetCommitAnswer
from tests.simulation.actors import PARTITIONS, Process
from tests.simulation.consumers import Consumer
from tests.simulation.faults import OF_TRANSACTIONS, Swarm
from tests.simulation.transactions import Brokers, Reporting

FIRST_NUMBER = 1_000_000
"""The offsets of commits inside transactions count from here, so each of them belongs to one transaction."""

HELD_MS_MAX = 90_000
"""The longest time for which a gateway stands still."""

TIMEOUTS_MS = (10_000, 30_000, 60_000)
REQUEST_TIMEOUT_MS = 3_000
ATTEMPTS_MAX = 3
PAUSE_MS_MAX = 20_000

NONE = ErrorCode.NONE.number
AGAIN = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.number, ErrorCode.NOT_COORDINATOR.number}

Members = Callable[[str], list[Process | Consumer]]
"""Returns the processes of a group."""


class State(Enum):
    """The state of a producer."""

    IDLE = auto()
    WAITING = auto()
    ANSWERED = auto()


class Producer:
    """A producer with a transactional id, of a group.

    Args:
        members: The processes of the group, one of which it belongs to; None if it names no member.
    """

    def __init__(
        self,
        producer_id: int,
        group_id: str,
        chance: Random,
        swarm: Swarm,
        brokers: Brokers,
        numbers: Iterator[int],
        members: Members | None,
        now_ms: int,
    ) -> None:
        self.producer_id, self.group_id, self.chance, self.swarm = producer_id, group_id, chance, swarm
        self.brokers, self.members = brokers, members
        self.inbox = f"producer {producer_id}"
        self.is_stopping = False
        self.due_ms = now_ms + chance.randrange(PAUSE_MS_MAX)
        self.timeout_ms = chance.choice(TIMEOUTS_MS)
        self.state, self.epoch = State.IDLE, brokers.start(producer_id)
        self._numbers, self._count = numbers, count(1)
        self._offsets: tuple[OffsetToCommit, ...] = ()
        self._number = self._attempts = 0
        self._asked: set[str] = set()
        self._failed = False
        self._held: list[tuple[int, Request]] = []

    @property
    def is_idle(self) -> bool:
        """True if it has no transaction, and no gateway holds a request."""
        return self.state is State.IDLE and not self._held

    @property
    def next_ms(self) -> int:
        due_ms = NEVER_MS if self.is_stopping and self.state is State.IDLE else self.due_ms
        return min([due_ms, *(at_ms for at_ms, _ in self._held)])

    def turn(self, now_ms: int) -> list[Request]:
        """Return the requests that gateways send now."""
        if self.due_ms <= now_ms and not (self.is_stopping and self.state is State.IDLE):
            self._act(now_ms)
        due = [request for at_ms, request in self._held if at_ms <= now_ms]
        self._held = [held for held in self._held if held[0] > now_ms]
        return due

    def calm(self) -> None:
        """End the transaction, and begin no other one. All gateways go on."""
        self.is_stopping, self.due_ms = True, 0
        self._held = [(0, request) for _, request in self._held]

    def hear(self, answer: AnyAnswer, now_ms: int) -> None:
        """Handle the response to a commit."""
        if not isinstance(answer, TxnOffsetCommitAnswer) or answer.request_id not in self._asked:
            return
        codes = {partition.code for partition in answer.partitions} | {answer.code}
        if codes & AGAIN and self._attempts < ATTEMPTS_MAX:
            self.due_ms = now_ms + self.chance.randrange(1_000)
            return
        self._failed = self._failed or codes != {NONE}
        self.state, self._asked = State.ANSWERED, set()
        self.due_ms = now_ms + self.chance.randrange(2_000)

    # -- a transaction -------------------------------------------------------------------------------------------------

    def _act(self, now_ms: int) -> None:
        faults = self.swarm.faults("turn of a producer")
        if "another process starts" in faults:
            self.brokers.start(self.producer_id)  # this process hears of it with its next request
        if "hangs" in faults and self.state is not State.IDLE:
            self.due_ms = now_ms + self.chance.randrange(2 * self.timeout_ms)
        elif self.state is State.IDLE:
            self._begin(now_ms)
        elif self.state is State.WAITING and self._attempts < ATTEMPTS_MAX:
            self._commit(now_ms, faults)
        elif self.state is State.ANSWERED and not self._failed and self.chance.random() < 0.2:
            self._choose()
            self._commit(now_ms, faults)
        else:
            self._end(now_ms, is_aborting="aborts" in faults)

    def _begin(self, now_ms: int) -> None:
        if not self.brokers.begin(self.producer_id, self.epoch, now_ms + self.timeout_ms):
            self._start_again(now_ms)
            return
        self._failed = False
        if self.chance.random() < 0.5:
            self._held.append((now_ms, self._fetch()))
        self._choose()
        self._commit(now_ms, self.swarm.faults("turn of a producer"))

    def _choose(self) -> None:
        """Choose the offsets of the next commit: all have its number."""
        self._number, self._attempts = next(self._numbers), 0
        topic, first = self.chance.choice(("t", "t", "u")), self.chance.randrange(PARTITIONS)
        places = {first, self.chance.randrange(PARTITIONS)}
        metadata = self.chance.choice(("", "", "txn", "too long"))
        self._offsets = tuple(OffsetToCommit(topic, place, self._number, metadata=metadata) for place in sorted(places))

    def _commit(self, now_ms: int, faults: Iterable[str]) -> None:
        """Write the record of a commit, and send the request, or let the gateway stand still before that."""
        self._attempts += 1
        place = self.brokers.write(self.producer_id, self.epoch, self._number)
        if place is None:
            self._start_again(now_ms)
            return
        request = TxnOffsetCommit(
            **self._ids(),
            place=place,
            topic_id=self.brokers.topic_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            offsets=self._offsets,
            **self._member(),
        )
        self._asked.add(request.request_id)
        held_ms = self.chance.randrange(HELD_MS_MAX) if "its gateway stands still" in faults else 0
        self._held.append((now_ms + held_ms, request))
        self.state, self.due_ms = State.WAITING, now_ms + REQUEST_TIMEOUT_MS

    def _end(self, now_ms: int, *, is_aborting: bool) -> None:
        is_committed = self.state is State.ANSWERED and not self._failed and not is_aborting
        if self.brokers.finish(self.producer_id, self.epoch, is_committed=is_committed):
            self.state, self._asked = State.IDLE, set()
            self.due_ms = now_ms + int(PAUSE_MS_MAX * self.chance.random() ** 2)
        else:
            self._start_again(now_ms)

    def _start_again(self, now_ms: int) -> None:
        """Start another process: this one is fenced."""
        self.epoch, self.state, self._asked = self.brokers.start(self.producer_id), State.IDLE, set()
        self.due_ms = now_ms + self.chance.randrange(PAUSE_MS_MAX)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _ids(self) -> dict[str, str]:
        ids = {"request_id": f"{self.inbox}.{next(self._count)}", "reply_to": self.inbox, "client_id": self.inbox}
        return {**ids, "group_id": self.group_id}

    def _member(self) -> dict[str, object]:
        """Return the ids of a member of the group, and its generation or epoch."""
        processes = self.members(self.group_id) if self.members is not None else []
        if not processes:
            return {}
        process = processes[self.producer_id % len(processes)]
        if isinstance(process, Consumer):
            epoch = max(process.epoch - (self.chance.random() < 0.1), 0)
            return {"member_id": process.member_id, "generation_id": epoch}
        instance_id = process.config.group_instance_id
        member = {"member_id": process.member_id, "generation_id": process.member.generation_id}
        return {**member, "group_instance_id": instance_id}

    def _fetch(self) -> OffsetFetch:
        topics = (TopicPartitions(topic, tuple(range(PARTITIONS))) for topic in ("t", "u"))
        is_whole, is_stable = self.chance.random() < 0.3, self.chance.random() < 0.5
        return OffsetFetch(**self._ids(), topics=None if is_whole else tuple(topics), require_stable=is_stable)


class Producers:
    """All producers of a simulation, the brokers' transactions, and the driver.

    Args:
        group_ids: The groups with members.
        lone: A group without members.
    """

    def __init__(
        self, name: str, group_ids: tuple[str, ...], lone: str, members: Members, *, is_exact: bool, now_ms: int
    ) -> None:
        self.chance = chance = Random(f"{name}, transactions")
        self.swarm, self.brokers = Swarm(chance, is_exact=is_exact, table=OF_TRANSACTIONS), Brokers()
        self.reporting = Reporting(chance, self.swarm, self.brokers, now_ms)
        numbers, some = count(FIRST_NUMBER), chance.random() < 0.5
        named = [*(chance.choice(group_ids) for _ in range(chance.randint(1, 4))), lone] if some else []
        self.all = [
            Producer(n, group_id, chance, self.swarm, self.brokers, numbers, self._of(group_id, lone, members), now_ms)
            for n, group_id in enumerate(named)
        ]
        self.by_inbox = {producer.inbox: producer for producer in self.all}

    def _of(self, group_id: str, lone: str, members: Members) -> Members | None:
        return None if group_id == lone or self.chance.random() < 0.2 else members

    @property
    def due_ms(self) -> int:
        """The time of the next turn."""
        if not self.all:
            return NEVER_MS
        timeouts = (transaction.until_ms for transaction in self.brokers.ongoing.values())
        return min([self.reporting.due_ms, *(p.next_ms for p in self.all), *timeouts])

    def turn(self, now_ms: int) -> list[Request]:
        """Return the requests of the producers."""
        self.brokers.time_out(now_ms)
        return [request for producer in self.all for request in producer.turn(now_ms)]

    def hear(self, to: str, answer: AnyAnswer, now_ms: int) -> bool:
        """Handle a response; return False if it is for somebody else."""
        producer = self.by_inbox.get(to)
        if producer is not None:
            producer.hear(answer, now_ms)
        return producer is not None

    def calm(self) -> None:
        """Stop all faults, and begin no transaction any more."""
        self.swarm.calm()
        self.reporting.calm()
        for producer in self.all:
            producer.calm()

    def wrong(self, pending: Iterable[str]) -> str | None:
        """Return a message about an open transaction, or about a group with pending commits; None without one."""
        busy = [producer.inbox for producer in self.all if not producer.is_idle]
        if busy or self.brokers.ongoing:
            return f"{busy} have requests, {list(self.brokers.ongoing)} have transactions"
        left = list(pending)
        return f"{left} have pending commits, and all transactions have ended" if left else None

    def why_untrue(self, outputs: Iterable[Output]) -> str | None:
        """Return a message about a stored offset whose transaction the brokers have not committed; None without one."""
        for output in outputs:
            if isinstance(output, Published) and isinstance(output.record, OffsetRecord):
                number = output.record.offset
                if number >= FIRST_NUMBER and not self.brokers.ended.get(number):
                    return f"{number} is stored, and is not committed: {output.record}"
        return None
