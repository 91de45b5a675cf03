"""The load generator: thousands of members in one process, over librdkafka, which uses little processor time.

Members join and sync as in the protocol. Then each member sends a heartbeat every three seconds. The heartbeats are
spread evenly, in a random order that is drawn once. Heartbeat `i` is due at `start + i / rate`, whether or not earlier
heartbeats were answered. Its latency is measured from its due time, so the delay of a slow coordinator is included. The
request id is the number of the heartbeat, and the response is matched by it. Every response is checked.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import msgspec
import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from coordinator.base.hashing import shard_of
from coordinator.messages.requests import Request
from coordinator.messages.responses import AnyAnswer, HeartbeatAnswer, JoinGroupAnswer
from streaming.wire.records import decode_answer, encode_request
from tests.benchmarks.figures import percentile
from tests.benchmarks.members import HEARTBEAT_INTERVAL_S, Member, members

TICK_S = 0.01  # the interval of reads; a measured latency is too long by up to this much
JOINS_PER_TICK = 100
DRAIN_WAIT_S = 120.0
LAG_BOUND_S = 2.5
SETUP_SILENCE_S = 120.0
BEGIN, END = "BEGIN", "END"  # reported at the begin and the end of the measured part
NUMBER_DIGITS = 12


@dataclass(frozen=True)
class Load:
    """The load, and where to send it.

    Args:
        warm_up_s: Seconds of heartbeats before the measured part.
    """

    bootstrap_servers: str
    requests_topic: str
    replies_topic: str
    request_partitions: int
    reply_partitions: int
    groups: int
    members: int
    seconds: int
    warm_up_s: int

    @property
    def rate(self) -> float:
        """The number of heartbeats a second."""
        return self.groups * self.members / HEARTBEAT_INTERVAL_S


def run(load: Load, pipe: Connection) -> None:
    """Set up groups and send heartbeats; send progress, and finally the figures, over the pipe.

    Sends: `str` progress, `BEGIN` and `END` around the measured part, and a `dict` of figures at the end.
    """
    swarm = Swarm(load, pipe.send)
    setup_s = swarm.settle()
    pipe.send({**swarm.beat(), "heartbeats_setup_s": setup_s})


class Swarm:
    """All members, on one producer and one consumer, as behind one gateway. Call `settle`, then `beat`."""

    def __init__(self, load: Load, report: Callable[[str], None]) -> None:
        self._load, self._report = load, report
        self._members = members(load.groups, load.members)
        self._shards = [shard_of(m.group_id, load.request_partitions) for m in self._members]
        self._producer = Producer(
            {
                "bootstrap.servers": load.bootstrap_servers,
                "linger.ms": 5,
                "queue.buffering.max.messages": 10_000_000,
                "queue.buffering.max.kbytes": 2_000_000,
            }
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": load.bootstrap_servers,
                "group.id": "load",  # a consumer requires a group id, but this one joins no group
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
            }
        )
        partitions = range(load.reply_partitions)
        self._consumer.assign([TopicPartition(load.replies_topic, p, OFFSET_BEGINNING) for p in partitions])

    # -- setting up ----------------------------------------------------------------------------------------------------

    def settle(self) -> float:
        """Make all members join and sync; return the seconds until all groups are Stable."""
        started_s = time.monotonic()
        self._report(f"{len(self._members)} members join {self._load.groups} groups.")
        for member, answer in self._ask_all([m.join_group(f"{i:012}") for i, m in enumerate(self._members)]):
            assert isinstance(answer, JoinGroupAnswer), f"the response to a join is {answer}"
            member.take(answer)
        self._report("All have joined; leaders send the assignments.")
        for _, answer in self._ask_all([m.sync_group(f"{i:012}") for i, m in enumerate(self._members)]):
            assert not answer.code, f"the response to a sync is {answer}"
        return time.monotonic() - started_s

    def _ask_all(self, requests: Sequence[Request]) -> Iterator[tuple[Member, AnyAnswer]]:
        """Send each member's request, in order, and yield each member with its response."""
        kind = type(requests[0]).__struct_config__.tag
        sent = answered = 0
        heard_s = time.monotonic()
        while answered < len(requests):
            for i in range(sent, min(sent + JOINS_PER_TICK, len(requests))):
                self._send(i, encode_request(requests[i]))
                sent += 1
            for message in self._receive(TICK_S):
                answer = decode_answer(message.value())
                if answer.request_id is not None and answer.__struct_config__.tag == kind:  # else it is a notice
                    answered += 1
                    heard_s = time.monotonic()
                    yield self._members[int(answer.request_id)], answer
            silence_s = time.monotonic() - heard_s
            assert silence_s < SETUP_SILENCE_S, f"{kind}: {answered} of {len(requests)} answered, then none"

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    def beat(self) -> dict[str, float]:
        """Send heartbeats at a steady rate, wait for the last response, and return the figures."""
        load = self._load
        warm_up, total = int(load.rate * load.warm_up_s), int(load.rate * (load.warm_up_s + load.seconds))
        values, order = self._prepared()
        replies = Replies(total)
        gc.collect()
        gc.freeze()  # a collection over all these members would delay the load
        self._report(f"{load.rate:,.0f} heartbeats a second, for {load.warm_up_s} + {load.seconds} s.")
        start_s = time.monotonic() + TICK_S
        awaited_by_then = self._send_all(values, order, start_s, warm_up, replies)
        drained_s = time.monotonic() + DRAIN_WAIT_S
        while replies.awaited > replies.errors and time.monotonic() < drained_s:
            replies.take(self._receive(TICK_S), time.monotonic())
        self._report(END)
        due_s = start_s + np.arange(warm_up, total) / load.rate
        return {
            **replies.figures(due_s, warm_up),
            "heartbeats_asked_per_s": load.rate,
            "heartbeats_answered": awaited_by_then - replies.awaited,
        }

    def _send_all(
        self, values: list[tuple[bytes, bytes]], order: list[int], start_s: float, warm_up: int, replies: "Replies"
    ) -> int:
        """Send each heartbeat when it is due; return the number of outstanding responses after the warm-up."""
        sent, awaited = 0, None
        while sent < replies.total:
            now_s = time.monotonic()
            due = min(replies.total, int((now_s - start_s) * self._load.rate))
            for i in range(sent, due):
                member = order[i % len(order)]
                head, tail = values[member]
                self._send(member, b"%b%012d%b" % (head, i, tail))
            sent = max(sent, due)
            if awaited is None and sent >= warm_up:
                self._report(BEGIN)
                awaited = replies.awaited
            replies.take(self._receive(0), time.monotonic())
            time.sleep(max(0.0, now_s + TICK_S - time.monotonic()))
        return awaited or 0

    def _prepared(self) -> tuple[list[tuple[bytes, bytes]], list[int]]:
        """Encode each member's heartbeat without its number, and draw the order in which members send."""
        mark = "?" * NUMBER_DIGITS
        split = [encode_request(m.heartbeat(mark)).partition(mark.encode()) for m in self._members]
        order = list(range(len(split)))
        random.Random(1).shuffle(order)
        return [(head, tail) for head, _, tail in split], order

    def _send(self, member: int, value: bytes) -> None:
        self._producer.produce(
            self._load.requests_topic, value, self._members[member].group_id, partition=self._shards[member]
        )

    def _receive(self, wait_s: float) -> list[Message]:
        self._producer.poll(0)
        messages = self._consumer.consume(20_000, wait_s)
        for message in messages:
            assert message.error() is None, f"Kafka: {message.error()}"
        return messages


