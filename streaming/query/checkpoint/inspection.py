"""The contents of a checkpoint that no coordinator uses, and its defects. The checkpoint is read, and never written.

Spark's own state reader reads the state, so the state store and its location make no difference. First the inspection
reads Spark's plans and commits, one file for each batch; then every shard after the last finished batch, and every
group.
"""

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from coordinator.base.errors import CorruptState
from coordinator.base.hashing import shard_of
from coordinator.base.limits import NEVER_MS
from coordinator.shard.group_types import timers_of
from coordinator.state import codec
from streaming.config.settings import Settings
from streaming.errors import CheckpointMismatch, NoCheckpoint
from streaming.query.checkpoint import checkpoint
from streaming.query.checkpoint.identity import PLAN_VERSION, Identity
from streaming.query.checkpoint.parts import missing_parts
from streaming.query.operator.operator import unpacked
from streaming.query.spark.failures import CAUSES, account_of, explained, innermost, is_of_the_store
from streaming.query.spark.session import open_session
from streaming.query.spark.stores import located

RESTORE = "restore the checkpoint from a back-up"


class KeptGroup(Struct, frozen=True):
    """A group in a stored state. Times are Unix milliseconds."""

    group_id: str
    state: str
    generation_id: int
    version: int
    members: int
    offsets: int
    deadline_ms: int | None
    deadline: str | None
    """The kind of the deadline at `deadline_ms`."""


class KeptShard(Struct, frozen=True):
    """A shard in a stored state.

    Args:
        forgotten: The number of groups of which the shard keeps only the last generation.
        alarm_ms: The time of Spark's next timeout for the shard.
    """

    shard: int
    codec_version: int
    size_bytes: int
    forgotten: int
    alarm_ms: int | None
    groups: list[KeptGroup]


class Plan(NamedTuple):
    """Spark's plan of a batch: its time, the number of tasks, and the end offsets of each request partition, by
    topic."""

    at_ms: int
    tasks: int
    ends: dict[str, dict[str, int]]


class Contents(Struct):
    """The readable contents of a checkpoint. `findings` has one sentence for each defect."""

    checkpoint: str
    topic_ids: dict[str, str]
    request_partitions: int
    shuffle_partitions: int
    state_store: str
    plan_version: int
    reads_codec_version: int = codec.VERSION
    planned: int | None = None
    finished: int | None = None
    planned_at_ms: int | None = None
    requests_taken: dict[str, int] = {}
    shards: list[KeptShard] = []
    findings: list[str] = []
    in_use: bool = False


def examine(settings: Settings, tell: Callable[[int, int], None] = lambda read, of: None) -> Contents:
    """Read all of a checkpoint.

    Args:
        tell: Called with the number of files and shards read, and their total.

    Raises:
        NoCheckpoint: The folder contains no checkpoint.
        CheckpointMismatch: The identity of the checkpoint cannot be read, and without it nothing else can be checked.
        SparkRefused: Spark cannot read the folder.
        StoreUnavailable: The store does not answer. Commands do not wait for it.
    """
    spark, folder = of_folder(settings)
    with explained(settings):
        return _Examination(spark, folder, identity_of(spark, folder), tell).contents()


def of_folder(settings: Settings) -> tuple[SparkSession, str]:
    """Start Spark to read a checkpoint, in this process unless the setting `master` says otherwise.

    Returns:
        The session, and the whole address of the checkpoint.

    Raises:
        SparkRefused: Spark cannot reach the folder.
    """
    spark = open_session(settings, default_master="local[1]")
    spark.streams.active  # noqa: B018  starts the service from which the reader of states gets its peers
    return spark, located(spark, settings, CAUSES).checkpoint


def identity_of(spark: SparkSession, folder: str) -> Identity:
    """Return the identity of a checkpoint.

    Raises:
        NoCheckpoint: The folder contains no checkpoint.
        CheckpointMismatch: The identity is missing, or cannot be read.
    """
    if (identity := checkpoint.read_identity(spark, folder)) is not None:
        return identity
    if checkpoint.exists(spark, f"{folder}/query"):
        raise CheckpointMismatch(f"The checkpoint {folder} has no identity.json: restore that file from a back-up.")
    raise NoCheckpoint(f"There is no checkpoint at {folder}: name the folder that `coordinator run` was given.")


