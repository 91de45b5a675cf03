"""A log of requests that is known beforehand, and the records that the coordinator must write, byte for byte.

Member ids are derived from the checkpoint's secret. The test chooses the secret, so it knows all requests of a
conversation before the first response. `undisturbed` computes the expected output: the same operator reads the same
records, in the batches of the checkpoint's plans, and is never stopped.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from coordinator.base.hashing import member_suffix, shard_of
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
    Assignment,
    DescribeGroup,
    JoinGroup,
    LeaveGroup,
    Leaving,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    Request,
    SyncGroup,
)
from streaming.config.settings import Settings
from streaming.errors import Exit
from streaming.kafka import topics
from streaming.query.checkpoint.identity import Identity
from streaming.query.operator.operator import ShardOperator
from streaming.wire.records import OutputTopics, encode_request
from tests.streaming.query.fake_spark import FakeSpark
from tests.streaming.query.fake_spark import Record as FakeRecord
from tests.system.conftest import Service, batches
from tests.system.waiting import HANG_S, wait_until

SECRET = "5e" * 32
INBOX = "inbox"
STAY = 3  # rounds
LONG_MS, BRIEF_MS = 1_800_000, 6_000


# -- requests ----------------------------------------------------------------------------------------------------------


def claim(settings: Settings) -> None:
    """Make the topics and a checkpoint with a known secret, as a first start does."""
    topics.ensure(settings)
    ids = topics.topic_ids(settings)
    held = (settings.requests_topic, settings.groups_topic, settings.events_topic)
    identity = Identity(
        secret=SECRET,
        topic_ids={name: ids[name] for name in held},
        request_partitions=settings.request_partitions,
        shuffle_partitions=settings.shuffle_partitions,
        state_store=settings.state_store,
    )
    folder = Path(settings.checkpoint)
    folder.mkdir(parents=True)
    (folder / "identity.json").write_bytes(msgspec.json.encode(identity.sealed))


class Conversation:
    """The requests of the members of one group, round by round.

    In each round a member joins, and a member that has stayed for `STAY` rounds leaves. After the requests of `comes`,
    joins are parked. In the requests of `settles`, every member joins again, syncs, sends a heartbeat and commits. The
    generation is the round's number.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    def comes(self, number: int) -> Iterator[Request]:
        """Yield the requests that begin a round; rounds are numbered from 1."""
        yield self._join(number, "", f"{self.group_id}/{number}")
        if number > STAY:
            yield LeaveGroup(
                **self._about(number, "leave"), members=(Leaving(self._member(number - STAY), None, "enough"),)
            )

    def settles(self, number: int) -> Iterator[Request]:
        """Yield the requests that end a round: after them its generation is Stable and has a commit."""
        here = [self._member(n) for n in range(max(1, number - STAY + 1), number + 1)]
        for member in here[:-1]:
            yield self._join(number, member, f"{self.group_id}/{number}/again/{member}")
        plan = tuple(Assignment(member, f"{number} {place}".encode()) for place, member in enumerate(here))
        for member in reversed(here):  # the leader syncs last: the syncs of the others are parked
            yield SyncGroup(**self._of(number, member, "sync"), assignments=plan)
        for member in here:
            yield Heartbeat(**self._of(number, member, "beat"))
            yield OffsetCommit(
                **self._of(number, member, "commit"), offsets=(OffsetToCommit("t", number % 4, 100 * number),)
            )
        yield Heartbeat(**self._of(number - 1, here[0], "late"))  # with an old generation
        yield OffsetFetch(**self._about(number, "fetch"))
        yield DescribeGroup(**self._about(number, "describe"))

    def _about(self, number: int, what: str) -> dict[str, Any]:
        request_id = f"{self.group_id}/{number}/{what}"
        return {"request_id": request_id, "reply_to": INBOX, "group_id": self.group_id}

    def _of(self, number: int, member: str, what: str) -> dict[str, Any]:
        return {**self._about(number, f"{what}/{member}"), "generation_id": number, "member_id": member}

    def _member(self, number: int) -> str:
        first_join = (INBOX, f"{self.group_id}/{number}")
        return f"client{number}-{member_suffix(bytes.fromhex(SECRET), self.group_id, first_join)}"

    def _join(self, number: int, member_id: str, request_id: str, session_timeout_ms: int = LONG_MS) -> JoinGroup:
        return JoinGroup(
            request_id=request_id,
            reply_to=INBOX,
            group_id=self.group_id,
            client_id=f"client{number}",
            member_id=member_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=LONG_MS,
            protocol_type="work",
            protocols=(Protocol("share", b"all"),),
            require_known_member_id=False,
        )

    def silent(self, number: int) -> JoinGroup:
        """Return the join of a member that sends nothing else: only its session timeout ends the membership."""
        return self._join(number, "", f"{self.group_id}/silent/{number}", BRIEF_MS)


