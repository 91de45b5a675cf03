"""Starts of an observer that would read nothing, or that would continue with records missing: they are refused."""

import json
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import SparkSession

from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.errors import CheckpointMismatch, Exit
from streaming.kafka.acls import SOURCE_TOPIC
from streaming.observe import identity
from streaming.observe import observer as module
from streaming.observe import source as of_source
from streaming.observe.observer import NothingRead, Observer
from streaming.observe.operator import Start
from streaming.observe.source import Source, SourceLost, ends, find_source, refuse_long_absence, retention_ms
from streaming.query.spark.session import open_session
from tests.system.kafka_groups import kafka_group
from tests.system.reading import Reader
from tests.system.test_observe import Seen
from tests.system.test_observe_kills import Load, last_offset, values_by_version
from tests.system.waiting import wait_until

pytestmark = pytest.mark.long

DAY_MS = 24 * 3_600_000


@pytest.fixture
def spark(observer: Observer) -> SparkSession:
    return open_session(observer.settings)


@pytest.fixture
def source(observer: Observer) -> Source:
    found = find_source(observer.settings)
    assert found is not None
    return found


@pytest.fixture
def copied(broker: Broker, observer: Observer, tmp_path: Path) -> Settings:
    """Return settings with a copy of the observer's checkpoint, in which a batch has read a group."""
    with kafka_group(broker.bootstrap_servers, f"copied-{tmp_path.name}") as group:
        group.join("ana").await_owned(0, 1, 2, 3)
        Seen(observer, group.group_id).await_stable(members=1, generation=1)
    shutil.copytree(observer.settings.checkpoint, tmp_path / "copy", copy_function=copy_if_there)
    return observer.settings.model_copy(update={"checkpoint": str(tmp_path / "copy")})


