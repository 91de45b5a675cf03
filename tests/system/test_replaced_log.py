"""A broker loses the end of the request log, which the coordinator has handled, and other requests take the offsets.

An unclean leader election does this, and a loss of power. Here a killed broker's file is cut, on a real broker.
"""

import re
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from coordinator.messages.requests import ListGroups
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.errors import Exit
from streaming.kafka.lookup import Found, Lookup
from streaming.query.watchers.log_watch import Comparison
from streaming.wire.records import Tally, encode_request
from tests.ports import free_gateway_port
from tests.system.conftest import Service, start_service
from tests.system.replaying import RequestLog, await_taken, claim, ends, last_words, written
from tests.system.starting import STARTED, Ending, Starter, starter
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long

CUT, PARTITION = 3, 2
"""The number of records that the log loses, and the partition that loses them."""

SETTINGS = {
    "topic_prefix": "replaced",
    "replication_factor": 1,
    "request_partitions": 4,
    "group_initial_rebalance_delay_ms": 0,
}

ANOTHER_RECORD = (
    r"Handled requests are gone from replaced\.requests, as after an unclean leader election or a power loss of a"
    r' broker: in partition 2, another record has offset (\d+); see "Replaced requests" in docs/checkpoints\.md\.'
)
SHORTER = (
    r"Handled requests are gone from replaced\.requests, as after an unclean leader election or a power loss of a"
    r' broker: partition 2 ends at offset (\d+), and was read to (\d+); see "Replaced requests" in'
    r" docs/checkpoints\.md\."
)


@pytest.fixture(scope="module")
def starts() -> Iterator[Starter]:
    with starter() as starts:
        yield starts


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker", port=free_gateway_port()) as broker:
        yield broker


@pytest.fixture
def settings(broker: Broker, tmp_path: Path, starts: Starter) -> Settings:
    """Return settings with a checkpoint of a coordinator that has handled requests and was stopped."""
    checkpoint = str(tmp_path / "state")
    settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=checkpoint, **SETTINGS)
    claim(settings)
    RequestLog(settings).append(silent=0)  # nothing is due later: a stop never abandons a batch that still writes
    assert starts.start(settings) == STARTED
    return settings


def end_of(settings: Settings) -> int:
    return ends(settings, settings.requests_topic)[PARTITION]


def append(settings: Settings, count: int, transactional_id: str | None = None) -> None:
    """Append requests that no event is about, each in a batch of its own."""
    arguments = settings.kafka_client_arguments() | ({"transactional_id": transactional_id} if transactional_id else {})
    with closing(KafkaProducer(**arguments)) as producer:
        if transactional_id:
            producer.init_transactions()
            producer.begin_transaction()
        for number in range(count):
            listing = encode_request(ListGroups(request_id=f"list/{number}", reply_to="inbox"))
            producer.send(settings.requests_topic, listing, b"any", partition=PARTITION).get(30)
        if transactional_id:
            producer.commit_transaction()


def cut(broker: Broker, topic: str, offset: int) -> None:
    """Kill the broker, and cut its only file of the partition at an offset."""
    broker.kill()
    folder = broker.data_dir / "data" / f"{topic}-{PARTITION}"
    (file,) = folder.glob("*.log")
    data, place = file.read_bytes(), 0
    while (head := struct.unpack_from(">qi", data, place))[0] < offset:
        place += 12 + head[1]
    assert head[0] == offset, "the offset is that of a batch's first record"
    file.write_bytes(data[:place])
    for derived in (*folder.glob("*.index"), *folder.glob("*.timeindex"), *folder.glob("*.snapshot")):
        derived.unlink()


def assert_refused(ending: Ending, sentence: str) -> tuple[int, ...]:
    """Return the numbers in the sentence."""
    assert ending.is_refused, ending.told
    assert ending.exit_code == Exit.NEEDS_A_PERSON
    found = re.fullmatch(sentence, ending.told)
    assert found, ending.told
    return tuple(int(number) for number in found.groups() if number is not None)


def test_replaced_requests_are_not_skipped(settings: Settings, broker: Broker, starts: Starter) -> None:
    """Every start is refused, and no start writes any output."""
    append(settings, 10)
    assert starts.start(settings) == STARTED
    end = end_of(settings)
    cut(broker, settings.requests_topic, end - CUT)
    broker.start()
    assert end_of(settings) == end - CUT
    append(settings, 2 * CUT)
    before = written(settings)
    for _ in range(2):
        (offset,) = assert_refused(starts.start(settings), ANOTHER_RECORD)
        assert end - CUT <= offset < end
    assert written(settings) == before
    assert starts.start(settings.model_copy(update={"checkpoint_may_be_outdated": True})) == STARTED
    assert starts.start(settings) == STARTED


