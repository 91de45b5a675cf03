"""The requests about groups that move between coordinators, and the records that coordinators write to each other.

The records between coordinators are in the same topic as requests, and nobody answers them with a reply. Their MAC is
checked before they come here.

Source: moving.md 1.
"""

from typing import Annotated

from msgspec import Meta, Struct

from coordinator.base import limits
from coordinator.messages.fields import BaseRequest, Int64, Name, Reason

Prefix = Name
MoveId = Annotated[str, Meta(min_length=1, max_length=limits.ID_CHARS_MAX)]
"""The place of the release in the source's log: PREFIX/partition/offset."""

Number = Annotated[int, Meta(ge=1, le=limits.MOVE_NUMBER_MAX)]
Time = Annotated[int, Meta(ge=0, le=limits.TIME_MS_MAX)]
Part = Annotated[int, Meta(ge=1, le=limits.MOVE_PARTS_MAX)]
StateBytes = Annotated[int, Meta(ge=0, le=limits.MOVE_PART_BYTES * limits.MOVE_PARTS_MAX)]
PartBytes = Annotated[bytes, Meta(max_length=limits.MOVE_PART_BYTES)]
GroupId = Annotated[str, Meta(max_length=limits.GROUP_ID_CHARS_MAX)]
Bitmap = Annotated[bytes, Meta(min_length=limits.SLOT_BITMAP_BYTES, max_length=limits.SLOT_BITMAP_BYTES)]
"""A set of slots, as `base.slots` writes it."""

Partition = Annotated[int, Meta(ge=0, lt=limits.PARTITIONS_MAX)]
Partitions = Annotated[int, Meta(ge=1, le=limits.PARTITIONS_MAX)]


class ReleaseGroup(BaseRequest, frozen=True, kw_only=True, tag="release_group"):
    """Move the group of a name to another coordinator. Answered when that coordinator has adopted or refused it.

    Args:
        to: The prefix of the other coordinator, one of the setting `peers`.
        last_move: The number that the sender knows of the name; null if it does not matter.
    """

    to: Prefix
    last_move: Number | None = None


class CancelMove(BaseRequest, frozen=True, kw_only=True, tag="cancel_move"):
    """Refuse a move at its target, unless the target has adopted the group already."""

    move_id: MoveId
    number: Number


