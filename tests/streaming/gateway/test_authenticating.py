"""The requests that a client may send before and after its authentication, and the states of a SASL exchange."""

from typing import Any

import pytest
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from coordinator.base.access import ANONYMOUS
from streaming.gateway.connection.flow_control import InFlightRequest
from streaming.gateway.protocol.frames import BadFrame, with_length
from streaming.gateway.security.acls import Client
from streaming.gateway.security.authenticate import Authenticating, Identity
from streaming.gateway.security.sasl import BadSasl
from streaming.gateway.server.apis import APIS
from tests.streaming.gateway.parts import FlowBench

HEARTBEAT, HANDSHAKE, API_VERSIONS, AUTHENTICATE = 12, 17, 18, 36
PLAIN = ("PLAIN",)
INF = float("inf")


def frame(kind: Any, version: int, **fields: Any) -> bytes:
    message = kind(version=version, **fields)
    message.with_header(correlation_id=77, **({"client_id": "ana"} if kind.is_request() else {}))
    return bytes(message.encode(header=True))


HANDSHAKE_FRAME = frame(SaslHandshakeRequest, 1, mechanism="PLAIN")
TOKEN_FRAME = frame(SaslAuthenticateRequest, 2, auth_bytes=b"\0ana\0secret")
CHOSEN = frame(SaslHandshakeResponse, 1, error_code=0, mechanisms=["PLAIN"])


def verdict(error_code: int = 0, session_lifetime_ms: int = 0) -> bytes:
    fields = {"error_code": error_code, "error_message": None, "auth_bytes": b""}
    return frame(SaslAuthenticateResponse, 2, session_lifetime_ms=session_lifetime_ms, **fields)


def known(session_lifetime_ms: int = 0, now_s: float = 0) -> Identity:
    """Return an identity whose exchange has succeeded."""
    identity = Identity(PLAIN, "/10.0.0.7")
    for request, response in ((HANDSHAKE_FRAME, CHOSEN), (TOKEN_FRAME, verdict(0, session_lifetime_ms))):
        assert identity.handle_request(request) is None
        identity.answered(response, now_s)
    return identity


def test_without_sasl_every_request_is_accepted():
    identity = Identity((), "/10.0.0.7")
    identity.check(APIS[HEARTBEAT], INF)
    assert (identity.principal, identity.client) == (None, Client(ANONYMOUS, "10.0.0.7"))


def test_a_certificate_names_the_client():
    identity = Identity((), "/10.0.0.7", "User:CN=ana")
    assert (identity.principal, identity.client) == ("User:CN=ana", Client("User:CN=ana", "10.0.0.7"))


@pytest.mark.parametrize("certified", [None, "User:CN=ana"])
def test_with_sasl_only_the_exchange_is_accepted_first(certified: str | None):
    """A client certificate does not replace the exchange."""
    identity = Identity(PLAIN, client_certificate=certified)
    for api_key in (HANDSHAKE, API_VERSIONS, AUTHENTICATE):
        identity.check(APIS[api_key], 0)
    with pytest.raises(BadFrame, match="Heartbeat before authentication"):
        identity.check(APIS[HEARTBEAT], 0)


def test_a_client_is_authenticated_when_the_broker_has_accepted_it():
    identity = known()
    identity.check(APIS[HEARTBEAT], INF)
    assert (identity.principal, identity.client) == ("User:ana", Client("User:ana", "10.0.0.7"))
    assert not identity.is_refused


def test_no_other_request_is_accepted_during_an_exchange():
    """KIP-368: a client authenticates again on the same connection."""
    identity = known()
    identity.handle_request(HANDSHAKE_FRAME)
    with pytest.raises(BadFrame, match="before authentication"):
        identity.check(APIS[HEARTBEAT], 0)


def test_a_session_ends_after_the_lifetime_from_the_broker():
    identity = known(session_lifetime_ms=5_000, now_s=100.0)
    identity.check(APIS[HEARTBEAT], 105.0)
    with pytest.raises(BadFrame, match="KIP-368"):
        identity.check(APIS[HEARTBEAT], 105.001)
    identity.check(APIS[HANDSHAKE], 105.001)


def test_tokens_have_no_header_after_a_handshake_of_version_0():
    identity = Identity(PLAIN)
    identity.handle_request(frame(SaslHandshakeRequest, 0, mechanism="PLAIN"))
    assert not identity.sends_tokens
    identity.answered(frame(SaslHandshakeResponse, 0, error_code=0, mechanisms=["PLAIN"]), 0)
    assert identity.sends_tokens


# -- forwarded frames --------------------------------------------------------------------------------------------------


