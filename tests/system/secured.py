"""An embedded broker with authentication, its users and its certificates, for any system test.

with secured_broker(folder) as secured:
    Settings.load(**secured.access("SASL_SSL", "SCRAM-SHA-512"))
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from kafka import KafkaAdminClient
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

from streaming.config.security import PROTOCOLS
from streaming.config.spellings import jaas_config
from streaming.embedded import Broker
from streaming.embedded import broker as embedded

USERS = {"ana": r'a "quoted"; \ password,=', "bo": "bo's password"}
"""The users that may authenticate, and their passwords."""

STRANGE_USER = "cy,=o"
"""One more user, whose name only SCRAM can transmit."""

KEY_PASSWORD = "the key's"
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


@dataclass(frozen=True)
class Certificates:
    """PEM files: the trusted authority, and a certificate with its private key, encrypted and plain."""

    ca: Path
    cert: Path
    key: Path
    encrypted_key: Path
    both: Path


@dataclass(frozen=True)
class SecuredBroker:
    """The broker, the address of each listener, the certificate authority, and the clients' certificates."""

    broker: Broker
    addresses: Mapping[str, str]
    authority: trustme.CA
    clients: Certificates

    @property
    def cluster_id(self) -> str:
        return embedded.formatted_cluster_id(self.broker.data_dir) or ""

    def access(self, protocol: str, mechanism: str | None = None, user: str = "ana") -> dict[str, str]:
        """Return the settings that reach one of the listeners. The SSL listener requires a client certificate."""
        settings = {"bootstrap_servers": self.addresses[protocol], "security_protocol": protocol}
        if mechanism:
            settings |= {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": USERS.get(user, user)}
        if protocol.endswith("SSL"):
            settings["ssl_cafile"] = str(self.clients.ca)
        if protocol == "SSL":
            settings |= {"ssl_certfile": str(self.clients.cert), "ssl_keyfile": str(self.clients.key)}
        return settings


@contextmanager
def secured_broker(folder: Path, **properties: str) -> Iterator[SecuredBroker]:
    """Run a broker with a listener for each security protocol. The PLAINTEXT listener has no authentication.

    Args:
        properties: Kafka's broker properties, which override the properties that this function sets.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    own = certificates(authority, folder / "broker-certificates", "127.0.0.1", "localhost")
    clients = certificates(authority, folder / "client-certificates")
    ports = _free_ports(len(PROTOCOLS) + 1)
    addresses = {name: f"{embedded.HOST}:{port}" for name, port in zip(PROTOCOLS, ports, strict=False)}
    properties = {**_listeners(addresses, ports[-1]), **_authentication(), **_encryption(own), **properties}
    with Broker(folder / "broker", port=ports[0], properties=properties) as broker:
        _make_scram_users(broker)
        yield SecuredBroker(broker, addresses, authority, clients)


def principal(user: str) -> str:
    """Return the principal that the brokers derive from a certificate with this common name."""
    return f"User:CN={user},OU=People,O=Acme"


def certificates(authority: trustme.CA, folder: Path, *names: str, user: str = "ana") -> Certificates:
    """Issue a certificate for host names and addresses, or for a user, and write its PEM files."""
    folder.mkdir()
    files = Certificates(*(folder / f"{name}.pem" for name in ("ca", "cert", "key", "encrypted-key", "both")))
    leaf = authority.issue_cert(
        *(names or [user]), common_name=user, organization_name="Acme", organization_unit_name="People"
    )
    key = load_pem_private_key(leaf.private_key_pem.bytes(), password=None)
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    encryption = BestAvailableEncryption(KEY_PASSWORD.encode())
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    authority.cert_pem.write_to_path(files.ca)
    files.cert.write_bytes(chain)
    files.key.write_bytes(plain)
    files.encrypted_key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    files.both.write_bytes(plain + chain)
    return files


def _free_ports(count: int) -> list[int]:
    ports: list[int] = []
    while len(ports) < count:
        ports.append(embedded.free_port(but=ports))
    return ports


def _listeners(addresses: Mapping[str, str], controller_port: int) -> dict[str, str]:
    advertised = ",".join(f"{name}://{address}" for name, address in addresses.items())
    return {
        "listeners": f"{advertised},CONTROLLER://{embedded.HOST}:{controller_port}",
        "advertised.listeners": advertised,
        "controller.quorum.voters": f"1@{embedded.HOST}:{controller_port}",
    }


def _authentication() -> dict[str, str]:
    plain, *_ = jaas_config("PLAIN").split()
    scram, *_ = jaas_config("SCRAM-SHA-256").split()
    users = " ".join(f'user_{name}="{_escaped(password)}"' for name, password in USERS.items())
    settings = {"sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM))}
    for listener in ("sasl_plaintext", "sasl_ssl"):
        settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = f"{plain} required {users};"
        for mechanism in SCRAM:
            settings[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = f"{scram} required;"
    return {name: value.replace("\\", r"\\") for name, value in settings.items()}  # a properties file escapes \


def _escaped(password: str) -> str:
    return password.replace("\\", r"\\").replace('"', r"\"")


def _encryption(own: Certificates) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(own.ca),
        "listener.name.ssl.ssl.client.auth": "required",
    }


def _make_scram_users(broker: Broker) -> None:
    users = {**USERS, STRANGE_USER: STRANGE_USER}
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        for mechanism in SCRAM.values():
            made = admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(name, mechanism, password=word) for name, word in users.items()]
            )
            assert not any(made.values()), made
