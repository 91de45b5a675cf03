"""Brokers that are added and removed behind a gateway: each has its port before a client learns of the broker."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaProducer
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest

from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.embedded.broker import HOST, Node, formatted_cluster_id, free_port
from streaming.gateway import Gateway
from streaming.kafka.topics import ensure
from streaming.query.coordinator import Coordinator
from tests.clients.kinds import JAVA, KAFKA_PYTHON, LIBRDKAFKA, LIBRDKAFKA_848
from tests.clients.play import Play, Venue, playing
from tests.clients.worker import Worker
from tests.differential.java_assignors import java
from tests.ports import free_port_at
from tests.system.balancer import Balancer
from tests.system.waiting import HANG_S, wait_until
from tests.system.wire import Wire, connect

pytestmark = pytest.mark.long

GATEWAY_HOSTS = ("127.0.0.2", "127.0.0.3")
MEMBERS = (LIBRDKAFKA, LIBRDKAFKA_848, KAFKA_PYTHON, JAVA)


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "first") as broker:
        yield broker


@contextmanager
def second(first: Broker, folder: Path) -> Iterator[Broker]:
    """Run a second broker in the cluster of the first one."""
    voters = re.search(r"^controller\.quorum\.voters=.*$", (folder / "first" / "server.properties").read_text(), re.M)
    assert voters
    cluster_id = formatted_cluster_id(first.data_dir)
    assert cluster_id
    node = Node(2, HOST, free_port(), 0, voters[0].split("=")[1], cluster_id)
    properties = {"process.roles": "broker", "listeners": f"PLAINTEXT://{HOST}:{node.port}"}
    with Broker(folder / "second", node=node, properties=properties) as broker:
        yield broker


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_clients_of_every_library_reach_a_gateway_at_an_ipv6_address(first: Broker, host: str):
    """Public reports, kafka-proxy 203: the gateway's ports for single brokers have the address as well."""
    settings = Settings.load(
        bootstrap_servers=first.bootstrap_servers, replication_factor=1, gateway_port=0, gateway_host=host
    )
    ensure(settings)
    with KafkaAdminClient(bootstrap_servers=first.bootstrap_servers) as admin:
        admin.create_topics({"t": {"num_partitions": 1}})
    with Gateway(settings) as gateway:
        address = gateway.bootstrap_servers
        assert address.startswith("[::1]:")
        with KafkaProducer(bootstrap_servers=address) as by_kafka_python:
            assert by_kafka_python.send("t", b"1").get(timeout=HANG_S).offset == 0
        by_librdkafka = Producer({"bootstrap.servers": address})
        by_librdkafka.produce("t", b"2")
        assert by_librdkafka.flush(HANG_S) == 0
        with java() as started:
            assert java_end(started, address) == 2


def java_end(started: Any, address: str) -> int:
    """Return the end of the topic's partition, as Java's consumer reads it."""
    gateway = started._gateway
    properties = gateway.jvm.java.util.Properties()
    properties.put("bootstrap.servers", address)
    for side in ("key", "value"):
        properties.put(f"{side}.deserializer", "org.apache.kafka.common.serialization.BytesDeserializer")
    consumer = gateway.jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
    try:
        partition = gateway.jvm.org.apache.kafka.common.TopicPartition("t", 0)
        return int(consumer.endOffsets(gateway.jvm.java.util.List.of(partition))[partition])
    finally:
        consumer.close()


def brokers(wire: Wire) -> dict[int, str]:
    """Request the brokers' metadata, and return the address of each broker by its id."""
    return {b.node_id: f"{b.host}:{b.port}" for b in wire.call(MetadataRequest(version=9, topics=[])).brokers}


def test_added_and_removed_brokers_are_followed(first: Broker, tmp_path: Path):
    """A new broker's port is open before a client learns of it. A removed broker's port still serves our own APIs."""
    settings = Settings.load(bootstrap_servers=first.bootstrap_servers, replication_factor=1, gateway_port=0)
    ensure(settings)
    with Gateway(settings) as gateway, connect(gateway.bootstrap_servers) as wire:
        alone = brokers(wire)
        assert alone.keys() == {1}
        with second(first, tmp_path):
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


