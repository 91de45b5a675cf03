"""The two sides of conversations: the shared broker's own coordinator, and this project's query behind a gateway."""

from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.gateway import Gateway
from tests.differential.talk import Transcripts
from tests.differential.theirs import RULES, Address, Connection, Theirs
from tests.differential.through_gateway import AT_ONCE, ThroughGateway, as_clients_find_it, settings_of
from tests.differential.topics import SHARED
from tests.system.conftest import start_service
from tests.system.waiting import wait_until

OF_TRANSACTIONS = 1
"""The kind of a coordinator of transactions, in a FindCoordinator request."""


@pytest.fixture(scope="session")
def kafkas(broker: Broker) -> Iterator[Transcripts]:
    """Return the transcripts of Kafka's own coordinator."""
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({name: {"num_partitions": n} for name, n in SHARED.items()}, wait_for_metadata=True)
    address = coordinator_behind(broker.bootstrap_servers)
    with Transcripts(lambda: closing(Theirs(address)), theirs=True, at_once=1) as kafkas:
        yield kafkas


@pytest.fixture(scope="module")  # one module uses it, and an idle query still costs a tenth of a core
def through_gateway(
    request: pytest.FixtureRequest, broker: Broker, kafkas: Transcripts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Transcripts]:
    """Return the transcripts of a gateway's clients, after all conversations of the run have been started."""
    of_module = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    asked = [item for item in of_module if "through_gateway" in getattr(item, "fixturenames", ())]
    conversations = [item.callspec.params["conversation"] for item in asked]  # type: ignore[attr-defined]
    theirs = [kafkas.begin(each) for each in conversations]
    with slow_query(broker, tmp_path_factory.mktemp("slow")) as settings, Gateway(settings) as gateway:
        wait(theirs)  # its times are short, and fifty other conversations must not slow it down
        address = coordinator_behind(gateway.bootstrap_servers)
        with Transcripts(lambda: closing(ThroughGateway(address)), theirs=False, at_once=AT_ONCE) as transcripts:
            for each in sorted(conversations, key=lambda each: each.lasts_ms, reverse=True):
                transcripts.begin(as_clients_find_it(each))
            yield transcripts


@contextmanager
def slow_query(broker: Broker, folder: Path) -> Iterator[Settings]:
    """Run the query in a process of its own, under the rules of the conversations, with longer times."""
    service = start_service(
        folder,
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix="conversations",
        gateway_port=0,
        **settings_of(RULES),
    )
    try:
        service.await_ready()
        yield service.settings
    finally:
        service.kill()


def coordinator_behind(bootstrap_servers: str) -> Address:
    """Return the address of the groups' coordinator, as soon as it is ready."""
    host, port = bootstrap_servers.split(":")
    with closing(Connection((host, int(port)), "first")) as first:
        find = partial(first.call, FindCoordinatorRequest(key="g", key_type=0), 3)
        wait_until(lambda: find().error_code == 0)  # Kafka creates its offsets topic at the first request
        of_transactions = FindCoordinatorRequest(key="t", key_type=OF_TRANSACTIONS)
        wait_until(lambda: first.call(of_transactions, 3).error_code == 0)  # and its topic of transactions
        wait_until(lambda: first.call(DescribeGroupsRequest(groups=["g"]), 5).groups[0].error_code == 0)
        return find().host, find().port
