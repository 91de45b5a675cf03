"""The identity of a connection's client, and the requests that the client may send.

The brokers authenticate by SASL, the gateway by certificates. `Identity` has the results of both, without a transport.
`Authenticating` passes the frames of a SASL exchange on.

The principal of a client's certificate has the form of Kafka's brokers: `User:CN=ana,O=Acme`.

Source: DefaultKafkaPrincipalBuilder, X500Principal.getName; RFC 2253, with the attribute names that Java writes.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from coordinator.base.access import ANONYMOUS
from coordinator.base.limits import ID_CHARS_MAX
from streaming.gateway.connection.flow_control import Flow, InFlightRequest
from streaming.gateway.protocol.api import BEFORE_AUTHENTICATION, Api
from streaming.gateway.protocol.frames import BadFrame, with_length
from streaming.gateway.security.acls import Client
from streaming.gateway.security.sasl import BadSasl, SaslWatch

log = logging.getLogger(__name__)

AGAIN_AFTER = 0.8
"""The part of an authentication's lifetime after which its client may authenticate again at any time: Java's client
does so after 0.85 to 0.95 of it, librdkafka after 0.9."""


class Identity:
    """The identity of a client.

    Args:
        mechanisms: The SASL mechanisms that clients may use; empty if the brokers do not authenticate by SASL.

    Attributes:
        host: The client's address as Kafka writes it: `/127.0.0.1`; empty if it is unknown.
        client_certificate: The principal of the client's certificate, if it has shown one.
        client_id: The name that the client gave itself in its last request.
        again_s: The time from which on the client may authenticate again; infinity if it need not.
    """

    def __init__(self, mechanisms: Collection[str], host: str = "", client_certificate: str | None = None) -> None:
        self.host, self.client_certificate, self.client_id = host, client_certificate, ""
        self._sasl = SaslWatch(mechanisms)
        self._is_sasl_needed = bool(mechanisms)
        self._until_s = self.again_s = float("inf")

    def __repr__(self) -> str:
        return f"{self.client_id!r} from {self.host}"

    @property
    def principal(self) -> str | None:
        """The principal (`User:ana`); None before the authentication."""
        return self._sasl.principal or self.client_certificate

    @property
    def client(self) -> Client:
        """The client as the brokers' access control lists name it."""
        return Client(self.principal or ANONYMOUS, self.host.removeprefix("/"))

    @property
    def key(self) -> tuple[str, str, str | None]:
        """The client, as far as all its connections can be recognized."""
        return self.host, self.client_id, self.principal

    @property
    def sends_tokens(self) -> bool:
        """Whether the next frames are bare SASL tokens without headers."""
        return self._sasl.is_raw

    @property
    def is_refused(self) -> bool:
        """Whether the SASL exchange has failed."""
        return self._sasl.is_over

    def check(self, api: Api, now_s: float) -> None:
        """Check that the client may send a request of this API now.

        Raises:
            BadFrame: The client must authenticate first.
        """
        if api.handling in BEFORE_AUTHENTICATION:
            return
        is_known = not self._is_sasl_needed or self._sasl.principal is not None
        if not is_known or self._sasl.is_amid:
            raise BadFrame(f"it sent {api.name} before authentication")
        if now_s > self._until_s:
            raise BadFrame(f"it sent {api.name} after its authentication expired (KIP-368)")

    def handle_request(self, frame: bytes) -> bytes | None:
        """Read a SASL request of the client.

        Returns:
            None when the request may be relayed; otherwise the response, without its length, that refuses it.

        Raises:
            BadSasl: The request does not continue the exchange, or the gateway refuses its token.
        """
        return self._sasl.handle_request(frame)

    def answered(self, frame: bytes, now_s: float) -> None:
        """Read the broker's response to a SASL request. Its session lifetime begins now.

        Raises:
            BadSasl: The response answers no request.
        """
        self._sasl.answered(frame)
        lifetime_ms = self._sasl.session_lifetime_ms or float("inf")
        self._until_s = now_s + lifetime_ms / 1_000
        self.again_s = now_s + AGAIN_AFTER * lifetime_ms / 1_000


class Authenticating:
    """A relay of a client's SASL requests to the broker. It closes the connection when authentication has failed.

    Args:
        forward: Sends a request to the broker.
        clock: Returns monotonic seconds.
        known: Called when the broker has accepted the client.
    """

    def __init__(
        self,
        flow: Flow,
        identity: Identity,
        forward: Callable[[InFlightRequest, bytes], None],
        clock: Callable[[], float] = time.monotonic,
        known: Callable[[], object] = lambda: None,
    ) -> None:
        self._flow, self._identity, self._forward, self._clock = flow, identity, forward, clock
        self._known = known

    def authenticate(self, in_flight: InFlightRequest, frame: bytes) -> None:
        """Handle SaslHandshake, SaslAuthenticate or a bare token.

        Raises:
            BadSasl: The connection must be closed without a response.
        """
        try:
            refusal = self._identity.handle_request(frame)
        except BadSasl as error:
            if error.response is None:
                raise
            log.info("%r is refused: %s", self._identity, error)
            refusal = error.response
        if refusal is None:
            in_flight.handle_whole = self._answered
            self._forward(in_flight, frame)
        else:
            self._flow.answer_last(in_flight, with_length(refusal))

    def _answered(self, in_flight: InFlightRequest, frame: bytes) -> None:
        self._identity.answered(frame, self._clock())
        if self._identity.is_refused:
            self._flow.answer_last(in_flight, with_length(frame))
        else:
            self._flow.answer(in_flight, with_length(frame))
            self._known()


# -- principals of certificates ----------------------------------------------------------------------------------------


_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "domainComponent": "DC",
    "userId": "UID",
}
"""The attribute names, by their names in OpenSSL."""

_SPECIAL = frozenset(',+"\\<>;=#')

Part = Iterable[tuple[str, str]]


def principal_of(certificate: Mapping[str, Any] | None) -> str | None:
    """Return the principal of a client's certificate in the form of the ssl module; None without a usable subject.

    A subject with other attributes than these has no principal, because its form would differ from Kafka's.
    """
    parts: list[Part] = list((certificate or {}).get("subject", ()))
    if not parts:
        return None
    if unknown := sorted({name for part in parts for name, _ in part} - set(_SHORT)):
        log.warning("a client's certificate has unsupported attributes, %s: it gives no principal", ", ".join(unknown))
        return None
    name = "User:" + ",".join("+".join(f"{_SHORT[kind]}={_escaped(value)}" for kind, value in p) for p in parts[::-1])
    return name if len(name) <= ID_CHARS_MAX else None


def _escaped(value: str) -> str:
    text = "".join(f"\\{char}" if char in _SPECIAL else char for char in value).replace("\0", "\\00")
    spaces = len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))
    if spaces[0] == len(text):
        return "\\ " * len(text)
    return "\\ " * spaces[0] + text.strip(" ") + "\\ " * spaces[1]
