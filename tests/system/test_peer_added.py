"""A peer is added while members work: a driver that stands by has the new setting, and takes over."""

from collections.abc import Callable
from pathlib import Path

from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.errors import Exit
from streaming.kafka import topics
from tests.chaos.takeovers import STANDING
from tests.system.asking import Asker
from tests.system.conftest import Service
from tests.system.moving import move
from tests.system.waiting import wait_until
from tests.tiers import NIGHTLY

pytestmark = list(NIGHTLY)

SHARDS = 3
ALONE, ADDED = "without-a-peer", "added-peer"


def test_a_driver_that_stands_by_adds_a_peer(
    run_service: Callable[..., Service], broker: Broker, tmp_path: Path
) -> None:
    key = tmp_path / "peers.key"
    key.write_text("of both coordinators, 32 bytes or more".replace(" ", "-"))
    servers = broker.bootstrap_servers
    topics.ensure(
        Settings(bootstrap_servers=servers, topic_prefix=ADDED, replication_factor=1, request_partitions=SHARDS)
    )
    former = run_service(ALONE, stand_by=True)
    former.await_ready()
    with Transport(former.settings.kafka_client_arguments(), ALONE) as transport:
        ana, generation = Asker(transport, "g").alone()

    own = {"checkpoint": str(tmp_path / "added"), "slots": "none", "request_partitions": SHARDS}
    added = run_service(ADDED, peers=(ALONE,), peer_key_file=str(key), **own)
    other = run_service(ALONE, stand_by=True, peers=(ADDED,), peer_key_file=str(key))
    wait_until(lambda: STANDING in other.log, account=lambda: other.log)
    assert former.stop() == Exit.DONE
    other.await_ready()
    added.await_ready()

    assert move(other.settings, added.settings, "--group", "g", "--yes") == {"g": "moved"}
    with Transport(added.settings.kafka_client_arguments(), ADDED) as transport:
        assert Asker(transport, "g").heartbeat(generation, ana).error == "NONE"
