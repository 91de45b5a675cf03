"""The largest number of heartbeats that our coordinator answers: over plain sockets, in record batches encoded once.

One connection sends requests, and one reads responses. Of responses to single heartbeats, only the headers of the
record batches are parsed, to count the responses. This count is compared with the number of times that the end of a
response without an error occurs. The responses to the heartbeats of one record are read whole.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from struct import Struct

import msgspec
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from confluent_kafka import TopicPartition
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest

from coordinator.messages.heartbeats import Heartbeats
from coordinator.messages.responses import HeartbeatAnswer, HeartbeatsAnswer
from streaming.wire.records import decode_answer, encode_request
from tests.benchmarks import closed_loop
from tests.benchmarks.load import Load, Swarm
from tests.benchmarks.members import Member
from tests.benchmarks.wire import Wire, framed

BATCH = 320  # heartbeats of a shard in one record batch, at most; about 110 KB
FETCH_BYTES_MAX = 2**26
FETCH_PARTITION_BYTES_MAX = 2**23
PRODUCE_WAIT_MS = 30_000
ALL_REPLICAS = -1

# base offset, bytes that follow, -, -, -, attributes, last offset's distance from the base, ..., records
_HEAD = Struct(">qiibIhi30xi")
_SIZED_FROM = 12
_COMPRESSED = 0b111

GOOD = msgspec.json.encode(HeartbeatAnswer(request_id="?")).partition(b"?")[2]
"""The end of a heartbeat's response without an error: the bytes after the request id."""


def run(load: Load, pipe: Connection) -> None:
    """Set up groups and send their heartbeats; send `str`s as progress and a `dict` of figures over the pipe."""
    _run(Crowd, load, pipe)


def run_together(load: Load, pipe: Connection) -> None:
    """Send the heartbeats in records of many, as a gateway does, and a process with many members of our client."""
    _run(CrowdTogether, load, pipe)


def _run(kind: type["Crowd"], load: Load, pipe: Connection) -> None:
    settled = Settled(load, pipe.send)
    crowd = kind(load, settled.by_shard(), settled.reply_ends())
    settled.close()
    pipe.send(closed_loop.run(crowd, load.groups * load.members, load.warm_up_s, load.seconds, pipe.send))


class Settled(Swarm):
    """Members that join and sync over librdkafka, whose clients are closed afterwards."""

    def by_shard(self) -> list[list[Member]]:
        """Make all members join and sync, and return the members of each shard."""
        self.settle()
        shards: list[list[Member]] = [[] for _ in range(self._load.request_partitions)]
        for member, shard in zip(self._members, self._shards, strict=True):
            shards[shard].append(member)
        return shards

    def reply_ends(self) -> list[int]:
        """Return the end offset of each partition of the topic of responses."""
        topic = self._load.replies_topic
        partitions = (TopicPartition(topic, number) for number in range(self._load.reply_partitions))
        return [self._consumer.get_watermark_offsets(partition)[1] for partition in partitions]

    def close(self) -> None:
        self._consumer.close()
        del self._producer  # this ends its threads


