"""The gateway from the view of a raw client: order of responses, addresses, refusals, and unavailable parts."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, ElectionType, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.errors import TopicAlreadyExistsError
from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import AddOffsetsToTxnRequest, InitProducerIdRequest, ProduceRequest
from kafka.record.memory_records import MemoryRecordsBuilder

from streaming.embedded import Broker
from streaming.gateway import Gateway
from streaming.gateway.protocol.definitions import ConsumerGroupHeartbeatRequest
from streaming.gateway.relay.metadata import Address
from streaming.gateway.server.apis import APIS
from tests.system.conftest import Service
from tests.system.waiting import HANG_S, wait_until
from tests.system.wire import Wire, connect

TOPIC = "through-the-gateway"
SESSION_MS = 300_000
"""The session of a member that sends no heartbeats: longer than any of these tests lasts on a busy machine."""


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    with (
        KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin,
        suppress(TopicAlreadyExistsError),  # another module of this worker uses the same broker
    ):
        admin.create_topics({TOPIC: {"num_partitions": 2}}, wait_for_metadata=True)
    return TOPIC


@pytest.fixture
def wire(gateway: Gateway) -> Iterator[Wire]:
    with connect(gateway.bootstrap_servers) as wire:
        yield wire


def join(
    group_id: str,
    member_id: str = "",
    version: int = 9,
    session_timeout_ms: int = SESSION_MS,
    metadata: bytes = b"\0\1\0\0\0\0\0\0\0\0",
) -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)
    return JoinGroupRequest(
        version=version,
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[protocol],
    )


def heartbeat(group_id: str, member_id: str, generation_id: int = 1) -> Any:
    return HeartbeatRequest(version=4, group_id=group_id, generation_id=generation_id, member_id=member_id)


def sync(group_id: str, member_id: str) -> Any:
    part = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")
    return SyncGroupRequest(
        version=5,
        group_id=group_id,
        generation_id=1,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[part],
    )


def become_member(wire: Wire, group_id: str, **options: Any) -> str:
    """Join a group that has no members, sync, and return the member id."""
    member_id = wire.call(join(group_id, **options)).member_id
    assert wire.call(join(group_id, member_id, **options)).error_code == 0
    assert wire.call(sync(group_id, member_id)).assignment == b"mine"
    return str(member_id)


def records(*values: bytes) -> bytes:
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=2**20)
    for value in values:
        builder.append(timestamp=None, key=None, value=value)
    builder.close()
    return bytes(builder.buffer())


def produce(acks: int, *values: bytes) -> Any:
    topic = ProduceRequest.TopicProduceData
    data = topic.PartitionProduceData(index=0, records=records(*values))
    return ProduceRequest(version=9, acks=acks, timeout_ms=5_000, topic_data=[topic(name=TOPIC, partition_data=[data])])


# -- the start ---------------------------------------------------------------------------------------------------------


def test_the_brokers_versions_are_known_before_a_client_can_connect(gateway: Gateway):
    """librdkafka ends a transactional producer for good if the first response to ApiVersions lacks most APIs."""

    class Noting(Gateway):
        knew = False

        async def _listen(self, port: int, node_id: int | None) -> Address:
            self.knew |= node_id is None and self._offers.get(None, (0.0, None))[1] is not None
            return await super()._listen(port, node_id)

    with Noting(gateway.settings.model_copy(update={"gateway_port": 0})) as noting:
        assert noting.knew


@pytest.mark.parametrize("version", [3, 4])
def test_features_are_the_brokers_own_as_far_as_their_apis_are_offered(broker: Broker, wire: Wire, version: int):
    """KIP-584: version 3 leaves out each feature whose minimum is 0, and most have it."""
    request = ApiVersionsRequest(version=version, client_software_name="x", client_software_version="1")
    with connect(broker.bootstrap_servers) as direct:
        theirs = {each.name: (each.min_version, each.max_version) for each in direct.call(request).supported_features}
    for missing in ("share.version", "streams.version"):
        theirs.pop(missing, None)
    assert ("group.version" in theirs) == (version > 3)
    ours = wire.call(request)
    assert {each.name: (each.min_version, each.max_version) for each in ours.supported_features} == theirs
    assert {each.name for each in ours.finalized_features} >= {"group.version", "metadata.version"}


# -- order -------------------------------------------------------------------------------------------------------------


def test_requests_behind_a_parked_join_are_served_in_order(wire: Wire, group_id: str, topic: str):
    """Requests are served while a join is parked, so that no session ends; their responses come after the join's."""
    member_id = wire.call(join(group_id)).member_id
    wire.send(join(group_id, member_id), heartbeat(group_id, "nobody"), MetadataRequest(version=9, topics=None))
    wire.send(produce(1, b"x"), heartbeat(group_id, "nobody"))
    joined, unknown, metadata, produced, again = (wire.read() for _ in range(5))
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, member_id)
    assert (unknown.error_code, again.error_code) == (25, 25)
    assert topic in [t.name for t in metadata.topics]
    assert produced.responses[0].partition_responses[0].error_code == 0


