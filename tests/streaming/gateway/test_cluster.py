"""A gateway's metadata of brokers and topics, and the times at which it is refreshed."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException
from kafka.protocol.admin import DescribeClusterResponse, DescribeConfigsResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from coordinator.hashing import java_hash
from streaming.gateway import cluster as module
from streaming.gateway.cluster import Address, Cluster
from streaming.gateway.frames import LENGTH_BYTES
from streaming.gateway.relayed import RELAYED
from streaming.gateway.rewriting import rewritten

Brokers = dict[int, tuple[str, int]]
THREE: Brokers = {1: ("k1", 9092), 2: ("k2", 9092), 7: ("k7", 9092)}


class Kafka:
    """Lists brokers and topics, and counts the calls."""

    def __init__(self, brokers: Brokers, **topics: int) -> None:
        self.brokers, self.topics, self.asked = brokers, topics, 0
        self.fails = False

    def list_topics(self, timeout: float) -> Any:
        self.asked += 1
        if self.fails:
            raise KafkaException("no broker answers")
        return SimpleNamespace(
            brokers={n: SimpleNamespace(id=n, host=h, port=p) for n, (h, p) in self.brokers.items()},
            topics={n: SimpleNamespace(error=None, partitions=range(p)) for n, p in self.topics.items()},
        )


async def listen(node_id: int) -> Address | None:
    """Open a port for every broker except broker 13."""
    return None if node_id == 13 else Address("gw", 9193 + node_id)


def run(scenario: Callable[[Cluster], Awaitable[None]], kafka: Kafka) -> None:
    async def main() -> None:
        cluster = Cluster(kafka.list_topics, listen)
        await cluster.refresh()
        await scenario(cluster)

    asyncio.run(main())


def test_each_broker_has_a_port_and_groups_are_spread_over_them():
    """S16: groups are spread as in Kafka, so each group has one broker, and all gateways name the same one."""

    async def scenario(cluster: Cluster) -> None:
        assert [cluster.ours(node_id) for node_id in (1, 2, 7, 8)] == [
            ("gw", 9194),
            ("gw", 9195),
            ("gw", 9200),
            None,
        ]
        for group_id in ("a", "my-group", "группа"):
            assert cluster.coordinator_of(group_id) == (1, 2, 7)[java_hash(group_id) % 3]

    run(scenario, Kafka(THREE))


def test_a_lost_broker_keeps_its_port_and_loses_its_groups():
    async def scenario(cluster: Cluster) -> None:
        await cluster.learn([(1, "k1", 9092)], are_all=True)
        assert cluster.ours(7) == ("gw", 9200)
        assert {cluster.coordinator_of(group_id) for group_id in "abcdef"} == {1}
        await cluster.learn([(7, "elsewhere", 1)], are_all=False)
        assert cluster.real(7) == ("elsewhere", 1)
        assert cluster.alive == (1,)

    run(scenario, Kafka(THREE))


def test_without_brokers_no_coordinator_is_found():
    async def scenario(cluster: Cluster) -> None:
        assert cluster.coordinator_of("g") is None
        assert cluster.real(None) is None

    run(scenario, Kafka({}))


def test_metadata_is_refreshed_when_a_topic_is_missing(monkeypatch: pytest.MonkeyPatch):
    """A new topic is found. A missing topic causes at most one refresh a second."""
    kafka = Kafka(THREE, t=3)

    async def scenario(cluster: Cluster) -> None:
        assert cluster.is_sure_of({"t": 3})
        assert cluster.is_sure_of({"u": 1}), "the last refresh was less than a second ago"
        monkeypatch.setattr(module, "METADATA_AGE_MIN_S", 0)
        assert not cluster.is_sure_of({"u": 1})
        assert not cluster.is_sure_of({"t": 4}), "partitions may have been added"
        kafka.topics["u"] = 1
        await asyncio.gather(cluster.refresh(), cluster.refresh())
        assert (cluster.partitions_of("u"), kafka.asked) == (1, 2), "both wait for one refresh"

    run(scenario, kafka)


def test_the_names_are_the_same_object_until_a_topic_comes_or_goes():
    """Whoever has matched the names before sees by that whether there is something new."""
    kafka = Kafka(THREE, t=3)

    async def scenario(cluster: Cluster) -> None:
        before = cluster.names
        kafka.topics["t"] = 4
        await cluster.refresh()
        assert cluster.names is before == {"t"}
        kafka.topics["u"] = 1
        await cluster.refresh()
        assert cluster.names == {"t", "u"}

    run(scenario, kafka)


def test_old_metadata_is_used_during_a_refresh(monkeypatch: pytest.MonkeyPatch):
    kafka = Kafka(THREE, t=3)

    async def scenario(cluster: Cluster) -> None:
        monkeypatch.setattr(module, "METADATA_AGE_S", 0)
        del kafka.topics["t"]
        assert cluster.is_sure_of({"t": 1})
        await cluster.refresh()
        assert cluster.partitions_of("t") is None

    run(scenario, kafka)


def test_a_failed_refresh_changes_no_metadata():
    kafka = Kafka(THREE, t=3)

    async def scenario(cluster: Cluster) -> None:
        kafka.fails = True
        await cluster.refresh()
        assert (cluster.partitions_of("t"), cluster.alive) == (3, (1, 2, 7))

    run(scenario, kafka)


# -- rewritten responses -----------------------------------------------------------------------------------------------


def rewrite(message: Any, kafka: Kafka) -> Any:
    """Rewrite a broker's response, and return it as a client reads it."""
    message.with_header(correlation_id=5)
    out: list[Any] = []

    async def scenario(cluster: Cluster) -> None:
        rewrite = RELAYED[message.API_KEY].rewrite
        assert rewrite is not None
        frame = await rewritten(rewrite, message.version, message.encode(header=True), cluster)
        out.append(type(message).decode(frame[LENGTH_BYTES:], version=message.version, header=True))

    run(scenario, kafka)
    assert out[0].header.correlation_id == 5
    return out[0]


