"""Access control as settings: whether rules apply, the principals above them, and the key that signs principals.

The coordinator, its gateways, and every user that sets rules share the key. It comes from the environment or a file,
and is never displayed.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, SecretStr, StringConstraints, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings

from coordinator.base import limits
from coordinator.base.access import ANONYMOUS
from streaming.config.values import File, Secret
from streaming.wire.signing import KEY_BYTES_MIN, Signing

OPEN_SAID = (
    "Access is open: each client that can write to {topic} may perform any operation on any group, under any name."
    " Set access = rules to restrict access by rules."
)

Principal = Annotated[str, StringConstraints(pattern=r"^[^:]+:.", max_length=limits.ID_CHARS_MAX)]


def _wrong(problem: str) -> PydanticCustomError:
    return PydanticCustomError("access", "{problem}", {"problem": problem})


class AccessControl(BaseSettings):
    """The settings of access to groups, and of the authentication of principals."""

    access: Literal["open", "rules"] = Field(
        "open", description="Whether all clients have all rights, or only those in the rules; see `coordinator access`."
    )
    super_users: tuple[Principal, ...] = Field(
        (), description="Principals such as User:admin with all rights; a JSON array."
    )
    access_key: Secret | None = Field(None, description="The key that signs principals; by environment or file.")
    access_key_file: File | None = Field(None, description="A file with the key, instead.")
    principal: Principal | None = Field(
        None, description="The principal of our own commands with a key; User:SASL_USERNAME if not set."
    )

    _access_keys: tuple[SecretStr, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _keys_are_there(self) -> Self:
        if self.access_key and self.access_key_file:
            raise _wrong("access_key and access_key_file are two keys: set one of them")
        self._access_keys = _keys(self.access_key.get_secret_value(), "access_key") if self.access_key else ()
        if self.access_key_file:
            self._access_keys = keys_in(self.access_key_file)
        if self.access == "rules" and not self._access_keys:
            raise _wrong("access = rules needs an access_key_file, because unsigned requests have no principal")
        return self

    def signing_for(self, topic: str) -> Signing | None:
        """Return the signing of a topic's records; None without a key."""
        keys = tuple(key.get_secret_value().encode() for key in self._access_keys)
        return Signing(keys, topic) if keys else None

    def asking_as(self, sasl_username: str | None) -> str:
        """Return the principal of our own commands."""
        return self.principal or (f"User:{sasl_username}" if sasl_username else ANONYMOUS)


def keys_in(file: str) -> tuple[SecretStr, ...]:
    """Read one or more keys. The first key signs, so that a new key can be distributed before it is used.

    Raises:
        PydanticCustomError: a ValueError: The file contains no key, or a key is too short.
    """
    try:
        text = Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise _wrong(f"{file} contains no key in UTF-8") from None
    return _keys(text, file)


def _keys(text: str, where: str) -> tuple[SecretStr, ...]:
    keys = tuple(map(SecretStr, text.split()))
    if not keys or any(len(key.get_secret_value().encode()) < KEY_BYTES_MIN for key in keys):
        raise _wrong(f"{where} must contain a key of {KEY_BYTES_MIN} bytes or more, as 'openssl rand -base64 32' makes")
    return keys
