"""A gateway's metadata of brokers and topics, and the times at which it is refreshed."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException
from kafka.protocol.admin import DescribeClusterResponse, DescribeConfigsResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from coordinator.base.hashing import java_hash
from streaming.gateway.protocol.frames import LENGTH_BYTES
from streaming.gateway.relay import metadata as module
from streaming.gateway.relay.metadata import Address, Cluster
from streaming.gateway.relay.relayed_apis import RELAYED
from streaming.gateway.relay.rewriting import rewritten
from tests.system.waiting import HANG_S

Brokers = dict[int, tuple[str, int]]
THREE: Brokers = {1: ("k1", 9092), 2: ("k2", 9092), 7: ("k7", 9092)}


class Kafka:
    """Lists brokers and topics, and counts the calls."""

    def __init__(self, brokers: Brokers, **topics: int) -> None:
        self.brokers, self.topics, self.asked = brokers, topics, 0
        self.fails = False
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.while_asked: Callable[[], object] = lambda: None

    def list_topics(self, timeout: float) -> Any:
        topics = dict(self.topics)
        self.asked += 1
        self.while_asked()
        assert self.may_answer.wait(HANG_S)
        if self.fails:
            raise KafkaException("no broker answers")
        return SimpleNamespace(
            brokers={n: SimpleNamespace(id=n, host=h, port=p) for n, (h, p) in self.brokers.items()},
            topics={n: SimpleNamespace(error=None, partitions=range(p)) for n, p in topics.items()},
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


def test_a_new_broker_is_in_every_response_that_names_it_first():
    """Public reports, kafka-proxy 203: two clients see an added broker at the same time. Its port is opened once, and
    neither of the two responses lacks the broker."""
    opened: list[int] = []

    async def bind(node_id: int) -> Address | None:
        await asyncio.sleep(0)  # as asyncio resolves the host's name
        if node_id in opened:
            return None  # the address is in use
        opened.append(node_id)
        await asyncio.sleep(0)
        return await listen(node_id)

    async def main() -> None:
        cluster, added = Cluster(Kafka({}).list_topics, bind), (2, "k2", 9092)

        async def seen_by_a_client() -> Address | None:
            await cluster.learn([added], are_all=True)
            return cluster.ours(2)

        assert await asyncio.gather(seen_by_a_client(), seen_by_a_client()) == [("gw", 9195)] * 2

    asyncio.run(main())
    assert opened == [2]


def test_without_brokers_no_coordinator_is_found():
    async def scenario(cluster: Cluster) -> None:
        assert cluster.coordinator_of("g") is None
        assert cluster.real(None) is None

    run(scenario, Kafka({}))


def test_a_refresh_begins_after_it_was_asked_for():
    """A list that was requested earlier proves nothing about a topic that has been made since. One request runs, and
    all that come meanwhile wait for the same next one."""
    kafka = Kafka(THREE, t=3)

    async def scenario(cluster: Cluster) -> None:
        kafka.may_answer.clear()
        first = asyncio.create_task(cluster.refresh())
        while kafka.asked < 2:
            await asyncio.sleep(0)
        kafka.topics["u"] = 1
        others = [asyncio.create_task(cluster.refresh()) for _ in range(3)]
        await asyncio.sleep(0)
        kafka.may_answer.set()
        await asyncio.gather(first, *others)
        assert (cluster.names, kafka.asked) == ({"t", "u"}, 3)

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


def test_old_metadata_is_renewed_in_the_background(monkeypatch: pytest.MonkeyPatch):
    """The age of a list is that of its request. A response that took long is old when it comes."""
    kafka = Kafka(THREE, t=3)

    async def scenario(cluster: Cluster) -> None:
        cluster.renew()
        assert not cluster.refresh.is_under_way
        clock = SimpleNamespace(now_s=0.0)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
        kafka.while_asked = lambda: setattr(clock, "now_s", module.METADATA_AGE_S + 1)
        await cluster.refresh()
        kafka.topics["u"] = 1
        cluster.renew()
        assert cluster.refresh.is_under_way
        assert cluster.names == {"t"}
        while cluster.refresh.is_under_way:
            await asyncio.sleep(0)
        assert cluster.names == {"t", "u"}

    run(scenario, kafka)


def test_a_failed_refresh_changes_no_metadata():
    kafka = Kafka(THREE, t=3)

    async def scenario(cluster: Cluster) -> None:
        kafka.fails = True
        await cluster.refresh()
        assert (cluster.names, cluster.alive) == ({"t"}, (1, 2, 7))

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


def test_brokers_that_are_not_reached_are_avoided_where_others_will_do():
    async def scenario(cluster: Cluster) -> None:
        cluster.avoid(frozenset({1, 7}))
        assert {cluster.coordinator_of(group_id) for group_id in "abcdef"} == {2}
        assert {cluster.real(None) for _ in range(20)} == {("k2", 9092)}
        assert cluster.real(1) == ("k1", 9092)
        assert (cluster.is_avoided(1), cluster.is_avoided(2), cluster.is_avoided(None)) == (True, False, False)
        cluster.avoid(frozenset({1, 2, 7}))
        assert cluster.coordinator_of("a") in (1, 2, 7)

    run(scenario, Kafka(THREE))
