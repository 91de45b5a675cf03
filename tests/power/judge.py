"""The verdict on a start with a damaged disk. It is computed from the contents of the topics after the run.

Whatever the disk has kept, the records of the request topic and the checkpoint's plans determine what an undisturbed
run would have written (`tests.system.replaying.undisturbed`). Every difference must have been reported.
"""

from typing import NamedTuple

from streaming.config.settings import Settings
from streaming.verify import verify
from streaming.verify.findings import Kind
from tests.system.replaying import Record, identity, undisturbed, written


class Verdict(NamedTuple):
    """The result of a run.

    Args:
        kind: "whole": no data are lost. "refused": the start was refused with a one-sentence error. "told": data are
            lost, and the coordinator's own tools report the loss. "wrong": any other result.
    """

    kind: str
    text: str = ""


LOST = {Kind.MISSING, Kind.NEVER_ANSWERED, Kind.COMMIT_LOST}
"""The findings of `coordinator verify` that only a loss of records by brokers causes."""


def judge(settings: Settings, *, brokers_lost: bool) -> Verdict:
    """Compare the published records with those of an undisturbed run.

    Args:
        brokers_lost: Whether the brokers may have lost acknowledged records, as Kafka does with one copy that is not
            synced. Readers and `coordinator verify` see gaps then.
    """
    real = written(settings)
    try:
        ideal = undisturbed(settings)
    except (AssertionError, ValueError, KeyError) as error:
        return Verdict("wrong", f"the coordinator continued with incomplete plans: {error}")
    broken = sum(b'"event":"log_broken"' in (record.value or b"") for record in real)
    differences = [*_differences(real, ideal, settings)]
    if not differences:
        return Verdict("told", f"{broken} log_broken events") if broken else Verdict("whole")
    if broken:
        return Verdict("told", f"{broken} log_broken events; {differences[0]}")
    found = verify(settings, settling_ms=0).findings
    if brokers_lost and found and {finding.kind for finding in found} <= LOST:
        return Verdict("told", f"coordinator verify: {found[0]}; {differences[0]}")
    return Verdict("wrong", "; ".join([*differences, *map(str, found[:3])]))


def _differences(real: list[Record], ideal: list[Record], settings: Settings) -> list[str]:
    kept, altered = _once(real, settings)
    wanted, _ = _once(ideal, settings)
    lost, strange = wanted.keys() - kept.keys(), kept.keys() - wanted.keys()
    other = [key for key in kept.keys() & wanted.keys() if kept[key] != wanted[key]]
    found = {
        "lost": lost,
        "published, but not by an undisturbed run": strange,
        "published twice, differently": altered,
        "published differently": other,
    }
    return [f"{len(keys)} {what}, as {min(map(str, keys))}" for what, keys in found.items() if keys]


def _once(records: list[Record], settings: Settings) -> tuple[dict[object, Record], set[object]]:
    """Return the records without repeats, and the keys of the repeats with different bytes."""
    kept: dict[object, Record] = {}
    altered = set()
    for record in records:
        key = identity(record, settings)
        if kept.setdefault(key, record) != record:
            altered.add(key)
    return kept, altered
