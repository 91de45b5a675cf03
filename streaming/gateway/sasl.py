"""Whom the brokers have authenticated: a SASL exchange that is passed through, and watched.

No broker tells a gateway whom it has authenticated. So the name is read out of what the client says, and believed once
the broker has said yes to just that. Hence two rules. Nothing is read here in another way than a broker reads it: what
is not exactly as the documents below have it ends the exchange. And nothing overtakes: a client that speaks again
before it was answered could have the answer to one name taken for that to another.

    START ── handshake ──> OFFERED ── yes ──> CHOSEN ── token ──> JUDGED ── yes ──> CHOSEN, or DONE after the last round
                                                                           DONE ── handshake, once more ──> OFFERED
    and from anywhere, with whatever else: OVER

Source: RFC 4616 (PLAIN), RFC 5802 (SCRAM); KIP-43 (the handshake), KIP-152 (headers on tokens), KIP-368 (once more on
the same connection); Kafka's SaslServerAuthenticator, PlainSaslServer and ScramMessages.
"""

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from enum import Enum, auto
from struct import unpack_from
from typing import Any, NamedTuple

from kafka.errors import UnsupportedSaslMechanismError
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from coordinator.limits import ID_CHARS_MAX

PRINCIPAL = "User:{}"
NAME_CHARS_MAX = ID_CHARS_MAX - len(PRINCIPAL.format(""))

_SASL_NAME = rb"(?:[\x01-\x7F](?<![=,])|=2C|=3D)+"
_CLIENT_FIRST = re.compile(
    rb"n,(?:a=(?P<authzid>%b))?,n=(?P<name>%b),r=[\x21-\x2B\x2D-\x7E]+(?P<extensions>(?:,[A-Za-z]+=[\x01-\x2B\x2D-\x7F]+)*)"
    % (_SASL_NAME, _SASL_NAME)
)


class BadSasl(ValueError):
    """The exchange cannot be followed and must not go on; the sentence repeats nothing of what was said."""


class Stage(Enum):
    """Who is to speak next, and of what."""

    START = auto()
    OFFERED = auto()
    CHOSEN = auto()
    JUDGED = auto()
    DONE = auto()
    OVER = auto()


def _plain_name(token: bytes) -> str:
    """Read who claims to be it: `authzid NUL authcid NUL password`."""
    parts = token.split(b"\0")
    if len(parts) != 3 or not _is_utf8(token):
        raise BadSasl("the client's PLAIN message cannot be read")
    authzid, name, _ = parts
    if authzid not in (b"", name):
        raise BadSasl("the client asks to act under another name than its own")
    return name.decode()


def _scram_name(token: bytes) -> str:
    """Read who claims to be it: `n,[a=authzid],n=name,r=nonce[,extensions]`."""
    if not (said := _CLIENT_FIRST.fullmatch(token)):
        raise BadSasl("the client's first SCRAM message cannot be read")
    if said["authzid"] not in (None, said["name"]):
        raise BadSasl("the client asks to act under another name than its own")
    if b",tokenauth=" in said["extensions"]:
        raise BadSasl("the client authenticates by a delegation token, which does not tell its owner")
    return said["name"].replace(b"=2C", b",").replace(b"=3D", b"=").decode()


class _Mechanism(NamedTuple):
    rounds: int
    name_in: Callable[[bytes], str]
    success: bytes
    """How the broker's last message begins."""


_MECHANISMS: Mapping[str, _Mechanism] = {
    # name              rounds  whose first message  ends with
    "PLAIN":         _Mechanism(1, _plain_name,      b""),
    "SCRAM-SHA-256": _Mechanism(2, _scram_name,      b"v="),
    "SCRAM-SHA-512": _Mechanism(2, _scram_name,      b"v="),
}  # fmt: skip