@pytest.mark.parametrize("version", range(14))
def test_metadata_has_the_gateways_ports_and_no_broker_without_a_port(version: int):
    """S16: broker 13 has no port, so it is reported as unavailable; broker 3 is new."""
    broker = MetadataResponse.MetadataResponseBroker
    nodes = [broker(node_id=n, host="real", port=1, rack=None) for n in (1, 3, 13)]
    topic, partition = MetadataResponse.MetadataResponseTopic, None
    partition = topic.MetadataResponsePartition
    partitions = [partition(error_code=0, partition_index=0, leader_id=13, replica_nodes=[13], isr_nodes=[13])]
    message = MetadataResponse(
        version=version,
        brokers=nodes,
        cluster_id="c",
        controller_id=1,
        topics=[topic(error_code=0, name="t", partitions=partitions)],
    )
    response = rewrite(message, Kafka(THREE))
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(1, "gw", 9194), (3, "gw", 9196)]
    assert [(t.name, t.partitions[0].leader_id) for t in response.topics] == [("t", 13)]


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_has_the_gateways_ports_and_no_controllers(version: int):
    broker = DescribeClusterResponse.DescribeClusterBroker
    nodes = [broker(broker_id=n, host="real", port=1, rack=None) for n in (1, 13)]
    message = DescribeClusterResponse(version=version, cluster_id="c", controller_id=1, brokers=nodes)
    assert [(b.host, b.port) for b in rewrite(message, Kafka(THREE)).brokers] == [("gw", 9194)]
    if version >= 1:
        message.endpoint_type = 2
        assert rewrite(message, Kafka(THREE)).brokers == []


@pytest.mark.parametrize("version", range(7))
def test_a_transactions_coordinator_is_at_the_gateways_port(version: int):
    """S16: from v4 on, a request has many keys."""
    kind = FindCoordinatorResponse
    if version < 4:
        response = rewrite(kind(version=version, error_code=0, node_id=2, host="real", port=1), Kafka(THREE))
        assert (response.node_id, response.host, response.port) == (2, "gw", 9195)
        return
    each = kind.Coordinator
    ok, error = {"error_code": 0, "error_message": None}, {"error_code": 15, "error_message": None}
    both = [
        each(key="a", node_id=2, host="real", port=1, **ok),
        each(key="b", node_id=-1, host="", port=-1, **error),
        each(key="c", node_id=13, host="real", port=1, **ok),
    ]
    response = rewrite(kind(version=version, coordinators=both), Kafka(THREE))
    assert [(c.host, c.port) for c in response.coordinators] == [("gw", 9195), ("", -1), ("", -1)]


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_with_addresses_are_hidden(version: int):
    result, names = DescribeConfigsResponse.DescribeConfigsResult, ["listeners", "advertised.listeners", "node.id"]
    config = result.DescribeConfigsResourceResult
    fields = {"read_only": False, "config_source": 4, "is_sensitive": False, "synonyms": [], "config_type": 1}
    configs = [config(name=name, value="real:1", documentation=None, **fields) for name in names]
    message = DescribeConfigsResponse(
        version=version,
        results=[result(error_code=0, error_message=None, resource_type=4, resource_name="1", configs=configs)],
    )
    response = rewrite(message, Kafka(THREE)).results[0].configs
    assert [(c.value, c.is_sensitive) for c in response] == [(None, True), (None, True), ("real:1", False)]
