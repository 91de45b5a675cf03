"""Members of the consumer protocol (KIP-848) while a gateway and a broker are killed in the middle of rebalances.

This is check 14 of the specification's section 11; `test_consumer_protocol_faults` kills the coordinator.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from streaming.client.transport import Transport
from streaming.embedded import Broker
from tests.chaos.gateways import GatewayProcess
from tests.system.conftest import start_service
from tests.system.next_members import Group
from tests.system.reading import Reader
from tests.system.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.nightly]

PARTITIONS = 6
TOPIC = "killed"
SESSION_MS = 600_000
"""Longer than a broker needs to start on any machine: only a fault expels a member."""


class Parts:
    """A broker, a coordinator and a gateway, each in its own process."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.broker = stack.enter_context(Broker(folder / "broker"))
        with KafkaAdminClient(bootstrap_servers=self.broker.bootstrap_servers) as admin:
            admin.create_topics({TOPIC: {"num_partitions": PARTITIONS}}, wait_for_metadata=True)
        service = start_service(
            folder,
            bootstrap_servers=self.broker.bootstrap_servers,
            topic_prefix="kills",
            group_consumer_session_timeout_ms=SESSION_MS,
        )
        stack.callback(service.kill)
        service.await_ready()
        self.settings = service.settings
        self.gateway = GatewayProcess(folder, 0)
        stack.callback(self.gateway.kill)
        self.start_gateway()
        arguments = self.settings.kafka_client_arguments()
        self.transport = stack.enter_context(Transport(arguments, self.settings.topic_prefix))

    def start_gateway(self) -> None:
        self.gateway.start(self.broker.bootstrap_servers, self.settings.topic_prefix)
        self.gateway.await_ready()

    def events(self) -> list[str]:
        return [str(event["event"]) for event in Reader(self.settings, TOPIC).events()]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with ExitStack() as stack:
        yield Parts(tmp_path, stack)


@pytest.mark.parametrize("killed", [("gateway",), ("broker",), ("gateway", "broker")], ids="-".join)
def test_nobody_is_expelled_when_a_part_is_killed(parts: Parts, killed: tuple[str, ...]) -> None:
    """Check 14: kill -9 of the gateway, of the broker, or of both in turn, each in a rebalance of its own.

    While the broker is away, a client connects to the gateway again and again, and repeats its heartbeat each time.
    """
    with Group.of(parts.transport, parts.gateway.address, TOPIC) as group:
        members = [group.join(TOPIC)]
        group.until_shared(TOPIC, partitions=PARTITIONS)
        for begun, name in enumerate(killed, start=2):
            members.append(group.join(TOPIC))
            wait_until(lambda begun=begun: parts.events().count("rebalance_started") == begun, account=parts.events)
            kill, start = {
                "gateway": (parts.gateway.kill, parts.start_gateway),
                "broker": (parts.broker.kill, parts.broker.start),
            }[name]
            kill()
            start()
            group.until_shared(TOPIC, partitions=PARTITIONS)
        assert not {"member_expired", "member_fenced"} & set(parts.events())
        assert [member.calls for member in members if any(what == "lost" for what, _ in member.calls)] == []
        assert group.describe().group_epoch == len(members) + 1
