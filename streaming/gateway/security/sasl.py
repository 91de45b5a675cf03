"""The client's name from a SASL exchange with a broker, which the gateway passes on and reads.

A broker does not send a gateway the name of an authenticated client. So the gateway reads the name from the client's
message, and accepts it when the broker has accepted that message. This requires two rules. The gateway reads each
message exactly as a broker does: a message that differs from the documents below ends the exchange. And a client must
wait for each response: otherwise the gateway could mistake the response to one name for the response to another.

    START ── handshake ──> OFFERED ── yes ──> CHOSEN ── token ──> JUDGED ── yes ──> CHOSEN, or DONE after the last round
                                                                           DONE ── another handshake ──> OFFERED
    any other message in any stage: OVER

Source: RFC 4616 (PLAIN), RFC 5802 (SCRAM); KIP-43 (the handshake), KIP-152 (headers of tokens), KIP-368
(reauthentication on the same connection); Kafka's SaslServerAuthenticator, PlainSaslServer and ScramMessages.
"""

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from enum import Enum, auto
from struct import unpack_from
from typing import Any, NamedTuple

from kafka.errors import SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from coordinator.base.limits import ID_CHARS_MAX

PRINCIPAL = "User:{}"
NAME_CHARS_MAX = ID_CHARS_MAX - len(PRINCIPAL.format(""))

_SASL_NAME = rb"(?:[\x01-\x7F](?<![=,])|=2C|=3D)+"
_CLIENT_FIRST = re.compile(
    rb"n,(?:a=(?P<authzid>%b))?,n=(?P<name>%b),r=[\x21-\x2B\x2D-\x7E]+(?P<extensions>(?:,[A-Za-z]+=[\x01-\x2B\x2D-\x7F]+)*)"
    % (_SASL_NAME, _SASL_NAME)
)


class BadSasl(ValueError):
    """The exchange is invalid and must end. The text contains nothing from the messages, which may be secret.

    Attributes:
        response: The last response to the client, as a broker that refuses the token sends it. If it is None, the
            connection must be closed without a response.
    """

    response: bytes | None = None


class Stage(Enum):
    """The stage of an exchange, which determines the next message."""

    START = auto()
    OFFERED = auto()
    CHOSEN = auto()
    JUDGED = auto()
    DONE = auto()
    OVER = auto()


def _plain_name(token: bytes) -> str:
    """Return the claimed name from a PLAIN message: `authzid NUL authcid NUL password`."""
    parts = token.split(b"\0")
    if len(parts) != 3 or not _is_utf8(token):
        raise BadSasl("the client's PLAIN message cannot be read")
    authzid, name, _ = parts
    if authzid not in (b"", name):
        raise BadSasl("the client requests another name than its own")
    return name.decode()


def _scram_name(token: bytes) -> str:
    """Return the claimed name from the first SCRAM message: `n,[a=authzid],n=name,r=nonce[,extensions]`."""
    if not (said := _CLIENT_FIRST.fullmatch(token)):
        raise BadSasl("the client's first SCRAM message cannot be read")
    if said["authzid"] not in (None, said["name"]):
        raise BadSasl("the client requests another name than its own")
    if b",tokenauth=" in said["extensions"]:
        raise BadSasl("the client authenticates by a delegation token, which does not contain its owner")
    return said["name"].replace(b"=2C", b",").replace(b"=3D", b"=").decode()


class _Mechanism(NamedTuple):
    rounds: int
    name_in: Callable[[bytes], str]
    success: bytes
    """The beginning of the broker's last message."""


_MECHANISMS: Mapping[str, _Mechanism] = {
    # name              rounds  first message        success
    "PLAIN":         _Mechanism(1, _plain_name,      b""),
    "SCRAM-SHA-256": _Mechanism(2, _scram_name,      b"v="),
    "SCRAM-SHA-512": _Mechanism(2, _scram_name,      b"v="),
}  # fmt: skip