class SaslWatch:
    """One connection's exchange. Frames are whole, headers and all, without their length.

    Args:
        mechanisms: Those that are let through, of `PLAIN`, `SCRAM-SHA-256` and `SCRAM-SHA-512`.
    """

    def __init__(self, mechanisms: Collection[str] = tuple(_MECHANISMS)) -> None:
        self.mechanism: str | None = None
        self.session_lifetime_ms = 0
        """For how long the broker believes it, 0 for ever (KIP-368): who has not done it again by then is to be cut."""

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
        """Who it is, `User:NAME`, from the broker's yes on; None before that, and once an exchange has failed."""
        return None if self._stage is Stage.OVER else self._principal

    @property
    def is_amid(self) -> bool:
        """Has an exchange begun and not ended? No other request may come then."""
        return self._stage in (Stage.OFFERED, Stage.CHOSEN, Stage.JUDGED)

    @property
    def is_raw(self) -> bool:
        """Are the next frames, either way, bare tokens without headers? So it is after a handshake of version 0."""
        return not self._has_headers and self._stage in (Stage.CHOSEN, Stage.JUDGED)

    @property
    def is_over(self) -> bool:
        """Has it failed? Nothing more is to be relayed but the answer, if there is one."""
        return self._stage is Stage.OVER

    def asked(self, frame: bytes) -> bytes | None:
        """Look at what the client says: SaslHandshake, SaslAuthenticate, or a bare token.

        Returns:
            None when it is to be relayed; or else what the client is to be answered, and then cut off.

        Raises:
            BadSasl: the client must be cut off without being heard.
        """
        stage, self._stage = self._stage, Stage.OVER  # unless all goes well
        if stage in (Stage.START, Stage.DONE):
            return self._asked_for_mechanism(frame)
        if stage is not Stage.CHOSEN:
            raise BadSasl("the client speaks out of turn")
        self._hear_token(self._read_request(SaslAuthenticateRequest, frame).auth_bytes if self._has_headers else frame)
        self._stage = Stage.JUDGED
        return None

    def answered(self, frame: bytes) -> None:
        """Look at what the broker answers, before the client is given it.

        Raises:
            BadSasl: this answers nothing that was asked.
        """
        stage, self._stage = self._stage, Stage.OVER  # unless the broker says yes
        if stage is Stage.OFFERED:
            if self._read_response(SaslHandshakeResponse, frame).error_code == 0:
                self._stage = Stage.CHOSEN
        elif stage is not Stage.JUDGED:
            raise BadSasl("the broker answers what was not asked")
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

    def _hear_token(self, token: bytes) -> None:
        assert self.mechanism is not None, "tokens come after a handshake"
        if self._round > 0:
            return  # the name comes in the first one only
        name = _MECHANISMS[self.mechanism].name_in(token)
        if not 0 < len(name) <= NAME_CHARS_MAX:
            raise BadSasl(f"a user's name must have 1 to {NAME_CHARS_MAX} characters")
        self._claimed = PRINCIPAL.format(name)
        if self._principal not in (None, self._claimed):
            raise BadSasl("the client authenticates once more under another name")

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
        """Read a client's frame that says nothing which this reading would leave out.

        A broker that reads lengths in another way, or to another end, cannot find another name in it then.
        """
        with suppress(Exception):  # kafka-python has many ways to stumble over garbage
            api_key, self._version, self._correlation_id = unpack_from(">hhi", frame)
            message = kind.decode(frame, version=self._version, header=True)
            if api_key == kind.API_KEY and message.encode(header=True) == frame:
                return message
        raise BadSasl(f"the client's {kind.name.removesuffix('Request')} cannot be read")

    def _read_response(self, kind: type[ApiMessage], frame: bytes) -> Any:
        with suppress(Exception):  # and a broker may send garbage as well
            message = kind.decode(frame, version=self._version, header=True)
            if message.header.correlation_id == self._correlation_id:
                return message
        raise BadSasl(f"the broker's answer to {kind.name.removesuffix('Response')} cannot be read")


def _is_utf8(text: bytes) -> bool:
    with suppress(UnicodeDecodeError):
        text.decode()
        return True
    return False
