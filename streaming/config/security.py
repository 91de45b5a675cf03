"""The connections to the brokers and to the gateway: protocols, users and certificates, as validated settings.

All files are read when the settings are created. So a wrong file is reported immediately, and not by a client that
cannot connect. `spellings` has each client library's names for these settings.

An unencrypted password or token is refused unless a setting allows it: PLAIN and OAUTHBEARER without TLS, and a gateway
without TLS, are for loopback addresses only.
"""

import ssl
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, get_args

from pydantic import Field, PrivateAttr, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from streaming.config import spellings
from streaming.config.tls import BadCertificate, check_java_reads, client_context, server_context
from streaming.config.values import File, Name, Secret, TokenUrl, given, is_loopback, revealed, secret_in, wrong
from streaming.errors import Exit, UserError

if TYPE_CHECKING:
    from streaming.config.oauth import Tokens

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
PasswordMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
Mechanism = PasswordMechanism | Literal["OAUTHBEARER"]
PROTOCOLS, MECHANISMS = get_args(Protocol), get_args(PasswordMechanism)
"""`MECHANISMS` are the mechanisms of a gateway's clients. They exclude OAUTHBEARER, because only the brokers know which
claim of a token is its name."""

_SERVER = r"(\[[0-9a-fA-F:.]+\]|[^,:\[\]\s]+):[0-9]{1,5}"
_SERVERS = rf"^{_SERVER}(,{_SERVER})*$"


class _Credentials(NamedTuple):
    needed: tuple[str, ...]
    one_of: tuple[str, str]
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.needed, *self.one_of, *self.others)


_PASSWORD = _Credentials(("sasl_username",), ("sasl_password", "sasl_password_file"))
_TOKEN = _Credentials(
    ("sasl_oauth_token_url", "sasl_oauth_client_id"),
    ("sasl_oauth_client_secret", "sasl_oauth_client_secret_file"),
    ("sasl_oauth_scope", "sasl_oauth_cafile"),
)
_CREDENTIALS: Mapping[str, _Credentials] = {**dict.fromkeys(MECHANISMS, _PASSWORD), "OAUTHBEARER": _TOKEN}
"""The settings that each mechanism requires. Each mechanism ignores the settings of others."""

_LAYERS: Mapping[str, tuple[str, ...]] = {
    "SASL": ("sasl_mechanism", *_PASSWORD.names, *_TOKEN.names),
    "SSL": ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_key_password"),
}
"""The settings that have an effect only if the name of the security protocol contains the layer."""

_IN_THE_CLEAR = {"PLAIN": "password", "OAUTHBEARER": "token"}
"""The secret that a mechanism sends unencrypted."""


class PlaintextRefused(UserError):
    """The gateway would serve plain text on an address that other machines can reach."""

    exit_code = Exit.NEEDS_A_PERSON


