"""The export of the groups of a checkpoint that no coordinator uses. The checkpoint is read, and never written.

Every group is exported as it is after the last finished batch, in the form in which a group moves, and without the
mailboxes of its members. The same checkpoint gives the same bytes. A group in transit to another coordinator is not
exported, because that coordinator may serve it already.

Source: moving.md 7.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from pyspark.sql import SparkSession

from coordinator.base.errors import CorruptState
from coordinator.base.hashing import shard_of
from coordinator.moves import transfer
from coordinator.moves.resume import remove_addresses
from coordinator.state import codec
from coordinator.state.classic_group import Group
from coordinator.state.codec import ShardSnapshot
from coordinator.state.consumer_group import ConsumerGroup
from streaming.config.settings import Settings
from streaming.errors import BadExport, CheckpointMismatch, Exit, InUse, NoCheckpoint, UserError
from streaming.query.checkpoint import checkpoint
from streaming.query.checkpoint.identity import Identity
from streaming.query.checkpoint.inspection import RESTORE, identity_of, of_folder, stored_shards
from streaming.query.checkpoint.parts import REPLANNED
from streaming.query.checkpoint.running import stopped
from streaming.query.operator.operator import unpacked
from streaming.query.spark.failures import explained
from streaming.wire.export_file import STATE_BYTES_MAX, Head, Line, Tell, line_of, refuse_taken, write


class Unfinished(UserError):
    """A batch of the checkpoint was planned and is not finished."""

    exit_code = Exit.NEEDS_A_PERSON


class Exported(Struct, frozen=True):
    """The result of an export.

    Args:
        file: The file; None if nothing was written.
        removed: The number of lines that have the end of a removed group.
        in_transit: The groups that are not in the file, because they are in transit to another coordinator.
        open_transactions: The groups with offsets of open transactions.
    """

    file: str | None
    size_bytes: int
    head: Head
    removed: int
    in_transit: list[str]
    open_transactions: list[str]


class Name(NamedTuple):
    token: int
    state: bytes


def export(
    settings: Settings,
    file: Path,
    *,
    is_dry_run: bool,
    is_stopped: bool,
    takes_unfinished: bool,
    tell: Tell = lambda done, of: None,
) -> Exported:
    """Write all groups of a checkpoint to a new file.

    Args:
        is_dry_run: Read everything, and write nothing.
        is_stopped: The caller asserts that no coordinator runs on the checkpoint, for a folder where this cannot be
            checked.
        takes_unfinished: Export the state before a batch that is planned and not finished.

    Raises:
        NoCheckpoint: The folder contains no finished batch.
        Unfinished: A batch is not finished.
        CheckpointMismatch: The checkpoint is damaged.
        InUse: A coordinator runs on the checkpoint, or this cannot be checked.
        BadExport: The file exists, or cannot be written; or the state of a group is too large.
    """
    refuse_taken(file)
    spark, folder = of_folder(settings)
    with explained(settings), stopped(folder) as is_known:
        if not (is_known or is_stopped):
            raise InUse(
                f"It is unknown here whether a coordinator runs on {folder}: stop it, and confirm with --stopped."
            )
        head, names = _read(spark, folder, takes_unfinished=takes_unfinished)
        size = 0 if is_dry_run else write(file, head, names.lines(head), tell)
    written = None if is_dry_run else str(file)
    return Exported(written, size, head, names.removed, sorted(names.in_transit), sorted(names.open_transactions))


def _read(spark: SparkSession, folder: str, *, takes_unfinished: bool) -> tuple[Head, "Names"]:
    """Return the first line of the file, and all groups."""
    identity = identity_of(spark, folder)
    batch, later = _batches(spark, folder)
    if later is not None and not takes_unfinished:
        raise Unfinished(
            f"Batch {later} of {folder} is planned and not finished, so its responses may have been sent: start the"
            " coordinator and stop it again, or add --unfinished if it cannot be started."
        )
    names = Names(identity.request_partitions)
    for number, stored, _ in stored_shards(spark, f"{folder}/query", batch, identity.request_partitions):
        names.add(number, stored)
    head = _head(spark, folder, identity, batch, is_unfinished=later is not None, names=names)
    if _batches(spark, folder) != (batch, later):
        raise InUse(f"A coordinator runs on the checkpoint {folder}: stop it first.")
    return head, names


def _batches(spark: SparkSession, folder: str) -> tuple[int, int | None]:
    """Return the last finished batch, and a later one that was planned; None if no later one was.

    A plan that was moved aside counts too.

    Raises:
        NoCheckpoint: No batch is finished.
    """
    commits = checkpoint.batches(spark, f"{folder}/query/commits")
    if not commits:
        raise NoCheckpoint(f"The checkpoint {folder} holds no finished batch, so it has no groups to export.")
    aside = [name.partition(".")[0] for name in checkpoint.names(spark, f"{folder}/{REPLANNED}")]
    planned = [*checkpoint.batches(spark, f"{folder}/query/offsets"), *(int(name) for name in aside if name.isdigit())]
    later = max(planned, default=-1)
    return commits[-1], later if later > commits[-1] else None


def _head(
    spark: SparkSession, folder: str, identity: Identity, batch: int, *, is_unfinished: bool, names: "Names"
) -> Head:
    made_ms = checkpoint.plan_time_ms(spark, f"{folder}/query/offsets/{batch}")
    if made_ms is None:
        raise CheckpointMismatch(f"offsets/{batch} is missing or cannot be read: {RESTORE}.")
    prefixes = [topic.removesuffix(".requests") for topic in identity.topic_ids if topic.endswith(".requests")]
    if len(prefixes) != 1:
        raise CheckpointMismatch(f"identity.json of {folder} does not name the request topic: {RESTORE}.")
    return Head(
        prefix=prefixes[0],
        checkpoint=hashlib.sha256(identity.secret.encode()).hexdigest()[:32],  # of 32 random bytes: it betrays none
        batch=batch,
        made_ms=made_ms,
        unfinished=is_unfinished,
        groups=len(names.by_id),
        highest_token=max((name.token for name in names.by_id.values()), default=0),
    )


class Names:
    """The groups of all shards, and the ends of removed groups."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self.by_id: dict[str, Name] = {}
        self.removed = 0
        self.in_transit: list[str] = []
        self.open_transactions: list[str] = []

    def add(self, number: int, stored: str) -> None:
        """Add all of a shard.

        Raises:
            CheckpointMismatch: The shard cannot be read, or has a group of another shard.
            BadExport: The state of a group is too large.
        """
        try:
            shard = unpacked(stored).shard
            kept = ShardSnapshot() if shard is None else codec.decode_shard(shard)
            for group_id, each in kept.groups.items():
                self._add_group(number, group_id, codec.decode_group(each))
        except CorruptState as error:
            raise CheckpointMismatch(f"Shard {number} cannot be read ({error}): {RESTORE}.") from error
        for group_id, removed in kept.removed_groups.items():
            if removed.generation_id:  # a group without a generation leaves nothing to continue
                self.removed += 1
                self._put(group_id, removed.token, transfer.Tombstone(removed.generation_id, removed.token))
        if kept.moves is not None:
            self.in_transit += kept.moves.sent

    def _add_group(self, number: int, group_id: str, group: Group | ConsumerGroup) -> None:
        if shard_of(group_id, self._shards) != number or group.group_id != group_id:
            raise CheckpointMismatch(f"Shard {number} holds {group_id!r}, which is another shard's group: {RESTORE}.")
        if group.pending_commits:
            self.open_transactions.append(group_id)
        remove_addresses(group)
        self._put(group_id, group.token, transfer.living(group))

    def _put(self, group_id: str, token: int, carried: transfer.Carried) -> None:
        state = transfer.encode(carried)
        if len(state) > STATE_BYTES_MAX:
            raise BadExport(
                f"The state of the group {group_id!r} takes {len(state)} bytes, and {STATE_BYTES_MAX} are allowed:"
                " delete offsets of the group, and export again."
            )
        self.by_id[group_id] = Name(token, state)

    def lines(self, head: Head) -> Iterator[Line]:
        """Yield the lines of the file, in the order of the group ids."""
        for group_id in sorted(self.by_id):
            name = self.by_id[group_id]
            yield line_of(head, group_id, name.token, name.state)
