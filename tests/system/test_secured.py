"""Brokers with authentication: every client library authenticates, and the watch knows its user."""

import itertools
import json
import socket
import threading
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from coordinator.messages.requests import JoinGroup
from streaming.client import Transport
from streaming.config.security import MECHANISMS
from streaming.config.settings import Settings
from streaming.gateway import Gateway
from streaming.gateway.security.sasl import SaslWatch
from streaming.kafka.topics import ensure
from streaming.wire.records import decode_request
from tests.differential.java_assignors import java
from tests.system.asking import Asker
from tests.system.conftest import Service
from tests.system.secured import KEY_PASSWORD, STRANGE_USER, USERS, SecuredBroker, certificates, secured_broker
from tests.system.waiting import HANG_S, wait_until
from tests.tiers import sampled

pytestmark = pytest.mark.long

LIFETIME_MS = 10_000
"""The lifetime of an authentication on SASL_PLAINTEXT (KIP-368)."""

WAYS = [("PLAINTEXT", None), ("SSL", None), *itertools.product(("SASL_PLAINTEXT", "SASL_SSL"), MECHANISMS)]
WHO = [*itertools.product(MECHANISMS, USERS), ("SCRAM-SHA-256", STRANGE_USER)]

ClusterId = Callable[[Settings], str]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    lifetime = {"listener.name.sasl_plaintext.connections.max.reauth.ms": str(LIFETIME_MS)}
    with secured_broker(tmp_path_factory.mktemp("secured"), **lifetime) as broker:
        yield broker


@pytest.fixture(scope="module")
def gateway_to_java() -> Iterator[Any]:
    with java() as started:
        yield started._gateway


@pytest.fixture(params=["kafka-python", "librdkafka", "java"])
def cluster_id(request: pytest.FixtureRequest, gateway_to_java: Any) -> ClusterId:
    """Return a function that gets the cluster's id with a client of one library."""

    def by_kafka_python(settings: Settings) -> str:
        with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
            return str(admin.describe_cluster()["cluster_id"])

    def by_librdkafka(settings: Settings) -> str:
        return str(AdminClient(settings.librdkafka_arguments()).list_topics(timeout=HANG_S).cluster_id)

    def by_java(settings: Settings) -> str:
        admin = gateway_to_java.jvm.org.apache.kafka.clients.admin.Admin.create(settings.java_client_properties())
        try:
            return str(admin.describeCluster().clusterId().get())
        finally:
            admin.close()

    return {"kafka-python": by_kafka_python, "librdkafka": by_librdkafka, "java": by_java}[str(request.param)]


# -- our own parts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_every_library_authenticates(
    secured: SecuredBroker, cluster_id: ClusterId, protocol: str, mechanism: str | None
) -> None:
    assert cluster_id(Settings.load(**secured.access(protocol, mechanism))) == secured.cluster_id


def test_every_library_can_use_a_key_encrypted_as_the_error_advises(
    secured: SecuredBroker, cluster_id: ClusterId, gateway_to_java: Any, tmp_path: Path
) -> None:
    (file := tmp_path / "key.pem").write_text(encrypted(gateway_to_java, secured.clients.key.read_text()))
    access = secured.access("SSL") | {"ssl_keyfile": str(file), "ssl_key_password": KEY_PASSWORD}
    assert cluster_id(Settings.load(**access)) == secured.cluster_id


