"""Brokers that come and go behind a gateway: each has its port from the moment on that a client hears of it."""

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


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "first") as broker:
        yield broker


@contextmanager
def second(first: Broker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """Run one more broker of the first one's cluster."""
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
    """Ask who there is, as clients do again and again."""
    return {b.node_id: f"{b.host}:{b.port}" for b in wire.call(MetadataRequest(version=9, topics=[])).brokers}


def test_brokers_that_come_and_go_are_followed(first: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A newcomer's port is open before any client hears of it; one that goes keeps its port for what is served here."""
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
            assert through_it.is_hung_up(), "nobody to pass it on to"
