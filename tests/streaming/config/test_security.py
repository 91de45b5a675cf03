"""Tests of the security settings: valid combinations, the options of each client library, and plain text."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as bounds
from hypothesis import strategies as st
from pydantic import ValidationError

from streaming.client.config import CONNECTION_NAMES
from streaming.config import spellings
from streaming.config.security import MECHANISMS
from streaming.config.settings import BadSettings, Settings
from streaming.config.spellings import jaas_config
from tests.differential.java_assignors import java
from tests.system.secured import Certificates

ANA = {"sasl_username": "ana", "sasl_password": 'a"b'}
SCRAM = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", **ANA}
PLAIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", **ANA}
OAUTH = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauth_token_url": "https://id.example/token",
    "sasl_oauth_client_id": "ana",
    "sasl_oauth_client_secret": 'a"b',
}
CLEAR = "PLAIN would send the password unencrypted: choose SASL_SSL, or SCRAM, or allow_plaintext_passwords."
ELSEWHERE = "127.0.0.1:9092,kafka.example:9092"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COORDINATOR_CONFIG", raising=False)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Any]:
    with java() as started:
        yield started._gateway.jvm.org.apache.kafka.common


# -- the options of three libraries --------------------------------------------------------------------------------


@pytest.fixture
def everything(files: Certificates) -> Settings:
    own = {"ssl_cafile": str(files.ca), "ssl_certfile": str(files.cert), "ssl_keyfile": str(files.key)}
    return Settings.load(bootstrap_servers="a:1,b:2", **SCRAM, **own)


def test_kafka_python_gets_all_security_settings(everything: Settings, files: Certificates) -> None:
    assert everything.kafka_client_arguments() == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ana",
        "sasl_plain_password": 'a"b',
        "ssl_cafile": str(files.ca),
        "ssl_certfile": str(files.cert),
        "ssl_keyfile": str(files.key),
        "ssl_check_hostname": True,
    }


def test_librdkafka_gets_all_security_settings(everything: Settings, files: Certificates) -> None:
    assert everything.librdkafka_arguments() == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ana",
        "sasl.password": 'a"b',
        "ssl.ca.location": str(files.ca),
        "ssl.certificate.location": str(files.cert),
        "ssl.key.location": str(files.key),
        "ssl.endpoint.identification.algorithm": "https",
    }


def test_java_and_spark_get_all_security_settings(everything: Settings, files: Certificates) -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    client_options = everything.java_client_properties()
    assert client_options == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": rf'{module} required username="ana" password="a\"b";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.ca),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": files.cert.read_text(),
        "ssl.keystore.key": files.key.read_text(),
        "ssl.endpoint.identification.algorithm": "https",
    }
    for options in (everything.kafka_source_options(), everything.kafka_sink_options()):
        assert {f"kafka.{name}": value for name, value in client_options.items()}.items() <= options.items()


def test_each_library_gets_its_own_token_options(files: Certificates) -> None:
    """KIP-768, and librdkafka's CONFIGURATION.md. tests.system.test_oauth uses a real endpoint."""
    tokens = object()
    ours = {**OAUTH, "sasl_oauth_scope": "k g", "sasl_oauth_cafile": str(files.ca), "bootstrap_servers": "a:1"}
    connection = {**ours, "tokens": tokens}
    common = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "bootstrap.servers": "a:1"}
    url = {"sasl.oauthbearer.token.endpoint.url": "https://id.example/token"}
    assert spellings.kafka_python(connection) == {
        "bootstrap_servers": ["a:1"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": tokens,
    }
    assert spellings.librdkafka(connection) == {
        **common,
        **url,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "ana",
        "sasl.oauthbearer.client.secret": 'a"b',
        "sasl.oauthbearer.scope": "k g",
        "https.ca.location": str(files.ca),
    }
    without = {name: value for name, value in connection.items() if name != "sasl_oauth_cafile"}
    assert spellings.librdkafka(without)["https.ca.location"] == "probe"
    package = "org.apache.kafka.common.security.oauthbearer"
    assert spellings.java(connection) == {
        **common,
        **url,
        "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f'{package}.OAuthBearerLoginModule required password="" clientId="ana"'
        r' clientSecret="a\"b" scope="k g"'
        f' ssl.truststore.location="{files.ca}" ssl.truststore.type="PEM";',
    }


ALWAYS = {"bootstrap_servers", "bootstrap.servers", "security_protocol", "security.protocol"}
SASL_NAMES = {
    "sasl_mechanism", "sasl_plain_username", "sasl_plain_password",
    "sasl.mechanism", "sasl.username", "sasl.password", "sasl.jaas.config",
}  # fmt: skip
TLS_NAMES = {"ssl_check_hostname", "ssl.endpoint.identification.algorithm"}


@pytest.mark.parametrize(
    ("protocol", "mechanisms", "names"),
    [
        ("PLAINTEXT", [None], ALWAYS),
        ("SSL", [None], ALWAYS | TLS_NAMES),
        ("SASL_PLAINTEXT", MECHANISMS, ALWAYS | SASL_NAMES),
        ("SASL_SSL", MECHANISMS, ALWAYS | SASL_NAMES | TLS_NAMES),
    ],
)
def test_a_library_gets_only_the_options_of_the_protocol(
    protocol: str, mechanisms: list[str | None], names: set[str]
) -> None:
    for mechanism in mechanisms:
        user = {"sasl_mechanism": mechanism, **ANA} if mechanism else {}
        settings = Settings.load(security_protocol=protocol, **user)
        client_options = [
            settings.kafka_client_arguments(),
            settings.librdkafka_arguments(),
            settings.java_client_properties(),
        ]
        assert set().union(*client_options) == names


def test_the_check_of_host_names_can_be_turned_off_for_every_library() -> None:
    settings = Settings.load(security_protocol="SSL", ssl_check_hostname=False)
    assert settings.kafka_client_arguments()["ssl_check_hostname"] is False
    assert settings.librdkafka_arguments()["ssl.endpoint.identification.algorithm"] == "none"
    assert settings.java_client_properties()["ssl.endpoint.identification.algorithm"] == ""
    context = settings.broker_context()
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)


