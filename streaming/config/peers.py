"""Other coordinators as settings: with which ones this one exchanges groups, and the key of their records."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, SecretStr, StringConstraints, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings

from streaming.config.values import File
from streaming.wire.peering import Peering
from streaming.wire.signing import KEY_BYTES_MIN

PEERS_MAX = 32
"""Other coordinators of one coordinator: the start looks at a topic of each."""

NO_PEERS: Mapping[str, int] = MappingProxyType({})

Prefix = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,200}$")]


def _wrong(problem: str) -> PydanticCustomError:
    return PydanticCustomError("peers", "{problem}", {"problem": problem})


def other_prefixes(own: str, peers: Iterable[str]) -> tuple[str, ...]:
    """Return the prefixes of other coordinators, each once and without the own one.

    Raises:
        ValueError: More than `PEERS_MAX` are named.
    """
    others = tuple(prefix for prefix in dict.fromkeys(peers) if prefix != own)
    if len(others) > PEERS_MAX:
        raise ValueError(f"{len(others)} peers are named, and {PEERS_MAX} are allowed.")
    return others


class PeerAccess(BaseSettings):
    """The settings of groups that move between coordinators."""

    peers: tuple[Prefix, ...] = Field(
        (), max_length=PEERS_MAX, description="topic_prefix of each coordinator to exchange groups with; a JSON array."
    )
    peer_key_file: File | None = Field(None, description="A file with the key of all peers, needed with peers.")
    slots: Literal["all", "none"] = Field(
        "all", description="Whether an unknown group is created here, or belongs to another coordinator."
    )
    directory: Prefix | None = Field(
        None,
        description="The topic DIRECTORY.directory names the only coordinator with slots = all; equal for all peers.",
    )

    _peer_key: SecretStr | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _peers_have_a_key(self) -> Self:
        if self.peers and self.peer_key_file is None:
            raise _wrong("peers needs a peer_key_file, because records of an unknown sender change no group")
        if len(set(self.peers)) < len(self.peers):
            raise _wrong("peers has a prefix twice")
        if self.slots == "none" and not self.peers:
            raise _wrong("slots = none needs peers, because no group could ever come")
        if self.peer_key_file is not None:
            self._peer_key = _key_in(self.peer_key_file)
        return self

    @property
    def is_founder(self) -> bool:
        """Whether the coordinator is, or wants to be, the founder in the directory (moving.md 4.4)."""
        return self.directory is not None and self.slots == "all"

    def peering_at(self, prefix: str) -> Peering | None:
        """Return the peering of the coordinator with a prefix; None without peers."""
        if self._peer_key is None or not self.peers:
            return None
        topics = {peer: f"{peer}.requests" for peer in self.peers}
        return Peering(self._peer_key.get_secret_value().encode(), f"{prefix}.requests", topics)


def _key_in(file: str) -> SecretStr:
    try:
        key = Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise _wrong(f"{file} contains no key in UTF-8") from None
    if len(key.encode()) < KEY_BYTES_MIN or key.split() != [key]:
        raise _wrong(
            f"{file} must contain one key of {KEY_BYTES_MIN} bytes or more, as 'openssl rand -base64 32' makes"
        )
    return SecretStr(key)