class _Examination:
    """The reader of one checkpoint, which collects defects while it reads."""

    def __init__(self, spark: SparkSession, folder: str, identity: Identity, tell: Callable[[int, int], None]) -> None:
        self._spark, self._identity, self._tell = spark, identity, tell
        self._read = self._total = 0
        self._query = f"{folder}/query"
        self._found = Contents(
            folder,
            identity.topic_ids,
            identity.request_partitions,
            identity.shuffle_partitions,
            identity.state_store,
            identity.plan_version,
        )

    def contents(self) -> Contents:
        found = self._found
        commits = self._numbers("commits")  # before the plans: a running coordinator plans a batch first
        plans = self._numbers("offsets")
        self._total = len(commits) + len(plans) + (self._identity.request_partitions if commits else 0)
        found.findings += [
            *self._of_parts(plans, commits),
            *self._of_the_query(),
            *self._of_commits(commits),
            *self._of_plans(plans, commits),
        ]
        if commits:
            found.finished = commits[-1]
            found.findings += self._of_the_state(commits[-1])
        found.in_use = self._numbers("offsets")[-1:] != plans[-1:]
        return found

    def _advance(self) -> None:
        self._read += 1
        self._tell(self._read, self._total)

    def _numbers(self, kind: str) -> list[int]:
        return checkpoint.batches(self._spark, f"{self._query}/{kind}")

    def _of_parts(self, plans: list[int], commits: list[int]) -> Iterator[str]:
        for part in missing_parts(plans, commits, lambda name: checkpoint.exists(self._spark, f"{self._query}/{name}")):
            yield f"{part} is missing: {RESTORE}."

    # -- Spark's notes about its batches -------------------------------------------------------------------------------

    def _of_the_query(self) -> Iterator[str]:
        if self._identity.plan_version != PLAN_VERSION:
            yield (
                f"It was made by a version with another query (plan {self._identity.plan_version}, here"
                f" {PLAN_VERSION}): start it with that version."
            )
        try:
            json.loads(checkpoint.read_file(self._spark, f"{self._query}/metadata"))["id"]
        except (Py4JJavaError, ValueError, KeyError, TypeError) as error:
            if is_of_the_store(account_of(error)):
                raise
            if self._numbers("offsets"):
                yield f"metadata is missing or cannot be read: {RESTORE}."

    def _of_commits(self, commits: list[int]) -> Iterator[str]:
        yield from _gaps("commits", commits)
        for number in commits:
            self._advance()
            try:
                json.loads(self._lines("commits", number, 2)[1])
            except ValueError as error:
                yield f"commits/{number} cannot be read ({error}): {RESTORE}."

    def _of_plans(self, plans: list[int], commits: list[int]) -> Iterator[str]:
        yield from _gaps("offsets", plans)
        if unplanned := sorted(set(commits) - set(plans)):
            yield f"offsets/{unplanned[-1]} is missing, and that batch is finished: {RESTORE}."
        if len(ahead := [number for number in plans if number > max(commits, default=-1)]) > 1:
            yield f"commits/{ahead[0]} is missing, and {ahead[1]} is planned already: {RESTORE}."
        before: dict[str, int] = {}
        for number in plans:
            self._advance()
            try:
                plan = self._plan(number)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                yield f"offsets/{number} cannot be read ({error}): {RESTORE}."
                continue
            ends = next(iter(plan.ends.values()), {})
            yield from self._of_a_plan(number, plan, before)
            before = ends
            self._found.planned, self._found.planned_at_ms, self._found.requests_taken = number, plan.at_ms, ends

    def _of_a_plan(self, number: int, plan: Plan, before: dict[str, int]) -> Iterator[str]:
        topics, ends = list(plan.ends), next(iter(plan.ends.values()), {})
        if len(topics) != 1 or topics[0] not in self._identity.topic_ids:
            yield f"offsets/{number} reads {', '.join(topics)}, which is not this checkpoint's topic: {RESTORE}."
        if sorted(map(int, ends)) != list(range(self._identity.request_partitions)):
            wanted = self._identity.request_partitions
            yield f"offsets/{number} is for {len(ends)} request partitions, not {wanted}: {RESTORE}."
        if plan.tasks != self._identity.shuffle_partitions:
            yield f"offsets/{number} is for {plan.tasks} tasks, not {self._identity.shuffle_partitions}: {RESTORE}."
        if back := [partition for partition, end in ends.items() if end < before.get(partition, 0)]:
            yield f"offsets/{number} goes back in request partition {back[0]}: {RESTORE}."

    def _plan(self, number: int) -> Plan:
        _, planned, source = self._lines("offsets", number, 3)
        noted = json.loads(planned)
        return Plan(int(noted["batchTimestampMs"]), int(noted["conf"][checkpoint.TASKS]), json.loads(source))

    def _lines(self, kind: str, number: int, wanted: int) -> list[str]:
        lines = checkpoint.read_file(self._spark, f"{self._query}/{kind}/{number}").decode().splitlines()
        if len(lines) != wanted or not re.fullmatch(r"v[1-9]\d*", lines[0]):
            raise ValueError(f"{wanted} lines are expected, and the first has to be the version")
        return lines

    # -- the groups' state ---------------------------------------------------------------------------------------------

    def _of_the_state(self, batch: int) -> Iterator[str]:
        shards = self._identity.request_partitions
        try:
            found = stored_shards(self._spark, self._query, batch, shards)
        except CheckpointMismatch as error:
            yield str(error)
            return
        for number, stored, alarm_ms in found:
            self._advance()
            try:
                held = unpacked(stored)
                if held.shard is None:
                    continue
                shard = _shard(number, held.shard, alarm_ms)
            except CorruptState as error:
                yield f"Shard {number} cannot be read ({error}): {RESTORE}."
                continue
            self._found.shards.append(shard)
            if strangers := [g.group_id for g in shard.groups if shard_of(g.group_id, shards) != number]:
                yield f"Shard {number} holds {strangers[0]}, which is another shard's group: {RESTORE}."


