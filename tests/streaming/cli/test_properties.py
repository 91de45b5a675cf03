"""Tests of Java properties files and of the settings that are read from them."""

from pathlib import Path

import pytest

from streaming.cli.properties import BadProperties, settings_in, to_settings
from streaming.config.java_properties import read_properties
from streaming.errors import Exit

LINES: list[tuple[str, dict[str, str]]] = [
    ("a=1", {"a": "1"}),
    ("a = 1 ", {"a": "1 "}),
    ("a: 1", {"a": "1"}),
    ("a 1", {"a": "1"}),
    ("a", {"a": ""}),
    ("a=", {"a": ""}),
    ("# a=1\n! b=2\n\n  c=3", {"c": "3"}),
    ("a=1\\\n   2\\\n3", {"a": "123"}),
    ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
    ("a\\=b=c\\:d", {"a=b": "c:d"}),
    ("a=\\u00e9\\t\\n", {"a": "é\t\n"}),
    ("a=1\na=2", {"a": "2"}),
    ("a=b=c", {"a": "b=c"}),
    ("a=# no comment", {"a": "# no comment"}),
    ("a=1\\", {"a": "1"}),
]


@pytest.mark.parametrize(("text", "properties"), LINES)
def test_properties_are_read_as_java_reads_them(text: str, properties: dict[str, str]) -> None:
    assert read_properties(text) == properties


def test_a_user_with_a_password_is_converted_to_settings() -> None:
    jaas = r'org.apache.kafka.common.security.scram.ScramLoginModule required username="ana" password="a\"b;c=\\d";'
    assert to_settings({
        "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas,
        "ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM", "client.id": "x",
    }) == {
        "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "ana",
        "sasl_password": r'a"b;c=\d', "ssl_cafile": "/ca.pem",
    }  # fmt: skip


def test_a_client_with_a_token_is_converted_to_settings() -> None:
    jaas = (
        'OAuthBearerLoginModule required clientId=me clientSecret="s" scope="kafka" ssl.truststore.location="/t.pem";'
    )
    assert to_settings({"sasl.jaas.config": jaas, "sasl.oauthbearer.token.endpoint.url": "https://h/token"}) == {
        "sasl_oauth_client_id": "me", "sasl_oauth_client_secret": "s", "sasl_oauth_scope": "kafka",
        "sasl_oauth_cafile": "/t.pem", "sasl_oauth_token_url": "https://h/token",
    }  # fmt: skip


def test_the_check_of_host_names_can_be_turned_off() -> None:
    assert to_settings({"ssl.endpoint.identification.algorithm": ""}) == {"ssl_check_hostname": False}
    assert to_settings({"ssl.endpoint.identification.algorithm": "https"}) == {}


REFUSED = [
    {"ssl.truststore.location": "/a.jks"},
    {"ssl.keystore.location": "/a.p12", "ssl.keystore.type": "PKCS12"},
    {"ssl.truststore.certificates": "-----BEGIN"},
    {"ssl.keystore.key": "-----BEGIN"},
]


@pytest.mark.parametrize("properties", REFUSED)
def test_an_unsupported_property_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(BadProperties) as error:
        to_settings(properties)
    assert error.value.exit_code == Exit.USAGE


def test_an_ignored_security_property_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """A warning names the property and not its value, as the value may be secret."""
    assert to_settings({"ssl.enabled.protocols": "TLSv1.3", "acks": "all"}) == {}
    assert "ssl.enabled.protocols" in (warning := capsys.readouterr().err)
    assert "TLSv1.3" not in warning
    assert "acks" not in warning


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadProperties, match="cannot be read"):
        settings_in(str(tmp_path / "none"))
    (file := tmp_path / "some").write_text("security.protocol=SSL\n")
    assert settings_in(str(file)) == {"security_protocol": "SSL"}