def nonsense(asked: str) -> tuple[bytes | None, ...]:
    """Return values that are no valid requests; the coordinator can answer one of them."""
    unknown = json.dumps({"kind": "dance", "request_id": f"dance/{asked}", "reply_to": INBOX})
    return unknown.encode(), b'{"kind":"heartbeat","request_id":', b"\xff\xfe", None


class RequestLog:
    """A writer that appends the requests of some independent groups to the request topic, one round at a time."""

    def __init__(self, settings: Settings, groups: int = 6) -> None:
        self._settings = settings
        self._conversations = [Conversation(f"group-{n}") for n in range(groups)]
        self.round = self.silent = 0

    def append(self, silent: int = 1) -> None:
        """Append the end of a round, the beginning of the next one, and invalid records.

        Args:
            silent: The number of new groups whose only member joins and sends nothing else. `self.silent` counts all.
        """
        asked: list[tuple[int, bytes | None]] = []
        settled, self.round = self.round, self.round + 1
        for each in self._conversations:
            home = shard_of(each.group_id, self._settings.request_partitions)
            requests = [*(each.settles(settled) if settled else ()), *each.comes(self.round)]
            asked += [(home, encode_request(request)) for request in requests]
        for _ in range(silent):
            self.silent += 1
            brief = Conversation(f"brief-{self.silent}")
            home = shard_of(brief.group_id, self._settings.request_partitions)
            asked.append((home, encode_request(brief.silent(self.round))))
        for shard in range(self._settings.request_partitions):
            which = f"{self.round}/{shard}"
            listing = encode_request(ListGroups(request_id=f"list/{which}", reply_to=INBOX))
            asked += [(shard, value) for value in (*nonsense(which), listing)]
        with closing(KafkaProducer(**self._settings.kafka_client_arguments())) as producer:
            sent = [producer.send(self._settings.requests_topic, v, b"any", partition=p) for p, v in asked]
            for each in sent:
                each.get(30)


# -- output ------------------------------------------------------------------------------------------------------------


class Record(NamedTuple):
    """A record that was written. The partition of a reply follows from its key and is None here."""

    topic: str
    partition: int | None
    key: bytes
    value: bytes | None
    version: bytes | None


def ends(settings: Settings, topic: str) -> dict[int, int]:
    """Return the present end offset of each partition of a topic."""
    with closing(KafkaConsumer(enable_auto_commit=False, **settings.kafka_client_arguments())) as consumer:
        partitions = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)]
        return {each.partition: end for each, end in consumer.end_offsets(partitions).items()}


def read(settings: Settings, topic: str) -> list[Any]:
    """Read a topic from its beginning to its present end, and return the records by partition and offset."""
    stops = {TopicPartition(topic, partition): end for partition, end in ends(settings, topic).items()}
    found: list[Any] = []
    with closing(KafkaConsumer(enable_auto_commit=False, **settings.kafka_client_arguments())) as consumer:
        consumer.assign(list(stops))
        consumer.seek_to_beginning(*stops)
        while any(consumer.position(partition) < end for partition, end in stops.items()):
            for batch in consumer.poll(timeout_ms=500).values():
                found += batch
    return sorted(found, key=lambda record: (record.partition, record.offset))


def written(settings: Settings) -> list[Record]:
    """Read all records that the coordinator has written."""
    return [
        Record(
            topic,
            None if topic == settings.replies_topic else r.partition,
            r.key,
            r.value,
            dict(r.headers).get("version"),
        )
        for topic in (settings.replies_topic, settings.groups_topic, settings.events_topic)
        for r in read(settings, topic)
    ]


def undisturbed(settings: Settings) -> list[Record]:
    """Compute the records that an undisturbed run writes for the same requests with the same plans."""
    operator = ShardOperator(
        partitions=settings.request_partitions,
        secret=bytes.fromhex(SECRET),
        config=settings.group_config(),
        topics=OutputTopics(
            settings.replies_topic, settings.groups_topic, settings.events_topic, settings.requests_topic
        ),
    )
    aside = sorted((_plan(file), int(file.stem)) for file in (Path(settings.checkpoint) / "replanned").glob("[0-9]*"))
    spark = FakeSpark(operator, frame_rows=10_000)
    requests: dict[int, list[FakeRecord]] = {shard: [] for shard in range(settings.request_partitions)}
    for r in read(settings, settings.requests_topic):
        requests[r.partition].append((r.partition, r.offset, r.timestamp, r.value))
    come_to = dict.fromkeys(requests, 0)
    found: list[Record] = []
    for number, (at_ms, come_to_next) in enumerate(plans(Path(settings.checkpoint))):
        # a plan that was moved aside counts from its batch on: those before it were finished at their own times
        spark.operator = replace(operator, replanned=[plan for plan, planned in aside if planned <= number])
        batch = [r for shard, end in come_to_next.items() for r in requests[shard][come_to[shard] : end]]
        come_to |= come_to_next
        for row in spark.batch(at_ms, batch).itertuples():
            if row.topic not in (None, settings.requests_topic):  # the operator's own wake records are no output
                partition = None if row.topic == settings.replies_topic else int(row.partition)
                found.append(Record(row.topic, partition, row.key, row.value, row.version))
    return found


