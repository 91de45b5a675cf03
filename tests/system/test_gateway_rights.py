"""Relayed requests have no more rights than the gateway's client, and no client reaches the coordinator's topics.

The brokers accept every one of these requests: their super users are the gateway, by its certificate, and every client
in plain text. So a request that is refused here is refused by the gateway.
"""

import ssl
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, InitProducerIdRequest, ProduceRequest
from kafka.record.memory_records import MemoryRecordsBuilder

from streaming.config.settings import Settings
from streaming.gateway import Gateway
from streaming.gateway.protocol.produce import HELD_BYTES_MAX
from streaming.gateway.security.acls import AGE_MAX_S
from streaming.kafka import topics
from tests.system.secured import Certificates, SecuredBroker, certificates, principal, secured_broker
from tests.system.waiting import HANG_S, wait_until
from tests.system.wire import Wire, connect

pytestmark = pytest.mark.long

PREFIX, DATA = "kept", "t"
REFUSED, UNKNOWN_ID, NO_SESSION, CLUSTER_REFUSED = 29, 100, 70, 31
NOBODYS = {"ssl_certfile": None, "ssl_keyfile": None}

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;{principal('gateway')};User:bo",
}


@dataclass
class Scene:
    """The brokers, the users with their certificates, and the gateways to the brokers."""

    secured: SecuredBroker
    people: dict[str, Certificates]
    settings: Settings
    own: Certificates

    def gateway(self, **settings: Any) -> Gateway:
        """Make a gateway that authenticates to brokers by certificate and requires certificates of its clients."""
        at = {
            "gateway_port": 0,
            "gateway_ssl_certfile": str(self.own.cert),
            "gateway_ssl_keyfile": str(self.own.key),
            "gateway_ssl_cafile": str(self.own.ca),
        }
        return Gateway(self.settings.model_copy(update=at | settings))

    def context(self, user: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.own.ca))
        context.load_cert_chain(self.people[user].cert, self.people[user].key)
        return context

    def way(self, user: str, gateway: Gateway) -> dict[str, str]:
        """Return the librdkafka settings that reach a gateway as a user."""
        files = self.people[user]
        return {
            "bootstrap.servers": gateway.bootstrap_servers,
            "security.protocol": "ssl",
            "ssl.ca.location": str(files.ca),
            "ssl.certificate.location": str(files.cert),
            "ssl.key.location": str(files.key),
        }

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.secured.addresses["PLAINTEXT"]})

    def ends(self) -> dict[str, int]:
        """Return, for each of the coordinator's topics, the number of its records plus its partitions."""
        with closing(Consumer({"bootstrap.servers": self.secured.addresses["PLAINTEXT"], "group.id": "x"})) as reader:
            told = reader.list_topics(timeout=HANG_S).topics
            return {
                name: sum(
                    end - start + 1
                    for n in told[name].partitions
                    for start, end in [reader.get_watermark_offsets(TopicPartition(name, n), HANG_S)]
                )
                for name in self.settings.topics
            }


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("rights")
    with secured_broker(folder, **AUTHORIZER) as secured:
        people = {
            user: certificates(secured.authority, folder / user, user=user) for user in ("gateway", "mallory", "ana")
        }
        own = certificates(secured.authority, folder / "listener", "127.0.0.1")
        access = secured.access("SSL") | {
            "ssl_certfile": str(people["gateway"].cert),
            "ssl_keyfile": str(people["gateway"].key),
        }
        settings = Settings.load(**access, topic_prefix=PREFIX, replication_factor=1, request_partitions=2)
        topics.ensure(settings)
        scene = Scene(secured, people, settings, own)
        for made in scene.admin.create_topics([NewTopic(name, 1, 1) for name in (DATA, "u")]).values():
            made.result()
        allow(scene, "ana", "READ", "WRITE")
        producer = Producer({"bootstrap.servers": secured.addresses["PLAINTEXT"]})
        for name in settings.topics:
            producer.produce(name, b"a secret", b"k")
        assert producer.flush(HANG_S) == 0
        yield scene


def binding(user: str, operation: str, name: str = DATA) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, name, ResourcePatternType.LITERAL, principal(user), "*", AclOperation[operation],
        AclPermissionType.ALLOW,
    )  # fmt: skip


def allow(scene: Scene, user: str, *operations: str) -> None:
    for made in scene.admin.create_acls([binding(user, operation) for operation in operations]).values():
        made.result()


