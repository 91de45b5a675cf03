"""Clients that authenticate again on a live connection, through a gateway and at Kafka (KIP-368).

Public reports, nisshi 665. The lifetime of an authentication is a few seconds, and each member lives through several.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError
from kafka import KafkaAdminClient
from kafka.admin import UserScramCredentialDeletion, UserScramCredentialUpsertion
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from streaming.config.security import MECHANISMS
from streaming.config.settings import Settings
from streaming.gateway import Gateway
from streaming.gateway.protocol.api import Api
from streaming.gateway.security.authenticate import Identity
from streaming.gateway.server import connection
from streaming.kafka.topics import ensure
from tests.clients.kinds import JAVA, JAVA_848, LIBRDKAFKA, LIBRDKAFKA_848, Kind
from tests.clients.play import DEFAULTS, Play, Venue, playing
from tests.clients.worker import Worker
from tests.system.conftest import start_service
from tests.system.secured import SCRAM, USERS, SecuredBroker, secured_broker
from tests.system.waiting import wait_until
from tests.system.wire import Wire, connect
from tests.tiers import sampled

pytestmark = pytest.mark.long

LIFETIME_MS = 4_000
AGAIN = 3
"""The times that each member authenticates again at least."""

SESSION_MS = 10_000
"""The session timeout of classic members that are ended. Those of the consumer protocol have the default, 45 s."""
KINDS = (LIBRDKAFKA, LIBRDKAFKA_848, JAVA, JAVA_848)
SIDES = ["gateway", "broker"]
AUTHENTICATION_FAILED = 58
OF_GROUPS = ("Heartbeat", "ConsumerGroupHeartbeat")

NOTHING_NEW = "_NO_OFFSET"
"""librdkafka's error of a commit after which nothing was read: an earlier commit was late, and had all."""


class Watched(Identity):
    """The identity of a gateway's client, which counts the authentications of its connection."""

    all: "list[Watched]"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.times, self.sends_heartbeats = 0, False
        self.all.append(self)

    def answered(self, frame: bytes, now_s: float) -> None:
        super().answered(frame, now_s)
        self.times += not self._sasl.is_amid and not self.is_refused

    def check(self, api: Api, now_s: float) -> None:
        super().check(api, now_s)
        self.sends_heartbeats |= api.name in OF_GROUPS


class Scene(NamedTuple):
    """Brokers that authenticate, and a gateway to the query on them."""

    secured: SecuredBroker
    gateway: Gateway

    def servers(self, side: str) -> str:
        return self.gateway.bootstrap_servers if side == "gateway" else self.secured.addresses["SASL_PLAINTEXT"]

    def access(self, mechanism: str, user: str = "ana") -> Settings:
        return Settings.load(**self.secured.access("SASL_PLAINTEXT", mechanism, user))

    @contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        with KafkaAdminClient(bootstrap_servers=self.secured.broker.bootstrap_servers) as admin:
            yield admin


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    lifetime = {"listener.name.sasl_plaintext.connections.max.reauth.ms": str(LIFETIME_MS)}
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(Watched, "all", [], raising=False)
        patch.setattr(connection, "Identity", Watched)
        secured = stack.enter_context(secured_broker(tmp_path_factory.mktemp("secured"), **lifetime))
        settings = Settings.load(
            **secured.access("SASL_PLAINTEXT", "SCRAM-SHA-512"),
            replication_factor=1,
            request_partitions=4,
            gateway_port=0,
        )
        ensure(settings)
        yield Scene(secured, stack.enter_context(Gateway(settings)))


