"""Types of the security settings. Each value is validated when it is set, and errors do not show the value."""

import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
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


File = Annotated[str, AfterValidator(_readable)]
Name = Annotated[str, Field(min_length=1), AfterValidator(_printable)]
TokenUrl = Annotated[str, AfterValidator(_token_url)]
Secret = Annotated[SecretStr, Field(min_length=1), AfterValidator(_printable_secret)]


def is_loopback(host: str) -> bool:
    """Return whether an address or a host name is reachable only from this machine."""
    with suppress(ValueError):
        return ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


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