def encrypted(gateway: Any, key: str) -> str:
    """Return a key encrypted as by 'openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES'."""
    password = gateway.new_array(gateway.jvm.char, len(KEY_PASSWORD))
    for i, letter in enumerate(KEY_PASSWORD):
        password[i] = letter
    crypto, algorithm = gateway.jvm.javax.crypto, "PBEWithSHA1AndDESede"
    secret = crypto.SecretKeyFactory.getInstance(algorithm).generateSecret(crypto.spec.PBEKeySpec(password))
    cipher = crypto.Cipher.getInstance(algorithm)
    cipher.init(crypto.Cipher.ENCRYPT_MODE, secret)
    content = cipher.doFinal(b64decode("".join(key.splitlines()[1:-1])))
    encoded = crypto.EncryptedPrivateKeyInfo(cipher.getParameters(), content).getEncoded()
    lines = b64encode(encoded).decode()
    name = "ENCRYPTED PRIVATE KEY"
    return f"-----BEGIN {name}-----\n{lines}\n-----END {name}-----\n"


@pytest.mark.nightly
def test_coordinator_serves_groups_with_authentication(
    secured: SecuredBroker, run_service: Callable[..., Service], tmp_path: Path
) -> None:
    """Topics, query, members and gateway authenticate, each with its own library, and no file holds the password."""
    access = secured.access("SASL_SSL", "SCRAM-SHA-512")
    password = access.pop("sasl_password")
    (file := tmp_path / "password").write_text(f"{password}\n")
    service = run_service("secured", **access, sasl_password_file=str(file))
    service.await_ready()
    with Transport(service.settings.kafka_client_arguments(), "secured") as transport:
        _, generation = Asker(transport, "g").alone()
    assert generation == 1
    serve_clients_that_say_who_they_are(service.settings, secured, tmp_path)
    assert service.stop() == 0
    readable = [service.log_file, service.ready_file, *(f for f in service.checkpoint.rglob("*") if f.is_file())]
    assert not [f for f in readable if password.encode() in f.read_bytes()]


def serve_clients_that_say_who_they_are(settings: Settings, secured: SecuredBroker, folder: Path) -> None:
    """Check that a gateway with TLS and SASL serves the users that the brokers know, with their own principals."""
    own = certificates(secured.authority, folder / "gateway", "127.0.0.1")
    at = {"gateway_port": 0, "gateway_ssl_certfile": str(own.cert), "gateway_ssl_keyfile": str(own.key)}
    with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
        admin.create_topics({"t": {"num_partitions": 1}}, wait_for_metadata=True)
    with Gateway(settings.model_copy(update=at)) as gateway:
        for mechanism, user in itertools.product(MECHANISMS, USERS):
            access = Settings.load(**secured.access("SASL_SSL", mechanism, user))
            way = access.librdkafka_arguments() | {"bootstrap.servers": gateway.bootstrap_servers}
            assert joins(way, f"{user} by {mechanism}")
        assert not joins(way | {"sasl.password": "guessed"}, "guessed", within_s=3)
        context = settings.broker_context()
        assert context
        host, port = gateway.bootstrap_servers.split(":")
        with context.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host) as nobody:
            nobody.sendall(bytes.fromhex("0000000a 000c 0000 00000001 ffff"))  # a heartbeat before authentication
            assert nobody.recv(1) == b""
    asked = [r for r in requests_of(settings) if isinstance(r, JoinGroup) and r.principal]
    assert {(r.group_id.split()[0], r.principal) for r in asked} == {("ana", "User:ana"), ("bo", "User:bo")}


def joins(way: dict[str, str], group_id: str, within_s: float = 30) -> bool:
    """Join a group as its only member, and return whether partitions are assigned in time."""
    assigned: list[Any] = []
    consumer = Consumer({**way, "group.id": group_id})
    consumer.subscribe(["t"], on_assign=lambda _, partitions: assigned.extend(partitions))
    with closing(consumer), suppress(AssertionError):
        wait_until(lambda: consumer.poll(0.1) or assigned, within_s)
    return bool(assigned)


def requests_of(settings: Settings) -> list[Any]:
    """Read all requests to a coordinator."""
    with closing(KafkaConsumer(**settings.kafka_client_arguments(), auto_offset_reset="earliest")) as reader:
        partitions = [
            TopicPartition(settings.requests_topic, n) for n in reader.partitions_for_topic(settings.requests_topic)
        ]
        reader.assign(partitions)
        ends, found = sum(reader.end_offsets(partitions).values()), []
        while len(found) < ends:
            found += [decode_request(r.value) for some in reader.poll(timeout_ms=500).values() for r in some]
    return found