def disallow(scene: Scene, user: str, operation: str) -> None:
    b = binding(user, operation)
    gone = AclBindingFilter(
        b.restype, b.name, b.resource_pattern_type, b.principal, b.host, b.operation, b.permission_type
    )
    for removed in scene.admin.delete_acls([gone]).values():
        assert len(removed.result()) == 1


def topic_id(scene: Scene, name: str) -> uuid.UUID:
    with connect(scene.secured.addresses["PLAINTEXT"]) as wire:
        (topic,) = wire.call(metadata([name])).topics
        assert topic.error_code == 0
        return uuid.UUID(bytes=topic.topic_id.bytes)


# -- requests ------------------------------------------------------------------------------------------------------


def metadata(names: list[str] | None, version: int = 12, by_id: uuid.UUID | None = None) -> Any:
    made = MetadataRequest.MetadataRequestTopic
    topics = None if names is None else [made(name=name, topic_id=uuid.UUID(int=0)) for name in names]
    if by_id:
        topics = [made(name=None, topic_id=by_id)]
    return MetadataRequest(version=version, topics=topics, allow_auto_topic_creation=True)


def produce(topic: str, version: int = 9, acks: int = -1, size: int = 10, beside: str | None = None) -> Any:
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=2 * size + 100)
    builder.append(timestamp=1, key=b"k", value=b"x" * size)
    builder.close()
    kind = ProduceRequest.TopicProduceData
    each = [
        kind(name=name, partition_data=[kind.PartitionProduceData(index=0, records=builder.buffer())])
        for name in ([beside] if beside else []) + [topic]
    ]
    return ProduceRequest(version=version, transactional_id=None, acks=acks, timeout_ms=5_000, topic_data=each)


def fetch(version: int, *named: str | uuid.UUID, session_id: int = 0, epoch: int = -1, replica_id: int = -1) -> Any:
    kind = FetchRequest.FetchTopic
    partition = kind.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=0, log_start_offset=-1, partition_max_bytes=2**20
    )
    each = [
        kind(topic_id=each, partitions=[partition])
        if isinstance(each, uuid.UUID)
        else kind(topic=each, partitions=[partition])
        for each in named
    ]
    return FetchRequest(
        version=version, replica_id=replica_id, max_wait_ms=0, min_bytes=0, max_bytes=2**20, isolation_level=0,
        session_id=session_id, session_epoch=epoch, topics=each, forgotten_topics_data=[], rack_id="",
    )  # fmt: skip


def list_offsets(topic: str) -> Any:
    kind = ListOffsetsRequest.ListOffsetsTopic
    partition = kind.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    return ListOffsetsRequest(version=7, replica_id=-1, topics=[kind(name=topic, partitions=[partition])])


def delete_records(topic: str) -> Any:
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    partition = kind.DeleteRecordsPartition(partition_index=0, offset=-1)
    return DeleteRecordsRequest(version=2, topics=[kind(name=topic, partitions=[partition])], timeout_ms=5_000)


def leader_epoch(topic: str) -> Any:
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition = kind.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    return OffsetForLeaderEpochRequest(version=4, replica_id=-1, topics=[kind(topic=topic, partitions=[partition])])


