"""The identity of a checkpoint: its checksum, its differences from another one, and the fields of a coordinator's.

Nothing here needs Spark, so a command of the base installation can use it too.
"""

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar

import msgspec

from coordinator.state.codec import VERSION
from streaming.errors import CheckpointMismatch

FILE = "identity.json"

PLAN_VERSION = 2
"""The version of the query's sources and stateful operator. Spark continues a checkpoint only with the same ones."""

OF_AN_OBSERVER, OF_A_COORDINATOR = "source_partitions", "secret"
"""Fields that only the identity of an observer's checkpoint has, and only that of a coordinator's."""


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """The base of identities. A subclass has all fields, since their order is that of the file, and `checksum` last."""

    @property
    def sealed(self) -> Self:
        """The identity with the checksum of all other fields, which shows any changed bit, also one of the secret."""
        return msgspec.structs.replace(self, checksum=checksum_of(msgspec.structs.asdict(self)))


AnyIdentity = TypeVar("AnyIdentity", bound=Sealed)


class Identity(Sealed, frozen=True, kw_only=True):
    """The data that cannot change for the life of a checkpoint.

    Args:
        fencing_token_floor: No fencing token is below it. It is above all tokens that were given under the topic prefix
            before.
    """

    secret: str
    topic_ids: dict[str, str]
    request_partitions: int
    shuffle_partitions: int
    state_store: str
    codec_version: int = VERSION
    plan_version: int = PLAN_VERSION
    fencing_token_floor: int = 0
    checksum: str = ""


def decoded(written: bytes, path: str, kind: type[AnyIdentity]) -> AnyIdentity:
    """Return the identity in the bytes of a file.

    Args:
        path: The name of the file, for errors.

    Raises:
        CheckpointMismatch: The bytes are no identity of this kind, or they were changed.
    """
    try:
        found = msgspec.json.decode(written, type=kind)
    except msgspec.MsgspecError as error:
        raise not_an_identity(written, path, error) from None
    fields = msgspec.json.decode(written)
    if fields.get("checksum") != checksum_of(fields):
        raise CheckpointMismatch(f"{path} cannot be read (it fails its checksum): restore it from a back-up.")
    return found


def not_an_identity(written: bytes, path: str, error: Exception) -> CheckpointMismatch:
    """Return the error for an identity of the wrong form: it may be that of the other query."""
    try:
        fields = dict(msgspec.json.decode(written))
    except (msgspec.MsgspecError, TypeError, ValueError):
        fields = {}
    if OF_AN_OBSERVER in fields:
        return CheckpointMismatch(
            f"{path} is that of `coordinator observe`, whose groups are on its topics: name a coordinator's checkpoint."
        )
    if OF_A_COORDINATOR in fields:
        return CheckpointMismatch(f"{path} is that of `coordinator run`: start with another observe_checkpoint.")
    return CheckpointMismatch(f"{path} cannot be read ({error}): restore it from a back-up.")


FIXED = ("request_partitions", "shuffle_partitions", "state_store", "plan_version")


def differences(found: Any, wanted: Any, fixed: Iterable[str] = FIXED) -> list[str]:
    """Return a text for each difference between the identity of a checkpoint and that of a new one.

    Args:
        fixed: The fields that are compared, beside `topic_ids`.
    """
    changed = [
        f"{name} was {getattr(found, name)} and is {getattr(wanted, name)}"
        for name in fixed
        if getattr(found, name) != getattr(wanted, name)
    ]
    for topic in found.topic_ids.keys() | wanted.topic_ids.keys():
        if found.topic_ids.get(topic) != wanted.topic_ids.get(topic):
            changed.append(f"topic {topic} is not the one it was made with")
    return sorted(changed)


def checksum_of(fields: Mapping[str, Any]) -> str:
    """Return the checksum of all fields except the checksum itself, also of fields that this version does not know."""
    rest = {name: value for name, value in fields.items() if name != "checksum"}
    return f"{zlib.crc32(msgspec.json.encode(rest, order='sorted')):08x}"