@pytest.mark.parametrize("mechanism", sampled(MECHANISMS, ["PLAIN", "SCRAM-SHA-512"]))
@pytest.mark.parametrize("by_a_gateway", sampled([True, False], [True]))
def test_connection_outlives_its_first_authentication(
    secured: SecuredBroker, mechanism: str, by_a_gateway: bool
) -> None:
    """Public reports, nisshi 665; KIP-368: a client authenticates again on the same connection, and goes on there."""
    settings = Settings.load(**secured.access("SASL_PLAINTEXT", mechanism), replication_factor=1, gateway_port=0)
    ensure(settings)
    topic = f"again-{mechanism}-{by_a_gateway}"
    with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
        admin.create_topics({topic: {"num_partitions": 1}}, wait_for_metadata=True)
    with Gateway(settings) if by_a_gateway else nullcontext() as gateway:
        errors: list[Any] = []
        counts: dict[str, tuple[int, int]] = {}
        way: dict[str, Any] = {"error_cb": errors.append, "statistics.interval.ms": 200}
        way["stats_cb"] = lambda text: counts.update(connections(text))
        if gateway:
            way["bootstrap.servers"] = gateway.bootstrap_servers
        producer = Producer(settings.librdkafka_arguments() | way)
        written: list[int] = []
        until_s = time.monotonic() + 2.5 * LIFETIME_MS / 1_000
        while time.monotonic() < until_s:
            producer.produce(topic, b"1", on_delivery=lambda error, _: error or written.append(1))
            producer.poll(0.1)
        assert producer.flush(HANG_S) == 0
        assert (len(written) > 20, errors) == (True, [])
        assert any(connects == 1 for connects, _ in counts.values())
        assert not any(disconnects for _, disconnects in counts.values()), counts


