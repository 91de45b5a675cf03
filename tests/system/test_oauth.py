"""OAUTHBEARER: our processes get tokens by a client's secret, and the brokers let them in, whichever library asks."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from streaming.client import Transport
from streaming.config import oauth
from streaming.config.oauth import TokenRefused, Tokens, TokenUnavailable
from streaming.config.settings import Settings
from streaming.embedded import CONNECTOR, fetch, find_java
from streaming.errors import Exit
from tests.system.asking import Asker
from tests.system.conftest import Service
from tests.system.secured import SecuredBroker, certificates
from tests.system.token_endpoint import CLIENT_ID, SCOPE, SECRET, TokenEndpoint, broker_by_token
from tests.system.waiting import HANG_S


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenEndpoint]:
    with TokenEndpoint(tmp_path_factory.mktemp("tokens")) as endpoint:
        yield endpoint


@pytest.fixture
def tokens(endpoint: TokenEndpoint) -> Iterator[Tokens]:
    """The client's; the endpoint is whole again afterwards."""
    asked, before = list(endpoint.asked), (endpoint.broken, endpoint.lifetime_s, endpoint.audience)
    yield Tokens(endpoint.access())
    endpoint.asked, (endpoint.broken, endpoint.lifetime_s, endpoint.audience) = asked, before


@pytest.fixture(scope="module")
def secured(endpoint: TokenEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with broker_by_token(tmp_path_factory.mktemp("secured"), endpoint) as broker:
        yield broker


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """A JVM with the jars that Spark has."""
    with a_jvm_as_sparks() as jvm:
        yield jvm


@contextmanager
def a_jvm_as_sparks() -> Iterator[Any]:
    jars = Path(pyspark.__file__).parent / "jars"
    (bridge,) = jars.glob("py4j-*.jar")
    port, secret = launch_gateway(
        jarpath=str(bridge),
        classpath=os.pathsep.join((*map(str, fetch(CONNECTOR)), f"{jars}/*")),
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
    """A client of each library, which asks for the cluster's id."""

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


# -- through ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_every_library_gets_a_token_and_through(
    secured: SecuredBroker, endpoint: TokenEndpoint, cluster_id: Callable[[Settings], str], protocol: str
) -> None:
    """Each asks in the same way: by the same id, secret and scope."""
    endpoint.asked.clear()
    assert cluster_id(Settings.load(**reaching(secured, endpoint, protocol))) == secured.cluster_id
    assert endpoint.asked
    assert all(asked == {"grant_type": ["client_credentials"], "scope": [SCOPE]} for asked in endpoint.asked)


def test_every_library_believes_the_authority_of_the_endpoint_that_is_named(
    secured: SecuredBroker, endpoint: TokenEndpoint, cluster_id: Callable[[Settings], str], tmp_path: Path
) -> None:
    own = certificates(secured.authority, tmp_path / "own", "127.0.0.1")
    with TokenEndpoint(tmp_path, own) as private:
        private._key = endpoint._key
        assert cluster_id(Settings.load(**reaching(secured, private))) == secured.cluster_id
        settings = Settings.load(**{**reaching(secured, private), "sasl_oauth_cafile": None})
        with pytest.raises(TokenUnavailable, match=r"CERTIFICATE_VERIFY_FAILED.*correct sasl_oauth_token_url and"):
            settings.librdkafka_arguments()


def test_the_coordinator_serves_groups_by_tokens(
    secured: SecuredBroker, endpoint: TokenEndpoint, run_service: Callable[..., Service], tmp_path: Path
) -> None:
    """Topics, query, alarm and members, each by its own library."""
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


# -- refused ---------------------------------------------------------------------------------------------------------


def test_a_wrong_secret_is_told_before_any_library_is(endpoint: TokenEndpoint) -> None:
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
def test_a_command_ends_in_one_sentence(
    endpoint: TokenEndpoint, tokens: Tokens, wrong: dict[str, str], lifetime_s: float, sentence: str
) -> None:
    """A wrong secret, an expired token; no secret among it (I23)."""
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
def test_an_endpoint_that_gives_no_token_is_told_of(
    endpoint: TokenEndpoint, tokens: Tokens, broken: tuple[int, bytes], kind: type[Exception], sentence: str
) -> None:
    """And asked once: nobody else is handed the secret, wherever it points."""
    endpoint.broken, endpoint.asked = broken, []
    with pytest.raises(kind, match=sentence) as told:
        tokens.token()
    assert "SECRET" not in str(told.value)
    assert len(endpoint.asked) == 1


def test_nobody_at_the_endpoint_is_told_of(tmp_path: Path) -> None:
    with TokenEndpoint(tmp_path) as gone:
        pass
    with pytest.raises(TokenUnavailable, match=r"does not answer \(.*Connection refused\): check that it runs"):
        Tokens(gone.access()).token()


# -- kept ------------------------------------------------------------------------------------------------------------


def test_a_token_is_asked_for_once_until_it_wears_out(
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


def test_a_worn_token_serves_while_the_endpoint_is_away(
    endpoint: TokenEndpoint, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth, "WORN_AFTER", 0.0)
    there = tokens.token()
    endpoint.broken, endpoint.asked = (503, b""), []
    assert tokens.token() == tokens.token() == there
    assert len(endpoint.asked) == 1, "one that has failed is left alone for a while"