@pytest.fixture(scope="module")
def serving(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The scene, with the query that serves the gateway's groups, in a process of its own."""
    access = scene.secured.access("SASL_PLAINTEXT", "SCRAM-SHA-512")
    service = start_service(tmp_path_factory.mktemp("query"), **access, group_initial_rebalance_delay_ms=300)
    try:
        service.await_ready()
        yield scene
    finally:
        service.kill()


def properties(kind: Kind, access: Settings) -> dict[str, str]:
    """Return the properties by which a kind of client authenticates."""
    own = access.java_client_properties() if kind in (JAVA, JAVA_848) else access.librdkafka_arguments()
    return {name: value for name, value in own.items() if name != "bootstrap.servers"}


# -- members that stay -------------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("side", SIDES)
def test_members_live_through_reauthentications(serving: Scene, tmp_path: Path, side: str) -> None:
    """No rebalance comes of it, and the members keep committing."""
    servers, plain = serving.servers(side), serving.secured.broker.bootstrap_servers
    with playing(Venue(plain, servers, tmp_path), f"again-{side}") as play:
        play.topic(partitions=2)
        members = [
            play.start(kind, group=f"{side}, {kind}, {mechanism}", access=properties(kind, serving.access(mechanism)))
            for kind in KINDS
            for mechanism in ("PLAIN", "SCRAM-SHA-512")
        ]
        for member in members:
            play.until_shared(play.name, member)
        until_s = time.monotonic() + (AGAIN + 1) * LIFETIME_MS / 1_000
        wait_until(lambda: work(play, members) and time.monotonic() > until_s)
        if side == "gateway":
            wait_until(lambda: work(play, members) and all(map(is_known_again, members)), account=authentications)
        await_all_committed(play, members)
        for member in members:
            assert len(member.events_of("assigned")) == 1, member
            assert not member.took_away, member
            assert all(NOTHING_NEW in event["error"] for event in member.events_of("error")), member


def work(play: Play, members: list[Worker]) -> bool:
    """Write a record into each partition, and let the members commit it."""
    play.produce(play.name, 1)
    play.until(lambda: all(member.read[at][-1:] == [end - 1] for member in members for at, end in ends(play)))
    order_commits(members)
    return True


def ends(play: Play) -> list[tuple[tuple[str, int], int]]:
    return [((play.name, number), end) for number, end in play.ends()]


def order_commits(members: list[Worker]) -> None:
    for member in members:
        if member.kind.obeys:
            member.order("commit")


def await_all_committed(play: Play, members: list[Worker]) -> None:
    work(play, members)
    play.until(lambda: all(member.committed == dict(ends(play)) for member in members))


def is_known_again(member: Worker) -> bool:
    """Return whether a member has authenticated often enough on the connection of its heartbeats."""
    return any(each.times > AGAIN for each in Watched.all if each.client_id == member.name and each.sends_heartbeats)


def authentications() -> list[tuple[str, int]]:
    return [(each.client_id, each.times) for each in Watched.all if each.sends_heartbeats]


# -- members that are ended --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("mechanism", sampled(MECHANISMS, ["SCRAM-SHA-512"]))
def test_member_with_a_wrong_password_is_ended(serving: Scene, side: str, mechanism: str) -> None:
    """Its client is told so, and its membership ends with its session."""
    group_id, errors = f"ended, {side}, {mechanism}", list[KafkaError]()
    with serving.admin() as admin:
        if "ended" not in admin.list_topics():
            admin.create_topics({"ended": {"num_partitions": 1}}, wait_for_metadata=True)
    options = {
        **properties(LIBRDKAFKA, serving.access(mechanism)),
        "bootstrap.servers": serving.servers(side),
        "group.id": group_id,
        "session.timeout.ms": SESSION_MS,
        "error_cb": errors.append,
    }
    with closing(Consumer(options)) as consumer:
        consumer.subscribe(["ended"])
        wait_until(lambda: consumer.poll(0.1) or consumer.assignment())
        assert state_of(serving, side, group_id) == "Stable"
        consumer.set_sasl_credentials("ana", "guessed")
        wait_until(lambda: consumer.poll(0.1) or has_failed(errors), account=lambda: errors)
        wait_until(lambda: consumer.poll(0.1) or state_of(serving, side, group_id) == "Empty")
    told = next(each.str() for each in errors if each.code() == KafkaError._AUTHENTICATION)
    assert f"invalid credentials with SASL mechanism {mechanism}" in told or "Invalid username or password" in told


def has_failed(errors: list[KafkaError]) -> bool:
    return any(each.code() == KafkaError._AUTHENTICATION for each in errors)


def state_of(serving: Scene, side: str, group_id: str) -> str:
    """Return a group's state, for a client that may ask."""
    access = serving.access("SCRAM-SHA-256", "bo").kafka_client_arguments() | {
        "bootstrap_servers": serving.servers(side)
    }
    with KafkaAdminClient(**access) as admin:
        return str(next(each["group_state"] for each in admin.list_groups() if each["group_id"] == group_id))


@pytest.mark.nightly
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", [JAVA, JAVA_848], ids=str)
def test_javas_member_whose_user_is_deleted_is_ended(serving: Scene, tmp_path: Path, side: str, kind: Kind) -> None:
    """Java's client takes it for fatal. The tool may hang then, because its consumer cannot be closed."""
    group_id, user = f"deleted, {side}, {kind}", f"dee-{side}-{kind.name[-8:]}"
    with serving.admin() as admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, SCRAM["SCRAM-SHA-256"], password=user)])
        if "deleted" not in admin.list_topics():
            admin.create_topics({"deleted": {"num_partitions": 1}}, wait_for_metadata=True)
    access = Settings.load(**serving.secured.access("SASL_PLAINTEXT", "SCRAM-SHA-256", user))
    config = {
        **DEFAULTS, "session_ms": SESSION_MS, "bootstrap": serving.servers(side), "group": group_id, "client_id": user,
        "topics": ["deleted"], "access": properties(kind, access),
    }  # fmt: skip
    log = tmp_path / "log"
    with log.open("wb") as output, subprocess.Popen(kind.command(config, tmp_path), stdout=output) as member:
        try:
            wait_until(lambda: '"partitions_assigned"' in log.read_text(), account=log.read_text)
            with serving.admin() as admin:
                admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, SCRAM["SCRAM-SHA-256"])])
            wait_until(lambda: "terminating consumer process" in log.read_text(), account=log.read_text)
        finally:
            member.kill()
    assert "SaslAuthenticationException" in log.read_text()
    wait_until(lambda: state_of(serving, side, group_id) == "Empty")


