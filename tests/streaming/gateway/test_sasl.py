"""Who a watched SASL exchange makes known: what kafka-python's own clients say, and what nobody should."""

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
from streaming.gateway.sasl import NAME_CHARS_MAX, BadSasl, SaslWatch

SCRAM_CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SCRAM_SERVER_SAYS = (  # to SCRAM_CLIENT_NONCE of the user "user" with the password "pencil", in RFC 7677, section 3
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)
VERSIONS = pytest.mark.parametrize("version", [0, 1, 2])


class Talk:
    """A client's and a broker's frames, as the watch sees them pass."""

    def __init__(self, *mechanisms: str) -> None:
        self.watch = SaslWatch(mechanisms) if mechanisms else SaslWatch()
        self._number = 0

    def frame(self, kind: Any, version: int, **fields: Any) -> bytes:
        message = kind(version=version, **fields)
        message.with_header(correlation_id=self._number, **({"client_id": "c"} if kind.is_request() else {}))
        return bytes(message.encode(header=True))

    def handshake(self, mechanism: str, version: int = 1, error_code: int = 0) -> bytes | None:
        self._number += 1
        refusal = self.watch.asked(self.frame(SaslHandshakeRequest, version, mechanism=mechanism))
        if refusal is None:
            answer = self.frame(SaslHandshakeResponse, version, error_code=error_code, mechanisms=["PLAIN"])
            self.watch.answered(answer)
        return refusal

    def token(self, token: bytes, version: int = 2) -> None:
        self._number += 1
        assert self.watch.asked(self.frame(SaslAuthenticateRequest, version, auth_bytes=token)) is None

    def verdict(self, token: bytes = b"", version: int = 2, **fields: Any) -> None:
        self.watch.answered(self.frame(SaslAuthenticateResponse, version, auth_bytes=token, **fields))


def client_of(mechanism: str, user: str, password: str) -> Any:
    """kafka-python's own."""
    with patch("uuid.uuid4", return_value=SCRAM_CLIENT_NONCE):
        return get_sasl_mechanism(mechanism)(
            sasl_mechanism=mechanism, sasl_plain_username=user, sasl_plain_password=password
        )


def plain(name: str, version: int = 2) -> Talk:
    """A PLAIN exchange that the broker has yet to judge."""
    talk = Talk()
    talk.handshake("PLAIN")
    talk.token(client_of("PLAIN", name, "secret").auth_bytes(), version)
    return talk


@VERSIONS
def test_who_shows_a_password_is_known_once_the_broker_has_said_yes(version: int) -> None:
    talk = plain("ana", version)
    assert (talk.watch.principal, talk.watch.is_amid, talk.watch.is_raw) == (None, True, False)
    talk.verdict(version=version)
    assert (talk.watch.principal, talk.watch.mechanism, talk.watch.is_amid) == ("User:ana", "PLAIN", False)


@VERSIONS
def test_who_proves_to_know_a_password_is_known_after_the_second_round(version: int) -> None:
    """RFC 7677's example, whose signatures kafka-python's client makes and checks."""
    talk, client = Talk(), client_of("SCRAM-SHA-256", "user", "pencil")
    talk.handshake("SCRAM-SHA-256")
    for answer in SCRAM_SERVER_SAYS:
        assert talk.watch.principal is None
        talk.token(client.auth_bytes(), version)
        talk.verdict(answer, version)
        client.receive(answer)
    assert client.is_authenticated()
    assert talk.watch.principal == "User:user"


def test_tokens_have_no_headers_after_a_handshake_of_the_oldest_version() -> None:
    talk, client = Talk(), client_of("SCRAM-SHA-256", "user", "pencil")
    assert not talk.watch.is_raw
    talk.handshake("SCRAM-SHA-256", version=0)
    for answer in SCRAM_SERVER_SAYS:
        assert talk.watch.is_raw
        talk.watch.asked(client.auth_bytes())
        assert talk.watch.is_raw
        talk.watch.answered(answer)
        client.receive(answer)
    assert (talk.watch.principal, talk.watch.is_raw) == ("User:user", False)


@pytest.mark.parametrize("version", [0, 1])
def test_a_mechanism_that_nobody_here_can_follow_is_refused_with_those_that_can_be(version: int) -> None:
    talk = Talk()
    refusal = talk.handshake("OAUTHBEARER", version)
    assert refusal is not None
    said = SaslHandshakeResponse.decode(refusal, version=version, header=True)
    assert (said.error_code, said.mechanisms) == (33, list(MECHANISMS))
    assert said.header.correlation_id == 1
    assert talk.watch.is_over


def test_a_mechanism_may_be_kept_from_clients() -> None:
    assert Talk("SCRAM-SHA-512", "GSSAPI").handshake("PLAIN") is not None
    assert Talk("SCRAM-SHA-512", "GSSAPI").handshake("GSSAPI") is not None
    assert Talk("SCRAM-SHA-512", "GSSAPI").handshake("SCRAM-SHA-512") is None


def test_nobody_is_known_whom_the_broker_refuses() -> None:
    talk = plain("ana")
    talk.verdict(error_code=58, error_message="no")
    assert (talk.watch.principal, talk.watch.is_over) == (None, True)
    with pytest.raises(BadSasl, match="out of turn"):
        talk.token(b"\0ana\0another")


def test_nobody_is_known_by_a_mechanism_that_the_broker_refuses() -> None:
    talk = Talk()
    talk.handshake("PLAIN", error_code=33)
    with pytest.raises(BadSasl, match="out of turn"):
        talk.token(b"\0ana\0secret")


