"""OAUTHBEARER: our processes get tokens with a client's secret, and brokers accept the tokens of every library."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from streaming.client import Transport
from streaming.config import oauth
from streaming.config.oauth import TokenRefused, Tokens, TokenUnavailable
from streaming.config.settings import Settings
from streaming.embedded import connector, fetch, find_java
from streaming.errors import Exit
from streaming.gateway import Gateway
from streaming.kafka.topics import ensure
from tests.system.asking import Asker
from tests.system.conftest import Service
from tests.system.secured import SecuredBroker, certificates
from tests.system.token_endpoint import CLIENT_ID, SCOPE, SECRET, TokenEndpoint, broker_by_token
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long

SHORT_S = 8.0
"""The life of a short token."""

AGAIN = 4
"""The lives of such tokens that a member stays."""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenEndpoint]:
    with TokenEndpoint(tmp_path_factory.mktemp("tokens")) as endpoint:
        yield endpoint


@pytest.fixture
def tokens(endpoint: TokenEndpoint) -> Iterator[Tokens]:
    """Yield the client's tokens, and restore the endpoint's state afterwards."""
    asked, before = list(endpoint.asked), (endpoint.broken, endpoint.lifetime_s, endpoint.audience)
    yield Tokens(endpoint.access())
    endpoint.asked, (endpoint.broken, endpoint.lifetime_s, endpoint.audience) = asked, before


@pytest.fixture(scope="module")
def secured(endpoint: TokenEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with broker_by_token(tmp_path_factory.mktemp("secured"), endpoint) as broker:
        yield broker


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """Start a JVM with Spark's jars."""
    with a_jvm_as_sparks() as jvm:
        yield jvm


@contextmanager
def a_jvm_as_sparks() -> Iterator[Any]:
    jars = Path(pyspark.__file__).parent / "jars"
    (bridge,) = jars.glob("py4j-*.jar")
    port, secret = launch_gateway(
        jarpath=str(bridge),
        classpath=os.pathsep.join((*map(str, fetch(connector())), f"{jars}/*")),
        java_path=str(find_java()),
        javaopts=["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        die_on_exit=True,
        enable_auth=True,
    )[:2]
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret, auto_convert=True))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()


@pytest.fixture(params=["kafka-python", "librdkafka", "java"])
def cluster_id(request: pytest.FixtureRequest, java: Any) -> Callable[[Settings], str]:
    """Return a function that gets the cluster's id with a client of one library."""

    def by_kafka_python(settings: Settings) -> str:
        with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
            return str(admin.describe_cluster()["cluster_id"])

    def by_librdkafka(settings: Settings) -> str:
        return str(AdminClient(settings.librdkafka_arguments()).list_topics(timeout=HANG_S).cluster_id)

    def by_java(settings: Settings) -> str:
        admin = java.org.apache.kafka.clients.admin.Admin.create(settings.java_client_properties())
        try:
            return str(admin.describeCluster().clusterId().get())
        finally:
            admin.close()

    return {"kafka-python": by_kafka_python, "librdkafka": by_librdkafka, "java": by_java}[str(request.param)]


def reaching(secured: SecuredBroker, endpoint: TokenEndpoint, protocol: str = "SASL_SSL") -> dict[str, str]:
    return secured.access(protocol) | endpoint.access()


# -- accepted --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_every_library_authenticates_with_a_token(
    secured: SecuredBroker, endpoint: TokenEndpoint, cluster_id: Callable[[Settings], str], protocol: str
) -> None:
    """Each library sends the same request: the same id, secret and scope."""
    endpoint.asked.clear()
    assert cluster_id(Settings.load(**reaching(secured, endpoint, protocol))) == secured.cluster_id
    assert endpoint.asked
    assert all(asked == {"grant_type": ["client_credentials"], "scope": [SCOPE]} for asked in endpoint.asked)


def test_every_library_trusts_the_configured_authority_of_the_endpoint(
    secured: SecuredBroker, endpoint: TokenEndpoint, cluster_id: Callable[[Settings], str], tmp_path: Path
) -> None:
    own = certificates(secured.authority, tmp_path / "own", "127.0.0.1")
    with TokenEndpoint(tmp_path, own) as private:
        private._key = endpoint._key
        assert cluster_id(Settings.load(**reaching(secured, private))) == secured.cluster_id
        settings = Settings.load(**{**reaching(secured, private), "sasl_oauth_cafile": None})
        with pytest.raises(TokenUnavailable, match=r"CERTIFICATE_VERIFY_FAILED.*correct sasl_oauth_token_url and"):
            settings.librdkafka_arguments()