class BrokerAccess(BaseSettings):
    """The settings of our own processes' connections to the brokers."""

    model_config = SettingsConfigDict(hide_input_in_errors=True)

    bootstrap_servers: str = Field(
        "127.0.0.1:9092", pattern=_SERVERS, description="Brokers, host:port, comma-separated."
    )
    security_protocol: Protocol = Field(
        "PLAINTEXT", description="The protocol to the brokers, for our processes and the gateway's clients."
    )
    sasl_mechanism: Mechanism | None = None
    sasl_username: Name | None = Field(None, description="The user, for all mechanisms but OAUTHBEARER.")
    sasl_password: Secret | None = Field(None, description="The password; by environment or file.")
    sasl_password_file: File | None = Field(None, description="A file with the password, instead.")
    sasl_oauth_token_url: TokenUrl | None = Field(None, description="The token endpoint of OAUTHBEARER, https.")
    sasl_oauth_client_id: Name | None = Field(
        None, pattern="^[^:]*$", description="The client id at the token endpoint."
    )
    sasl_oauth_client_secret: Secret | None = Field(None, description="The client's secret; by environment or file.")
    sasl_oauth_client_secret_file: File | None = Field(None, description="A file with that secret, instead.")
    sasl_oauth_scope: Name | None = Field(None, description="The scope of the tokens, if required.")
    sasl_oauth_cafile: File | None = Field(
        None, description="The certificate authority of the token endpoint, PEM; the system's if not set."
    )
    ssl_cafile: File | None = Field(None, description="The brokers' authorities, PEM; the system's if not set.")
    ssl_certfile: File | None = Field(None, description="The certificate of our processes with its chain, PEM.")
    ssl_keyfile: File | None = Field(None, description="Its key, PEM; in ssl_certfile if not set.")
    ssl_key_password: Secret | None = Field(None, description="The password of that key.")
    ssl_check_hostname: bool = Field(True, description="Check that a broker's certificate is for its host name.")
    allow_plaintext_passwords: bool = Field(
        False, description="Allow PLAIN and OAUTHBEARER without TLS (SASL_PLAINTEXT) to brokers on other machines."
    )

    _secrets: dict[str, SecretStr] = PrivateAttr(default_factory=dict)
    _tokens: "Tokens | None" = PrivateAttr(None)

    @model_validator(mode="after")
    def _check_broker_access(self) -> Self:
        if problem := next(self._contradictions(), None):
            raise wrong(problem)
        for credentials in (_PASSWORD, _TOKEN):
            self._keep_secret(*credentials.one_of)
        try:
            self.broker_context()
            if self.sasl_mechanism == "OAUTHBEARER":
                from streaming.config.oauth import Tokens  # imports kafka-python, which most commands do not need

                self._tokens = Tokens(self._settings())
            if keyfile := self.ssl_keyfile or self.ssl_certfile:
                check_java_reads(keyfile, is_encrypted=self.ssl_key_password is not None)
        except BadCertificate as error:
            raise wrong(str(error)) from None
        return self

    def _contradictions(self) -> Iterator[str]:
        protocol = self.security_protocol
        for layer, names in _LAYERS.items():
            if layer not in protocol:
                for name in given(self, names):
                    yield f"{name} has no effect with security_protocol {protocol}: choose one with {layer}"
        if "SASL" in protocol:
            yield from self._contradictions_of_credentials()
        if not self.ssl_certfile:
            for name in given(self, ["ssl_keyfile", "ssl_key_password"]):
                yield f"{name} needs an ssl_certfile"

    def _contradictions_of_credentials(self) -> Iterator[str]:
        mechanism = self.sasl_mechanism
        if mechanism is None:
            yield f"security_protocol {self.security_protocol} needs a sasl_mechanism"
            return
        wanted = _CREDENTIALS[mechanism]
        for name in wanted.needed:
            if not given(self, [name]):
                yield f"sasl_mechanism {mechanism} needs a {name}"
        if len(given(self, wanted.one_of)) != 1:
            yield f"sasl_mechanism {mechanism} needs one of {' and '.join(wanted.one_of)}"
        for name in given(self, _LAYERS["SASL"][1:]):
            if name not in wanted.names:
                yield f"{name} has no effect with sasl_mechanism {mechanism}"
        if (what := _IN_THE_CLEAR.get(mechanism)) and not self._is_private:
            advice = "choose SASL_SSL, or SCRAM, or allow_plaintext_passwords"
            yield f"{mechanism} would send the {what} unencrypted: {advice}"

    def _keep_secret(self, name: str, file_name: str) -> None:
        if secret := getattr(self, name) or secret_in(getattr(self, file_name)):
            self._secrets[name] = secret

    @property
    def _is_private(self) -> bool:
        """Whether an unencrypted password or token may be sent to the brokers."""
        hosts = (server.rpartition(":")[0] for server in self.bootstrap_servers.split(","))
        return self._has_tls or all(map(is_loopback, hosts)) or self.allow_plaintext_passwords

    @property
    def client_mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms that a gateway's clients may use for these brokers; none without SASL."""
        if "SASL" not in self.security_protocol:
            return ()
        return tuple(each for each in MECHANISMS if each not in _IN_THE_CLEAR or self._is_private)

    def broker_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of our own connections to a broker; None for connections without TLS.

        Raises:
            BadCertificate: A file is not usable.
        """
        if not self._has_tls:
            return None
        own = (self.ssl_certfile, self.ssl_keyfile, revealed(self.ssl_key_password))
        return client_context(self.ssl_cafile, *own, check_hostname=self.ssl_check_hostname)

    def kafka_client_arguments(self) -> dict[str, Any]:
        """Return the broker access as arguments of kafka-python's clients. They contain the password, so never display
        them."""
        return spellings.kafka_python(self._connection_settings())

    def librdkafka_arguments(self) -> dict[str, str]:
        """Return the broker access as arguments of confluent-kafka's clients. They contain the password, so never
        display them."""
        return spellings.librdkafka(self._connection_settings())

    def java_client_properties(self) -> dict[str, str]:
        """Return the broker access as properties of Kafka's Java clients. They contain the password, so never display
        them."""
        return spellings.java(self._connection_settings())

    @property
    def _has_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    def _connection_settings(self) -> dict[str, Any]:
        """Return all settings of the broker access. If it uses tokens, first check that the endpoint gives one."""
        settings = self._settings()
        if self._tokens:
            self._tokens.token()
            settings["tokens"] = self._tokens
        return settings

    def _settings(self) -> dict[str, Any]:
        settings = {name: getattr(self, name) for name in BrokerAccess.model_fields}
        settings |= {**self._secrets, "ssl_keyfile": self.ssl_keyfile or self.ssl_certfile}
        if not self._has_tls:
            settings["ssl_check_hostname"] = None
        return {name: revealed(value) for name, value in settings.items() if value is not None}


class GatewayAccess(BaseSettings):
    """The settings of clients' connections to the gateway."""

    gateway_ssl_certfile: File | None = Field(
        None, description="The gateway's certificate with its chain, PEM; with it clients use TLS."
    )
    gateway_ssl_keyfile: File | None = Field(None, description="Its key, PEM; in gateway_ssl_certfile if not set.")
    gateway_ssl_key_password: Secret | None = Field(None, description="The password of that key.")
    gateway_ssl_cafile: File | None = Field(
        None, description="The authorities of clients' certificates, PEM; clients need none if not set."
    )
    gateway_relay: Literal["acls", "refuse", "lend_gateway_rights"] = Field(
        "acls",
        description="The relayed requests if brokers see the gateway's certificate and not the client: those that their"
        " ACLs allow the client, none, or those that the gateway itself may send.",
    )
    gateway_allow_plaintext: bool = Field(False, description="Serve clients on other machines without TLS.")

    @model_validator(mode="after")
    def _check_listener(self) -> Self:
        if not self.gateway_ssl_certfile:
            for name in given(self, ["gateway_ssl_keyfile", "gateway_ssl_key_password", "gateway_ssl_cafile"]):
                raise wrong(f"{name} needs a gateway_ssl_certfile")
        try:
            self._listener_context()
        except BadCertificate as error:
            raise wrong(str(error)) from None
        return self

    def listener_context(self, host: str) -> ssl.SSLContext | None:
        """Return the TLS context for the gateway's clients; None for connections without TLS.

        Args:
            host: The address on which the gateway listens.

        Raises:
            PlaintextRefused: The connections would be unencrypted, other machines can reach them, and no setting allows
                that.
            BadCertificate: A file is not usable.
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
        password = revealed(self.gateway_ssl_key_password)
        return server_context(self.gateway_ssl_certfile, self.gateway_ssl_keyfile, password, self.gateway_ssl_cafile)
