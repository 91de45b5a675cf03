"""Tests of the topic reader without brokers: its begin and end offsets, silent brokers, and refusals."""

import math
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException

from streaming.config import timeouts
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, NoCoordinator
from streaming.kafka import reader as module
from streaming.kafka.reader import Progress, Record, TopicReader, TopicUnread

GROUPS, EVENTS = "coordinator.groups", "coordinator.events"


class Message(NamedTuple):
    """The part of confluent-kafka's Message that a reader uses."""

    place: tuple[str, int]
    at: int
    failed: KafkaError | None = None
    of: bytes | None = b"value"

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return self.failed

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return self.of

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000 + self.at

    def headers(self) -> Any:
        return [("version", b"7")]


class Brokers:
    """Topics as `{(topic, partition): offsets with a record}`. A partition's end may be after its last record."""

    def __init__(self, offsets: dict[tuple[str, int], Iterable[int]]) -> None:
        self.offsets = {place: sorted(of) for place, of in offsets.items()}
        self.ends = {place: of[-1] + 1 if of else 0 for place, of in self.offsets.items()}
        self.lows = {place: of[0] if of else 0 for place, of in self.offsets.items()}
        self.failures: list[KafkaError] = []
        self.is_unreachable = self.is_closed = False
        self.now_s = 0.0
        self.without_leader, self.of_leaders = 0, KafkaError.NOT_LEADER_FOR_PARTITION
        self.options: dict[str, Any] = {}
        self._positions: dict[tuple[str, int], int] = {}
        self._ended: set[tuple[str, int]] = set()

    def list_topics(self, timeout: float) -> Any:
        self._answer()
        partitions: dict[str, dict[int, None]] = {}
        for topic, partition in self.offsets:
            partitions.setdefault(topic, {})[partition] = None
        return SimpleNamespace(topics={t: SimpleNamespace(partitions=p) for t, p in partitions.items()})

    def get_watermark_offsets(self, place: Any, timeout: float, cached: bool) -> tuple[int, int]:
        self._answer()
        if self.without_leader:
            self.without_leader -= 1
            raise KafkaException(KafkaError(self.of_leaders))
        return self.lows[place.topic, place.partition], self.ends[place.topic, place.partition]

    def offsets_for_times(self, requested: list[Any], timeout: float) -> list[Any]:
        self._answer()
        for each in requested:
            later = [at for at in self.offsets[each.topic, each.partition] if 1_000 + at >= each.offset]
            each.offset = later[0] if later else -1
        return requested

    def assign(self, places: list[Any]) -> None:
        self._ended = set()
        self._positions = {(p.topic, p.partition): 0 if p.offset == OFFSET_BEGINNING else p.offset for p in places}

    def poll(self, wait_s: float) -> Message | None:
        messages = self.consume(1, wait_s)
        return messages[0] if messages else None

    def consume(self, limit: int, wait_s: float) -> list[Message]:
        messages = [Message(("", 0), 0, self.failures.pop(0)) for _ in self.failures[:limit]]
        for place, position in self._positions.items():
            found = [Message(place, at) for at in self.offsets[place] if at >= position][: limit - len(messages)]
            messages += found
            self._positions[place] = found[-1].at + 1 if found else position
            if not found and not self.is_unreachable and place not in self._ended and len(messages) < limit:
                self._ended.add(place)
                messages.append(Message(place, self.ends[place], KafkaError(KafkaError._PARTITION_EOF)))
        self.now_s += 0 if messages else wait_s
        return messages

    def sleep(self, wait_s: float) -> None:
        self.now_s += wait_s

    def close(self) -> None:
        self.is_closed = True

    def _answer(self) -> None:
        if self.is_unreachable:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    fake = Brokers({(GROUPS, 0): range(5), (GROUPS, 1): [], (EVENTS, 0): range(10, 13), (EVENTS, 1): range(3)})

    def consumer(settings: Settings, client_id: str, options: dict[str, Any]) -> Brokers:
        fake.options = {"client.id": client_id, **options}
        return fake

    monkeypatch.setattr(module, "consumer", consumer)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: fake.now_s, sleep=fake.sleep))
    return fake


NO_BROKER = Settings(bootstrap_servers="127.0.0.1:1")


