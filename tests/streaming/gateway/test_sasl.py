"""The principal after a SASL exchange that the gateway forwards: exchanges of kafka-python's clients, and attacks."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from streaming.config.security import MECHANISMS
from streaming.gateway.security.sasl import NAME_CHARS_MAX, BadSasl, SaslWatch

SCRAM_CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SCRAM_SERVER_SAYS = (  # to SCRAM_CLIENT_NONCE of the user "user" with the password "pencil", in RFC 7677, section 3
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)
VERSIONS = pytest.mark.parametrize("version", [0, 1, 2])


class FakeExchange:
    """A SASL exchange: the frames of a client and of a broker, passed to the watch."""

    def __init__(self, *mechanisms: str) -> None:
        self.watch = SaslWatch(mechanisms) if mechanisms else SaslWatch()
        self._number = 0

    def frame(self, kind: Any, version: int, **fields: Any) -> bytes:
        message = kind(version=version, **fields)
        message.with_header(correlation_id=self._number, **({"client_id": "c"} if kind.is_request() else {}))
        return bytes(message.encode(header=True))

    def handshake(self, mechanism: str, version: int = 1, error_code: int = 0) -> bytes | None:
        self._number += 1
        refusal = self.watch.handle_request(self.frame(SaslHandshakeRequest, version, mechanism=mechanism))
        if refusal is None:
            answer = self.frame(SaslHandshakeResponse, version, error_code=error_code, mechanisms=["PLAIN"])
            self.watch.answered(answer)
        return refusal

    def token(self, token: bytes, version: int = 2) -> None:
        self._number += 1
        assert self.watch.handle_request(self.frame(SaslAuthenticateRequest, version, auth_bytes=token)) is None

    def verdict(self, token: bytes = b"", version: int = 2, **fields: Any) -> None:
        self.watch.answered(self.frame(SaslAuthenticateResponse, version, auth_bytes=token, **fields))


def client_of(mechanism: str, user: str, password: str) -> Any:
    """Return kafka-python's client for a mechanism."""
    with patch("uuid.uuid4", return_value=SCRAM_CLIENT_NONCE):
        return get_sasl_mechanism(mechanism)(
            sasl_mechanism=mechanism, sasl_plain_username=user, sasl_plain_password=password
        )


def plain(name: str, version: int = 2) -> FakeExchange:
    """Return a PLAIN exchange before the broker's verdict."""
    exchange = FakeExchange()
    exchange.handshake("PLAIN")
    exchange.token(client_of("PLAIN", name, "secret").auth_bytes(), version)
    return exchange


@VERSIONS
def test_plain_authenticates_after_the_brokers_verdict(version: int) -> None:
    exchange = plain("ana", version)
    assert (exchange.watch.principal, exchange.watch.is_amid, exchange.watch.is_raw) == (None, True, False)
    exchange.verdict(version=version)
    assert (exchange.watch.principal, exchange.watch.mechanism, exchange.watch.is_amid) == ("User:ana", "PLAIN", False)


@VERSIONS
def test_scram_authenticates_after_the_second_round(version: int) -> None:
    """The exchange is RFC 7677's example. kafka-python's client makes and checks its signatures."""
    exchange, client = FakeExchange(), client_of("SCRAM-SHA-256", "user", "pencil")
    exchange.handshake("SCRAM-SHA-256")
    for answer in SCRAM_SERVER_SAYS:
        assert exchange.watch.principal is None
        exchange.token(client.auth_bytes(), version)
        exchange.verdict(answer, version)
        client.receive(answer)
    assert client.is_authenticated()
    assert exchange.watch.principal == "User:user"


def test_tokens_have_no_headers_after_a_handshake_of_version_0() -> None:
    exchange, client = FakeExchange(), client_of("SCRAM-SHA-256", "user", "pencil")
    assert not exchange.watch.is_raw
    exchange.handshake("SCRAM-SHA-256", version=0)
    for answer in SCRAM_SERVER_SAYS:
        assert exchange.watch.is_raw
        exchange.watch.handle_request(client.auth_bytes())
        assert exchange.watch.is_raw
        exchange.watch.answered(answer)
        client.receive(answer)
    assert (exchange.watch.principal, exchange.watch.is_raw) == ("User:user", False)


@pytest.mark.parametrize("version", [0, 1])
def test_an_unsupported_mechanism_is_refused_with_the_supported_ones(version: int) -> None:
    exchange = FakeExchange()
    refusal = exchange.handshake("OAUTHBEARER", version)
    assert refusal is not None
    response = SaslHandshakeResponse.decode(refusal, version=version, header=True)
    assert (response.error_code, response.mechanisms) == (33, list(MECHANISMS))
    assert response.header.correlation_id == 1
    assert exchange.watch.is_over