@pytest.mark.nightly
def test_a_log_that_ends_before_handled_requests_is_refused(
    settings: Settings, broker: Broker, starts: Starter
) -> None:
    """The start appends no wake record, with which the log would soon be as long as before."""
    append(settings, 10)
    assert starts.start(settings) == STARTED
    end = end_of(settings)
    cut(broker, settings.requests_topic, end - CUT)
    broker.start()
    before = written(settings)
    for _ in range(2):
        assert assert_refused(starts.start(settings), SHORTER)[0] == end - CUT
    assert (written(settings), end_of(settings)) == (before, end - CUT)


@pytest.fixture
def service(settings: Settings, tmp_path: Path) -> Iterator[Service]:
    service = start_service(tmp_path, 1, **SETTINGS, bootstrap_servers=settings.bootstrap_servers)
    service.await_ready()
    yield service
    print(service.log)
    if service.process.poll() is None:
        service.kill()


def test_requests_that_are_replaced_while_the_query_runs_are_noticed(
    settings: Settings, service: Service, broker: Broker, starts: Starter
) -> None:
    """The query has handled later requests by then, which are in the log. So the checkpoint has a note."""
    append(settings, 10)
    await_taken(service)
    end = end_of(settings)
    cut(broker, settings.requests_topic, end - CUT)
    with Broker(broker.data_dir, port=free_gateway_port()) as unseen:
        append(settings.model_copy(update={"bootstrap_servers": unseen.bootstrap_servers}), 2 * CUT)
    broker.start()
    found = re.fullmatch(ANOTHER_RECORD, last_words(service, Exit.NEEDS_A_PERSON))
    assert found, service.log
    assert int(found[1]) >= end - CUT
    for _ in range(2):
        assert_refused(starts.start(settings), ANOTHER_RECORD)
    assert starts.start(settings.model_copy(update={"checkpoint_may_be_outdated": True})) == STARTED
    assert starts.start(settings) == STARTED


@pytest.mark.nightly
def test_a_log_that_is_cut_while_the_query_runs_is_no_matter_of_retention(
    settings: Settings, service: Service, broker: Broker, starts: Starter
) -> None:
    append(settings, 10)
    await_taken(service)
    end = end_of(settings)
    cut(broker, settings.requests_topic, end - CUT)
    broker.start()
    words = last_words(service, Exit.NEEDS_A_PERSON)
    assert re.fullmatch(SHORTER, words), words
    assert_refused(starts.start(settings), f"{SHORTER}|{ANOTHER_RECORD}")


def test_handled_requests_that_have_expired_are_not_missed(settings: Settings, starts: Starter) -> None:
    all_ends = ends(settings, settings.requests_topic)
    gone = {TopicPartition(settings.requests_topic, partition): end for partition, end in all_ends.items()}
    with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
        admin.delete_records(gone)
    assert starts.start(settings) == STARTED


def test_the_marker_of_a_transaction_is_no_replaced_request(settings: Settings, starts: Starter) -> None:
    append(settings, 2, transactional_id="any")
    assert starts.start(settings) == STARTED
    assert starts.start(settings) == STARTED


@pytest.mark.nightly
def test_a_brokers_restart_replaces_nothing(settings: Settings, broker: Broker) -> None:
    """A killed broker comes back with another leader epoch, and with all records: each of them is compared."""
    with Lookup(settings, settings.requests_topic, "any") as lookup:

        def last() -> Found:
            record = lookup.records({PARTITION: end_of(settings) - 1}, HANG_S)[PARTITION]
            assert record is not None
            return record

        comparison, before = Comparison(), last()
        comparison.begin_at({PARTITION: before})
        append(settings, 2)
        comparison.handle([tally(last())])
        broker.kill()
        broker.start()
        append(settings, 1)
        comparison.handle([tally(last())])
        assert last().epoch != before.epoch
        wait_until(lambda: comparison.compare(lookup) is None and not comparison.waiting)
        append(settings, 1)
        comparison.handle([tally(last()._replace(at_ms=1))])
        found = comparison.compare(lookup)
        assert found is not None
        assert (found.offset, found.handled_ms) == (last().offset, 1)


def tally(record: Found) -> Tally:
    """Return the figures of a batch whose last record is this one."""
    figures = dict.fromkeys(("groups", "members", "requests", "heartbeats", "answered", "oldest_ms", "deferred"), 0)
    return Tally(shard=PARTITION, **figures, due_in_ms=None, last=(record.offset, record.at_ms))