def reading(*topics: str, **options: Any) -> TopicReader:
    return TopicReader(NO_BROKER, topics or (GROUPS, EVENTS), "test", **options)


def offsets(records: Iterable[Record], topic: str = GROUPS, partition: int = 0) -> list[int]:
    return [record.offset for record in records if (record.topic, record.partition) == (topic, partition)]


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,  # of the same request, while the leader has not answered the connection
    ],
)
def test_partition_that_was_created_a_moment_ago_is_asked_for_again(brokers: Brokers, code: int) -> None:
    brokers.without_leader, brokers.of_leaders = 3, code
    assert reading().ends[GROUPS, 0] == 5
    assert brokers.now_s == pytest.approx(3 * module.RETRY_WAIT_S)


def test_partition_that_gets_no_leader_is_reported(brokers: Brokers) -> None:
    brokers.without_leader = 10**6
    with pytest.raises(BrokerUnreachable, match="leader"):
        reading()
    assert brokers.now_s >= module.LEADERS_WAIT_S
    brokers.without_leader, brokers.of_leaders = 1, KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(BrokerUnreachable):
        reading()


# -- the backlog -------------------------------------------------------------------------------------------------------


def test_the_backlog_has_all_records_from_before_the_reader_was_made(brokers: Brokers) -> None:
    topics = reading()
    assert not topics.is_caught_up
    brokers.offsets[GROUPS, 0] += [5, 6]
    records = list(topics.backlog())
    assert offsets(records) == [0, 1, 2, 3, 4]
    assert offsets(records, EVENTS) == [10, 11, 12]
    assert topics.is_caught_up
    assert offsets(topics.poll(1.0)) == [5, 6], "records after the backlog are kept for the next poll"


def test_a_hole_at_the_end_of_a_partition_is_skipped(brokers: Brokers) -> None:
    """A transaction's marker has an offset and is not a record."""
    brokers.ends[GROUPS, 0] = 9
    topics = reading(GROUPS)
    assert offsets(topics.backlog()) == [0, 1, 2, 3, 4]
    assert topics.is_at_the_ends()


def test_partitions_can_be_read_one_after_the_other(brokers: Brokers) -> None:
    brokers.offsets[EVENTS, 1] += [3, 4]
    topics = reading(EVENTS)
    brokers.offsets[EVENTS, 1] += [5]
    assert offsets(topics.backlog([(EVENTS, 1)]), EVENTS, 1) == [0, 1, 2]
    assert offsets(topics.backlog([(EVENTS, 0)]), EVENTS, 0) == [10, 11, 12]
    assert offsets(topics.poll(1.0), EVENTS, 1) == [3, 4, 5], "they were dropped when the other partition was assigned"


def test_only_the_selected_partitions_are_read(brokers: Brokers) -> None:
    topics = reading(partitions=lambda count: {count - 1})
    assert set(topics.ends) == {(GROUPS, 1), (EVENTS, 1)}
    assert {record.partition for record in topics.backlog()} == {1}


def test_the_newest_records_are_divided_among_a_topics_partitions(brokers: Brokers) -> None:
    topics = reading(newest=4)
    assert topics.begins == {(GROUPS, 0): 3, (GROUPS, 1): 0, (EVENTS, 0): 11, (EVENTS, 1): 1}
    assert offsets(topics.backlog()) == [3, 4]


def test_reading_can_begin_at_a_time(brokers: Brokers) -> None:
    topics = reading()
    begins = topics.offsets_at(1_003)
    assert begins == {(GROUPS, 0): 3, (EVENTS, 0): 10}
    topics.seek(begins)
    assert offsets(topics.backlog(begins)) == [3, 4]


def test_a_shared_progress_counts_the_records_of_all_readers(brokers: Brokers) -> None:
    reports: list[tuple[int, int]] = []
    progress = Progress(lambda read, of: reports.append((read, of)))
    for topic in (GROUPS, EVENTS):
        assert list(reading(topic).backlog(progress=progress))
    assert reports[-1] == (11, 11)


def test_an_expected_total_does_not_grow_with_each_reader(brokers: Brokers) -> None:
    reports: list[tuple[int, int]] = []
    progress = Progress(lambda read, of: reports.append((read, of)))
    progress.expect(11)
    for topic in (GROUPS, EVENTS):
        assert list(reading(topic).backlog(progress=progress))
    assert {of for _, of in reports} == {11}
    assert reports[-1] == (11, 11)


