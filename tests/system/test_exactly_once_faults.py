"""Exactly-once processing while gateways and the coordinator are killed.

Two copiers of one group use two gateways. In the end their copies are counted, as in `test_exactly_once`.

librdkafka 2.16.0 was not seen to continue after a transactional producer had lost all brokers at once, as it does when
its gateway is killed: it ends the open transaction, but the next `send_offsets_to_transaction` sends no TxnOffsetCommit
and does not return. So the copiers are started again after the kill of a gateway. `test_exactly_once_late` has gateways
that stall, with a raw client.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streaming.embedded import Broker
from tests.chaos.gateways import GatewayProcess
from tests.clients.copying import OPTIONS, assert_copied_once, latest_offsets
from tests.clients.kinds import COPIERS, Kind
from tests.clients.play import SESSION_MS, Play, Venue, playing
from tests.clients.worker import Worker
from tests.system.conftest import Service

pytestmark = pytest.mark.long

PARTITIONS = 4
RECORDS = 50
SOCKET_MS = 4_000
"""How long the copiers wait for a response."""

SHORT = {"group_consumer_session_timeout_ms": SESSION_MS, "group_consumer_heartbeat_interval_ms": SESSION_MS // 3}


class Copying:
    """A coordinator of its own, two gateways, and two copiers with the topics that they read and write."""

    def __init__(self, broker: Broker, run_service: Callable[..., Service], prefix: str, folder: Path) -> None:
        self._broker, self._run, self._prefix = broker, run_service, prefix
        self.service = run_service(prefix, **SHORT)
        self.gateways = [GatewayProcess(folder, number) for number in (0, 1)]
        self.service.await_ready()
        self.start_gateways()

    def start_gateways(self) -> None:
        """Start the gateways that do not run."""
        missing = [each for each in self.gateways if each.process is None or each.process.poll() is not None]
        for gateway in missing:
            gateway.start(self._broker.bootstrap_servers, self._prefix)
        for gateway in missing:
            gateway.await_ready()

    def start_coordinator(self) -> None:
        """Start a coordinator on the state of the killed one."""
        self.service = self._run(self._prefix, **SHORT)
        self.service.await_ready()

    def start_copier(self, play: Play, kind: Kind, number: int) -> Worker:
        addresses = [gateway.address for gateway in self.gateways]
        own = {"transactional_id": f"{play.name}-{number}", "sink": f"{play.name}-sink"}
        # A copier begins with the gateway of its own number.
        bootstrap = ",".join(addresses[number:] + addresses[:number])
        options = {**OPTIONS, "socket_ms": SOCKET_MS, "session_ms": SESSION_MS}
        return play.start(kind, bootstrap=bootstrap, **options, **own)

    def close(self) -> None:
        for gateway in self.gateways:
            gateway.kill()


@pytest.fixture
def copying(broker: Broker, run_service: Callable[..., Service], tmp_path: Path, group_id: str) -> Iterator[Copying]:
    copying = Copying(broker, run_service, group_id.replace("_", "-").replace("[", "-").strip("]")[-60:], tmp_path)
    yield copying
    copying.close()


@pytest.fixture
def play(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Play]:
    name = request.node.name.removeprefix("test_").replace("_", "-").replace("[", "-").rstrip("]")
    with playing(Venue(broker.bootstrap_servers, "", tmp_path), name) as play:
        yield play


def start(copying: Copying, play: Play, kind: Kind) -> list[Worker]:
    """Create the topics and start two copiers; return them when each has copied records."""
    topic = play.topic(partitions=PARTITIONS)
    play.topic(partitions=PARTITIONS, suffix="-sink")
    copiers = [copying.start_copier(play, kind, number) for number in (0, 1)]
    play.until_shared(topic, *copiers)
    play.produce(topic, RECORDS)
    play.until(lambda: all(copier.committed for copier in copiers))
    return copiers


def hold(play: Play, copiers: list[Worker]) -> None:
    """Make each copier wait in the middle of a transaction, after it has sent its offsets."""
    held = [len(copier.events_of("held")) for copier in copiers]
    for copier in copiers:
        copier.order("hold")
    play.produce(play.name, RECORDS)
    play.until(lambda: all(len(c.events_of("held")) > before for c, before in zip(copiers, held, strict=True)))


def resume(play: Play, copiers: list[Worker]) -> None:
    """Resume the copiers, and wait until they have committed the transactions in which they waited."""
    done = [len(copier.events_of("committed")) for copier in copiers]
    for copier in copiers:
        copier.order("resume")
    play.until(lambda: all(len(c.events_of("committed")) > n for c, n in zip(copiers, done, strict=True)))


def finish(play: Play, broker: Broker, copiers: list[Worker]) -> None:
    """Wait until all records are copied, and count the copies."""
    play.produce(play.name, RECORDS)
    ends = {(play.name, number): end for number, end in play.ends()}
    play.until(lambda: latest_offsets(copiers) == ends)
    assert_copied_once(play, broker.bootstrap_servers, f"{play.name}-sink")


@pytest.mark.nightly
@pytest.mark.parametrize("kind", COPIERS, ids=["classic", "consumer"])
def test_records_are_copied_once_while_parts_are_killed(
    copying: Copying, play: Play, broker: Broker, kind: Kind
) -> None:
    """kill -9 of one gateway of two, then of the other, then of the coordinator, in open transactions with offsets."""
    copiers = start(copying, play, kind)
    everybody = list(copiers)
    for gateway in copying.gateways:
        hold(play, copiers)
        gateway.kill()
        resume(play, copiers)
        for number, copier in enumerate(copiers):
            copier.kill()
            copiers[number] = copying.start_copier(play, kind, number)
        everybody += copiers
        copying.start_gateways()
        play.until_shared(play.name, *copiers)
    hold(play, copiers)
    copying.service.kill()
    for copier in copiers:
        copier.order("resume")
    copying.start_coordinator()
    finish(play, broker, everybody)