@pytest.mark.nightly
def test_coordinator_serves_groups_with_tokens(
    secured: SecuredBroker, endpoint: TokenEndpoint, run_service: Callable[..., Service], tmp_path: Path
) -> None:
    """Topics, query, alarm and members get tokens, each with its own library."""
    access = reaching(secured, endpoint)
    (file := tmp_path / "secret").write_text(access.pop("sasl_oauth_client_secret") + "\n")
    service = run_service("by-token", **access, sasl_oauth_client_secret_file=str(file))
    service.await_ready()
    with Transport(service.settings.kafka_client_arguments(), "by-token") as transport:
        _, generation = Asker(transport, "g").alone()
    assert generation == 1
    assert service.stop() == 0
    readable = [service.log_file, service.ready_file, *(f for f in service.checkpoint.rglob("*") if f.is_file())]
    assert not [f for f in readable if SECRET.encode() in f.read_bytes() or b"eyJ" in f.read_bytes()]


@pytest.mark.nightly
def test_members_stay_while_the_tokens_of_our_own_processes_expire(
    endpoint: TokenEndpoint, tokens: Tokens, run_service: Callable[..., Service], tmp_path: Path
) -> None:
    """Public reports, nisshi 665: the query and a gateway authenticate again with new tokens (KIP-368, KIP-768)."""
    endpoint.lifetime_s = SHORT_S
    lifetime = {"connections.max.reauth.ms": str(int(SHORT_S * 1_000))}
    with broker_by_token(tmp_path / "short", endpoint, **lifetime) as secured:
        with KafkaAdminClient(bootstrap_servers=secured.broker.bootstrap_servers) as admin:
            admin.create_topics({"t": {"num_partitions": 1}}, wait_for_metadata=True)
        service = run_service("short", **reaching(secured, endpoint, "SASL_PLAINTEXT"))
        service.await_ready()
        with Gateway(service.settings.model_copy(update={"gateway_port": 0})) as gateway:
            access = Settings.load(**secured.access("SASL_PLAINTEXT", "SCRAM-SHA-512")).librdkafka_arguments()
            by_name = {**access, "bootstrap.servers": gateway.bootstrap_servers, "group.id": "g"}
            losses: list[Any] = []
            with closing(Consumer({**by_name, "enable.auto.commit": False})) as member:
                member.subscribe(["t"], on_revoke=lambda *_: losses.append(_), on_lost=lambda *_: losses.append(_))
                wait_until(lambda: member.poll(0.1) or member.assignment())
                until_s = time.monotonic() + AGAIN * SHORT_S
                numbers = itertools.count(1)
                while time.monotonic() < until_s:
                    member.poll(0.1)
                    (committed,) = member.commit(offsets=[Place("t", 0, next(numbers))], asynchronous=False)
                    assert committed.error is None
                assert losses == []
                (seen,) = member.committed([Place("t", 0)], timeout=HANG_S)
                assert seen.offset == next(numbers) - 1
        assert service.stop() == 0


# -- a gateway's clients -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gateway(secured: SecuredBroker, endpoint: TokenEndpoint) -> Iterator[Gateway]:
    """A gateway that authenticates by tokens itself."""
    settings = Settings.load(**reaching(secured, endpoint, "SASL_PLAINTEXT"), replication_factor=1, gateway_port=0)
    ensure(settings)
    with Gateway(settings) as gateway:
        yield gateway


def test_clients_learn_that_a_gateway_takes_no_tokens(
    gateway: Gateway, secured: SecuredBroker, endpoint: TokenEndpoint, java: Any
) -> None:
    """The error names the mechanisms that it takes, as a broker's does, and no client tries for ever in silence."""
    settings = Settings.load(**reaching(secured, endpoint, "SASL_PLAINTEXT"))
    at = {"bootstrap.servers": gateway.bootstrap_servers}
    errors: list[KafkaError] = []
    client = AdminClient({**settings.librdkafka_arguments(), **at, "error_cb": errors.append})
    wait_until(lambda: client.poll(0.1) or errors)
    assert {errors[0].code()} <= {KafkaError._AUTHENTICATION, KafkaError._UNSUPPORTED_FEATURE}, errors
    assert "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512" in errors[0].str()
    admin = java.org.apache.kafka.clients.admin.Admin.create({**settings.java_client_properties(), **at})
    try:
        with pytest.raises(Py4JJavaError) as refused:
            admin.describeCluster().clusterId().get()
    finally:
        admin.close()
    assert "UnsupportedSaslMechanismException" in str(refused.value.java_exception.getCause().toString())
    assert "[PLAIN, SCRAM-SHA-256, SCRAM-SHA-512]" in str(refused.value.java_exception.getMessage())


# -- refused ---------------------------------------------------------------------------------------------------------


def test_wrong_secret_is_reported_before_a_library_starts(endpoint: TokenEndpoint) -> None:
    guessed = {**endpoint.access(), "sasl_oauth_client_secret": "guessed"}
    settings = Settings.load(security_protocol="SASL_SSL", **guessed)
    for told in (settings.kafka_client_arguments, settings.librdkafka_arguments, settings.java_client_properties):
        with pytest.raises(TokenRefused) as refused:
            told()
        assert str(refused.value) == (
            f"The token endpoint {endpoint.url} refuses the client {CLIENT_ID} (invalid_client): correct"
            f" sasl_oauth_client_id, its secret, or sasl_oauth_scope."
        )