def stored_shards(spark: SparkSession, query: str, batch: int, shards: int) -> list[tuple[int, str, int]]:
    """Return the number, the state and the next timeout of each shard after a batch, in the order of their numbers.

    Args:
        query: The folder of Spark's own part of the checkpoint.

    Raises:
        CheckpointMismatch: The states cannot be read.
        PySparkException, Py4JJavaError: The file system does not answer, or refuses the read. No back-up would help.
    """
    reader = spark.read.format("statestore").option("batchId", batch)
    try:
        rows = reader.load(query).select("key.key", "value.groupState.shard", "value.timeoutTimestamp").collect()
    except (PySparkException, Py4JJavaError) as error:
        if is_of_the_store(account := account_of(error)):
            raise
        why = innermost(account)
        raise CheckpointMismatch(f"The groups' state after batch {batch} cannot be read ({why}): {RESTORE}.") from error
    return sorted((key % shards, stored, alarm_ms) for key, stored, alarm_ms in rows)


def _gaps(kind: str, numbers: list[int]) -> Iterator[str]:
    """Yield a sentence for each gap. A folder keeps the last batches, without a gap."""
    for before, number in pairwise(numbers):
        if number != before + 1:
            yield f"{kind}/{before + 1} is missing: {RESTORE}."


def _shard(number: int, data: bytes, alarm_ms: int) -> KeptShard:
    """Decode all of a shard.

    Raises:
        CorruptState: The state is not valid.
    """
    kept = codec.decode_shard(data)
    return KeptShard(
        shard=number,
        codec_version=data[0],
        size_bytes=len(data),
        forgotten=len(kept.removed_groups),
        alarm_ms=alarm_ms if alarm_ms > 0 else None,
        groups=[_group(group_id, stored) for group_id, stored in kept.groups.items()],
    )


def _group(group_id: str, stored: codec.Stored) -> KeptGroup:
    group = codec.decode_group(stored)
    if (group.group_id, len(group.members), group.hot_state.earliest_ms) != (
        group_id,
        stored.members,
        stored.earliest_ms,
    ):
        raise CorruptState(f"the data of the group {group_id} do not match its entry")
    due = min(timers_of(group).deadlines(group))
    return KeptGroup(
        group_id=group_id,
        state=group.phase.value,
        generation_id=group.generation_id,
        version=group.version,
        members=len(group.members),
        offsets=sum(map(len, group.offsets.values())),
        deadline_ms=due.at_ms if due.at_ms < NEVER_MS else None,
        deadline=due.kind.name.lower() if due.at_ms < NEVER_MS else None,
    )
