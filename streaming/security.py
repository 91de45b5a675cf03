"""How the brokers are reached, and how the gateway is: protocols, users and certificates, as settings that are checked.

All files are read when the settings are made, so a wrong one is told of at once, and not by a client that cannot
connect. `spellings` says what each client library calls what is set here.

A password in the clear is refused unless asked for by name: PLAIN without TLS, and a gateway without TLS, are for
loopback addresses only.
"""

import ssl
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, PrivateAttr, SecretStr, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from streaming import spellings
from streaming.errors import Exit, UserError
from streaming.tls import BadCertificate, check_java_reads, client_context, server_context

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PROTOCOLS, MECHANISMS = get_args(Protocol), get_args(Mechanism)

_SERVER = r"(\[[0-9a-fA-F:.]+\]|[^,:\[\]\s]+):[0-9]{1,5}"
_SERVERS = rf"^{_SERVER}(,{_SERVER})*$"

_LAYERS: Mapping[str, tuple[str, ...]] = {
    "SASL": ("sasl_mechanism", "sasl_username", "sasl_password", "sasl_password_file"),
    "SSL": ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_key_password"),
}
"""What means something only under a security protocol that has this in its name."""

_UNSAYABLE = ("Cc", "Cs", "Zl", "Zp")
"""Control characters, halves of characters and line ends: in no user's name, in no password (RFC 4013), in no log."""


class PlaintextRefused(UserError):
    """The gateway would serve plain text where others can listen."""

    exit_code = Exit.NEEDS_A_PERSON


def _wrong(problem: str) -> PydanticCustomError:
    return PydanticCustomError("security", "{problem}", {"problem": problem.removesuffix(".")})


def _readable(file: str) -> str:
    try:
        with open(file, "rb") as opened:
            opened.read(1)
    except OSError as error:
        raise _wrong(f"{file} cannot be read ({error.strerror})") from None
    return file


def _sayable(text: str) -> str:
    if any(unicodedata.category(char) in _UNSAYABLE for char in text):
        raise _wrong("control characters and line ends cannot be part of it")
    return text


def _sayable_secret(secret: SecretStr) -> SecretStr:
    _sayable(secret.get_secret_value())
    return secret


File = Annotated[str, AfterValidator(_readable)]
Name = Annotated[str, Field(min_length=1), AfterValidator(_sayable)]
Secret = Annotated[SecretStr, Field(min_length=1), AfterValidator(_sayable_secret)]