class Crowd:
    """All members, in batches of one shard each."""

    turn_s = 0.02  # requests that are sent later miss the query's next batch

    def __init__(self, load: Load, shards: Sequence[Sequence[Member]], offsets: list[int]) -> None:
        self._replies_topic, self._offsets = load.replies_topic, offsets
        self._requests, self._replies = Wire(load.bootstrap_servers), Wire(load.bootstrap_servers)
        self._produce = [
            _produce(load.requests_topic, shard, self._values(number, some))
            for number, (shard, some) in enumerate(_batches(shards))
        ]
        self._sizes = [len(some) for _, some in _batches(shards)]
        self._frames = [framed(message) for message in self._produce]
        self._turns = itertools.cycle(range(len(self._frames)))
        self._next = next(self._turns)
        self._unacknowledged: list[int] = []
        self._members = sum(map(len, shards))
        self.under_way = self.errors = 0

    def _values(self, number: int, some: Sequence[Member]) -> Sequence[tuple[str, bytes]]:
        """Return the keys and the values of a batch's records."""
        return [(member.group_id, encode_request(member.heartbeat(f"{member.number:012}"))) for member in some]

    def send(self) -> None:
        """Send the next batches, up to one outstanding heartbeat for each member in total."""
        while self.under_way + self._sizes[self._next] <= self._members:
            self._requests.send(self._frames[self._next])
            self._unacknowledged.append(self._next)
            self.under_way += self._sizes[self._next]
            self._next = next(self._turns)

    def take(self) -> int:
        """Check that the broker accepted the requests, read the responses, and return their number."""
        for sent in self._unacknowledged:
            (topic,) = self._requests.answer(self._produce[sent]).responses
            assert not topic.partition_responses[0].error_code, f"Kafka: heartbeats were not accepted: {topic}"
        self._unacknowledged.clear()
        answered = sum(itertools.starmap(self._counted, self._fetched()))
        self.under_way -= answered
        return answered

    def _fetched(self) -> Iterator[tuple[int, bytes]]:
        """Fetch all responses since the last call, and yield them by partition."""
        for topic in self._replies.ask(_fetch(self._replies_topic, self._offsets)).responses:
            for partition in topic.partitions:
                assert not partition.error_code, f"Kafka: responses cannot be read: {partition}"
                if partition.records:
                    yield partition.partition_index, partition.records

    def _counted(self, partition: int, records: bytes) -> int:
        """Count the responses in these record batches. The last batch may be incomplete."""
        at = answered = 0
        while at + _HEAD.size <= len(records):
            base, size, _, _, _, attributes, last, count = _HEAD.unpack_from(records, at)
            if (end := at + _SIZED_FROM + size) > len(records):
                break
            assert not attributes & _COMPRESSED, "responses are compressed, so errors cannot be counted"
            at, answered = end, answered + count
            self._offsets[partition] = base + last + 1
        self.errors += answered - records.count(GOOD, 0, at)
        return answered


class CrowdTogether(Crowd):
    """All members. The heartbeats of a batch are one record."""

    def _values(self, number: int, some: Sequence[Member]) -> Sequence[tuple[str, bytes]]:
        heartbeats = [member.heartbeat(f"{member.number:012}") for member in some]
        record = Heartbeats.of(heartbeats, request_id=f"batch-{number}", reply_to=heartbeats[0].reply_to)
        return [("", encode_request(record))]

    def _counted(self, partition: int, records: bytes) -> int:
        answered = 0
        batches = MemoryRecords(records)
        while (batch := batches.next_batch()) is not None:
            for record in batch:
                answer = decode_answer(record.value)
                assert isinstance(answer, HeartbeatsAnswer), f"not the answer to many heartbeats: {answer}"
                answered += len(answer.codes)
                self.errors += len(answer.codes) - answer.codes.count(0)
                self._offsets[partition] = record.offset + 1
        return answered


def _batches(shards: Sequence[Sequence[Member]]) -> Iterator[tuple[int, Sequence[Member]]]:
    """Yield the members in batches, shard after shard."""
    mixed = [random.Random(1).sample(some, len(some)) for some in shards]
    rounds = -(-max(map(len, mixed)) // BATCH)
    return ((shard, some[i::rounds]) for i in range(rounds) for shard, some in enumerate(mixed) if some[i::rounds])


def _produce(topic: str, shard: int, values: Sequence[tuple[str, bytes]]) -> ProduceRequest:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, FETCH_PARTITION_BYTES_MAX)
    for i, (key, value) in enumerate(values):
        builder.append(i, 0, key.encode(), value, [])  # the broker's clock sets the timestamp
    data = ProduceRequest.TopicProduceData
    records = data.PartitionProduceData(index=shard, records=bytes(builder.build()))
    return ProduceRequest(
        version=3,
        transactional_id=None,
        acks=ALL_REPLICAS,
        timeout_ms=PRODUCE_WAIT_MS,
        topic_data=[data(name=topic, partition_data=[records])],
    )


def _fetch(topic: str, offsets: Sequence[int]) -> FetchRequest:
    wanted = FetchRequest.FetchTopic
    return FetchRequest(
        version=4,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCH_BYTES_MAX,
        isolation_level=0,
        topics=[
            wanted(
                topic=topic,
                partitions=[
                    wanted.FetchPartition(
                        partition=number, fetch_offset=offset, partition_max_bytes=FETCH_PARTITION_BYTES_MAX
                    )
                    for number, offset in enumerate(offsets)
                ],
            )
        ],
    )
