"""A client that sends the requests of many members, and a reader of the coordinator's log for the times of batches."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from coordinator.base.hashing import shard_of
from coordinator.base.limits import RECORD_BYTES_MAX
from coordinator.messages.requests import JoinGroup, Request
from coordinator.messages.responses import AnyAnswer, JoinGroupAnswer
from streaming.config.settings import Settings
from streaming.wire.records import decode_answer, encode_request
from tests.benchmarks.bench import BenchFailed
from tests.benchmarks.members import SESSION_TIMEOUT_MS, Member

SILENCE_S = 120.0
LOG_WAIT_S = 1.5  # a batch is logged when it ends, and this is after its responses

Ask = Callable[[str], Request]
"""A function that makes a request from a request id."""

_BATCH = re.compile(r" duration_ms=(\d+) requests=(\d+) ")


class Crowd:
    """A client for many members, with one producer and one consumer. Use it in a `with` block.

    `ask` sends requests and waits for their responses. `send` does not wait: its responses come from `answers`.
    """

    def __init__(self, settings: Settings) -> None:
        self._topic, self._partitions = settings.requests_topic, settings.request_partitions
        servers = {"bootstrap.servers": settings.bootstrap_servers}
        room = {"queue.buffering.max.messages": 10_000_000, "message.max.bytes": RECORD_BYTES_MAX}
        self._producer = Producer({**servers, **room, "linger.ms": 1})
        unused_group = {"group.id": "crowd", "enable.auto.commit": False}  # a consumer requires an id
        self._consumer = Consumer({**servers, **unused_group})
        partitions = range(settings.reply_partitions)
        self._consumer.assign([TopicPartition(settings.replies_topic, p, OFFSET_BEGINNING) for p in partitions])
        self._asked = 0

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()
        self._consumer.close()

    def ask(self, *asks: Ask) -> list[AnyAnswer]:
        """Send requests at the same time, wait for all responses, and return these in the order of the requests."""
        awaited = {self.send(ask): place for place, ask in enumerate(asks)}
        answers: dict[int, AnyAnswer] = {}
        heard_s = time.monotonic()
        while len(answers) < len(asks):
            for answer in self.answers(0.01):
                if answer.request_id in awaited:
                    answers[awaited[answer.request_id]] = answer
                    heard_s = time.monotonic()
            if time.monotonic() > heard_s + SILENCE_S:
                raise BenchFailed(f"{len(answers)} of {len(asks)} requests were answered, then none for {SILENCE_S} s")
        return [answers[place] for place in range(len(asks))]

    def send(self, ask: Ask) -> str:
        """Send a request, and return its id."""
        self._asked += 1
        request_id = f"{self._asked:012}"
        request = ask(request_id)
        shard = shard_of(request.group_id, self._partitions)
        self._producer.produce(self._topic, encode_request(request), request.group_id, partition=shard)
        return request_id

    def answers(self, wait_s: float) -> Iterator[AnyAnswer]:
        """Yield the responses that have arrived. Wait at most `wait_s` for the first one."""
        self._producer.poll(0)
        for message in self._consumer.consume(20_000, wait_s):
            if message.error() is not None:
                raise BenchFailed(f"Kafka: {message.error()}")
            yield decode_answer(message.value() or b"")

    def settle(self, members: Sequence[Member], session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        """Make members join and sync, and return when their groups are Stable."""

        def join(member: Member, request_id: str) -> Request:
            request = member.join_group(request_id)
            assert isinstance(request, JoinGroup), "a member's join is a JoinGroup request"
            return msgspec.structs.replace(request, session_timeout_ms=session_timeout_ms)

        joined = self.ask(*((lambda request_id, m=m: join(m, request_id)) for m in members))
        check_no_errors(joined)
        for member, answer in zip(members, joined, strict=True):
            assert isinstance(answer, JoinGroupAnswer), f"the response to a join is {answer}"
            member.take(answer)
        check_no_errors(self.ask(*(m.sync_group for m in members)))


def check_no_errors(answers: Sequence[AnyAnswer]) -> None:
    """Raise BenchFailed if a response has an error."""
    if refused := [answer for answer in answers if answer.code]:
        raise BenchFailed(f"{len(refused)} of {len(answers)} requests were refused, the first one with {refused[0]}")


def one_in_each_shard(shards: int) -> list[Member]:
    """Return the only members of groups, one group in each shard."""
    found: dict[int, Member] = {}
    names = (f"orders-{number:05}-alone" for number in count())
    while len(found) < shards:
        name = next(names)
        found.setdefault(shard_of(name, shards), Member(name, 0))
    return list(found.values())


class Batch(NamedTuple):
    """A batch of the coordinator, as its log describes it."""

    duration_ms: int
    requests: int


@contextmanager
def batches(log_file: Path) -> Iterator[list[Batch]]:
    """Yield a list. After the `with` block, it holds the batches that ended during the block and shortly after it."""
    found: list[Batch] = []
    begin = log_file.stat().st_size
    yield found
    time.sleep(LOG_WAIT_S)
    logged = _BATCH.findall(log_file.read_bytes()[begin:].decode(errors="replace"))
    found += [Batch(int(duration_ms), int(requests)) for duration_ms, requests in logged]
