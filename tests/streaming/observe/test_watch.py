"""Tests of the observer's threads and figures, without brokers and without Spark."""

import queue
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming import watcher
from streaming.config.settings import Settings
from streaming.errors import Exit, UserError
from streaming.kafka.acls import SOURCE_TOPIC, Role, commands
from streaming.kafka.offsets import Offsets
from streaming.observe.failures import CAUSES
from streaming.observe.naming import ASK_AGAIN_S, Naming
from streaming.observe.operator import Name
from streaming.observe.tally import Observed, Tally
from streaming.observe.watch import HELD_BACK_S, SourceWatch
from streaming.query.spark.failures import because
from streaming.query.watchers.progress import read_to
from tests.system.waiting import HANG_S

SETTINGS = Settings(bootstrap_servers="kafka:9092").observing()


def progress(*tallies: Tally, batch: int = 0, ends: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return the progress of a batch as Spark reports it."""
    return {
        "name": "group-observer",
        "batchId": batch,
        "durationMs": {"triggerExecution": 250},
        "observedMetrics": {"coordinator": {"shards": [tally.to_json() for tally in tallies]}},
        "stateOperators": [{"memoryUsedBytes": 1_000}],
        "sources": [{"endOffset": {"__consumer_offsets": ends or {"0": 10}, "observed.topics": {"0": 99}}}],
    }


def tally(partition: int = 0, **figures: Any) -> Tally:
    usual = {"groups": 2, "members": 3, "records": {"1": 5}, "published": 4, "unnamed": [], "unnamed_total": 0}
    return Tally(partition=partition, **{**usual, **figures})


# -- figures -----------------------------------------------------------------------------------------------------------


def test_figures_are_sums_over_batches_and_the_last_of_each_partition() -> None:
    observed = Observed()
    observed.handle(progress(tally(0), tally(1)))
    observed.handle(progress(tally(1, groups=7, records={"1": 1, "2": 1, "unreadable": 2}), batch=1))
    assert observed.latest is not None
    assert (observed.latest.batch_id, observed.latest.groups, observed.latest.records) == (1, 9, 4)
    assert observed.records == {"1": 11, "2": 1, "unreadable": 2}
    assert observed.totals == {"batches": 2, "duration_ms": 500, "published": 12}
    assert observed.read_to == {0: 10}


def test_position_is_that_in_the_source_and_not_in_the_topic_of_names() -> None:
    assert read_to(progress(ends={"0": 5, "3": 8}), SOURCE_TOPIC) == {0: 5, 3: 8}
    assert read_to({"sources": [{"endOffset": None}]}) == {}


def test_unreadable_records_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    observed = Observed()
    for _ in range(3):
        observed.handle(progress(tally(records={"unreadable": 2})))
    assert [record.message[:44] for record in caplog.records] == ["2 records of __consumer_offsets cannot be re"]


# -- names of topic ids ------------------------------------------------------------------------------------------------


class Topics:
    """The topics of the brokers, and the names that were written."""

    def __init__(self, **names: str) -> None:
        self.names, self.finds, self.written = names, 0, list[Name]()

    def find(self) -> Mapping[str, str]:
        self.finds += 1
        return dict(self.names)

    def write(self, names: Iterable[Name]) -> None:
        self.written += names


def asked(*ids: str, partition: int = 0) -> Observed:
    observed = Observed()
    observed.handle(progress(tally(partition, unnamed=list(ids), unnamed_total=len(ids))))
    assert observed.names_wanted.is_set()
    return observed


def test_name_is_written_once_for_each_partition_that_asks() -> None:
    topics, observed = Topics(id1="orders"), asked("id1")
    naming = Naming(topics.find, topics.write, observed)
    naming.answer()
    naming.answer()
    assert topics.written == [Name(0, "id1", "orders")]
    observed.handle(progress(tally(3, unnamed=["id1"], unnamed_total=1)))
    naming.answer()
    assert topics.written[1:] == [Name(3, "id1", "orders")]
    assert topics.finds == 1, "a name that is known needs no request"


def test_name_is_written_again_if_its_partition_still_asks_for_it() -> None:
    topics, now_s = Topics(id1="orders"), [100.0]
    naming = Naming(topics.find, topics.write, asked("id1"), now_s=lambda: now_s[0])
    for after_s, writes in ((0.0, 1), (ASK_AGAIN_S - 0.1, 1), (0.1, 2)):
        now_s[0] += after_s
        naming.answer()
        assert len(topics.written) == writes


def test_name_that_the_brokers_did_not_take_is_written_again() -> None:
    topics = Topics(id1="orders")

    def fail(_: Iterable[Name]) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    naming = Naming(topics.find, fail, asked("id1"))
    with pytest.raises(KafkaException):
        naming.answer()
    naming._write = topics.write
    naming.answer()
    assert topics.written == [Name(0, "id1", "orders")]


def test_id_without_a_topic_is_looked_for_again_after_a_while() -> None:
    topics, now_s = Topics(), [100.0]
    naming = Naming(topics.find, topics.write, asked("id1"), now_s=lambda: now_s[0])
    naming.answer()
    now_s[0] += ASK_AGAIN_S - 0.1
    naming.answer()
    assert topics.finds == 1
    topics.names["id1"] = "orders"
    now_s[0] += 0.1
    naming.answer()
    assert (topics.finds, topics.written) == (2, [Name(0, "id1", "orders")])


def test_naming_that_fails_begins_again_after_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[Exception] = [KafkaException("no broker"), RuntimeError("any other error")]
    written = queue.Queue[list[Name]]()
    observed = asked("id1")

    def find() -> dict[str, str]:
        observed.names_wanted.set()  # the next batch asks again
        if failures:
            raise failures.pop(0)
        return {"id1": "orders"}

    monkeypatch.setattr(watcher, "RETRY_WAIT_S", 0.0)
    naming = Naming(find, lambda names: written.put(list(names)), observed)
    naming.start()
    assert written.get(timeout=HANG_S) == [Name(0, "id1", "orders")]
    naming.close()
    assert not failures


# -- transactions that hold the source back ----------------------------------------------------------------------------


class Ends:
    """The ends of the source, and the watch that compares them."""

    def __init__(self) -> None:
        self.now_s, self.stable, self.highest = 1_000.0, {0: 5, 1: 5}, {0: 5, 1: 5}
        self.error: Exception | None = None
        self.observed = Observed()
        self.watch = SourceWatch(self.ask, self.observed, lambda: self.now_s)

    def ask(self) -> tuple[Offsets, Offsets]:
        if self.error:
            raise self.error
        return self._offsets(self.stable), self._offsets(self.highest)

    def _offsets(self, ends: dict[int, int]) -> Offsets:
        """Return the ends, of which one broker leads all partitions."""
        known = {(SOURCE_TOPIC, n): end for n, end in ends.items()}
        return Offsets(known, {}, dict.fromkeys(known, 1), frozenset(), frozenset({1}))

    def look(self, after_s: float) -> list[str]:
        self.now_s += after_s
        self.watch.check()
        return self.watch.not_ready_reasons()


def test_partition_that_a_transaction_holds_back_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    ends = Ends()
    ends.highest = {0: 5, 1: 9}
    assert ends.look(0.0) == []
    assert ends.look(HELD_BACK_S - 0.1) == []
    assert ends.look(0.1) == ["a transaction holds partition 1 of __consumer_offsets back for 60 s"]
    ends.look(5.0)
    assert len(caplog.records) == 1, "it is logged once"
    assert ends.watch.held_back == {1: 65.0}
    ends.stable = ends.highest
    assert ends.look(5.0) == []


def test_partition_whose_stable_offset_moves_is_not_held_back() -> None:
    ends = Ends()
    for step in range(20):
        ends.stable, ends.highest = {0: 5, 1: 5 + step}, {0: 5, 1: 50}
        assert ends.look(10.0) == []


def test_brokers_that_do_not_answer_are_a_reason() -> None:
    ends = Ends()
    ends.error = KafkaException(KafkaError(KafkaError._TRANSPORT))
    assert ends.look(21.0) == ["no Kafka broker has answered for 21 s"]
    assert ends.watch.records_behind is None
    ends.error = None
    assert ends.look(1.0) == []


# -- failures, rights and settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "exit_code", "words"),
    [
        ("CorruptState: a partition's state is too short", Exit.NEEDS_A_PERSON, "is damaged (a partition's state"),
        ("Some data may have been lost because", Exit.NEEDS_A_PERSON, "were deleted before the observer read them"),
        ("some data may have been missed", Exit.NEEDS_A_PERSON, "were deleted before the observer read them"),
        ("Not authorized to access group: observed-x", Exit.NEEDS_A_PERSON, "groups whose ids begin with observed"),
        ("TopicAuthorizationException: x", Exit.NEEDS_A_PERSON, "let it read __consumer_offsets"),
        ("CONCURRENT_QUERY", Exit.NEEDS_A_PERSON, "Another observer runs on the checkpoint checkpoints/observed"),
        ("UnknownTopicOrPartitionException", Exit.FAILED, "is missing: start again"),
        ("No space left on device", Exit.FAILED, "free some space"),
    ],
)
def test_failure_of_the_query_is_a_sentence(report: str, exit_code: Exit, words: str) -> None:
    error = because(report, SETTINGS, UserError, CAUSES)
    assert error.exit_code == exit_code
    assert words in str(error)


def test_plan_in_a_report_is_not_taken_for_lost_data() -> None:
    """Spark prints the options of the source, `failOnDataLoss` among them, with the plan of a query."""
    error = because("[UNRESOLVED_COLUMN] x\n+- StreamingRelation [failOnDataLoss=true]", SETTINGS, UserError, CAUSES)
    assert str(error) == "The query failed: [UNRESOLVED_COLUMN] x"


def test_rights_of_the_observer() -> None:
    printed = [line.split("User:o ")[1] for line in commands(Role.OBSERVER, "User:o", SETTINGS)]
    assert printed == [
        "--operation Write --operation DescribeConfigs --topic observed.groups",
        "--operation Read --operation Write --operation DescribeConfigs --topic observed.events",
        "--operation Read --operation Write --operation DescribeConfigs --topic observed.topics",
        "--operation Read --operation DescribeConfigs --topic __consumer_offsets",
        "--operation Describe --group observed --resource-pattern-type prefixed",
        "--operation DescribeConfigs --cluster",
        "--operation Describe --topic '*'",
    ]
    assert "Create" in next(commands(Role.OBSERVER, "User:o", SETTINGS, to_create=True))


def test_observer_has_topics_and_a_checkpoint_of_its_own() -> None:
    assert (SETTINGS.groups_topic, SETTINGS.events_topic, SETTINGS.topics_topic) == (
        "observed.groups",
        "observed.events",
        "observed.topics",
    )
    assert SETTINGS.checkpoint == "checkpoints/observed"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"observe_prefix": "coordinator"}, "needs topics of its own"),
        ({"observe_checkpoint": "checkpoints/default"}, "needs a folder of its own"),
        ({"observe_every_ms": 99}, "greater than or equal to 100"),
        ({"observe_every_ms": 60_001}, "less than or equal to 60000"),
        ({"observe_records_per_batch": 999}, "greater than or equal to 1000"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Settings.load(bootstrap_servers="kafka:9092", **wrong).observing()


def test_commands_that_show_groups_may_have_the_observers_prefix() -> None:
    assert Settings.load(bootstrap_servers="kafka:9092", topic_prefix="observed").groups_topic == "observed.groups"
