"""Members of the consumer protocol (KIP-848) while parts of the system are killed, and over a longer time.

Each test names the check of the specification's section 11 that it is. The session timeout is a setting of the
coordinator, so these tests start their own. Check 13 is played by the scenarios `sleeps for longer than its session`
and `polls too late` of `tests.clients`, with the default session of 45 s.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from kafka import KafkaAdminClient

from streaming.client.transport import Transport
from streaming.embedded import Broker
from streaming.gateway import Gateway
from tests.clients.kinds import LIBRDKAFKA_848
from tests.clients.play import Venue, playing
from tests.ports import free_gateway_port
from tests.system.conftest import Service
from tests.system.next_members import Group
from tests.system.reading import Reader
from tests.system.waiting import wait_until

pytestmark = pytest.mark.long

SESSION_MS = 6_000
INTERVAL_MS = 2_500
PARTITIONS = 6
SOAK_S = int(os.environ.get("SOAK_S", "120"))
"""An hour is a soak: SOAK_S=3600 pytest tests/system/test_consumer_protocol_faults.py -k no_heartbeat_connection."""

SHORT = {"group_consumer_session_timeout_ms": SESSION_MS, "group_consumer_heartbeat_interval_ms": INTERVAL_MS}

Run = Callable[..., Service]


class Own:
    """A coordinator of its own in another process, and a gateway that can be replaced at its address."""

    def __init__(self, run_service: Run, prefix: str, stack: ExitStack, **settings: object) -> None:
        self._run, self._prefix, self._wanted = run_service, prefix, settings
        self.service = run_service(prefix, **settings)
        self.service.await_ready()
        self.settings = self.service.settings.model_copy(update={"gateway_port": free_gateway_port()})
        self.gateway = Gateway(self.settings)
        self.gateway.__enter__()
        stack.callback(lambda: self.gateway.__exit__(None, None, None))
        self.bootstrap = self.gateway.bootstrap_servers
        self.transport = stack.enter_context(
            Transport(self.settings.kafka_client_arguments(), self.settings.topic_prefix)
        )

    def restart_coordinator(self) -> None:
        """Kill the coordinator with SIGKILL, and start it again."""
        self.service.kill()
        self.service = self._run(self._prefix, **self._wanted)
        self.service.await_ready()

    def replace_gateway(self) -> None:
        """Close the gateway with all its connections, and start another one at its address."""
        self.gateway.__exit__(None, None, None)
        self.gateway = Gateway(self.settings)
        self.gateway.__enter__()

    def events(self, group_id: str) -> list[str]:
        return [str(event["event"]) for event in Reader(self.settings, group_id).events()]


@pytest.fixture
def own(run_service: Run, request: pytest.FixtureRequest) -> Iterator[Callable[..., Own]]:
    with ExitStack() as stack:
        yield lambda **settings: Own(run_service, f"own-{request.node.name}".replace("_", "-"), stack, **settings)


@pytest.fixture
def topic(broker: Broker, group_id: str) -> str:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({group_id: {"num_partitions": PARTITIONS}}, wait_for_metadata=True)
    return group_id


@pytest.mark.nightly
def test_killed_member_is_expelled_after_its_session(
    own: Callable[..., Own], broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Check 3: the other member owns all partitions after the session timeout, and not before."""
    system = own(**SHORT)
    venue = Venue(broker.bootstrap_servers, system.bootstrap, tmp_path_factory.mktemp("killed"))
    with playing(venue, "killed-848") as play:
        topic = play.topic(partitions=2)
        x, y = (play.start(LIBRDKAFKA_848) for _ in range(2))
        play.until_shared(topic, x, y)
        x.kill()
        assert play.until_shared(topic, y) > (SESSION_MS - INTERVAL_MS) / 1_000
    assert system.events("killed-848").count("member_expired") == 1


@pytest.mark.nightly
def test_nobody_is_expelled_when_parts_are_killed(own: Callable[..., Own], topic: str) -> None:
    """Check 14: the coordinator is killed in the middle of a rebalance, then the gateway is replaced."""
    system = own()
    with Group.of(system.transport, system.bootstrap, topic) as group:
        ana = group.join(topic)
        group.until_shared(topic, partitions=PARTITIONS)
        bo = group.join(topic)
        wait_until(lambda: system.events(topic).count("rebalance_started") == 2, account=lambda: system.events(topic))
        system.restart_coordinator()
        group.until_shared(topic, partitions=PARTITIONS)
        epoch = group.describe().group_epoch
        system.replace_gateway()
        cy = group.join(topic)
        group.until_shared(topic, partitions=PARTITIONS)
        group.close(cy)
        group.until_shared(topic, partitions=PARTITIONS)
        assert group.describe().group_epoch == epoch + 2
        assert not any(what == "lost" for member in (ana, bo) for what, _ in member.calls)
    assert not {"member_expired", "member_fenced"} & set(system.events(topic))


@pytest.mark.nightly
def test_no_heartbeat_connection_is_dropped(own: Callable[..., Own], topic: str) -> None:
    """Check 16, two minutes of an hour: librdkafka never gives up waiting for a held response."""
    system = own()
    with Group.of(system.transport, system.bootstrap, topic) as group:
        crew = [group.join(topic) for _ in range(3)]
        group.until_shared(topic, partitions=PARTITIONS)
        calls = [list(member.calls) for member in crew]
        end_s = time.monotonic() + SOAK_S
        wait_until(lambda: time.monotonic() > end_s or any(m.request_timeouts for m in crew), within_s=SOAK_S + 60)
        assert [member.request_timeouts for member in crew] == [0, 0, 0]
        assert [member.calls for member in crew] == calls
    assert "member_expired" not in system.events(topic)