def test_produce_without_acknowledgement_has_no_response(wire: Wire, group_id: str, topic: str):
    wire.send(produce(0, b"silent"), produce(0, b"silent"), produce(1, b"loud"), heartbeat(group_id, "nobody"))
    assert wire.read().responses[0].partition_responses[0].base_offset >= 2
    assert wire.read().error_code == 25


def test_large_responses_are_relayed_in_order(wire: Wire, group_id: str, topic: str):
    """The gateway relays 8 MB of records without storing them."""
    value = bytes(range(256)) * 2_000
    for _ in range(16):
        assert wire.call(produce(1, value)).responses[0].partition_responses[0].error_code == 0
    asked = FetchRequest.FetchTopic
    partition = asked.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**24)
    fetch = FetchRequest(
        version=12,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=2**26,
        topics=[asked(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
    )
    wire.send(fetch, heartbeat(group_id, "nobody"))
    fetched = wire.read().responses[0].partitions[0]
    assert bytes(fetched.records).count(value) >= 16
    assert wire.read().error_code == 25


# -- held heartbeats ---------------------------------------------------------------------------------------------------


def test_held_heartbeat_is_answered_when_a_rebalance_begins(gateway: Gateway, group_id: str):
    """Clients of KIP-62 learn of a rebalance from a heartbeat response. The gateway holds the last heartbeat for it."""
    patient = gateway.settings.model_copy(update={"gateway_heartbeat_hold_ms": 600_000})
    with Gateway(patient) as gateway, connect(gateway.bootstrap_servers) as wire:
        member_id = become_member(wire, group_id)
        wire.send(heartbeat(group_id, member_id))
        with connect(gateway.bootstrap_servers) as newcomer:
            newcomer.send(join(group_id, newcomer.call(join(group_id)).member_id))
            assert wire.read().error_code == 27


def test_next_request_ends_a_held_heartbeat(gateway: Gateway, group_id: str):
    """A request behind a held heartbeat does not wait for it, and the responses keep their order."""
    patient = gateway.settings.model_copy(update={"gateway_heartbeat_hold_ms": 600_000})
    with Gateway(patient) as gateway, connect(gateway.bootstrap_servers) as wire:
        member_id = become_member(wire, group_id)
        for _ in range(3):
            wire.send(heartbeat(group_id, member_id))
            wait_until(lambda: gateway.coordinators.waiting == 0)
            wire.send(heartbeat(group_id, "nobody"))
            assert (wire.read().error_code, wire.read().error_code) == (0, 25)


def test_heartbeat_on_a_shared_connection_is_not_held(gateway: Gateway, group_id: str):
    """Sarama sends no request before it has the last response: a fetch would wait for a held heartbeat."""
    patient = gateway.settings.model_copy(update={"gateway_heartbeat_hold_ms": 600_000})
    with Gateway(patient) as gateway, connect(gateway.bootstrap_servers) as wire:
        member_id = become_member(wire, group_id)
        wire.call(FindCoordinatorRequest(version=4, key_type=0, coordinator_keys=[group_id]))
        assert wire.call(heartbeat(group_id, member_id)).error_code == 0


def test_heartbeat_is_held_for_a_third_of_the_session_at_most(gateway: Gateway, group_id: str):
    """A client leaves its group when a whole session passes without a response."""
    patient = gateway.settings.model_copy(update={"gateway_heartbeat_hold_ms": 600_000})
    with Gateway(patient) as gateway, connect(gateway.bootstrap_servers) as wire:
        member_id = become_member(wire, group_id, session_timeout_ms=6_000)
        assert wire.call(heartbeat(group_id, member_id)).error_code == 0


# -- groups ------------------------------------------------------------------------------------------------------------


def test_member_is_described_with_its_own_address(wire: Wire, group_id: str):
    """S28: DescribeGroups returns the host name and the client id of each member, as Kafka's coordinator does."""
    member_id = become_member(wire, group_id)
    group = wire.call(DescribeGroupsRequest(version=6, groups=[group_id])).groups[0]
    assert (group.group_state, group.protocol_data) == ("Stable", "range")
    assert [(m.member_id, m.client_id, m.client_host) for m in group.members] == [(member_id, "wire", "/127.0.0.1")]
    assert member_id.startswith("wire-")


def beat(group_id: str, epoch: int, topic_names: list[str] | None = None) -> Any:
    """Return the heartbeat of the one member of a group of the consumer protocol."""
    return ConsumerGroupHeartbeatRequest(
        version=1,
        group_id=group_id,
        member_id="one",
        member_epoch=epoch,
        rebalance_timeout_ms=-1 if topic_names is None else 30_000,
        subscribed_topic_names=topic_names,
        topic_partitions=None if topic_names is None else [],
    )


@pytest.mark.parametrize("version", [5, 6])
def test_groups_without_a_classic_description_are_described_as_by_a_broker(
    broker: Broker, wire: Wire, group_id: str, topic: str, version: int
):
    """KIP-1043: from version 6 on, a group of the consumer protocol and one that does not exist have an error."""
    described = [f"{group_id}-absent", group_id]

    def responses(side: Wire) -> Iterator[Any]:
        """Yield the description while the group has a member, and after the member has left."""
        for message in (beat(group_id, 0, [topic]), beat(group_id, -1)):
            wait_until(lambda message=message: side.call(message).error_code == 0)
            yield side.call(DescribeGroupsRequest(version=version, groups=described)).to_dict()

    with connect(broker.bootstrap_servers) as direct:
        theirs = list(responses(direct))
    assert list(responses(wire)) == theirs
    sentences = ["Group {0}-absent not found.", "Group {0} is not a classic group."] if version == 6 else [None, None]
    assert [[group.get("error_message") for group in each["groups"]] for each in theirs] == [
        [sentence and sentence.format(group_id) for sentence in sentences]
    ] * 2


def test_two_connections_are_two_processes_of_a_static_member(gateway: Gateway, wire: Wire, group_id: str):
    """Each connection has its own mailbox: a second process of a static member fences the first one with error 82."""
    for_static = {"version": 9}
    first = join(group_id, **for_static)
    first.group_instance_id = "i"
    assert wire.call(first).error_code == 0
    with connect(gateway.bootstrap_servers) as other:
        second = join(group_id, **for_static)
        second.group_instance_id = "i"
        other.send(second)
        old_id = wire.call(DescribeGroupsRequest(version=5, groups=[group_id])).groups[0].members[0].member_id
        taken = other.read().member_id
        beat = heartbeat(group_id, old_id if old_id != taken else "long-gone")
        beat.group_instance_id = "i"
        assert wire.call(beat).error_code == 82


def test_commits_are_checked_against_the_brokers_topics(wire: Wire, group_id: str, topic: str):
    """Only an unknown topic, a partition that does not exist and a negative partition get error 3."""
    asked = OffsetCommitRequest.OffsetCommitRequestTopic
    wanted = asked.OffsetCommitRequestPartition

    def commit(**partitions: list[int]) -> list[tuple[str, int, int]]:
        topics = [
            asked(name=name, partitions=[wanted(partition_index=p, committed_offset=5) for p in numbers])
            for name, numbers in partitions.items()
        ]
        said = wire.call(OffsetCommitRequest(version=8, group_id=group_id, topics=topics))
        return [(t.name, p.partition_index, p.error_code) for t in said.topics for p in t.partitions]

    assert commit(**{topic: [1, 2, -1], "nowhere": [0]}) == [
        (topic, 1, 0),
        (topic, 2, 3),
        (topic, -1, 3),
        ("nowhere", 0, 3),
    ]
    fetched = wire.call(OffsetFetchRequest(version=5, group_id=group_id, topics=None))
    assert [(t.name, p.partition_index, p.committed_offset) for t in fetched.topics for p in t.partitions] == [
        (topic, 1, 5)
    ]


def test_new_topic_can_be_committed_to(wire: Wire, broker: Broker, group_id: str):
    """The gateway asks the brokers again before it refuses an unknown topic."""
    asked = OffsetCommitRequest.OffsetCommitRequestTopic
    part = asked.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = {"version": 8, "group_id": group_id, "topics": [asked(name="just-now", partitions=[part])]}
    assert wire.call(OffsetCommitRequest(**request)).topics[0].partitions[0].error_code == 3
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({"just-now": {"num_partitions": 1}}, wait_for_metadata=True)
    wait_until(lambda: wire.call(OffsetCommitRequest(**request)).topics[0].partitions[0].error_code == 0)


def test_readers_of_the_brokers_offsets_find_their_own_groups_only(
    broker: Broker, gateway: Gateway, wire: Wire, group_id: str, topic: str
):
    """Tools such as Burrow read `__consumer_offsets`: they get no error, and none of this coordinator's groups."""
    asked = OffsetCommitRequest.OffsetCommitRequestTopic
    part = asked.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    groups = {name: f"{group_id}.{name}" for name in ("ours", "kafka")}
    with connect(broker.bootstrap_servers) as direct:
        for name, side in (("ours", wire), ("kafka", direct)):
            commit = OffsetCommitRequest(
                version=8, group_id=groups[name], topics=[asked(name=topic, partitions=[part])]
            )
            wait_until(lambda side=side, commit=commit: side.call(commit).topics[0].partitions[0].error_code == 0)
    keys = keys_of(gateway.bootstrap_servers, "__consumer_offsets")
    assert [name for name, each in groups.items() if any(each.encode() in key for key in keys)] == ["kafka"]


def keys_of(bootstrap_servers: str, topic: str) -> set[bytes]:
    """Return the keys of all records of a topic."""
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "unused", "enable.partition.eof": True}
    keys = set[bytes]()
    with closing(Consumer(settings)) as reader:
        unread = set(reader.list_topics(topic, HANG_S).topics[topic].partitions)
        reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        while unread:
            message = reader.poll(HANG_S)
            assert message is not None
            if message.error() is None:
                keys.add(message.key())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                unread.discard(message.partition())
    return keys


def test_list_of_groups_has_each_group_of_all_shards_once(gateway: Gateway, wire: Wire, group_id: str):
    """A client that asks every broker gets each group from one of them: the one that FindCoordinator names."""
    become_member(wire, group_id)
    assert group_id in [g.group_id for g in wire.call(ListGroupsRequest(version=5)).groups]
    brokers = wire.call(MetadataRequest(version=9, topics=[])).brokers
    heard = []
    for each in brokers:
        with connect(f"{each.host}:{each.port}") as own:
            heard += [g.group_id for g in own.call(ListGroupsRequest(version=5)).groups]
    assert heard.count(group_id) == 1


def test_two_gateways_serve_one_group(gateway: Gateway, wire: Wire, group_id: str):
    """When one gateway ends, only its sockets are lost: the member continues through the other."""
    with Gateway(gateway.settings) as second, connect(second.bootstrap_servers) as other:
        member_id = become_member(other, group_id)
        assert wire.call(heartbeat(group_id, member_id)).error_code == 0
    assert wire.call(heartbeat(group_id, member_id)).error_code == 0


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_returns_a_port_of_the_gateway(gateway: Gateway, wire: Wire, version: int):
    """S16: a request has a key, or from v4 on a list of keys. In every version the response has a gateway's port."""
    many = {"coordinator_keys": ["a", "b"]} if version >= 4 else {"key": "a"}
    said = wire.call(FindCoordinatorRequest(version=version, key_type=0, **many))
    found = said.coordinators if version >= 4 else [said]
    assert [each.error_code for each in found] == [0] * len(found)
    for each in found:
        with connect(f"{each.host}:{each.port}") as own:
            assert own.call(heartbeat("a", "nobody")).error_code == 25


def test_offsets_of_an_unknown_transaction_are_refused_with_an_error(wire: Wire):
    """The brokers know no such producer; the connection stays open."""
    request = AddOffsetsToTxnRequest(version=3, transactional_id="t", producer_id=1, producer_epoch=0, group_id="g")
    assert wire.call(request).error_code == 49
    assert wire.call(request).error_code == 49


def test_producers_transactions_work_without_offsets(gateway: Gateway, topic: str):
    """Transactions of records work through the brokers."""
    producer = Producer({"bootstrap.servers": gateway.bootstrap_servers, "transactional.id": "through-the-gateway"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction", partition=1)
    producer.commit_transaction(20)
    reader = Consumer(
        {"bootstrap.servers": gateway.bootstrap_servers, "group.id": "unused", "isolation.level": "read_committed"}
    )
    with closing(reader):
        reader.assign([TopicPartition(topic, 1, 0)])
        message = reader.poll(20)
        assert message is not None
        assert message.value() == b"in a transaction"


# -- addresses ---------------------------------------------------------------------------------------------------------


def speaks_of(value: Any, port: int) -> bool:
    """Return whether a decoded response holds a port, as a number or in a text."""
    if isinstance(value, dict):
        return any(speaks_of(each, port) for each in value.values())
    if isinstance(value, list | tuple | set):
        return any(speaks_of(each, port) for each in value)
    return value == port or (isinstance(value, str) and f":{port}" in value)


def naming_requests() -> Iterator[Any]:
    """Yield, in each version, all offered requests whose response may name an address."""
    broker_configs = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=None
    )
    for version in range(APIS[3].last + 1):
        yield MetadataRequest(version=version, topics=None if version else [], allow_auto_topic_creation=False)
    for version in range(APIS[60].last + 1):
        yield DescribeClusterRequest(version=version)
    for version in range(APIS[32].first, APIS[32].last + 1):
        yield DescribeConfigsRequest(version=version, resources=[broker_configs], include_synonyms=True)
    for version in range(1, APIS[10].last + 1):
        for kind in (0, 1):
            yield FindCoordinatorRequest(version=version, key="k", coordinator_keys=["k"], key_type=kind)
    for version in range(APIS[22].last + 1):
        yield InitProducerIdRequest(version=version, transactional_id=None, transaction_timeout_ms=1_000)


def test_no_broker_address_reaches_a_client(wire: Wire, broker: Broker):
    """S16: with a broker's own address a member joins Kafka's coordinator. Broker settings hold the address as text."""
    port = int(broker.bootstrap_servers.split(":")[1])
    leaks = [message for message in naming_requests() if speaks_of(wire.call(message).to_dict(), port)]
    assert leaks == []
    with connect(broker.bootstrap_servers) as direct:
        found = [type(message) for message in naming_requests() if speaks_of(direct.call(message).to_dict(), port)]
        assert {MetadataRequest, DescribeClusterRequest, DescribeConfigsRequest, FindCoordinatorRequest} <= set(found)


def test_apis_that_bypass_the_gateway_are_neither_offered_nor_relayed(gateway: Gateway, wire: Wire):
    """KIP-932, KIP-1071: these APIs are for the brokers' own coordinators."""
    assert not {71, 72, 76, 77, 78, 79, 88, 89, 93} & {
        each.api_key for each in wire.call(ApiVersionsRequest(version=2)).api_keys
    }
    for api_key, version in [(68, 2), (76, 1), (78, 1), (1, 16), (0, 10), (55, 2), (999, 0), (12, 9), (-1, -1)]:
        with connect(gateway.bootstrap_servers) as other:
            other.raw(struct.pack(">ihhih", 10, api_key, version, 1, -1))
            assert other.is_hung_up()


# -- unavailable parts -------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.nightly
def test_preferred_leaders_are_elected_for_all_partitions(gateway: Gateway, topic: str):
    """All partitions include the coordinator's. Each leads already, so the brokers elect none."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap_servers})
    assert admin.elect_leaders(ElectionType.PREFERRED).result(HANG_S) == {}


def test_heartbeats_wait_for_an_unavailable_query_and_members_stay(run_service: Callable[..., Service]):
    """FindCoordinator waits and then returns error 15. Requests stay in the log until the query is available again."""
    service = run_service("away-gateway")
    service.await_ready()
    with ExitStack() as opened:
        impatient = service.settings.model_copy(update={"gateway_port": 0, "gateway_hold_ms": 300})
        gateway = opened.enter_context(Gateway(impatient))
        wire, other = (opened.enter_context(connect(gateway.bootstrap_servers)) for _ in range(2))
        member_id = become_member(wire, "g")
        assert service.stop() == 0
        wire.send(heartbeat("g", member_id))
        ask = FindCoordinatorRequest(version=4, key_type=0, coordinator_keys=["g"])
        wait_until(lambda: other.call(ask).coordinators[0].error_code == 15)
        run_service("away-gateway").await_ready()
        assert wire.read().error_code == 0
        assert other.call(ask).coordinators[0].error_code == 0
        assert wire.call(heartbeat("g", member_id)).error_code == 0


def test_member_can_leave_through_another_connection(gateway: Gateway, wire: Wire, group_id: str):
    """A disconnected client stays a member until its session ends. Any client with its id can send its LeaveGroup."""
    with connect(gateway.bootstrap_servers) as gone:
        member_id = become_member(gone, group_id)
    leaving = LeaveGroupRequest.MemberIdentity(member_id=member_id)
    said = wire.call(LeaveGroupRequest(version=5, group_id=group_id, members=[leaving]))
    assert (said.error_code, said.members[0].error_code) == (0, 0)


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_metrics_are_exported_to_prometheus(gateway: Gateway):
    """The gateway exports connections, requests by API, and response times."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = gateway.settings.model_copy(update={"gateway_metrics_port": port})
    with Gateway(settings) as counted, connect(counted.bootstrap_servers) as wire:
        wire.call(heartbeat("g", "nobody"))
        text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    assert "groupcoord_gateway_connections 1.0" in text
    assert 'groupcoord_gateway_requests_total{api="Heartbeat"} 1.0' in text
    assert 'groupcoord_gateway_request_seconds_count{api="Heartbeat"} 1.0' in text