def test_a_mechanism_can_be_disabled() -> None:
    assert FakeExchange("SCRAM-SHA-512", "GSSAPI").handshake("PLAIN") is not None
    assert FakeExchange("SCRAM-SHA-512", "GSSAPI").handshake("GSSAPI") is not None
    assert FakeExchange("SCRAM-SHA-512", "GSSAPI").handshake("SCRAM-SHA-512") is None


def test_a_client_that_the_broker_refuses_has_no_principal() -> None:
    exchange = plain("ana")
    exchange.verdict(error_code=58, error_message="no")
    assert (exchange.watch.principal, exchange.watch.is_over) == (None, True)
    with pytest.raises(BadSasl, match="out of turn"):
        exchange.token(b"\0ana\0another")


def test_a_mechanism_that_the_broker_refuses_gives_no_principal() -> None:
    exchange = FakeExchange()
    exchange.handshake("PLAIN", error_code=33)
    with pytest.raises(BadSasl, match="out of turn"):
        exchange.token(b"\0ana\0secret")


def test_without_the_brokers_proof_the_client_has_no_principal() -> None:
    """RFC 5802 allows a server to end with `e=`. For tokens without headers, this is the only refusal."""
    exchange = FakeExchange()
    exchange.handshake("SCRAM-SHA-512", version=0)
    for answer in (b"r=xy,s=QQ==,i=4096", b"e=invalid-proof"):
        exchange.watch.handle_request(b"n,,n=ana,r=x")
        exchange.watch.answered(answer)
    assert (exchange.watch.principal, exchange.watch.is_over) == (None, True)


@pytest.mark.parametrize(
    ("mechanism", "token", "name"),
    [
        ("PLAIN", b"ana\0ana\0secret", "ana"),
        ("PLAIN", b"\0an=2Ca\0secret", "an=2Ca"),
        ("PLAIN", "\0änna\0geheim".encode(), "änna"),
        ("PLAIN", b"\0" + b"a" * NAME_CHARS_MAX + b"\0secret", "a" * NAME_CHARS_MAX),
        ("SCRAM-SHA-256", b"n,,n=cy=2C=3Do,r=nonce", "cy,=o"),
        ("SCRAM-SHA-256", b"n,,n=a=3D2Cb,r=nonce", "a=2Cb"),
        ("SCRAM-SHA-512", b"n,a=ana,n=ana,r=nonce,extension=any", "ana"),
    ],
)
def test_names_are_parsed_as_brokers_parse_them(mechanism: str, token: bytes, name: str) -> None:
    exchange = FakeExchange()
    exchange.handshake(mechanism)
    exchange.token(token)
    if mechanism != "PLAIN":
        exchange.verdict(b"r=noncemore,s=QQ==,i=4096")
        exchange.token(b"c=biws,r=noncemore,p=AA==")
    exchange.verdict(b"v=AA==")
    assert exchange.watch.principal == f"User:{name}"


@pytest.mark.parametrize(
    ("mechanism", "token", "why"),
    [
        ("PLAIN", b"", "cannot be read"),
        ("PLAIN", b"ana\0secret", "cannot be read"),
        ("PLAIN", b"\0ana\0secret\0bo", "cannot be read"),
        ("PLAIN", b"\0an\xffa\0secret", "cannot be read"),
        ("PLAIN", b"bo\0ana\0secret", "another name"),
        ("PLAIN", b"\0\0secret", "1 to 507 characters"),
        ("PLAIN", b"\0" + b"a" * (NAME_CHARS_MAX + 1) + b"\0secret", "1 to 507 characters"),
        ("SCRAM-SHA-256", b"n,,n=,r=nonce", "cannot be read"),
        ("SCRAM-SHA-256", b"n,,n=ana,n=bo,r=nonce", "cannot be read"),
        ("SCRAM-SHA-256", b"n,,n=a=2cna,r=nonce", "cannot be read"),
        ("SCRAM-SHA-256", b"n,,n=ana,r=nonce\n", "cannot be read"),
        ("SCRAM-SHA-256", b"n,,m=must,n=ana,r=nonce", "cannot be read"),
        ("SCRAM-SHA-256", b"p=tls-unique,,n=ana,r=nonce", "cannot be read"),
        ("SCRAM-SHA-256", b"n,a=bo,n=ana,r=nonce", "another name"),
        ("SCRAM-SHA-256", b"n,,n=token-id,r=nonce,tokenauth=true", "delegation token"),
    ],
)
def test_ambiguous_tokens_are_not_forwarded(mechanism: str, token: bytes, why: str) -> None:
    """In particular, the owner of a delegation token is not the name in it."""
    exchange = FakeExchange()
    exchange.handshake(mechanism)
    with pytest.raises(BadSasl, match=why):
        exchange.token(token)
    assert exchange.watch.is_over