def test_nobody_is_known_by_a_proof_that_the_broker_does_not_return() -> None:
    """RFC 5802 lets a server end with `e=`; bare tokens have no other way to say no."""
    talk = Talk()
    talk.handshake("SCRAM-SHA-512", version=0)
    for answer in (b"r=xy,s=QQ==,i=4096", b"e=invalid-proof"):
        talk.watch.asked(b"n,,n=ana,r=x")
        talk.watch.answered(answer)
    assert (talk.watch.principal, talk.watch.is_over) == (None, True)


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
def test_names_are_read_as_brokers_read_them(mechanism: str, token: bytes, name: str) -> None:
    talk = Talk()
    talk.handshake(mechanism)
    talk.token(token)
    if mechanism != "PLAIN":
        talk.verdict(b"r=noncemore,s=QQ==,i=4096")
        talk.token(b"c=biws,r=noncemore,p=AA==")
    talk.verdict(b"v=AA==")
    assert talk.watch.principal == f"User:{name}"


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
def test_what_could_be_read_in_two_ways_is_not_passed_on(mechanism: str, token: bytes, why: str) -> None:
    """A delegation token's owner, above all, is not the name in it."""
    talk = Talk()
    talk.handshake(mechanism)
    with pytest.raises(BadSasl, match=why):
        talk.token(token)
    assert talk.watch.is_over


def test_a_second_claim_does_not_overtake_the_answer_to_the_first() -> None:
    """Or else a yes to ana would make her the admin."""
    talk = plain("ana")
    with pytest.raises(BadSasl, match="out of turn"):
        talk.token(b"\0admin\0guess")
    with pytest.raises(BadSasl):
        talk.verdict()
    assert talk.watch.principal is None


def test_an_answer_to_something_else_makes_nobody_known() -> None:
    talk = plain("ana")
    talk._number += 1
    with pytest.raises(BadSasl, match="broker's response to SaslAuthenticate"):
        talk.verdict()


def test_bytes_that_another_reader_might_take_for_a_name_are_not_passed_on() -> None:
    talk = Talk()
    with pytest.raises(BadSasl, match="SaslHandshake cannot be read"):
        talk.watch.asked(talk.frame(SaslHandshakeRequest, 1, mechanism="PLAIN") + b"\0admin\0")


def test_another_request_is_not_taken_for_a_handshake() -> None:
    talk = Talk()
    handshake = talk.frame(SaslHandshakeRequest, 1, mechanism="PLAIN")
    with pytest.raises(BadSasl, match="SaslHandshake cannot be read"):
        talk.watch.asked(SaslAuthenticateRequest.API_KEY.to_bytes(2) + handshake[2:])


def test_the_same_user_may_authenticate_again_and_stays_known_meanwhile() -> None:
    """KIP-368."""
    talk = plain("ana")
    talk.verdict(session_lifetime_ms=60_000)
    assert talk.watch.session_lifetime_ms == 60_000
    talk.handshake("PLAIN")
    assert (talk.watch.principal, talk.watch.is_amid) == ("User:ana", True)
    talk.token(b"\0ana\0secret")
    talk.verdict(session_lifetime_ms=30_000)
    assert (talk.watch.principal, talk.watch.session_lifetime_ms) == ("User:ana", 30_000)


def test_another_user_may_not_take_a_connection_over() -> None:
    """KIP-368."""
    talk = plain("ana")
    talk.verdict()
    talk.handshake("PLAIN")
    with pytest.raises(BadSasl, match="under another name"):
        talk.token(b"\0bo\0secret")
    assert talk.watch.principal is None


def test_no_password_is_kept_or_told() -> None:
    """I23."""
    talk = plain("ana")
    assert "secret" not in repr(talk.watch) + repr(vars(talk.watch))
    for token in (b"\0ana\0\xffsecret", b"secret", b"\0ana\0secret\0", b"bo\0ana\0secret"):
        talk = Talk()
        talk.handshake("PLAIN")
        with pytest.raises(BadSasl) as refused:
            talk.token(token)
        assert "secret" not in repr(refused.value)
        assert refused.value.__context__ is None, "a decoder's error holds what it could not decode"


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=64)), max_size=6))
def test_garbage_is_refused_in_one_way(frames: list[tuple[bool, bytes]]) -> None:
    watch = SaslWatch()
    for is_clients, frame in frames:
        try:
            watch.asked(frame) if is_clients else watch.answered(frame)
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
def test_whatever_order_things_are_said_in_only_a_yes_to_a_name_makes_it_known(moves: list[tuple[Any, ...]]) -> None:
    """The model: the broker's yes is to the last token, if nothing has been said since."""
    talk, asked_last, known = Talk(), None, None
    for what, *detail in moves:
        try:
            if what == "handshake":
                asked_last = None
                talk.handshake(*detail)
            elif what == "token":
                asked_last = None
                talk.token(f"\0{detail[0]}\0secret".encode())
                asked_last = detail[0]
            elif what == "bare token":
                asked_last = None
                talk.watch.asked(f"\0{detail[0]}\0secret".encode())
                asked_last = detail[0]
            elif what == "garbage":
                asked_last = None
                talk.watch.asked(detail[0])
            elif talk.watch.is_raw:
                talk.watch.answered(b"")
                known = asked_last
            else:
                talk.verdict(error_code=detail[0])
                known = asked_last if detail[0] == 0 else None
        except BadSasl:
            known = None
            assert talk.watch.principal is None
        assert talk.watch.principal in (None, f"User:{known}")
