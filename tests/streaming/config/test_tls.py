"""Tests of TLS: accepted certificates of clients and of the gateway, and listening without a certificate."""

import ssl
from pathlib import Path

import pytest
import trustme

from streaming.config.security import PlaintextRefused
from streaming.config.settings import BadSettings, Settings
from streaming.config.tls import client_context, server_context
from streaming.kafka.acls import Role, commands
from tests.streaming.config.test_security import SCRAM
from tests.system.secured import KEY_PASSWORD, Certificates

# -- certificates --------------------------------------------------------------------------------------------------


def handshake(ours: ssl.SSLContext | None, theirs: ssl.SSLContext | None, host: str = "127.0.0.1") -> str | None:
    """Run a TLS handshake between a client and a server in memory; return the TLS version."""
    assert ours is not None
    assert theirs is not None
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ours.wrap_bio(to_client, to_server, server_hostname=host)
    server = theirs.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    server.write(b"!")  # a client of TLS 1.3 learns only from this whether its certificate is accepted
    assert client.read(1) == b"!"
    return client.version()


def test_a_certificate_of_a_trusted_authority_is_accepted(files: Certificates) -> None:
    ours, theirs = client_context(str(files.ca)), server_context(str(files.cert), str(files.key))
    assert handshake(ours, theirs) == handshake(ours, theirs, "kafka.example") == "TLSv1.3"


def test_the_systems_authorities_are_trusted_unless_others_are_named(
    files: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(files.ca))
    assert handshake(client_context(None), server_context(str(files.both)))


def test_a_certificate_for_another_name_or_of_an_unknown_authority_is_refused(
    files: Certificates, strangers: Certificates
) -> None:
    theirs = server_context(str(files.cert), str(files.key))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(client_context(str(files.ca)), theirs, "another.example")
    assert handshake(client_context(str(files.ca), check_hostname=False), theirs, "another.example")
    for trusting_others in (client_context(None), client_context(str(strangers.ca), check_hostname=False)):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(trusting_others, theirs)


def test_clients_must_present_a_certificate_if_the_gateway_requires_one(
    files: Certificates, strangers: Certificates
) -> None:
    theirs = Settings.load(gateway_ssl_certfile=str(files.both), gateway_ssl_cafile=str(files.ca)).listener_context(
        "::"
    )
    own = {"ssl_certfile": str(files.cert), "ssl_keyfile": str(files.key)}
    ours = Settings.load(security_protocol="SSL", ssl_cafile=str(files.ca), **own).broker_context()
    assert handshake(ours, theirs)
    for others in ((), (str(strangers.both),)):
        with pytest.raises(ssl.SSLError):
            handshake(client_context(str(files.ca), *others), theirs)


def test_tls_1_2_is_the_oldest_accepted_version(files: Certificates) -> None:
    for context in (client_context(None), server_context(str(files.both))):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_an_encrypted_key_is_opened_by_its_password_only(files: Certificates) -> None:
    encrypted = {"gateway_ssl_certfile": str(files.cert), "gateway_ssl_keyfile": str(files.encrypted_key)}
    theirs = Settings.load(**encrypted, gateway_ssl_key_password=KEY_PASSWORD).listener_context("::")
    assert handshake(client_context(str(files.ca)), theirs)
    for wrong in (None, "guess"):
        with pytest.raises(
            BadSettings, match=r"are not a PEM certificate and its key, or the password is not the key's\.$"
        ):
            Settings.load(**encrypted, gateway_ssl_key_password=wrong)


def test_a_key_of_another_certificate_is_refused(files: Certificates, strangers: Certificates) -> None:
    with pytest.raises(BadSettings) as refused:
        Settings.load(gateway_ssl_certfile=str(files.cert), gateway_ssl_keyfile=str(strangers.key))
    assert str(refused.value) == (
        f"{files.cert} and {strangers.key} are not a PEM certificate and its key, or the password is not the key's."
    )


def test_a_key_that_spark_could_not_read_is_refused(authority: trustme.CA, files: Certificates, tmp_path: Path) -> None:
    leaf = authority.issue_cert("ana")
    leaf.private_key_and_cert_chain_pem.write_to_path(tmp_path / "old.pem")
    with pytest.raises(BadSettings, match=r"old.pem has no key .*: convert it by 'openssl pkcs8 -topk8 -nocrypt'\.$"):
        Settings.load(security_protocol="SSL", ssl_certfile=str(tmp_path / "old.pem"))
    modern = {
        "ssl_certfile": str(files.cert),
        "ssl_keyfile": str(files.encrypted_key),
        "ssl_key_password": KEY_PASSWORD,
    }
    with pytest.raises(BadSettings, match=r"'openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES'\.$"):
        Settings.load(security_protocol="SSL", **modern)


# -- the gateway's listener ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_plain_text_is_served_on_this_machine(host: str) -> None:
    assert Settings.load().listener_context(host) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.7", "kafka.example", "::ffff:127.0.0.1"])
def test_plain_text_is_served_to_other_machines_only_if_allowed(host: str, files: Certificates) -> None:
    with pytest.raises(PlaintextRefused, match=r"set gateway_ssl_certfile, or listen on .*, or set gateway_allow"):
        Settings.load().listener_context(host)
    assert Settings.load(gateway_allow_plaintext=True).listener_context(host) is None
    assert Settings.load(gateway_ssl_certfile=str(files.both)).listener_context(host) is not None


@pytest.mark.parametrize(
    ("protocol", "has_certificate", "is_lent"),
    [("PLAINTEXT", False, False), ("SSL", False, False), ("SSL", True, True), ("SASL_SSL", True, False)],
)
def test_a_gateway_relays_as_itself_only_with_a_certificate_and_without_sasl(
    files: Certificates, protocol: str, has_certificate: bool, is_lent: bool
) -> None:
    own = {"ssl_certfile": str(files.cert), "ssl_keyfile": str(files.key)} if has_certificate else {}
    sasl = SCRAM | {"security_protocol": protocol} if "SASL" in protocol else {"security_protocol": protocol}
    settings = Settings.load(**sasl, **own)
    assert settings.is_relayed_as_gateway is is_lent
    assert settings.gateway_relay == "acls"
    printed = list(commands(Role.GATEWAY, "User:gateway", settings))
    assert sum("--operation Describe --cluster" in command for command in printed) == is_lent