class Exchange:
    """One connection that authenticates, and the requests that were forwarded to its broker."""

    def __init__(self) -> None:
        self.bench, self.identity = FlowBench(), Identity(PLAIN)
        self.forwarded: list[tuple[InFlightRequest, bytes]] = []
        self._part = Authenticating(
            self.bench.flow,
            self.identity,
            lambda slot, frame: self.forwarded.append((slot, frame)),
            lambda: self.bench.now_s,
        )

    def ask(self, api_key: int, frame: bytes) -> None:
        self._part.authenticate(self.bench.slot(api_key), frame)

    def answer(self, frame: bytes) -> None:
        """Answer the last request as the broker does."""
        slot, _ = self.forwarded[-1]
        assert slot.handle_whole is not None
        slot.handle_whole(slot, frame)
        self.bench.run_soon()


def test_both_sides_of_an_exchange_are_forwarded_unchanged():
    exchange = Exchange()
    exchange.ask(HANDSHAKE, HANDSHAKE_FRAME)
    exchange.answer(CHOSEN)
    exchange.ask(AUTHENTICATE, TOKEN_FRAME)
    exchange.answer(verdict(session_lifetime_ms=5_000))
    assert [frame for _, frame in exchange.forwarded] == [HANDSHAKE_FRAME, TOKEN_FRAME]
    assert exchange.bench.transport.written == with_length(CHOSEN) + with_length(verdict(session_lifetime_ms=5_000))
    assert (exchange.identity.principal, exchange.bench.transport.ended) == ("User:ana", None)
    with pytest.raises(BadFrame, match="KIP-368"):
        exchange.identity.check(APIS[HEARTBEAT], exchange.bench.now_s + 6)


def test_the_brokers_refusal_is_the_last_response_to_a_client():
    exchange = Exchange()
    exchange.ask(HANDSHAKE, HANDSHAKE_FRAME)
    exchange.answer(CHOSEN)
    exchange.ask(AUTHENTICATE, TOKEN_FRAME)
    refusal = verdict(error_code=58)
    exchange.answer(refusal)
    assert exchange.bench.transport.written.endswith(with_length(refusal))
    assert (exchange.identity.principal, exchange.bench.transport.ended) == (None, "closed")


def test_a_mechanism_that_is_not_offered_is_refused_without_the_broker():
    exchange = Exchange()
    exchange.ask(HANDSHAKE, frame(SaslHandshakeRequest, 1, mechanism="GSSAPI"))
    (refusal,) = exchange.bench.transport.frames()
    assert SaslHandshakeResponse.decode(refusal, version=1, header=True).error_code == 33
    assert (exchange.forwarded, exchange.bench.transport.ended) == ([], "closed")


def again(exchange: Exchange, token: bytes, version: int = 1) -> bytes:
    """Return the request with the token of a known client that authenticates again."""
    exchange.ask(HANDSHAKE, HANDSHAKE_FRAME)
    exchange.answer(CHOSEN)
    exchange.ask(AUTHENTICATE, TOKEN_FRAME)
    exchange.answer(verdict())
    exchange.ask(HANDSHAKE, frame(SaslHandshakeRequest, version, mechanism="PLAIN"))
    exchange.answer(frame(SaslHandshakeResponse, version, error_code=0, mechanisms=["PLAIN"]))
    return token if version == 0 else frame(SaslAuthenticateRequest, 2, auth_bytes=token)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (b"\0bo\0secret", "the client authenticates again under another name"),
        (b"bo\0ana\0secret", "the client requests another name than its own"),
        (b"ana", "the client's PLAIN message cannot be read"),
    ],
)
def test_a_token_that_the_gateway_refuses_is_answered_as_by_a_broker(token: bytes, why: str):
    """Public reports, nisshi 665: a client that gets no answer takes the network for broken, and tries for ever."""
    exchange = Exchange()
    request = again(exchange, token)
    forwarded = len(exchange.forwarded)
    exchange.ask(AUTHENTICATE, request)
    refusal = SaslAuthenticateResponse.decode(exchange.bench.transport.frames()[-1], version=2, header=True)
    assert (refusal.error_code, refusal.error_message) == (58, f"Authentication failed: {why}")
    assert (len(exchange.forwarded), exchange.bench.transport.ended) == (forwarded, "closed")
    assert exchange.identity.principal is None


def test_a_bare_token_that_the_gateway_refuses_has_no_answer():
    """KIP-43: such a token has no header, and its answer has no place for an error."""
    exchange = Exchange()
    with pytest.raises(BadSasl, match="under another name"):
        exchange.ask(AUTHENTICATE, again(exchange, b"\0bo\0secret", version=0))


def test_a_request_out_of_order_is_not_forwarded():
    exchange = Exchange()
    exchange.ask(HANDSHAKE, HANDSHAKE_FRAME)
    with pytest.raises(BadSasl):
        exchange.ask(AUTHENTICATE, TOKEN_FRAME)
    assert len(exchange.forwarded) == 1