def test_a_key_may_be_in_the_certificates_file(files: Certificates) -> None:
    settings = Settings.load(security_protocol="SSL", ssl_certfile=str(files.both))
    assert settings.kafka_client_arguments()["ssl_keyfile"] == str(files.both)
    assert settings.librdkafka_arguments()["ssl.key.location"] == str(files.both)
    assert settings.java_client_properties()["ssl.keystore.key"] == files.both.read_text()


def test_a_members_configuration_accepts_every_option_of_kafka_python(files: Certificates) -> None:
    settings = Settings.load(**SCRAM, ssl_cafile=str(files.ca), ssl_certfile=str(files.both))
    assert set(settings.kafka_client_arguments()) <= CONNECTION_NAMES
    assert "ssl_password" in CONNECTION_NAMES


def test_names_are_escaped_for_scram_if_the_library_does_not_escape_them() -> None:
    """RFC 5802. tests.system.test_secured uses a real broker."""
    settings = Settings.load(**(SCRAM | {"sasl_username": "cy,=o"}))
    assert settings.kafka_client_arguments()["sasl_plain_username"] == "cy=2C=3Do"
    assert settings.librdkafka_arguments()["sasl.username"] == "cy,=o"
    settings = Settings.load(**(PLAIN | {"sasl_username": "cy,=o"}))
    assert settings.kafka_client_arguments()["sasl_plain_username"] == "cy,=o"


PITFALLS = st.sampled_from(["\\", '"', ";", "\n", "\r", "\\101", "\\n", "//", "/*", "'", " ", "=", "\0", "\u2028"])
TEXTS = st.lists(PITFALLS | st.characters(exclude_categories=["Cs"])).map("".join)


@bounds(deadline=None)  # a Java process answers
@given(TEXTS, TEXTS)
def test_no_name_and_no_password_breaks_out_of_its_quotes(kafka: Any, name: str, password: str) -> None:
    """Kafka's own parser reads the name and the password back unchanged."""
    written = kafka.config.types.Password(jaas_config("PLAIN", username=name, password=password))
    (entry,) = kafka.security.JaasContext.loadClientContext({"sasl.jaas.config": written}).configurationEntries()
    assert entry.getLoginModuleName() == "org.apache.kafka.common.security.plain.PlainLoginModule"
    assert dict(entry.getOptions()) == {"username": name, "password": password}