class Plan(NamedTuple):
    """Spark's plan of a batch: its time, and the end offset of each request partition."""

    at_ms: int
    ends: dict[int, int]


def plans(folder: Path) -> list[Plan]:
    """Read all plans of a checkpoint, from the first batch on."""
    files = sorted((file for file in (folder / "query" / "offsets").iterdir() if file.name.isdigit()), key=_number)
    assert [_number(file) for file in files] == list(range(len(files))), "a plan is missing or purged"
    return [_plan(file) for file in files]


def plan_of(folder: Path, number: int) -> Plan:
    """Read the plan of one batch of a checkpoint. Older plans are not read and may be damaged."""
    return _plan(folder / "query" / "offsets" / str(number))


def _number(file: Path) -> int:
    return int(file.name)


def _plan(file: Path) -> Plan:
    _, planned, source = file.read_text().splitlines()
    (ends,) = json.loads(source).values()
    return Plan(json.loads(planned)["batchTimestampMs"], {int(partition): end for partition, end in ends.items()})


def once(records: Iterable[Record], settings: Settings) -> dict[object, Record]:
    """Remove repeats, as readers do, by request id or by the group's version. A repeat must equal its original."""
    kept: dict[object, Record] = {}
    for record in records:
        first = kept.setdefault(identity(record, settings), record)
        assert record == first, f"a repeat differs from its original: {record} {first}"
    return kept


def identity(record: Record, settings: Settings) -> object:
    """Return the key by which a reader recognizes a repeat of this record."""
    value = json.loads(record.value) if record.value else {}
    if record.topic == settings.replies_topic:
        return value["request_id"] or record.value  # a notice has no request
    if "event" in value and value.get("group_id") is None:  # an event of a shard, mostly of an offset in its log
        return value["event"], value.get("partition"), value.get("offset", value.get("found", record.value))
    group_id = json.loads(record.key)[1] if record.topic == settings.groups_topic else record.key.decode()
    return group_id, int(record.version or value["version"])


def in_order(records: Iterable[Record]) -> dict[tuple[str, int], list[Record]]:
    """Group records by topic and partition. Replies have no order and are left out."""
    found: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        if record.partition is not None:
            found.setdefault((record.topic, record.partition), []).append(record)
    return found


def assert_as_if_undisturbed(settings: Settings) -> Sequence[Record]:
    """Check that the records written, without repeats, equal an undisturbed run's byte for byte (I8, I16, I17, I21).

    Returns:
        All records that were written, with the repeats.
    """
    real, ideal = written(settings), undisturbed(settings)
    kept, wanted = once(real, settings), once(ideal, settings)
    assert kept.keys() - wanted.keys() == set(), "written, but not by an undisturbed run"
    assert wanted.keys() - kept.keys() == set(), "lost"
    assert kept == wanted
    assert in_order(kept.values()) == in_order(wanted.values())
    return real


# -- a running service -------------------------------------------------------------------------------------------------


def newest(service: Service, kind: str) -> int:
    """Return the number of the batch that was planned (`offsets`) or finished (`commits`) last."""
    return batches(service.checkpoint, kind)[-1]


def await_taken(service: Service) -> None:
    """Wait until all requests that were sent until now are in a finished batch."""
    asked = ends(service.settings, service.settings.requests_topic)

    def is_taken() -> bool:
        done = plans(service.checkpoint)[: newest(service, "commits") + 1]
        return all(done[-1].ends[partition] >= end for partition, end in asked.items())

    wait_until(lambda: service.process.poll() is not None or is_taken(), account=lambda: service.log)
    assert service.process.poll() is None, service.log


def last_words(service: Service, exit_code: Exit = Exit.FAILED) -> str:
    """Wait for the end of a service that fails, and return the one sentence that its user reads."""
    assert service.process.wait(HANG_S) == exit_code, service.log
    (sentence,) = [line for line in service.log.splitlines() if line.startswith("coordinator: ")]
    return sentence.removeprefix("coordinator: ")
