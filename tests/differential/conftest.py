"""What conversations need of the shared broker: topics to commit offsets of, and a coordinator that is ready."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from kafka import KafkaAdminClient
from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from streaming.embedded import Broker
from tests.differential.theirs import Address, Connection, Theirs
from tests.system.waiting import wait_until

TOPICS = {name: {"num_partitions": 3} for name in ("t", "u")}


@pytest.fixture(scope="session")
def address(broker: Broker) -> Address:
    """Where Kafka's own coordinator listens; it is ready to coordinate."""
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(TOPICS, wait_for_metadata=True)
    host, port = broker.bootstrap_servers.split(":")
    with closing(Connection((host, int(port)), "first")) as first:
        first.call(FindCoordinatorRequest(key="g", key_type=0), 3)  # which makes the topic of offsets
        wait_until(lambda: first.call(DescribeGroupsRequest(groups=["g"]), 5).groups[0].error_code == 0)
    return host, int(port)


@pytest.fixture
def theirs(address: Address) -> Iterator[Theirs]:
    with closing(Theirs(address)) as theirs:
        yield theirs