class SaslWatch:
    """One connection's exchange. Frames are complete, with their headers and without their lengths.

    Args:
        mechanisms: The allowed mechanisms, of `PLAIN`, `SCRAM-SHA-256` and `SCRAM-SHA-512`.
    """

    def __init__(self, mechanisms: Collection[str] = tuple(_MECHANISMS)) -> None:
        self.mechanism: str | None = None
        self.session_lifetime_ms = 0
        """The lifetime of the authentication, 0 for ever (KIP-368). The connection must be closed after it."""

        self._allowed = [name for name in _MECHANISMS if name in mechanisms]
        self._stage = Stage.START
        self._principal: str | None = None
        self._claimed = ""
        self._version = self._correlation_id = self._round = 0
        self._has_headers = True

    def __repr__(self) -> str:
        return f"<SaslWatch {self._stage.name} {self.mechanism} {self.principal!r}>"

    @property
    def principal(self) -> str | None:
        """The principal `User:NAME`; None before the broker has accepted it, and after an exchange has failed."""
        return None if self._stage is Stage.OVER else self._principal

    @property
    def is_amid(self) -> bool:
        """Whether an exchange has begun and has not ended. No other request may come meanwhile."""
        return self._stage in (Stage.OFFERED, Stage.CHOSEN, Stage.JUDGED)

    @property
    def is_raw(self) -> bool:
        """Whether the next frames in both directions are tokens without headers, after a handshake of version 0."""
        return not self._has_headers and self._stage in (Stage.CHOSEN, Stage.JUDGED)

    @property
    def is_over(self) -> bool:
        """Whether the exchange has failed. Only the response, if one exists, may still be relayed."""
        return self._stage is Stage.OVER

    def handle_request(self, frame: bytes) -> bytes | None:
        """Read a frame of the client: SaslHandshake, SaslAuthenticate, or a bare token.

        Returns:
            None if the frame may be relayed; otherwise the response, after which the connection must be closed.

        Raises:
            BadSasl: The connection must be closed, after the error's response if it has one.
        """
        stage, self._stage = self._stage, Stage.OVER  # until all checks have passed
        if stage in (Stage.START, Stage.DONE):
            return self._asked_for_mechanism(frame)
        if stage is not Stage.CHOSEN:
            raise BadSasl("the client sends a message out of turn")
        token = self._read_request(SaslAuthenticateRequest, frame).auth_bytes if self._has_headers else frame
        try:
            self._hear_token(token)
        except BadSasl as error:
            error.response = self._failure(str(error)) if self._has_headers else None
            raise
        self._stage = Stage.JUDGED
        return None

    def answered(self, frame: bytes) -> None:
        """Read a response of the broker before it is relayed to the client.

        Raises:
            BadSasl: The response answers no request.
        """
        stage, self._stage = self._stage, Stage.OVER  # unless the broker accepts
        if stage is Stage.OFFERED:
            if self._read_response(SaslHandshakeResponse, frame).error_code == 0:
                self._stage = Stage.CHOSEN
        elif stage is not Stage.JUDGED:
            raise BadSasl("the broker sends a response without a request")
        elif not self._has_headers:
            self._hear_verdict(frame, session_lifetime_ms=0)
        else:
            response = self._read_response(SaslAuthenticateResponse, frame)
            if response.error_code == 0:
                self._hear_verdict(response.auth_bytes, response.session_lifetime_ms)

    def _asked_for_mechanism(self, frame: bytes) -> bytes | None:
        mechanism = self._read_request(SaslHandshakeRequest, frame).mechanism
        if mechanism not in self._allowed:
            return self._refusal()
        self.mechanism, self._has_headers, self._round = mechanism, self._version > 0, 0
        self._stage = Stage.OFFERED
        return None

    def _refusal(self) -> bytes:
        refusal = SaslHandshakeResponse(
            version=self._version, error_code=UnsupportedSaslMechanismError.errno, mechanisms=self._allowed
        )
        refusal.with_header(correlation_id=self._correlation_id)
        return bytes(refusal.encode(header=True))

    def _failure(self, why: str) -> bytes:
        failure = SaslAuthenticateResponse(
            version=self._version,
            error_code=SaslAuthenticationFailedError.errno,
            error_message=f"Authentication failed: {why}",
            auth_bytes=b"",
        )
        failure.with_header(correlation_id=self._correlation_id)
        return bytes(failure.encode(header=True))

    def _hear_token(self, token: bytes) -> None:
        assert self.mechanism is not None, "tokens come after a handshake"
        if self._round > 0:
            return  # only the first token contains the name
        name = _MECHANISMS[self.mechanism].name_in(token)
        if not 0 < len(name) <= NAME_CHARS_MAX:
            raise BadSasl(f"a user's name must have 1 to {NAME_CHARS_MAX} characters")
        self._claimed = PRINCIPAL.format(name)
        if self._principal not in (None, self._claimed):
            raise BadSasl("the client authenticates again under another name")

    def _hear_verdict(self, token: bytes, session_lifetime_ms: int) -> None:
        assert self.mechanism is not None, "verdicts come after a handshake"
        mechanism = _MECHANISMS[self.mechanism]
        self._round += 1
        if self._round < mechanism.rounds:
            self._stage = Stage.CHOSEN
        elif token.startswith(mechanism.success):
            self._principal, self.session_lifetime_ms = self._claimed, session_lifetime_ms
            self._stage = Stage.DONE

    def _read_request(self, kind: type[ApiMessage], frame: bytes) -> Any:
        """Read a client's frame. Refuse it if its message does not encode to the same bytes.

        So a broker that reads the lengths of an invalid frame in another way cannot find another name in it.
        """
        with suppress(Exception):  # kafka-python raises many kinds of errors for invalid bytes
            api_key, self._version, self._correlation_id = unpack_from(">hhi", frame)
            message = kind.decode(frame, version=self._version, header=True)
            if api_key == kind.API_KEY and message.encode(header=True) == frame:
                return message
        raise BadSasl(f"the client's {kind.name.removesuffix('Request')} cannot be read")

    def _read_response(self, kind: type[ApiMessage], frame: bytes) -> Any:
        with suppress(Exception):  # a broker may send invalid bytes as well
            message = kind.decode(frame, version=self._version, header=True)
            if message.header.correlation_id == self._correlation_id:
                return message
        raise BadSasl(f"the broker's response to {kind.name.removesuffix('Response')} cannot be read")


def _is_utf8(text: bytes) -> bool:
    with suppress(UnicodeDecodeError):
        text.decode()
        return True
    return False