@pytest.mark.parametrize(
    ("wrong", "lifetime_s", "sentence"),
    [
        ({"sasl_oauth_client_secret": "guessed"}, 300, "refuses the client"),
        ({}, -60, "returns a token that has expired already; compare the clocks"),
    ],
)
def test_failed_command_prints_one_sentence(
    endpoint: TokenEndpoint, tokens: Tokens, wrong: dict[str, str], lifetime_s: float, sentence: str
) -> None:
    """The sentence names a wrong secret or an expired token and holds no secret (I23)."""
    endpoint.lifetime_s = lifetime_s
    way = {"security_protocol": "SASL_PLAINTEXT", **endpoint.access(), **wrong}
    done = subprocess.run(
        [sys.executable, "-m", "streaming", "--verbose", "topics"],
        env={**os.environ, **{f"COORDINATOR_{name.upper()}": value for name, value in way.items()}},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == Exit.NEEDS_A_PERSON, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"coordinator: The token endpoint {endpoint.url} {sentence}")
    assert not any(secret in done.stdout + done.stderr for secret in (SECRET, "guessed", "eyJ"))


@pytest.mark.parametrize(
    ("broken", "kind", "sentence"),
    [
        ((503, b""), TokenUnavailable, r"does not work \(HTTP status 503\)"),
        ((429, b""), TokenUnavailable, r"does not work \(HTTP status 429\)"),
        ((404, b"<html>"), TokenRefused, r"refuses the client .* \(HTTP status 404\)"),
        ((400, b'{"error": "an_error of SECRET"}'), TokenRefused, r"\(HTTP status 400\)"),
        ((302, b""), TokenRefused, r"\(HTTP status 302\)"),
        ((200, b"[]"), TokenRefused, "returns no access_token"),
        ((200, b'{"access_token": "a\\u0001b"}'), TokenRefused, "returns no access_token"),
        ((200, b'{"access_token": "opaque"}'), TokenRefused, "returns no JSON Web Token"),
        ((200, b'{"access_token": "a.e30.c"}'), TokenRefused, "returns no JSON Web Token"),
    ],
)
def test_endpoint_without_a_token_is_reported(
    endpoint: TokenEndpoint, tokens: Tokens, broken: tuple[int, bytes], kind: type[Exception], sentence: str
) -> None:
    """The endpoint gets one request, and no redirect receives the secret."""
    endpoint.broken, endpoint.asked = broken, []
    with pytest.raises(kind, match=sentence) as told:
        tokens.token()
    assert "SECRET" not in str(told.value)
    assert len(endpoint.asked) == 1


def test_unreachable_endpoint_is_reported(tmp_path: Path) -> None:
    with TokenEndpoint(tmp_path) as gone:
        pass
    with pytest.raises(TokenUnavailable, match=r"does not answer \(.*Connection refused\): check that it runs"):
        Tokens(gone.access()).token()


# -- kept ------------------------------------------------------------------------------------------------------------


def test_token_is_requested_once_until_it_is_old(
    endpoint: TokenEndpoint, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.asked = []
    assert tokens.token() == tokens.token()
    assert len(endpoint.asked) == 1
    monkeypatch.setattr(oauth, "WORN_AFTER", 0.0)
    fresh = Tokens(endpoint.access())
    fresh.token(), fresh.token()
    assert len(endpoint.asked) == 3
    assert SECRET not in f"{tokens!r} {tokens} {fresh!r}"


@pytest.mark.parametrize("step_s", [-3_600, 3_600])
def test_step_of_the_clock_keeps_no_expired_token_and_drops_no_valid_one(
    endpoint: TokenEndpoint, tokens: Tokens, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    """stroom 5772: a machine whose clock goes back would send its token for an hour after the broker refuses it."""
    there, wall_s, passed_s = tokens.token(), time.time(), time.monotonic()
    endpoint.asked = []
    stepped = SimpleNamespace(time=lambda: wall_s + step_s, monotonic=lambda: passed_s)
    monkeypatch.setattr(oauth, "time", stepped)
    assert (tokens.token(), endpoint.asked) == (there, [])
    stepped.time, stepped.monotonic = (lambda: wall_s - 3_600), (lambda: passed_s + endpoint.lifetime_s)
    tokens.token()
    assert len(endpoint.asked) == 1


def test_old_token_is_used_while_the_endpoint_is_unavailable(
    endpoint: TokenEndpoint, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth, "WORN_AFTER", 0.0)
    there = tokens.token()
    endpoint.broken, endpoint.asked = (503, b""), []
    assert tokens.token() == tokens.token() == there
    assert len(endpoint.asked) == 1, "a failed endpoint gets no request for a while"
