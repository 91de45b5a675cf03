"""The Java properties file of `--command-config`, and its conversion to our settings.

Key stores and trust stores must be PEM files, which Kafka's clients also read (KIP-651).
"""

import re
from collections.abc import Mapping
from pathlib import Path

from streaming.config.java_properties import read_properties, unescaped
from streaming.errors import Exit, UserError
from streaming.logs import tell


class BadProperties(UserError):
    """The file cannot be read, or contains a property that is not supported."""

    exit_code = Exit.USAGE


_NAMES = {
    # Kafka's name                                       our setting
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.oauthbearer.token.endpoint.url": "sasl_oauth_token_url",
    "sasl.oauthbearer.client.credentials.client.id": "sasl_oauth_client_id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl_oauth_client_secret",
    "sasl.oauthbearer.scope": "sasl_oauth_scope",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.key.password": "ssl_key_password",
}

_JAAS_OPTIONS = {
    # a login module's        our setting
    "username": "sasl_username",
    "password": "sasl_password",
    "clientId": "sasl_oauth_client_id",
    "clientSecret": "sasl_oauth_client_secret",
    "scope": "sasl_oauth_scope",
    "ssl.truststore.location": "sasl_oauth_cafile",
}

_IN_A_FILE = {
    "ssl.truststore.certificates": "ssl.truststore.location",
    "ssl.keystore.certificate.chain": "ssl.keystore.location",
    "ssl.keystore.key": "ssl.keystore.location",
}
"""The properties that contain a key or certificates, which are not supported, and the property that names a PEM file
instead."""

_UNDERSTOOD = {"ssl.truststore.type", "ssl.keystore.type", "sasl.jaas.config", "ssl.endpoint.identification.algorithm"}
_OF_SECURITY = re.compile(r"(sasl|ssl|security)\.")

_JAAS_OPTION = re.compile(r'([\w.]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^\s;"]+))')


def settings_in(file: str) -> dict[str, object]:
    """Read a properties file, and return settings by our names.

    Raises:
        BadProperties: The file cannot be read, or one of its properties is not supported.
    """
    try:
        return to_settings(read_properties(Path(file).read_text("utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise BadProperties(f"The properties in {file} cannot be read ({error}).") from None


def to_settings(properties: Mapping[str, str]) -> dict[str, object]:
    """Convert the properties of Kafka's clients to our settings. Properties that do not concern security are ignored.

    Raises:
        BadProperties: A store is not a PEM file, or the properties themselves contain a key or certificates.
    """
    for name, better in _IN_A_FILE.items():
        if name in properties:
            raise BadProperties(
                f"{name} is not supported. Write its value to a PEM file, and set {better} to that file."
            )
    for store in ("truststore", "keystore"):
        if f"ssl.{store}.location" in properties and properties.get(f"ssl.{store}.type", "JKS").upper() != "PEM":
            raise BadProperties(f"ssl.{store}.location must be a PEM file. Set ssl.{store}.type=PEM.")
    settings: dict[str, object] = {ours: properties[name] for name, ours in _NAMES.items() if name in properties}
    settings |= _logged_in(properties.get("sasl.jaas.config", ""))
    if properties.get("ssl.endpoint.identification.algorithm") == "":
        settings["ssl_check_hostname"] = False
    unknown = sorted(n for n in properties if _OF_SECURITY.match(n) and n not in _UNDERSTOOD and n not in _NAMES)
    if unknown:
        tell(f"These properties are not supported and were ignored: {', '.join(unknown)}.")
    return settings


def _logged_in(jaas: str) -> dict[str, object]:
    options = {name: unescaped(quoted) if quoted else bare for name, quoted, bare in _JAAS_OPTION.findall(jaas)}
    return {ours: options[name] for name, ours in _JAAS_OPTIONS.items() if name in options}