def connections(statistics: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield how often a client of librdkafka connected to each known broker, and how often it was disconnected."""
    for name, broker in json.loads(statistics)["brokers"].items():
        if broker["source"] == "learned":
            yield name, (broker["connects"], broker["disconnects"])


# -- watching ------------------------------------------------------------------------------------------------------


@dataclass
class Tap:
    """A proxy between clients and the broker, as the gateway is, that watches their SASL exchanges."""

    broker: str
    port: int = 0
    ended: list[tuple[str | None, str | None, int]] = field(default_factory=list)
    """The mechanism, the principal and the session lifetime in ms of each exchange that has ended."""

    times: Counter[SaslWatch] = field(default_factory=Counter)
    """The number of finished exchanges of each connection."""

    @contextmanager
    def running(self) -> Iterator[str]:
        with ExitStack() as sockets, socket.create_server(("127.0.0.1", 0)) as listening:
            self.port = listening.getsockname()[1]
            accepting = threading.Thread(target=self._accept, args=(listening, sockets))
            accepting.start()
            try:
                yield f"127.0.0.1:{self.port}"
            finally:
                listening.shutdown(socket.SHUT_RDWR)
                accepting.join()

    def _accept(self, listening: socket.socket, sockets: ExitStack) -> None:
        host, port = self.broker.split(":")
        with suppress(OSError):
            while True:
                client = sockets.enter_context(listening.accept()[0])
                broker = sockets.enter_context(socket.create_connection((host, int(port))))
                watch = SaslWatch()
                for way in ((client, broker, watch, self._asked), (broker, client, watch, self._answered)):
                    threading.Thread(target=relay, args=way, daemon=True).start()

    def _asked(self, watch: SaslWatch, frame: bytes) -> bytes:
        if watch.is_raw or int.from_bytes(frame[:2]) in (SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY):
            assert watch.handle_request(frame) is None
        return frame

    def _answered(self, watch: SaslWatch, frame: bytes) -> bytes:
        if watch.is_amid:
            watch.answered(frame)
            if not watch.is_amid:
                self.times[watch] += 1
                self.ended.append((watch.mechanism, watch.principal, watch.session_lifetime_ms))
            return frame
        real, shown = int(self.broker.split(":")[1]), self.port  # to keep clients here
        return frame.replace(real.to_bytes(4), shown.to_bytes(4))


def relay(
    source: socket.socket, to: socket.socket, watch: SaslWatch, look: Callable[[SaslWatch, bytes], bytes]
) -> None:
    """Relay frames; `look` sees each frame first and returns the frame to send."""
    with suppress(OSError), source.makefile("rb") as frames:
        while size := frames.read(4):
            frame = frames.read(int.from_bytes(size))
            to.sendall(size + look(watch, frame))
    with suppress(OSError):
        to.shutdown(socket.SHUT_WR)


@pytest.fixture
def tap(secured: SecuredBroker) -> Tap:
    return Tap(secured.addresses["SASL_PLAINTEXT"])


@pytest.mark.parametrize(("mechanism", "user"), WHO)
def test_watch_knows_the_authenticated_user(
    secured: SecuredBroker, tap: Tap, cluster_id: ClusterId, mechanism: str, user: str
) -> None:
    """S16: the watch follows the exchange of each library."""
    with tap.running() as address:
        access = secured.access("SASL_PLAINTEXT", mechanism, user) | {"bootstrap_servers": address}
        assert cluster_id(Settings.load(**access)) == secured.cluster_id
    assert tap.ended[0] == (mechanism, f"User:{user}", LIFETIME_MS)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_watch_knows_no_user_with_a_wrong_password(secured: SecuredBroker, tap: Tap, mechanism: str) -> None:
    with tap.running() as address:
        access = secured.access("SASL_PLAINTEXT", mechanism) | {"bootstrap_servers": address, "sasl_password": "guess"}
        client = AdminClient(Settings.load(**access).librdkafka_arguments())
        wait_until(lambda: tap.ended)
        del client
    assert tap.ended[0] == (mechanism, None, 0)


def test_watch_follows_a_second_authentication(secured: SecuredBroker, tap: Tap) -> None:
    """KIP-368: a client authenticates again on the same connection."""
    with tap.running() as address:
        access = secured.access("SASL_PLAINTEXT", "SCRAM-SHA-512") | {"bootstrap_servers": address}
        client = AdminClient(Settings.load(**access).librdkafka_arguments())
        wait_until(lambda: 2 in tap.times.values())
        del client
    assert set(tap.ended) == {("SCRAM-SHA-512", "User:ana", LIFETIME_MS)}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_watch_follows_tokens_without_headers(secured: SecuredBroker, tap: Tap, mechanism: str) -> None:
    """KIP-43: brokers still support clients from before KIP-152."""
    client = get_sasl_mechanism(mechanism)(
        sasl_mechanism=mechanism, sasl_plain_username="ana", sasl_plain_password=USERS["ana"]
    )
    with tap.running() as address, socket.create_connection(address.split(":"), timeout=HANG_S) as connection:
        handshake = SaslHandshakeRequest(version=0, mechanism=mechanism)
        handshake.with_header(correlation_id=1)
        say(connection, bytes(handshake.encode(header=True)))
        while not client.is_done():
            client.receive(say(connection, client.auth_bytes()))
    assert client.is_authenticated()
    assert tap.ended == [(mechanism, "User:ana", 0)]


def say(connection: socket.socket, frame: bytes) -> bytes:
    """Send a frame, and return the frame that answers it."""
    connection.sendall(len(frame).to_bytes(4) + frame)
    with connection.makefile("rb") as frames:
        return frames.read(int.from_bytes(frames.read(4)))