# -- behind a load balancer --------------------------------------------------------------------------------------------


@pytest.fixture
def coordinator_of_first(first: Broker, tmp_path: Path) -> Iterator[Coordinator]:
    settings = Settings.load(
        bootstrap_servers=first.bootstrap_servers,
        replication_factor=1,
        request_partitions=4,
        checkpoint=str(tmp_path / "checkpoint"),
        group_initial_rebalance_delay_ms=300,
    )
    coordinator = Coordinator(settings)
    coordinator.start()
    yield coordinator
    coordinator.stop()


@pytest.mark.nightly
@pytest.mark.parametrize(("listening", "advertised"), [("::1", "::1"), (HOST, "localhost")])
def test_members_behind_a_load_balancer_are_served_by_any_gateway(
    first: Broker, coordinator_of_first: Coordinator, tmp_path: Path, listening: str, advertised: str
) -> None:
    """Public reports, kafka-proxy 203: each connection may reach another gateway, a broker is added, a gateway ends."""
    port = free_port_at((*GATEWAY_HOSTS, listening), (1, 2))
    ports = {number: port + 1 + number for number in (1, 2)}
    settings = coordinator_of_first.settings.model_copy(
        update={"gateway_port": port, "gateway_advertised_host": advertised}
    )
    former, latter = (Gateway(settings.model_copy(update={"gateway_host": host})) for host in GATEWAY_HOSTS)
    with latter, Balancer(listening, [port, *ports.values()], GATEWAY_HOSTS) as balancer:
        with playing(Venue(first.bootstrap_servers, balancer.bootstrap_servers, tmp_path), "balanced") as play:
            with former:
                topic = play.topic(partitions=2, records=5)
                members = [play.start(kind, group=f"{kind}, balanced") for kind in MEMBERS]
                await_committed(play, members, 5)
                with second(first, tmp_path):
                    for host in GATEWAY_HOSTS:
                        await_named(f"{host}:{port}", {n: f"{advertised}:{each}" for n, each in ports.items()})
                    read_from_the_added_broker(play, first)
            play.produce(topic, 5)
            await_committed(play, members, 10)
            assert not [event for each in members for event in (*each.took_away, *each.events_of("error"))]
        assert set(balancer.passed) == set(GATEWAY_HOSTS)


def await_committed(play: Play, members: list[Worker], end: int) -> None:
    """Wait until each of these only members of their groups has read and committed all records."""
    for member in members:
        play.until_shared(play.name, member)
        play.until_read(member)
        if member.kind.obeys:
            member.order("commit")
        play.until(lambda member=member: member.committed == dict.fromkeys(member.owned, end))  # type: ignore[misc]


def await_named(gateway: str, expected: dict[int, str]) -> None:
    """Wait until a gateway names these addresses of brokers, and check that it names no others for coordinators."""
    groups = [f"g-{number}" for number in range(10)]
    with connect(gateway) as wire:
        wait_until(lambda: brokers(wire) == expected)
        found = wire.call(FindCoordinatorRequest(version=4, key_type=0, coordinator_keys=groups)).coordinators
    assert [each.key for each in found] == groups
    assert {each.node_id for each in found} == expected.keys()
    assert all(f"{each.host}:{each.port}" == expected[each.node_id] for each in found)


def read_from_the_added_broker(play: Play, first: Broker) -> None:
    """Check that new members of each library read a topic of broker 2, at an address that no client knew before."""
    with KafkaAdminClient(bootstrap_servers=first.bootstrap_servers) as admin:
        admin.create_topics({"later": {"assignments": {0: [2]}}}, wait_for_metadata=True)
    members = [play.start(kind, group=f"{kind}, later", topics=["later"]) for kind in MEMBERS]
    play.until(lambda: all(each.owned == {("later", 0)} for each in members))
    with KafkaProducer(bootstrap_servers=first.bootstrap_servers) as producer:
        for _ in range(2):
            producer.send("later", b"x", partition=0).get(timeout=HANG_S)
    play.until(lambda: all(each.read["later", 0] == [0, 1] for each in members))
    for member in members:
        member.close()
