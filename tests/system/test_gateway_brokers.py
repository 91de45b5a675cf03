"""Brokers that are added and removed behind a gateway: each has its port before a client learns of the broker."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.embedded import broker as embedded
from streaming.gateway import Gateway
from streaming.kafka.topics import ensure
from tests.system.waiting import wait_until
from tests.system.wire import Wire, connect

pytestmark = pytest.mark.long


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "first") as broker:
        yield broker


@contextmanager
def second(first: Broker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """Run a second broker in the cluster of the first one."""
    monkeypatch.setattr(embedded, "_cluster_id", first._cluster)
    voters = re.search(r"^controller\.quorum\.voters=.*$", (folder / "first" / "server.properties").read_text(), re.M)
    assert voters
    port = embedded._free_port()
    here = f"PLAINTEXT://{embedded.HOST}:{port}"
    properties = {"node.id": "2", "process.roles": "broker", "listeners": here, "advertised.listeners": here}
    properties["controller.quorum.voters"] = voters[0].split("=")[1]
    with Broker(folder / "second", port=port, properties=properties) as broker:
        yield broker


def brokers(wire: Wire) -> dict[int, str]:
    """Request the brokers' metadata, and return the address of each broker by its id."""
    return {b.node_id: f"{b.host}:{b.port}" for b in wire.call(MetadataRequest(version=9, topics=[])).brokers}


def test_added_and_removed_brokers_are_followed(first: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A new broker's port is open before a client learns of it. A removed broker's port still serves our own APIs."""
    settings = Settings.load(bootstrap_servers=first.bootstrap_servers, replication_factor=1, gateway_port=0)
    ensure(settings)
    with Gateway(settings) as gateway, connect(gateway.bootstrap_servers) as wire:
        alone = brokers(wire)
        assert alone.keys() == {1}
        with second(first, tmp_path, monkeypatch):
            wait_until(lambda: len(brokers(wire)) == 2)
            both = brokers(wire)
            assert both[1] == alone[1]
            with connect(both[2]) as through_it:
                assert brokers(through_it) == both
        wait_until(lambda: brokers(wire) == alone)
        with connect(both[2]) as through_it:
            assert through_it.call(ApiVersionsRequest(version=2)).error_code == 0
            through_it.send(MetadataRequest(version=9, topics=[]))
            assert through_it.is_hung_up(), "no broker to relay it to"