# -- settings that need or exclude each other ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (ANA, "sasl_username has no effect with security_protocol PLAINTEXT: choose one with SASL."),
        ({"security_protocol": "SASL_SSL"}, "security_protocol SASL_SSL needs a sasl_mechanism."),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_password": "p"},
            "sasl_mechanism PLAIN needs a sasl_username.",
        ),
        (
            SCRAM | {"sasl_password": None},
            "sasl_mechanism SCRAM-SHA-512 needs one of sasl_password and sasl_password_file.",
        ),
        (
            SCRAM | {"sasl_password_file": __file__},
            "sasl_mechanism SCRAM-SHA-512 needs one of sasl_password and sasl_password_file.",
        ),
        (SCRAM | {"sasl_username": "a\nb"}, "sasl_username: control characters and line ends are not allowed in it."),
        (SCRAM | {"sasl_password": "a\0b"}, "sasl_password: control characters and line ends are not allowed in it."),
        (SCRAM | {"ssl_key_password": "p"}, "ssl_key_password needs an ssl_certfile."),
        (
            PLAIN | {"ssl_cafile": __file__},
            "ssl_cafile has no effect with security_protocol SASL_PLAINTEXT: choose one with SSL.",
        ),
        ({"ssl_cafile": "/no/such"}, "ssl_cafile: /no/such cannot be read (No such file or directory)."),
        (
            {"security_protocol": "SSL", "ssl_cafile": __file__},
            f"{__file__} contains no PEM certificate.",
        ),
        (PLAIN | {"bootstrap_servers": ELSEWHERE}, CLEAR),
        (OAUTH | {"sasl_oauth_token_url": None}, "sasl_mechanism OAUTHBEARER needs a sasl_oauth_token_url."),
        (OAUTH | {"sasl_oauth_client_id": None}, "sasl_mechanism OAUTHBEARER needs a sasl_oauth_client_id."),
        (
            OAUTH | {"sasl_oauth_client_secret_file": __file__},
            "sasl_mechanism OAUTHBEARER needs one of sasl_oauth_client_secret and sasl_oauth_client_secret_file.",
        ),
        (OAUTH | {"sasl_username": "ana"}, "sasl_username has no effect with sasl_mechanism OAUTHBEARER."),
        (SCRAM | {"sasl_oauth_scope": "s"}, "sasl_oauth_scope has no effect with sasl_mechanism SCRAM-SHA-512."),
        (
            {"sasl_oauth_scope": "s"},
            "sasl_oauth_scope has no effect with security_protocol PLAINTEXT: choose one with SASL.",
        ),
        (OAUTH | {"sasl_oauth_cafile": __file__}, f"{__file__} contains no PEM certificate."),
        (OAUTH | {"sasl_oauth_client_id": "a:b"}, "sasl_oauth_client_id: String should match pattern '^[^:]*$'."),
        (
            OAUTH | {"security_protocol": "SASL_PLAINTEXT", "bootstrap_servers": ELSEWHERE},
            CLEAR.replace("PLAIN would send the password", "OAUTHBEARER would send the token"),
        ),
        ({"gateway_ssl_cafile": __file__}, "gateway_ssl_cafile needs a gateway_ssl_certfile."),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadSettings) as refused:
        Settings.load(**given)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    "url", ["https://id.example/token", "https://[::1]:8/", "http://127.0.0.1:8080/token", "http://localhost/token"]
)
def test_a_token_url_must_use_tls_or_name_this_machine(url: str) -> None:
    assert Settings.load(**OAUTH | {"sasl_oauth_token_url": url}).sasl_oauth_token_url == url