def test_a_second_token_before_the_verdict_is_refused() -> None:
    """Otherwise the broker's verdict on ana would authenticate the client as admin."""
    exchange = plain("ana")
    with pytest.raises(BadSasl, match="out of turn"):
        exchange.token(b"\0admin\0guess")
    with pytest.raises(BadSasl):
        exchange.verdict()
    assert exchange.watch.principal is None


def test_a_response_to_another_request_gives_no_principal() -> None:
    exchange = plain("ana")
    exchange._number += 1
    with pytest.raises(BadSasl, match="broker's response to SaslAuthenticate"):
        exchange.verdict()


def test_bytes_after_a_handshake_are_not_forwarded() -> None:
    exchange = FakeExchange()
    with pytest.raises(BadSasl, match="SaslHandshake cannot be read"):
        exchange.watch.handle_request(exchange.frame(SaslHandshakeRequest, 1, mechanism="PLAIN") + b"\0admin\0")


def test_another_request_is_no_handshake() -> None:
    exchange = FakeExchange()
    handshake = exchange.frame(SaslHandshakeRequest, 1, mechanism="PLAIN")
    with pytest.raises(BadSasl, match="SaslHandshake cannot be read"):
        exchange.watch.handle_request(SaslAuthenticateRequest.API_KEY.to_bytes(2) + handshake[2:])


def test_a_user_keeps_its_principal_while_it_authenticates_again() -> None:
    """KIP-368: the session gets a new lifetime."""
    exchange = plain("ana")
    exchange.verdict(session_lifetime_ms=60_000)
    assert exchange.watch.session_lifetime_ms == 60_000
    exchange.handshake("PLAIN")
    assert (exchange.watch.principal, exchange.watch.is_amid) == ("User:ana", True)
    exchange.token(b"\0ana\0secret")
    exchange.verdict(session_lifetime_ms=30_000)
    assert (exchange.watch.principal, exchange.watch.session_lifetime_ms) == ("User:ana", 30_000)


def test_a_connection_cannot_change_its_user() -> None:
    """KIP-368: a client must authenticate again as the same user."""
    exchange = plain("ana")
    exchange.verdict()
    exchange.handshake("PLAIN")
    with pytest.raises(BadSasl, match="under another name"):
        exchange.token(b"\0bo\0secret")
    assert exchange.watch.principal is None


def test_no_password_is_stored_or_reported() -> None:
    """I23: neither the watch nor an error contains the password."""
    exchange = plain("ana")
    assert "secret" not in repr(exchange.watch) + repr(vars(exchange.watch))
    for token in (b"\0ana\0\xffsecret", b"secret", b"\0ana\0secret\0", b"bo\0ana\0secret"):
        exchange = FakeExchange()
        exchange.handshake("PLAIN")
        with pytest.raises(BadSasl) as refused:
            exchange.token(token)
        assert "secret" not in repr(refused.value)
        assert refused.value.__context__ is None, "a decoder's error contains the bytes"


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=64)), max_size=6))
def test_garbage_is_refused_with_bad_sasl(frames: list[tuple[bool, bytes]]) -> None:
    watch = SaslWatch()
    for is_clients, frame in frames:
        try:
            watch.handle_request(frame) if is_clients else watch.answered(frame)
        except BadSasl:
            assert watch.is_over
    assert watch.principal is None


NAMES = st.sampled_from(["ana", "bo", "admin"])
MOVES = st.one_of(
    st.tuples(st.just("handshake"), st.sampled_from(["PLAIN", "SCRAM-SHA-256", "GSSAPI"]), st.sampled_from([0, 1])),
    st.tuples(st.just("token"), NAMES),
    st.tuples(st.just("bare token"), NAMES),
    st.tuples(st.just("verdict"), st.sampled_from([0, 58])),
    st.tuples(st.just("garbage"), st.binary(max_size=40)),
)


@settings(deadline=None)
@given(st.lists(MOVES, max_size=12))
def test_only_a_verdict_on_the_last_token_gives_a_principal(moves: list[tuple[Any, ...]]) -> None:
    """In the model, a positive verdict applies to the last token, if no other frame followed the token."""
    exchange, asked_last, known = FakeExchange(), None, None
    for what, *detail in moves:
        try:
            if what == "handshake":
                asked_last = None
                exchange.handshake(*detail)
            elif what == "token":
                asked_last = None
                exchange.token(f"\0{detail[0]}\0secret".encode())
                asked_last = detail[0]
            elif what == "bare token":
                asked_last = None
                exchange.watch.handle_request(f"\0{detail[0]}\0secret".encode())
                asked_last = detail[0]
            elif what == "garbage":
                asked_last = None
                exchange.watch.handle_request(detail[0])
            elif exchange.watch.is_raw:
                exchange.watch.answered(b"")
                known = asked_last
            else:
                exchange.verdict(error_code=detail[0])
                known = asked_last if detail[0] == 0 else None
        except BadSasl:
            known = None
            assert exchange.watch.principal is None
        assert exchange.watch.principal in (None, f"User:{known}")
