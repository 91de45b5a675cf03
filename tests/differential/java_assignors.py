"""Kafka's own assignors, in a JVM that has only Kafka's jars; this project's assignors are compared with them.

Their inputs and outputs are the bytes of ConsumerProtocol, so these bytes are compared as well.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from coordinator.assignors import Cluster, Plan, Subscriber
from coordinator.assignors.assignor import TopicPartition
from coordinator.base.consumer_protocol import assigned_partitions, write_subscription
from streaming.embedded import BROKER, fetch, find_java

CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


@contextmanager
def kafkas_classes() -> Iterator[JavaGateway]:
    """Start a JVM with Kafka's classes, and stop it at the end."""
    (bridge,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port, secret = launch_gateway(
        jarpath=str(bridge),
        classpath=os.pathsep.join(map(str, fetch(BROKER))),
        java_path=str(find_java()),
        javaopts=["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        die_on_exit=True,
        enable_auth=True,
    )[:2]
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret, auto_convert=True))
    try:
        yield gateway
    finally:
        gateway.shutdown()


@contextmanager
def java() -> Iterator["Java"]:
    """Start the JVM for the classic assignors, and stop it at the end."""
    with kafkas_classes() as gateway:
        yield Java(gateway)


class Java:
    """Kafka's classes, with this project's types as arguments and results."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway = gateway
        jvm = gateway.jvm
        self._consumer = jvm.org.apache.kafka.clients.consumer
        self._protocol = self._consumer.internals.ConsumerProtocol
        self._api = self._consumer.ConsumerPartitionAssignor
        self._common = jvm.org.apache.kafka.common
        self._buffer, self._util = jvm.java.nio.ByteBuffer, jvm.java.util

    def plan(self, name: str, cluster: Cluster, subscribers: Sequence[Subscriber]) -> Plan:
        """Return the assignments that Kafka's assignor of that name computes."""
        group = self._util.HashMap()
        for subscriber in subscribers:
            subscription = self.subscription(write_subscription(subscriber.subscription))
            subscription.setGroupInstanceId(self._util.Optional.ofNullable(subscriber.group_instance_id))
            group.put(subscriber.member_id, subscription)
        assignor = getattr(self._consumer, CLASSES[name])()
        plan = assignor.assign(self._cluster(cluster), self._api.GroupSubscription(group)).groupAssignment()
        return {s.member_id: self._share(plan.get(s.member_id)) for s in subscribers}

    def user_data(self, name: str, told: Sequence[TopicPartition] | None, generation_id: int) -> bytes | None:
        """Return the user data of a member's assignor of that name, after the assignor was given its assignment."""
        assignor = getattr(self._consumer, CLASSES[name])()
        if told is not None:
            metadata = self._consumer.ConsumerGroupMetadata("g", generation_id, "m", self._util.Optional.empty())
            assignor.onAssignment(self._api.Assignment(self._listed(told)), metadata)
        data = assignor.subscriptionUserData(self._util.HashSet())
        return None if data is None else _bytes(data)

    def subscription(self, data: bytes) -> Any:
        return self._protocol.deserializeSubscription(self._buffer.wrap(data))

    def subscription_bytes(self, subscription: Any, version: int) -> bytes:
        return _bytes(self._protocol.serializeSubscription(subscription, version))

    def assignment_bytes(self, partitions: Sequence[TopicPartition], user_data: bytes | None, version: int) -> bytes:
        data = None if user_data is None else self._buffer.wrap(user_data)
        return _bytes(self._protocol.serializeAssignment(self._api.Assignment(self._listed(partitions), data), version))

    def _listed(self, partitions: Sequence[TopicPartition]) -> Any:
        listed = self._util.ArrayList()
        for topic, number in partitions:
            listed.add(self._common.TopicPartition(topic, number))
        return listed

    def _share(self, assignment: Any) -> dict[str, list[int]]:
        share = assigned_partitions(_bytes(self._protocol.serializeAssignment(assignment)))
        assert share is not None, "Kafka's assignment is unreadable"
        return {topic: sorted(numbers) for topic, numbers in share.items() if numbers}

    def _cluster(self, cluster: Cluster) -> Any:
        node_type, info_type = self._common.Node, self._common.PartitionInfo
        racks = sorted({rack for each in cluster.racks.values() for replicas in each for rack in replicas})
        nodes = {rack: node_type(i, "host", 9092, rack) for i, rack in enumerate(racks)}
        infos = self._util.ArrayList()
        for topic, count in cluster.partitions.items():
            for number in range(count):
                on = sorted(cluster.racks[topic][number]) if topic in cluster.racks else []
                replicas = self._gateway.new_array(node_type, len(on))
                for i, rack in enumerate(on):
                    replicas[i] = nodes[rack]
                infos.add(info_type(topic, number, None, replicas, replicas))
        none = self._util.HashSet()
        return self._common.Cluster("cluster", self._util.ArrayList(list(nodes.values())), infos, none, none)


def _bytes(buffer: Any) -> bytes:
    return bytes(buffer.array())[: buffer.limit()]
