"""A checkpoint in a folder of this machine, compared with the settings and the topics. Spark is not needed for that."""

import errno
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from coordinator.state.codec import VERSION
from streaming.doctor.case import CLIENT_ID, OF_CHECKPOINT, Case, Finding, ok, warning, wrong
from streaming.errors import CheckpointMismatch
from streaming.kafka.brokers import listed
from streaming.kafka.offsets import OffsetAsker
from streaming.kafka.topics import ALTERED
from streaming.query.checkpoint import identity
from streaming.query.checkpoint.identity import Identity
from streaming.query.checkpoint.parts import REPLANNED, missing_parts
from streaming.query.checkpoint.running import local_folder

IDENTITY_BYTES_MAX = 1_000_000
LEADERS_WAIT_S = 5.0

_TABLE = '"What a start finds" in docs/checkpoints.md says what a start does.'
_RESTORE = "Restore a back-up of the whole folder."


def check(case: Case) -> Iterator[Finding]:
    """Yield what a start would find in the checkpoint."""
    address = case.settings.checkpoint
    folder = local_folder(address)
    if folder is None:
        yield ok(f"{address} is not on this machine and was not looked at: `coordinator checkpoint verify` reads it.")
        return
    try:
        yield from _looked_at(case, folder)
    except OSError as error:
        yield wrong(f"{folder} cannot be read ({error.strerror}).", "Look at its rights, its disk and its mount.")


def _looked_at(case: Case, folder: Path) -> Iterator[Finding]:
    file = folder / identity.FILE
    query = folder / "query"
    plans, ends = _batches(query / "offsets"), _batches(query / "commits")
    has_state = _exists(query / "state")
    if missing := list(missing_parts(plans, ends, lambda name: _exists(query / name))):
        yield wrong(f"{folder} is damaged (missing: {', '.join(missing)}).", f"{_RESTORE} {_TABLE}")
    if not _exists(file):
        if plans or ends or has_state:
            yield wrong(f"{folder} has the state of a query and no {file.name}.", "Restore that file from a back-up.")
    else:
        yield from _identity(case, file)
    if plans:
        yield _newest(query, plans, ends)
    elif not (ends or has_state):
        yield _without_a_batch(case, folder)


def _identity(case: Case, file: Path) -> Iterator[Finding]:
    """Yield the differences of the checkpoint from the settings and the topics."""
    with file.open("rb") as opened:
        written = opened.read(IDENTITY_BYTES_MAX)
    try:
        found = identity.decoded(written, str(file), Identity)
    except CheckpointMismatch as error:
        yield wrong(str(error))
        return
    settings = case.settings
    wanted = Identity(
        secret="",
        topic_ids=_ids(case, found),
        request_partitions=settings.request_partitions,
        shuffle_partitions=settings.shuffle_partitions,
        state_store=settings.state_store,
    )
    if found.codec_version != VERSION:
        yield wrong(
            f"{file.parent} has states of codec {found.codec_version}, and this version reads codec {VERSION}.",
            "Start it with the version that wrote it.",
        )
    if changed := identity.differences(found, wanted):
        yield wrong(
            f"{file.parent} belongs to another query: {'; '.join(changed)}.",
            f"Give the settings it was made with, or another checkpoint. For topics, see {ALTERED}.",
        )
    else:
        of = listed(sorted(found.topic_ids))
        yield ok(f"{file.parent} fits the settings. It is that of {of}, made with codec {found.codec_version}.")


def _ids(case: Case, found: Identity) -> dict[str, str]:
    """Return the ids of the topics of a checkpoint; those that it names, for topics that the brokers do not show."""
    described = case.described
    own = {each.topic.name for each in case.wanted if each.role in OF_CHECKPOINT and each.is_needed}
    return {
        name: str(described[name].topic_id) if name in described and not described[name].error_code else kept
        for name in own
        if (kept := found.topic_ids.get(name, ""))
    }


def _newest(query: Path, plans: list[int], ends: list[int]) -> Finding:
    """Return the newest batch that was planned, and whether it has ended."""
    at = datetime.fromtimestamp((query / "offsets" / str(plans[-1])).stat().st_mtime, UTC)
    planned = f"Batch {plans[-1]} was planned last, at {at.isoformat(timespec='seconds')}"
    if ends and ends[-1] == plans[-1]:
        return ok(f"{planned}, and has ended.")
    last = f"the last one that has ended is {ends[-1]}" if ends else "none has ended"
    return ok(f"{planned}; {last}. It runs now, or the next start repeats it.")


def _without_a_batch(case: Case, folder: Path) -> Finding:
    """Return whether a checkpoint without a batch is a new one: the topics show whether there was another one."""
    is_there = _exists(folder)
    what = f"{folder} has no batch" if is_there else f"There is no folder {folder}"
    if "checkpoint" not in case.settings.model_fields_set and not is_there:
        return ok("No checkpoint was looked at: --checkpoint names one.")
    if _exists(folder / REPLANNED):
        return ok(f"The plan of the first batch of {folder} was moved aside: the next start makes a new one.")
    if not case.brokers.answering:
        return warning(f"{what}, and no broker shows whether there was one.", "Mend the brokers first.")
    topic = _with_records(case)
    if topic and case.settings.checkpoint_may_be_empty:
        return warning(f"{what}: a start gives the groups of {topic} up.", "Set checkpoint_may_be_empty for one start.")
    if topic:
        return wrong(f"{what}, and {topic} has records of batches.", f"Mount or restore the folder. {_TABLE}")
    return ok(f"{what}: a start begins a new checkpoint.")


def _with_records(case: Case) -> str | None:
    """Return a topic that only batches write and that has or had records; None if none is known."""
    written = [each.topic for each in case.wanted if each.is_needed and each.role in ("groups", "events", "replies")]
    existing = [topic for topic in written if case.described[topic.name].partitions]
    if not existing:
        return None
    asker = OffsetAsker(case.settings, CLIENT_ID)
    try:
        places = [(topic.name, n) for topic in existing for n in range(len(case.described[topic.name].partitions))]
        ends = asker.ask(places, wait_s=LEADERS_WAIT_S).known
    finally:
        asker.close()
    return next((topic for (topic, _), end in sorted(ends.items()) if end > 0), None)


def _batches(folder: Path) -> list[int]:
    """Return the numbers of the batches that have a file in a folder, in ascending order."""
    try:
        return sorted(int(each.name) for each in folder.iterdir() if each.name.isdigit())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _exists(path: Path) -> bool:
    """Return whether a file or folder exists.

    Raises:
        OSError: The file system does not show it.
    """
    try:
        path.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return False
        raise
    return True