# -- requests ----------------------------------------------------------------------------------------------------------

SOONEST_S = 1.1
"""Brokers take no second authentication within a second of the first one."""

ANA, BO = ("ana", USERS["ana"]), ("bo", USERS["bo"])
REFUSED = {
    "a wrong password":          ("PLAIN", ("ana", "guessed")),
    "a wrong password, SCRAM":   ("SCRAM-SHA-256", ("ana", "guessed")),
    "another user":              ("PLAIN", BO),
    "another user, SCRAM":       ("SCRAM-SHA-256", BO),
    "another user's rights":     ("PLAIN", b"bo\0ana\0" + USERS["ana"].encode()),
    "no password":               ("PLAIN", b"ana"),
    "another message":           ("SCRAM-SHA-256", b"n,,m=no,r=x"),
}  # fmt: skip
"""What clients may send instead of the same name and the right password."""


def authenticate(wire: Wire, mechanism: str, known_by: tuple[str, str] | bytes) -> Any:
    """Authenticate by a user and a password, or send one token. Return the last response."""
    chosen = wire.call(SaslHandshakeRequest(version=1, mechanism=mechanism))
    assert chosen.error_code == 0
    if isinstance(known_by, bytes):
        return wire.call(SaslAuthenticateRequest(version=2, auth_bytes=known_by))
    user, password = known_by
    client = get_sasl_mechanism(mechanism)(
        sasl_mechanism=mechanism, sasl_plain_username=user, sasl_plain_password=password
    )
    while True:
        said = wire.call(SaslAuthenticateRequest(version=2, auth_bytes=client.auth_bytes()))
        if said.error_code:
            return said
        client.receive(said.auth_bytes)
        if client.is_done():
            return said


def is_served(wire: Wire) -> bool:
    return bool(wire.call(MetadataRequest(version=9, topics=[])).brokers)


@contextmanager
def known(servers: str, mechanism: str) -> Iterator[Wire]:
    """Yield the connection of a client that authenticated a moment ago, and may do so again."""
    with connect(servers) as wire:
        said = authenticate(wire, mechanism, ANA)
        assert (said.error_code, said.session_lifetime_ms) == (0, LIFETIME_MS)
        since_s = time.monotonic()
        assert is_served(wire)
        wait_until(lambda: time.monotonic() > since_s + SOONEST_S)
        yield wire


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("why", sampled(REFUSED, ["a wrong password", "another user, SCRAM"]))
def test_second_authentication_that_fails_is_answered_and_ends_the_connection(
    scene: Scene, side: str, why: str
) -> None:
    mechanism, known_by = REFUSED[why]
    with known(scene.servers(side), mechanism) as wire:
        said = authenticate(wire, mechanism, known_by)
        assert (said.error_code, bool(said.error_message)) == (AUTHENTICATION_FAILED, True)
        assert wire.is_hung_up()


@pytest.mark.parametrize("side", SIDES)
def test_second_authentication_by_another_mechanism_ends_the_connection(scene: Scene, side: str) -> None:
    """Brokers accept the mechanism, and do not answer the token."""
    with known(scene.servers(side), "PLAIN") as wire:
        assert wire.call(SaslHandshakeRequest(version=1, mechanism="SCRAM-SHA-512")).error_code == 0
        wire.send(SaslAuthenticateRequest(version=2, auth_bytes=b"n,,n=ana,r=x"))
        assert wire.is_hung_up()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("mechanism", sampled(MECHANISMS, ["PLAIN"]))
def test_connection_is_served_until_its_authentication_expires(scene: Scene, side: str, mechanism: str) -> None:
    """A late second authentication is accepted. A request without one is not answered."""
    with known(scene.servers(side), mechanism) as late, known(scene.servers(side), mechanism) as never:
        since_s = time.monotonic()
        wait_until(lambda: time.monotonic() > since_s + LIFETIME_MS / 1_000)
        assert authenticate(late, mechanism, ANA).session_lifetime_ms == LIFETIME_MS
        assert is_served(late)
        never.send(MetadataRequest(version=9, topics=[]))
        assert never.is_hung_up()