def test_progress_in_words_is_reported_at_intervals(brokers: Brokers) -> None:
    reports: list[str] = []
    progress = Progress.in_words(reports.append)
    for now_s in (0.0, 1.0, module.REPORT_EVERY_S, module.REPORT_EVERY_S + 1.0):
        brokers.now_s = now_s
        progress.count(10)
    assert reports == ["Read 30 of about 0 records."]


# -- topics that grow --------------------------------------------------------------------------------------------------


def test_reading_from_the_ends_returns_only_new_records(brokers: Brokers) -> None:
    topics = reading()
    topics.seek_to_ends()
    assert topics.is_caught_up
    assert topics.poll(1.0) == []
    brokers.offsets[GROUPS, 0] += [5]
    brokers.offsets[GROUPS, 1] += [0]
    brokers.ends |= {(GROUPS, 0): 6, (GROUPS, 1): 1}
    assert not topics.is_at_the_ends()
    assert [(r.partition, r.offset) for r in topics.gather(1.0)] == [(0, 5), (1, 0)]
    assert topics.is_at_the_ends()


def test_a_tombstone_has_its_headers(brokers: Brokers) -> None:
    topics = reading(GROUPS)
    assert topics.poll(1.0)[0] == Record(GROUPS, 0, 0, 1_000, b"", b"value", ())
    assert module._record(Message((GROUPS, 0), 5, of=None), (GROUPS, 0), 5).headers == [("version", b"7")]  # type: ignore[arg-type]


# -- brokers that do not answer ----------------------------------------------------------------------------------------


def test_a_topic_that_does_not_exist_is_named(brokers: Brokers) -> None:
    with pytest.raises(NoCoordinator, match=r"There is no topic coordinator\.replies at "):
        reading(GROUPS, "coordinator.replies")
    assert brokers.is_closed


def test_unreachable_brokers_are_reported(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "ANSWER_WAIT_S", 0.2)
    brokers.is_unreachable = True
    with pytest.raises(BrokerUnreachable, match="No Kafka broker answers at "):
        reading()
    assert brokers.is_closed


def test_silent_brokers_raise_an_error_after_the_time_limit(brokers: Brokers) -> None:
    topics = reading(GROUPS, silence_s=20.0)
    brokers.is_unreachable, brokers.offsets[GROUPS, 0] = True, [0, 1]
    with pytest.raises(BrokerUnreachable, match=r"coordinator\.groups-0 cannot be read on"):
        list(topics.backlog())
    assert 20.0 < brokers.now_s < 21.0


def test_a_backlog_ends_within_its_time(brokers: Brokers) -> None:
    topics = reading(GROUPS, silence_s=math.inf)
    brokers.is_unreachable, brokers.offsets[GROUPS, 0] = True, [0, 1]
    with pytest.raises(TopicUnread, match=r"coordinator\.groups could not be read to its end within 5 s"):
        list(topics.backlog(within_s=5.0))
    assert 5.0 < brokers.now_s < 6.0


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError.GROUP_AUTHORIZATION_FAILED])
def test_temporary_and_irrelevant_errors_are_ignored(brokers: Brokers, code: int) -> None:
    topics = reading(GROUPS)
    brokers.failures = [KafkaError(code)]
    assert offsets(topics.backlog()) == [0, 1, 2, 3, 4]


def test_a_refusal_is_raised_or_passed_to_the_error_callback(brokers: Brokers) -> None:
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    topics = reading(GROUPS)
    brokers.failures = [refused]
    with pytest.raises(BrokerUnreachable, match="The coordinator's topics cannot be read: "):
        list(topics.backlog())
    reports: list[KafkaError] = []
    topics = reading(GROUPS, on_error=reports.append)
    brokers.failures = [refused]
    assert offsets(topics.backlog()) == [0, 1, 2, 3, 4]
    assert reports == [refused]


def test_a_callers_options_override_the_readers_own(brokers: Brokers) -> None:
    reading(GROUPS, when_expired="error", options={"fetch.wait.max.ms": 1_000})
    chosen = ("client.id", "auto.offset.reset", "fetch.wait.max.ms", "enable.partition.eof")
    assert [brokers.options[name] for name in chosen] == ["test", "error", 1_000, True]
