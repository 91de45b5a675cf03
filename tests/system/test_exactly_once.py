"""Exactly-once processing with librdkafka: consume, transform, produce, each batch in one transaction.

Copiers of one group copy all records of a topic. In the end the copies that a reader of committed records finds are
counted: each record is there once, and in the order of its partition.
"""

from collections.abc import Iterator

import pytest

from streaming.embedded import Broker
from streaming.gateway import Gateway
from tests.clients.copying import OPTIONS, assert_copied_once, latest_offsets
from tests.clients.kinds import COPIER, COPIER_848, Kind
from tests.clients.play import SESSION_MS, Play, Venue, playing
from tests.clients.worker import Worker
from tests.tiers import NIGHTLY

PARTITIONS = 4
RECORDS = 50


@pytest.fixture
def play(
    broker: Broker, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Play]:
    venue = Venue(broker.bootstrap_servers, gateway.bootstrap_servers, tmp_path_factory.mktemp("copying"))
    with playing(venue, f"copying-{request.node.callspec.id}") as play:
        yield play


@pytest.mark.parametrize(
    "kind",
    [pytest.param(COPIER, id="classic"), pytest.param(COPIER_848, id="consumer", marks=NIGHTLY)],
)
def test_records_are_copied_once_when_a_copier_is_killed(play: Play, broker: Broker, kind: Kind) -> None:
    """One of two copiers is killed with SIGKILL between its offsets and its commit, and is started again.

    The new process has the transactional id of the killed one, so the brokers abort the open transaction. Its records
    and its offsets are dropped; the records are copied again.
    """
    topic, sink = play.topic(partitions=PARTITIONS), play.topic(partitions=PARTITIONS, suffix="-sink")

    def start(number: int) -> Worker:
        return play.start(kind, transactional_id=f"{topic}-{number}", sink=sink, session_ms=SESSION_MS, **OPTIONS)

    killed, other = start(0), start(1)
    play.until_shared(topic, killed, other)
    play.produce(topic, RECORDS)
    play.until(lambda: killed.committed)
    killed.order("hold")
    play.produce(topic, RECORDS)
    play.until(lambda: killed.events_of("held"))
    killed.kill()
    play.produce(topic, RECORDS)
    again = start(0)
    play.until_shared(topic, again, other)
    play.produce(topic, RECORDS)
    ends = {(topic, number): end for number, end in play.ends()}
    play.until(lambda: latest_offsets([killed, other, again]) == ends)
    assert_copied_once(play, broker.bootstrap_servers, sink)
