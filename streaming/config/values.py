"""Types of the security settings. Each value is validated when it is set, and errors do not show the value."""

import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings

_FORBIDDEN_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
"""Control characters, surrogates and line ends, which user names, passwords (RFC 4013) and logs must not contain."""


def wrong(problem: str) -> PydanticCustomError:
    """Return the error that a validator raises. It contains only the problem."""
    return PydanticCustomError("security", "{problem}", {"problem": problem.removesuffix(".")})


def _readable(file: str) -> str:
    try:
        with open(file, "rb") as opened:
            opened.read(1)
    except OSError as error:
        raise wrong(f"{file} cannot be read ({error.strerror})") from None
    return file


def _printable(text: str) -> str:
    if any(unicodedata.category(char) in _FORBIDDEN_CATEGORIES for char in text):
        raise wrong("control characters and line ends are not allowed in it")
    return text


def _printable_secret(secret: SecretStr) -> SecretStr:
    _printable(secret.get_secret_value())
    return secret


def _token_url(url: str) -> str:
    """Check that a secret may be sent to an endpoint, and that its URL may be displayed."""
    parts = urlsplit(url)
    if parts.username is not None or parts.query or parts.fragment:
        raise wrong("it is displayed, so it must have no user, query or fragment")
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))):
        raise wrong("it gets the secret, so it must be https://HOST/PATH")
    return _printable(url)


def _host(text: str) -> str:
    """Return a host name or an address; an IPv6 address without its brackets."""
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in host and _address(host) is None:
        raise wrong("it must be a host name or an address, without a port")
    return host


File = Annotated[str, AfterValidator(_readable)]
Host = Annotated[str, Field(min_length=1), AfterValidator(_host)]
Name = Annotated[str, Field(min_length=1), AfterValidator(_printable)]
TokenUrl = Annotated[str, AfterValidator(_token_url)]
Secret = Annotated[SecretStr, Field(min_length=1), AfterValidator(_printable_secret)]


def is_loopback(host: str) -> bool:
    """Return whether an address or a host name is reachable only from this machine.

    An IPv4 address in the form of IPv6 is none, as in Python before 3.13.
    """
    if (address := _address(host.strip("[]"))) is None:
        return host == "localhost"
    return address.is_loopback and getattr(address, "ipv4_mapped", None) is None


def is_any_address(host: str) -> bool:
    """Return whether a listener there listens on all addresses. A client cannot connect to such an address."""
    address = _address(host)
    return address is not None and address.is_unspecified


def _address(text: str) -> IPv4Address | IPv6Address | None:
    with suppress(ValueError):
        return ip_address(text)
    return None


def secret_in(file: str | None) -> SecretStr | None:
    """Read the one secret in a file, without the line end."""
    if file is None:
        return None
    with suppress(UnicodeDecodeError):
        secret = Path(file).read_text("utf-8").rstrip("\r\n")
        if secret and _printable(secret):
            return SecretStr(secret)
    raise wrong(f"{file} contains no password in UTF-8")


def given(settings: BaseSettings, names: Iterable[str]) -> list[str]:
    """Return the names of the settings that have a value."""
    return [name for name in names if getattr(settings, name) is not None]


def revealed(value: Any) -> Any:
    """Return a secret's text, for a library that needs it; any other value unchanged."""
    return value.get_secret_value() if isinstance(value, SecretStr) else value