def create(topic: str) -> Any:
    kind = CreateTopicsRequest.CreatableTopic
    one = kind(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(version=5, topics=[one], timeout_ms=5_000)


def more_partitions(topic: str) -> Any:
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    return CreatePartitionsRequest(version=3, topics=[kind(name=topic, count=9)], timeout_ms=5_000)


def delete_topic(named: str | uuid.UUID) -> Any:
    if isinstance(named, str):
        return DeleteTopicsRequest(version=5, topic_names=[named], timeout_ms=5_000)
    kind = DeleteTopicsRequest.DeleteTopicState
    return DeleteTopicsRequest(version=6, topics=[kind(name=None, topic_id=named)], timeout_ms=5_000)


def alter_config(topic: str) -> Any:
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = kind.AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    one = kind(resource_type=2, resource_name=topic, configs=[config])
    return IncrementalAlterConfigsRequest(version=1, resources=[one])


def describe_config(topic: str) -> Any:
    kind = DescribeConfigsRequest.DescribeConfigsResource
    one = kind(resource_type=2, resource_name=topic, configuration_keys=None)
    return DescribeConfigsRequest(version=4, resources=[one])


def add_to_transaction(topic: str) -> Any:
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return AddPartitionsToTxnRequest(
        version=3, v3_and_below_transactional_id="x", v3_and_below_producer_id=1, v3_and_below_producer_epoch=0,
        v3_and_below_topics=[kind(name=topic, partitions=[0])],
    )  # fmt: skip


BY_NAME: dict[str, Callable[[str], Any]] = {
    **{f"produce {version}": partial(produce, version=version) for version in (3, 8, 9)},
    "produce beside another": partial(produce, beside=DATA),
    **{f"fetch {version}": partial(fetch, version) for version in (4, 7, 11, 12)},
    "list offsets": list_offsets,
    "delete records": delete_records,
    "leader epoch": leader_epoch,
    "create": create,
    "more partitions": more_partitions,
    "delete topic": delete_topic,
    "alter config": alter_config,
    "describe config": describe_config,
    "add to a transaction": add_to_transaction,
}


def errors_in(told: Any) -> set[int]:
    """Return all error codes of a response except 0."""
    found: set[int] = set()

    def walk(value: Any) -> None:
        for name, each in value.items() if isinstance(value, dict) else enumerate(value):
            if str(name).endswith("error_code") and each:
                found.add(each)
            elif isinstance(each, dict | list):
                walk(each)

    walk(told.to_dict())
    return found


# -- the coordinator's topics --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gateways(scene: Scene) -> Iterator[dict[str, Callable[[], Wire]]]:
    """Yield, for each way to relay, a function that connects through a gateway with all rights at the brokers."""
    with ExitStack() as opened:
        plain = {"bootstrap_servers": scene.secured.addresses["PLAINTEXT"], "topic_prefix": PREFIX}
        passed = opened.enter_context(Gateway(Settings.load(**plain, gateway_port=0)))
        lent = opened.enter_context(scene.gateway(gateway_relay="lend_gateway_rights"))
        yield {
            "plain text": lambda: Wire(passed.bootstrap_servers),
            "lent": lambda: Wire(lent.bootstrap_servers, context=scene.context("mallory")),
        }


WAYS = ["plain text", "lent"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("asks", BY_NAME)
def test_coordinators_topics_are_not_reachable_by_name(
    scene: Scene, gateways: dict[str, Callable[[], Wire]], way: str, asks: str
) -> None:
    before = scene.ends()
    for topic in scene.settings.topics:
        with closing(gateways[way]()) as wire:
            assert REFUSED in errors_in(wire.call(BY_NAME[asks](topic)))
    assert scene.ends() == before


@pytest.mark.parametrize("way", WAYS)
def test_coordinators_topics_are_not_reachable_by_id(
    scene: Scene, gateways: dict[str, Callable[[], Wire]], way: str
) -> None:
    """The ids are refused before and after the gateway has learned them from a broker."""
    known = topic_id(scene, DATA)
    for topic in scene.settings.topics:
        own = topic_id(scene, topic)
        with closing(gateways[way]()) as wire:
            for expected in ({UNKNOWN_ID, REFUSED}, {REFUSED}):
                for version in (13, 14):
                    assert len(found := errors_in(wire.call(fetch(version, own)))) == 1
                    assert found <= expected
                assert len(found := errors_in(wire.call(delete_topic(own)))) == 1
                assert found <= expected
                told = wire.call(metadata(None))  # now the gateway knows the id and does not show it
                assert topic not in {each.name for each in told.topics}
            assert not wire.call(metadata(None, by_id=own)).topics
            assert errors_in(wire.call(fetch(13, known))) == set()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", [0, 1, 4, 9, 12])
def test_metadata_hides_the_coordinators_topics(
    gateways: dict[str, Callable[[], Wire]], scene: Scene, way: str, version: int
) -> None:
    own = scene.settings.requests_topic
    with closing(gateways[way]()) as wire:
        everything = wire.call(metadata([] if version == 0 else None, version))
        assert DATA in {each.name for each in everything.topics}
        assert not {each.name for each in everything.topics} & set(scene.settings.topics)
        for names in ([own], [DATA, own]):
            told = {each.name: each for each in wire.call(metadata(names, version)).topics}
            assert told.keys() == set(names)
            assert (told[own].error_code, told[own].partitions) == (REFUSED, [])
            assert DATA not in names or (told[DATA].error_code == 0 and told[DATA].partitions)


@pytest.mark.parametrize("way", WAYS)
def test_large_produce_is_cut_off_before_it_reaches_the_broker(
    scene: Scene, gateways: dict[str, Callable[[], Wire]], way: str
) -> None:
    before = scene.ends()
    for beside in (None, DATA):
        with closing(gateways[way]()) as wire:
            wire.send(metadata([DATA]))
            wire.read()
            with suppress(OSError):  # TLS may end without a message
                wire.send(produce(scene.settings.requests_topic, size=HELD_BYTES_MAX + 1, beside=beside))
                assert wire.is_hung_up()
    assert scene.ends() == before


@pytest.mark.parametrize("way", WAYS)
def test_produce_that_requests_no_response_is_cut_off(
    scene: Scene, gateways: dict[str, Callable[[], Wire]], way: str
) -> None:
    before = scene.ends()
    with closing(gateways[way]()) as wire:
        wire.send(produce(scene.settings.requests_topic, acks=0))
        assert wire.is_hung_up()
    assert scene.ends() == before


def test_fetch_session_belongs_to_the_connection_that_made_it(
    scene: Scene, gateways: dict[str, Callable[[], Wire]]
) -> None:
    """A fetch session with `replies` that was made directly at the broker can be neither read nor ended here."""
    with connect(scene.secured.addresses["PLAINTEXT"]) as past, closing(gateways["plain text"]()) as wire:
        theirs = past.call(fetch(12, scene.settings.replies_topic, epoch=0))
        assert theirs.session_id > 0
        for epoch, error in ((1, NO_SESSION), (0, 0), (-1, 0)):
            told = wire.call(fetch(12, session_id=theirs.session_id, epoch=epoch))
            assert (told.error_code, list(told.responses)) == (error, [])
        assert past.call(fetch(12, session_id=theirs.session_id, epoch=1)).error_code == 0
        for version in (7, 11, 12):
            ours = wire.call(fetch(version, DATA, epoch=0))
            assert ours.session_id > 0
            assert wire.call(fetch(version, session_id=ours.session_id, epoch=1)).error_code == 0


def test_user_with_the_right_to_write_requests_cannot_through_a_gateway(scene: Scene) -> None:
    """With relayed SASL the brokers know the user and would accept the record; the gateway refuses it."""
    access = scene.secured.access("SASL_PLAINTEXT", "SCRAM-SHA-256", "bo")
    settings = Settings.load(**access, topic_prefix=PREFIX, gateway_port=0)
    before = scene.ends()
    way = settings.librdkafka_arguments()
    with Gateway(settings) as gateway:
        producer = Producer({**way, "bootstrap.servers": gateway.bootstrap_servers})
        told: list[Any] = []
        producer.produce(PREFIX + ".requests", b"x", on_delivery=lambda error, _: told.append(error))
        producer.produce(DATA, b"x", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(HANG_S) == 0
    assert [error and error.code() for error in told].count(None) == 1
    assert KafkaError.TOPIC_AUTHORIZATION_FAILED in [error and error.code() for error in told]
    assert scene.ends() == before


# -- the rights of a client that the brokers do not know -----------------------------------------------------------


@pytest.fixture(scope="module")
def checked(scene: Scene) -> Iterator[Gateway]:
    """Start a gateway with default settings that authenticates to brokers by its certificate."""
    with scene.gateway() as gateway:
        yield gateway


@pytest.mark.parametrize("asks", [name for name in BY_NAME if name != "produce beside another"])
@pytest.mark.parametrize("topic", ["requests", DATA])
def test_mallory_does_not_get_the_rights_of_the_gateway(scene: Scene, checked: Gateway, asks: str, topic: str) -> None:
    """Mallory has a certificate but no rights in the brokers' lists: every request is refused, for every topic."""
    name = f"{PREFIX}.requests" if topic == "requests" else topic
    before = scene.ends()
    with connect(checked.bootstrap_servers, context=scene.context("mallory")) as wire:
        assert errors_in(wire.call(BY_NAME[asks](name))) & {REFUSED, 53}
        assert wire.call(metadata(None)).topics == []
    assert scene.ends() == before


def test_mallory_is_refused_by_id_as_well(scene: Scene, checked: Gateway) -> None:
    with (
        connect(checked.bootstrap_servers, context=scene.context("ana")) as ana,
        connect(checked.bootstrap_servers, context=scene.context("mallory")) as mallory,
    ):
        assert {each.name for each in ana.call(metadata(None)).topics} == {DATA}
        assert errors_in(ana.call(fetch(13, topic_id(scene, DATA)))) == set()
        for topic in (DATA, *scene.settings.topics):
            assert errors_in(mallory.call(fetch(13, topic_id(scene, topic)))) == {REFUSED}
        idempotent = InitProducerIdRequest(
            version=4, transactional_id=None, transaction_timeout_ms=1_000, producer_id=-1, producer_epoch=-1
        )
        assert mallory.call(idempotent).error_code == CLUSTER_REFUSED
        assert ana.call(idempotent).error_code == 0


def test_apis_of_brokers_are_not_available(scene: Scene, checked: Gateway) -> None:
    """A fetch as a broker, the creation of topics, and an API without a row in the table are refused."""
    with connect(checked.bootstrap_servers, context=scene.context("ana")) as wire:
        assert errors_in(wire.call(fetch(12, DATA, replica_id=1))) == {CLUSTER_REFUSED}
        assert errors_in(wire.call(create("new"))) == {REFUSED}
        wire.call(metadata(["made-by-looking"]))
        assert "made-by-looking" not in scene.admin.list_topics(timeout=HANG_S).topics
        wire.raw(bytes.fromhex("0000000d 0026 0001 00000001 ffff 000000"))  # CreateDelegationToken
        assert wire.is_hung_up()


def test_gateway_that_refuses_to_relay_relays_nothing(scene: Scene) -> None:
    with (
        scene.gateway(gateway_relay="refuse") as gateway,
        connect(gateway.bootstrap_servers, context=scene.context("ana")) as wire,
    ):
        told = wire.call(metadata([DATA]))
        assert (len(told.brokers), told.topics[0].error_code) == (1, REFUSED)
        assert errors_in(wire.call(produce(DATA))) == {REFUSED}


def test_an_honest_client_produces_and_consumes(scene: Scene, checked: Gateway) -> None:
    """librdkafka, with idempotence and fetch sessions, works until a right is removed, and again when it is granted."""
    way = scene.way("ana", checked)
    producer = Producer({**way, "enable.idempotence": True})
    with closing(Consumer({**way, "group.id": "unused"})) as consumer:
        consumer.assign([TopicPartition(DATA, 0, 0)])

        def passes(text: bytes) -> bool:
            """Return whether a record can be produced."""
            told: list[Any] = []
            producer.produce(DATA, text, on_delivery=lambda error, _: told.append(error))
            wait_until(lambda: producer.poll(0.1) or told)
            return told == [None]

        def reads(text: bytes) -> bool:
            message = consumer.poll(0.5)
            return message is not None and message.error() is None and message.value() == text

        assert passes(b"first")
        wait_until(lambda: reads(b"first"))
        taken_s = time.monotonic()
        disallow(scene, "ana", "WRITE")
        with connect(checked.bootstrap_servers, context=scene.context("ana")) as wire:
            wait_until(lambda: errors_in(wire.call(produce(DATA))) == {REFUSED}, 2 * AGE_MAX_S)
            assert time.monotonic() - taken_s < AGE_MAX_S
        allow(scene, "ana", "WRITE")
        with connect(checked.bootstrap_servers, context=scene.context("ana")) as wire:
            wait_until(lambda: not errors_in(wire.call(produce(DATA))), 2 * AGE_MAX_S)
        session = fetch(12, DATA, epoch=0)
        with connect(checked.bootstrap_servers, context=scene.context("ana")) as wire:
            session_id = wire.call(session).session_id
            assert session_id > 0
            disallow(scene, "ana", "READ")
            epochs = iter(range(1, 10_000))

            def next_error() -> int:
                return int(wire.call(fetch(12, session_id=session_id, epoch=next(epochs))).error_code)

            wait_until(lambda: next_error() == NO_SESSION, 2 * AGE_MAX_S)
            assert errors_in(wire.call(fetch(12, DATA))) == {REFUSED}
        allow(scene, "ana", "READ")


def test_transaction_needs_a_right_to_its_id(scene: Scene, checked: Gateway) -> None:
    producer = Producer({**scene.way("ana", checked), "transactional.id": "hers"})
    with pytest.raises(KafkaException) as refusal:
        producer.init_transactions(HANG_S)
    assert refusal.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