@pytest.mark.parametrize(
    "url",
    [
        "http://id.example/token", "http://127.0.0.1.example/token", "file:///etc/passwd", "id.example/token", "https://",
        "https://geheim@id.example/", "https://ana:geheim@id.example/", "https://id.example/?k=geheim",
        "https://id.example/#geheim", "https://id.exa\nmple/", "https://[geheim/",
    ],
)  # fmt: skip
def test_an_invalid_token_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadSettings, match=r"^sasl_oauth_token_url: ") as refused:
        Settings.load(**OAUTH | {"sasl_oauth_token_url": url})
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "mechanisms"),
    [
        ({}, MECHANISMS),
        ({"bootstrap_servers": "localhost:1,[::1]:2"}, MECHANISMS),
        ({"bootstrap_servers": ELSEWHERE, "allow_plaintext_passwords": True}, MECHANISMS),
        ({"bootstrap_servers": ELSEWHERE, "security_protocol": "SASL_SSL"}, MECHANISMS),
        ({"bootstrap_servers": ELSEWHERE, "sasl_mechanism": "SCRAM-SHA-256"}, MECHANISMS[1:]),
    ],
)
def test_passwords_are_sent_unencrypted_to_this_machine_only(
    changed: dict[str, Any], mechanisms: tuple[str, ...]
) -> None:
    """This holds for the coordinator's passwords and for those that clients send to the gateway."""
    assert Settings.load(**(PLAIN | changed)).client_mechanisms == mechanisms
    assert Settings.load().client_mechanisms == ()


# -- secrets -------------------------------------------------------------------------------------------------------


def test_a_password_is_read_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_text(" päss \r\n")
    connection = {name: value for name, value in SCRAM.items() if name != "sasl_password"}
    from_file = Settings.load(**connection, sasl_password_file=str(file))
    assert from_file.librdkafka_arguments()["sasl.password"] == " päss "
    monkeypatch.setenv("COORDINATOR_SASL_PASSWORD", "word")
    assert Settings.load(**connection).librdkafka_arguments()["sasl.password"] == "word"


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff"])
def test_a_file_without_a_password_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(BadSettings, match=r"password contains no password in UTF-8\.$"):
        Settings.load(**(SCRAM | {"sasl_password": None, "sasl_password_file": str(file)}))


def test_a_clients_secret_may_be_in_a_file(tmp_path: Path) -> None:
    (file := tmp_path / "secret").write_text("päss\n")
    connection = {name: value for name, value in OAUTH.items() if name != "sasl_oauth_client_secret"}
    assert (
        'clientSecret="päss"'
        in spellings.java(Settings.load(**connection, sasl_oauth_client_secret_file=str(file))._settings())[
            "sasl.jaas.config"
        ]
    )


def test_no_secret_of_tokens_or_of_access_is_shown() -> None:
    """I23: no object that settings make shows a secret, in any of its forms."""
    key = "geheim" * 6
    settings = Settings.load(**OAUTH | {"sasl_oauth_client_secret": "geheim"}, access_key=key)
    made = (settings, settings._tokens, settings.signing(), settings.signer_at("coordinator"))
    client_options = (
        " ".join(f"{each!r} {each}" for each in made) + f"{settings.model_dump()} {settings.model_dump_json()}"
    )
    assert "geheim" not in client_options + repr(vars(settings)) + repr(settings.__pydantic_private__)
    with pytest.raises(ValidationError) as refused:
        Settings(**OAUTH | {"sasl_oauth_client_secret": "geheim", "sasl_username": "ana"}, access_key=key)
    assert "geheim" not in str(refused.value)


def test_no_secret_is_shown(files: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """I23: no form of the settings and no error message shows a secret."""
    secret = {"sasl_password": "geheim", "gateway_ssl_key_password": "geheim"}
    settings = Settings.load(**(SCRAM | secret), gateway_ssl_certfile=str(files.both))
    assert "geheim" not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
    assert "geheim" not in repr(vars(settings)) + repr(settings.__pydantic_private__)
    for wrong in (
        {"sasl_username": None},
        {"sasl_password": "geheim\n"},
        {"ssl_keyfile": files.key},
        {"nix": "geheim"},
    ):
        with pytest.raises(ValidationError) as refused:
            Settings(**(SCRAM | secret | wrong))
        assert "geheim" not in str(refused.value)
        with pytest.raises(BadSettings) as refused_by_name:
            Settings.load(**(SCRAM | secret | wrong))
        assert "geheim" not in str(refused_by_name.value)
