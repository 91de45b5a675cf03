"""What a gateway knows of brokers and topics, and when it asks anew."""

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
    """Says what there is, and counts how often it was asked."""

    def __init__(self, brokers: Brokers, **topics: int) -> None:
        self.brokers, self.topics, self.asked = brokers, topics, 0
        self.fails = False

    def list_topics(self, timeout: float) -> Any:
        self.asked += 1
        if self.fails:
            raise KafkaException("nobody is there")
        return SimpleNamespace(
            brokers={n: SimpleNamespace(id=n, host=h, port=p) for n, (h, p) in self.brokers.items()},
            topics={n: SimpleNamespace(error=None, partitions=range(p)) for n, p in self.topics.items()},
        )


async def listen(node_id: int) -> Address | None:
    """Open ports for all but broker 13."""
    return None if node_id == 13 else Address("gw", 9193 + node_id)


def run(story: Callable[[Cluster], Awaitable[None]], kafka: Kafka) -> None:
    async def tell() -> None:
        cluster = Cluster(kafka.list_topics, listen)
        await cluster.refresh()
        await story(cluster)

    asyncio.run(tell())


def test_each_broker_has_a_port_and_groups_are_spread_over_them():
    """S16: Kafka's own way to spread them, so that each group has one place, and all gateways name the same one."""

    async def story(cluster: Cluster) -> None:
        assert [cluster.ours(node_id) for node_id in (1, 2, 7, 8)] == [
            ("gw", 9194),
            ("gw", 9195),
            ("gw", 9200),
            None,
        ]
        for group_id in ("a", "my-group", "группа"):
            assert cluster.coordinator_of(group_id) == (1, 2, 7)[java_hash(group_id) % 3]

    run(story, Kafka(THREE))


def test_a_broker_that_goes_keeps_its_port_and_loses_its_groups():
    async def story(cluster: Cluster) -> None:
        await cluster.learn([(1, "k1", 9092)], are_all=True)
        assert cluster.ours(7) == ("gw", 9200)
        assert {cluster.coordinator_of(group_id) for group_id in "abcdef"} == {1}
        await cluster.learn([(7, "elsewhere", 1)], are_all=False)
        assert cluster.real(7) == ("elsewhere", 1)
        assert cluster.alive == (1,)

    run(story, Kafka(THREE))


def test_without_brokers_there_is_no_coordinator():
    async def story(cluster: Cluster) -> None:
        assert cluster.coordinator_of("g") is None
        assert cluster.real(None) is None

    run(story, Kafka({}))


def test_topics_are_asked_for_when_they_are_missed(monkeypatch: pytest.MonkeyPatch):
    """A topic made just now is found; one that is not there costs one question a second at most."""
    kafka = Kafka(THREE, t=3)

    async def story(cluster: Cluster) -> None:
        assert cluster.is_sure_of({"t": 3})
        assert cluster.is_sure_of({"u": 1}), "asked less than a second ago"
        monkeypatch.setattr(module, "METADATA_AGE_MIN_S", 0)
        assert not cluster.is_sure_of({"u": 1})
        assert not cluster.is_sure_of({"t": 4}), "partitions may have been added"
        kafka.topics["u"] = 1
        await asyncio.gather(cluster.refresh(), cluster.refresh())
        assert (cluster.partitions_of("u"), kafka.asked) == (1, 2), "both wait for one answer"

    run(story, kafka)


def test_old_knowledge_serves_while_it_is_renewed(monkeypatch: pytest.MonkeyPatch):
    kafka = Kafka(THREE, t=3)

    async def story(cluster: Cluster) -> None:
        monkeypatch.setattr(module, "METADATA_AGE_S", 0)
        del kafka.topics["t"]
        assert cluster.is_sure_of({"t": 1})
        await cluster.refresh()
        assert cluster.partitions_of("t") is None

    run(story, kafka)


def test_brokers_that_do_not_answer_change_nothing():
    kafka = Kafka(THREE, t=3)

    async def story(cluster: Cluster) -> None:
        kafka.fails = True
        await cluster.refresh()
        assert (cluster.partitions_of("t"), cluster.alive) == (3, (1, 2, 7))

    run(story, kafka)


# -- answers rewritten -------------------------------------------------------------------------------------------------


def rewrite(message: Any, kafka: Kafka) -> Any:
    """Pass a broker's answer through, and read it as a client does."""
    message.with_header(correlation_id=5)
    out: list[Any] = []

    async def story(cluster: Cluster) -> None:
        rewrite = RELAYED[message.API_KEY].rewrite
        assert rewrite is not None
        frame = await rewritten(rewrite, message.version, message.encode(header=True), cluster)
        out.append(type(message).decode(frame[LENGTH_BYTES:], version=message.version, header=True))

    run(story, kafka)
    assert out[0].header.correlation_id == 5
    return out[0]


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_our_ports_and_nobody_without_one(version: int):
    """S16: 13 could not be listened for, and is as good as down; 3 is new."""
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
    said = rewrite(message, Kafka(THREE))
    assert [(b.node_id, b.host, b.port) for b in said.brokers] == [(1, "gw", 9194), (3, "gw", 9196)]
    assert [(t.name, t.partitions[0].leader_id) for t in said.topics] == [("t", 13)]


@pytest.mark.parametrize("version", range(3))
def test_the_clusters_brokers_are_ours_and_controllers_are_nobodys_business(version: int):
    broker = DescribeClusterResponse.DescribeClusterBroker
    nodes = [broker(broker_id=n, host="real", port=1, rack=None) for n in (1, 13)]
    message = DescribeClusterResponse(version=version, cluster_id="c", controller_id=1, brokers=nodes)
    assert [(b.host, b.port) for b in rewrite(message, Kafka(THREE)).brokers] == [("gw", 9194)]
    if version >= 1:
        message.endpoint_type = 2
        assert rewrite(message, Kafka(THREE)).brokers == []


@pytest.mark.parametrize("version", range(7))
def test_a_transactions_coordinator_is_found_here(version: int):
    """S16: v4 and newer ask for many keys."""
    kind = FindCoordinatorResponse
    if version < 4:
        said = rewrite(kind(version=version, error_code=0, node_id=2, host="real", port=1), Kafka(THREE))
        assert (said.node_id, said.host, said.port) == (2, "gw", 9195)
        return
    each = kind.Coordinator
    ok, error = {"error_code": 0, "error_message": None}, {"error_code": 15, "error_message": None}
    both = [
        each(key="a", node_id=2, host="real", port=1, **ok),
        each(key="b", node_id=-1, host="", port=-1, **error),
        each(key="c", node_id=13, host="real", port=1, **ok),
    ]
    said = rewrite(kind(version=version, coordinators=both), Kafka(THREE))
    assert [(c.host, c.port) for c in said.coordinators] == [("gw", 9195), ("", -1), ("", -1)]


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_that_hold_addresses_are_kept_back(version: int):
    result, names = DescribeConfigsResponse.DescribeConfigsResult, ["listeners", "advertised.listeners", "node.id"]
    config = result.DescribeConfigsResourceResult
    fields = {"read_only": False, "config_source": 4, "is_sensitive": False, "synonyms": [], "config_type": 1}
    configs = [config(name=name, value="real:1", documentation=None, **fields) for name in names]
    message = DescribeConfigsResponse(
        version=version,
        results=[result(error_code=0, error_message=None, resource_type=4, resource_name="1", configs=configs)],
    )
    said = rewrite(message, Kafka(THREE)).results[0].configs
    assert [(c.value, c.is_sensitive) for c in said] == [(None, True), (None, True), ("real:1", False)]