class Evidence(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The reason why the target cannot adopt a group any more.

    Args:
        partition: The partition of the target's request topic that has the name.
        cancel_offset: The offset of the `cancel_move` record there.
        parts_before: The number of different parts of the move before that record.
        target_is_lost: The operator states that the target will not run again.
    """

    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    cancel_offset: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    parts_before: Annotated[int, Meta(ge=0, le=limits.MOVE_PARTS_MAX)] = 0
    target_is_lost: bool = False


class TakeBack(BaseRequest, frozen=True, kw_only=True, tag="take_back"):
    """Take a group back at its source, because its target cannot adopt it any more."""

    move_id: MoveId
    number: Number
    evidence: Evidence


class CheckAdoption(BaseRequest, frozen=True, kw_only=True, tag="check_adoption"):
    """Request the reason for which a move of this name would be refused now. The response binds nobody.

    Args:
        codec: The version of the source's codec.
        bytes: The size of the state.
        members: The number of members.
        home: The source owns the slot of the name, as far as the sender knows; false for an export.
    """

    codec: Annotated[int, Meta(ge=1, le=255)]
    bytes: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    members: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    home: bool = True


class ImportGroup(BaseRequest, frozen=True, kw_only=True, tag="import_group", rename={"source": "from"}):
    """Adopt one part of the state of a name from an export. The coordinator that had the name will not run again.

    Args:
        move_id: "import/CHECKPOINT/BATCH/NAME", so that an export is imported once.
        number: The highest fencing token that the group has given before the export.
        source: The prefix of the coordinator that had the group; `from` in JSON.
        token_floor: No later fencing token of the group is below it.
        is_older: The state is not the newest one of the group. Its members are not adopted, and join anew.
        replaces: A group of that name that was removed here is not newer than the state.
        drops_open_transactions: Offsets of open transactions are not adopted.
        part: From 1 to `parts`.
        codec, bytes, crc: As in `adopt_group`.
    """

    move_id: MoveId
    number: Number
    source: Prefix
    token_floor: Number
    is_older: bool = False
    replaces: bool = False
    drops_open_transactions: bool = False
    part: Part
    parts: Part
    codec: Annotated[int, Meta(ge=0, le=255)]
    bytes: StateBytes
    crc: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    state: PartBytes


class ReleaseSlots(BaseRequest, frozen=True, kw_only=True, tag="release_slots"):
    """Move slots of one shard to another coordinator. The record's partition selects the shard.

    Args:
        to: The prefix of the other coordinator, one of the setting `peers`.
        slots: The slots, in base 64. Those without names in the shard have no effect.
        made_ms: The number of the slots: when the request was made, Unix milliseconds, equal for all shards. The same
            number sends the slots again.
    """

    group_id: str = ""
    to: Prefix
    slots: Bitmap
    made_ms: Time


class DescribeSlots(BaseRequest, frozen=True, kw_only=True, tag="describe_slots"):
    """Request the owners of the slots of one shard, and names that are guests there. The record's partition selects it.

    Args:
        after: The response has the guests behind this name; "" for the first ones.
    """

    group_id: str = ""
    after: GroupId = ""


class BasePeerRecord(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", rename={"source": "from"}
):
    """The fields of every record between coordinators.

    Args:
        source: The prefix of the coordinator that wrote the record; `from` in JSON.
        to: The prefix of the coordinator that reads it.
    """

    group_id: GroupId
    move_id: MoveId
    number: Number
    source: Prefix
    to: Prefix


class AdoptGroup(BasePeerRecord, frozen=True, kw_only=True, tag="adopt_group"):
    """One part of the state of a name that its source has released.

    Args:
        released_ms: The append time of the release.
        home: Whether the source owns the slot of the name.
        part: From 1 to `parts`.
        codec: The version of the codec that wrote the state.
        bytes: The size of the whole state.
        crc: The CRC-32C of the whole state.
    """

    released_ms: Time
    home: bool
    part: Part
    parts: Part
    codec: Annotated[int, Meta(ge=0, le=255)]
    bytes: StateBytes
    crc: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    state: PartBytes


class GroupAdopted(BasePeerRecord, frozen=True, kw_only=True, tag="group_adopted"):
    """The target has custody of the name since `adopted_ms`."""

    adopted_ms: Int64


class AdoptionRefused(BasePeerRecord, frozen=True, kw_only=True, tag="adoption_refused"):
    """The target has refused the move. `why` is a sentence for a person."""

    reason: Name
    why: Reason
    adopted_ms: Int64


class Elsewhere(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A name with an entry at the former owner of its slot.

    Args:
        number: The highest number that is known of the name; 0 for none.
        at: The prefix of the coordinator that has the name.
    """

    name: GroupId
    number: Annotated[int, Meta(ge=0, le=limits.MOVE_NUMBER_MAX)]
    at: Prefix


class AdoptSlots(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="adopt_slots",
    rename={"source": "from"},
):
    """Slots that one shard of their owner has released, for one shard of the target.

    Args:
        source: The prefix of the coordinator that wrote the record; `from` in JSON.
        number: The `made_ms` of the request.
        offset: The offset of the request, which says which sending of the slots it is.
        slots: The slots that have names in both shards, in base 64.
        from_shard, from_partitions: The shard of the source, and the number of its shards.
        to_shard, to_partitions: The shard of the target, and the number of its shards.
        part: From 1 to `parts`.
        elsewhere: The names of these slots in both shards that the source has an entry of: a part of them.
    """

    source: Prefix
    to: Prefix
    number: Time
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    slots: Bitmap
    from_shard: Partition
    from_partitions: Partitions
    to_shard: Partition
    to_partitions: Partitions
    part: Part
    parts: Part
    elsewhere: Annotated[tuple[Elsewhere, ...], Meta(max_length=limits.ELSEWHERE_MAX)] = ()


MoveRecord = AdoptGroup | GroupAdopted | AdoptionRefused
"""A record between coordinators about the move of one name."""

PeerRecord = MoveRecord | AdoptSlots
PEER_RECORDS = (AdoptGroup, GroupAdopted, AdoptionRefused, AdoptSlots)
