"""The principal of a client's certificate, in the form of Kafka's brokers: `User:CN=ana,O=Acme`.

Source: DefaultKafkaPrincipalBuilder, X500Principal.getName; RFC 2253, with the attribute names that Java writes.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from coordinator.base.limits import ID_CHARS_MAX

log = logging.getLogger(__name__)

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