class Replies:
    """The arrival times of the responses to heartbeats, in seconds of one monotonic clock."""

    def __init__(self, total: int) -> None:
        sample = msgspec.json.encode(HeartbeatAnswer(request_id="?" * NUMBER_DIGITS))
        self._from = sample.index(b"?")
        self._to = sample.rindex(b"?") + 1
        self._head, self._tail = sample[: self._from], sample[self._to :]
        self._arrived_s = np.zeros(total)
        self.total = self.awaited = total
        self.errors = self.repeated = 0

    def take(self, messages: list[Message], now_s: float) -> None:
        """Record the messages that arrived at `now_s`. Each must be a heartbeat's response without an error."""
        head, tail, begin, end = self._head, self._tail, self._from, self._to
        numbers = []
        for message in messages:
            value = message.value()
            if value.startswith(head) and value.endswith(tail):
                numbers.append(int(value[begin:end]))
            else:
                self.errors += 1
        if not numbers:
            return
        found = np.unique(numbers)
        fresh = found[self._arrived_s[found] == 0]
        self._arrived_s[fresh] = now_s
        self.awaited -= len(fresh)
        self.repeated += len(numbers) - len(fresh)

    def figures(self, due_s: "np.ndarray", first: int) -> dict[str, float]:
        """Return the figures of the heartbeats from number `first` on. They were due at `due_s`."""
        arrived_s = self._arrived_s[first:]
        answered = arrived_s > 0
        latencies_ms = np.sort(1000 * (arrived_s - due_s)[answered]).tolist()
        seconds = due_s[-1] - due_s[0]
        opened_s = min(arrived_s[answered].min(), due_s[0] + LAG_BOUND_S)
        in_time = np.count_nonzero((arrived_s >= opened_s) & (arrived_s < opened_s + seconds))
        return {
            "reply_33k_p50_ms": percentile(latencies_ms, 50),
            "reply_33k_p99_ms": percentile(latencies_ms, 99),
            "reply_33k_max_ms": latencies_ms[-1],
            "heartbeats_per_s": in_time / seconds,
            "lag_growing": float(_is_growing(due_s, np.where(answered, arrived_s, np.inf))),
            "heartbeat_errors": self.errors,
            "heartbeats_repeated": self.repeated,
            "heartbeats_unanswered": max(0, self.awaited - self.errors),
        }


def _is_growing(due_s: "np.ndarray", arrived_s: "np.ndarray") -> bool:
    """Return whether the number of unanswered heartbeats grows.

    The peaks are compared, because each batch answers all earlier heartbeats, and new ones arrive during the batch.
    The number grows if the peak of the last third is a quarter above the peak of the middle third, and above the
    number of heartbeats that the goal for 99 of 100 allows to be outstanding. A coordinator that keeps up has equal
    peaks. A coordinator that does not keep up has batches that become longer and longer.
    """
    moments = np.linspace(due_s[0], due_s[-1], 1 + 10 * int(due_s[-1] - due_s[0]))
    unanswered = np.searchsorted(due_s, moments) - np.searchsorted(np.sort(arrived_s), moments)
    middle, last = (third.max() for third in np.array_split(unanswered, 3)[1:])
    rate = len(due_s) / (due_s[-1] - due_s[0])
    return bool(last > 1.25 * middle and last > rate * LAG_BOUND_S)