class BrokerAccess(BaseSettings):
    """How our own processes reach the brokers."""

    model_config = SettingsConfigDict(hide_input_in_errors=True)

    bootstrap_servers: str = Field(
        "127.0.0.1:9092", pattern=_SERVERS, description="Brokers, host:port, comma-separated."
    )
    security_protocol: Protocol = Field(
        "PLAINTEXT", description="How brokers are spoken to, by us and by clients through the gateway."
    )
    sasl_mechanism: Mechanism | None = None
    sasl_username: Name | None = Field(None, description="Whom the brokers know the coordinator as.")
    sasl_password: Secret | None = Field(None, description="By environment or file; no flag shows it to other users.")
    sasl_password_file: File | None = Field(None, description="A file with the password in it, instead.")
    ssl_cafile: File | None = Field(None, description="Whose certificates are believed, PEM; the system's if not set.")
    ssl_certfile: File | None = Field(None, description="The coordinator's own certificate with its chain, PEM.")
    ssl_keyfile: File | None = Field(None, description="Its key, PEM; in ssl_certfile if not set.")
    ssl_key_password: Secret | None = Field(None, description="What that key is encrypted under.")
    ssl_check_hostname: bool = Field(True, description="A broker's certificate must be for the name it is reached by.")
    allow_plaintext_passwords: bool = Field(
        False, description="PLAIN may go unencrypted (SASL_PLAINTEXT) to brokers on other machines."
    )

    _password: SecretStr | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _access_is_of_one_piece(self) -> Self:
        if problem := next(self._contradictions(), None):
            raise _wrong(problem)
        self._password = self.sasl_password or self._password_from_file()
        try:
            self.broker_context()
            if keyfile := self.ssl_keyfile or self.ssl_certfile:
                check_java_reads(keyfile, is_encrypted=self.ssl_key_password is not None)
        except BadCertificate as error:
            raise _wrong(str(error)) from None
        return self

    def _contradictions(self) -> Iterator[str]:
        protocol = self.security_protocol
        for layer, names in _LAYERS.items():
            if layer not in protocol:
                for name in _given(self, names):
                    yield f"{name} means nothing under security_protocol {protocol}: choose one with {layer}"
        if "SASL" in protocol:
            for name in ("sasl_mechanism", "sasl_username"):
                if not _given(self, [name]):
                    yield f"security_protocol {protocol} needs a {name}"
            if len(_given(self, ["sasl_password", "sasl_password_file"])) != 1:
                yield f"security_protocol {protocol} needs one of sasl_password and sasl_password_file"
        if not self.ssl_certfile:
            for name in _given(self, ["ssl_keyfile", "ssl_key_password"]):
                yield f"{name} needs an ssl_certfile"
        if self.sasl_mechanism == "PLAIN" and "PLAIN" not in self.client_mechanisms:
            yield "PLAIN would send the password in the clear: choose SASL_SSL, or SCRAM, or allow_plaintext_passwords"

    def _password_from_file(self) -> SecretStr | None:
        if self.sasl_password_file is None:
            return None
        with suppress(UnicodeDecodeError):
            password = Path(self.sasl_password_file).read_text("utf-8").rstrip("\r\n")
            if password and _sayable(password):
                return SecretStr(password)
        raise _wrong(f"{self.sasl_password_file} holds no password in UTF-8")

    @property
    def client_mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms that a gateway's clients may authenticate by to these brokers; none without SASL."""
        if "SASL" not in self.security_protocol:
            return ()
        hosts = (server.rpartition(":")[0] for server in self.bootstrap_servers.split(","))
        is_private = self.security_protocol == "SASL_SSL" or all(map(is_loopback, hosts))
        return tuple(each for each in MECHANISMS if each != "PLAIN" or is_private or self.allow_plaintext_passwords)

    def broker_context(self) -> ssl.SSLContext | None:
        """Say how a connection of our own to a broker is encrypted; None where it is not.

        Raises:
            BadCertificate: a file will not do.
        """
        if not self._has_tls:
            return None
        own = (self.ssl_certfile, self.ssl_keyfile, _revealed(self.ssl_key_password))
        return client_context(self.ssl_cafile, *own, check_hostname=self.ssl_check_hostname)

    def kafka_client_arguments(self) -> dict[str, Any]:
        """Say how kafka-python's clients reach the brokers; holds the password, and is not to be shown."""
        return spellings.kafka_python(self._way())

    def librdkafka_arguments(self) -> dict[str, str]:
        """Say how confluent-kafka's clients reach the brokers; holds the password, and is not to be shown."""
        return spellings.librdkafka(self._way())

    def java_client_properties(self) -> dict[str, str]:
        """Say how Kafka's Java clients reach the brokers; holds the password, and is not to be shown."""
        return spellings.java(self._way())

    @property
    def _has_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    def _way(self) -> dict[str, Any]:
        settings = {name: getattr(self, name) for name in BrokerAccess.model_fields}
        settings |= {"sasl_password": self._password, "ssl_keyfile": self.ssl_keyfile or self.ssl_certfile}
        if not self._has_tls:
            settings["ssl_check_hostname"] = None
        return {name: _revealed(value) for name, value in settings.items() if value is not None}


class GatewayAccess(BaseSettings):
    """How the gateway's clients reach it."""

    gateway_ssl_certfile: File | None = Field(
        None, description="The gateway's certificate with its chain, PEM; clients speak TLS when it is set."
    )
    gateway_ssl_keyfile: File | None = Field(None, description="Its key, PEM; in gateway_ssl_certfile if not set.")
    gateway_ssl_key_password: Secret | None = Field(None, description="What that key is encrypted under.")
    gateway_ssl_cafile: File | None = Field(
        None, description="Whose certificates clients must show, PEM; they need none if not set."
    )
    gateway_allow_plaintext: bool = Field(False, description="Clients on other machines may do without TLS.")

    @model_validator(mode="after")
    def _listener_is_of_one_piece(self) -> Self:
        if not self.gateway_ssl_certfile:
            for name in _given(self, ["gateway_ssl_keyfile", "gateway_ssl_key_password", "gateway_ssl_cafile"]):
                raise _wrong(f"{name} needs a gateway_ssl_certfile")
        try:
            self._listener_context()
        except BadCertificate as error:
            raise _wrong(str(error)) from None
        return self

    def listener_context(self, host: str) -> ssl.SSLContext | None:
        """Say how the gateway's clients are spoken to: under TLS, or in plain text where it is None.

        Args:
            host: The address that the gateway is to listen on.

        Raises:
            PlaintextRefused: it would be plain text, others can listen, and nobody has asked for that.
            BadCertificate: a file will not do.
        """
        context = self._listener_context()
        if context is None and not self.gateway_allow_plaintext and not is_loopback(host):
            raise PlaintextRefused(
                f"The gateway does not serve plain text at {host}: set gateway_ssl_certfile, or listen on 127.0.0.1,"
                f" or set gateway_allow_plaintext."
            )
        return context

    def _listener_context(self) -> ssl.SSLContext | None:
        if not self.gateway_ssl_certfile:
            return None
        password = _revealed(self.gateway_ssl_key_password)
        return server_context(self.gateway_ssl_certfile, self.gateway_ssl_keyfile, password, self.gateway_ssl_cafile)


def is_loopback(host: str) -> bool:
    """Tell whether only processes of this machine can reach an address, or a name."""
    with suppress(ValueError):
        return ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


def _given(settings: BaseSettings, names: Iterable[str]) -> list[str]:
    return [name for name in names if getattr(settings, name) is not None]


def _revealed(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value