def copy_if_there(source: str, target: str) -> None:
    """Copy a file, unless the running observer has renamed or removed it since its folder was listed."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_brokers_tell_the_source_and_the_retention(observer: Observer, source: Source) -> None:
    assert source.partitions == 1
    assert retention_ms(observer.settings) == 7 * DAY_MS
    stable, highest = ends(observer.settings, source), ends(observer.settings, source, is_stable=False)
    assert stable.keys() == highest.keys() == {0}


def test_checkpoint_of_another_source_is_refused(copied: Settings, spark: SparkSession, source: Source) -> None:
    ids = {"observed.groups": "a", "observed.events": "b", "observed.topics": "c"}
    with pytest.raises(CheckpointMismatch) as refusal:
        identity.claim(spark, copied, Source("another", 2), ids)
    assert refusal.value.exit_code == Exit.NEEDS_A_PERSON
    said = str(refusal.value)
    assert "source_partitions was 1 and is 2" in said
    assert f"topic {SOURCE_TOPIC} is not the one it was made with" in said
    assert "topic observed.groups is not the one it was made with" in said


def test_identity_that_was_changed_or_is_lost_is_refused(copied: Settings, spark: SparkSession, source: Source) -> None:
    file = Path(copied.checkpoint) / "identity.json"
    file.write_text(file.read_text().replace('"source_partitions":1', '"source_partitions":2'))
    with pytest.raises(CheckpointMismatch, match="fails its checksum"):
        identity.claim(spark, copied, source, {})
    file.write_text("?")
    with pytest.raises(CheckpointMismatch, match="cannot be read"):
        identity.claim(spark, copied, source, {})
    file.unlink()
    with pytest.raises(CheckpointMismatch, match=r"has a query's state but no identity\.json"):
        identity.claim(spark, copied, source, {})


def test_observer_that_was_away_for_too_long_is_refused(observer: Observer, source: Source, copied: Settings) -> None:
    """Tombstones are kept for a day: a record that is to be read and older than half of it shows that some may be
    gone. The age of the checkpoint alone shows nothing: nothing may have been written meanwhile."""
    settings = observer.settings
    assert ends(settings, source, is_stable=False)[0] > 0, f"{copied.checkpoint} has read a group"

    def is_accepted_when_all_is_read() -> bool:
        try:
            refuse_long_absence(settings, ends(settings, source, is_stable=False), now_ms() + 10 * DAY_MS)
        except SourceLost:
            return False
        return True

    wait_until(is_accepted_when_all_is_read)  # another group may write a record between the two looks at the end
    refuse_long_absence(settings, {0: 0}, now_ms())
    with pytest.raises(SourceLost, match=r"for more than half of its delete\.retention\.ms"):
        refuse_long_absence(settings, {0: 0}, now_ms() + DAY_MS // 2 + 1)
    refuse_long_absence(settings, {}, now_ms())


def test_source_that_ends_too_early_is_refused(observer: Observer, source: Source) -> None:
    beyond = ends(observer.settings, source, is_stable=False)[0] + 10_000  # other groups of the tests go on writing
    with pytest.raises(SourceLost, match=rf"ends before the records .+ in partition 0 at \d+ and not at {beyond} or"):
        refuse_long_absence(observer.settings, {0: beyond}, now_ms())


def test_facts_of_a_start_are_kept_for_a_batch_that_is_repeated(copied: Settings, spark: SparkSession) -> None:
    planned = identity.planned_to(spark, copied)
    assert planned.keys() == {0}
    (before,) = identity.record_start(spark, copied, {0: 1}, None)[:-1]
    assert before.first_batch == 0
    starts = identity.record_start(spark, copied, {0: 2}, None)
    assert starts == identity.record_start(spark, copied, {0: 3}, 5), "no batch was planned between the two starts"
    assert starts[-1] == Start(starts[-1].first_batch, {0: 1}, None)
    assert starts[-1].first_batch > 0
    (Path(copied.checkpoint) / "starts" / f"{starts[-1].first_batch}.json").write_text("?")
    with pytest.raises(CheckpointMismatch, match="cannot be read"):
        identity.record_start(spark, copied, {0: 3}, 5)


@pytest.mark.nightly
def test_batch_that_is_repeated_writes_equal_bytes(broker: Broker, observer: Observer, tmp_path: Path) -> None:
    """A process ends between the output of a batch and Spark's note that the batch is done.

    A load commits all the time. If the last batch has read other records alone, or was interrupted, the process starts
    and ends again.
    """
    changed = {"topic_prefix": "repeated", "checkpoint": str(tmp_path / "repeated")}
    settings, group_id = observer.settings.model_copy(update=changed), "repeated-batch"
    query, stops = tmp_path / "repeated" / "query", 0
    for number in range(2):
        observing = started(settings)
        with kafka_group(broker.bootstrap_servers, f"{group_id}-{number}") as group:
            group.join("ana").await_owned(0, 1, 2, 3)
            group.join("bo", **{"group.protocol": "consumer"})
            Seen(observing, group.group_id).await_record(lambda each: each["type"] == "consumer")
            load = Load(group)
            reader = Reader(settings, load.group_id)
            await_more_of(reader)
            observing.stop()
            while number == 0 and not last_batch_is_of(query, broker, load.group_id):
                observing = started(settings)
                await_more_of(reader)
                observing.stop()
                stops += 1
            load.stop()
        if number == 0:
            repeated = forget_last_commit(query)
    assert len(list((tmp_path / "repeated" / "starts").glob("[0-9]*.json"))) == 2 + stops
    for each in (f"{group_id}-0", f"{group_id}-0-load"):
        versions = values_by_version(settings, each)
        assert sorted(versions) == list(range(1, len(versions) + 1))
        assert {len(values) for values in versions.values()} == {1}
    written = records_of(settings, f"{group_id}-0-load")
    assert len(written) > len(versions), f"batch {repeated} was repeated"


def started(settings: Settings) -> Observer:
    observer = Observer(settings)
    observer.start()
    return observer


def await_more_of(reader: Reader) -> None:
    """Wait until the observer has written a higher offset of the load."""
    before = last_offset(reader)
    wait_until(lambda: last_offset(reader) > before)


def last_batch_is_of(query: Path, broker: Broker, group_id: str) -> bool:
    """Return whether the newest planned batch is finished, and has read a record of a group."""
    plans, done = (
        sorted((file for file in (query / kind).iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
        for kind in ("offsets", "commits")
    )
    if plans[-1].name != done[-1].name:
        return False
    begin, end = (json.loads(plan.read_text().splitlines()[-1])[SOURCE_TOPIC]["0"] for plan in plans[-2:])
    source = TopicPartition(SOURCE_TOPIC, 0)
    with KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, exclude_internal_topics=False) as consumer:
        consumer.assign([source])
        consumer.seek(source, begin)
        keys = list[bytes]()
        while consumer.position(source) < end:
            keys += [r.key for batch in consumer.poll(timeout_ms=500).values() for r in batch if r.offset < end]
    return any(group_id.encode() in key for key in keys)


def forget_last_commit(query: Path) -> int:
    """Delete Spark's note that the last batch is done."""
    done = max((file for file in (query / "commits").iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    done.unlink()
    return int(done.name)


def records_of(settings: Settings, group_id: str) -> list[bytes]:
    reader = Reader(settings, group_id)
    found = [each for topic in (settings.groups_topic, settings.events_topic) for each in reader.records(topic)]
    return [each.value for each in found if each.value and json.loads(each.value)["group_id"] == group_id]


def test_plan_that_cannot_be_read_is_refused(copied: Settings, spark: SparkSession) -> None:
    plans = Path(copied.checkpoint) / "query" / "offsets"
    newest = max((file for file in plans.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    newest.write_text("v1\n{}\n?")
    with pytest.raises(CheckpointMismatch, match="a plan of a batch cannot be read"):
        identity.planned_to(spark, copied)


def test_session_that_passes_over_internal_topics_is_refused(
    copied: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its setting, Spark's source leaves the topic out, and the query would be idle for ever."""
    monkeypatch.setattr(module, "READS_INTERNAL_TOPICS", "spark.sql.streaming.kafka.no.such.setting")
    monkeypatch.setattr(module, "FIRST_BATCH_S", 2)
    changed = {"topic_prefix": "nothing", "checkpoint": str(tmp_path / "nothing")}
    blind = Observer(copied.model_copy(update=changed))
    try:
        with pytest.raises(NothingRead, match="passes over internal topics") as refusal:
            blind.start()
    finally:
        blind.stop()
    assert refusal.value.exit_code == Exit.NEEDS_A_PERSON


@pytest.mark.parametrize(("offsets", "sentences"), [(500_000, 0), (500_001, 1)])
def test_long_way_to_the_first_view_is_reported(observer: Observer, offsets: int, sentences: int) -> None:
    said: list[str] = []
    Observer(observer.settings, said.append)._report_distance(offsets)
    assert [line.split(" records")[0] for line in said] == ["Up to 500,001"][:sentences]


def test_new_cluster_is_waited_for(broker: Broker) -> None:
    """A topic of another name stands for the source that is not there yet."""
    settings = Settings(bootstrap_servers=broker.bootstrap_servers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_source, "SOURCE_TOPIC", "no-such-topic")
        assert find_source(settings) is None
    wait_until(lambda: find_source(settings) is not None)
