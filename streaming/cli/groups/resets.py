"""`coordinator groups reset-offsets`: a requested reset is computed, shown, and committed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from coordinator.base.states import Phase
from streaming.administration.committed import read_past
from streaming.administration.resetting import (
    SCENARIOS,
    Log,
    NewOffset,
    Reset,
    clip,
    exported,
    named,
    read_plan,
    read_topics,
)
from streaming.cli.groups.show import folded
from streaming.cli.lib.output import Column, Output, OutputFormat
from streaming.cli.lib.requests import NONE, Administration, BrokerLog, message
from streaming.cli.lib.times import moment
from streaming.config.settings import Settings
from streaming.errors import BadReset, RequestRefused, UserError
from streaming.logs import tell
from streaming.moments import unix_ms
from streaming.views import GroupView
from streaming.views.state.fields import PartitionKey
from streaming.views.text import escape


class Uncertain(UserError):
    """The offsets that were committed at that time are no longer certain."""


class ResetOptions(NamedTuple):
    """The arguments of a reset.

    Args:
        scenario: A key of `SCENARIOS`, or `as-of`.
        value: The scenario's argument: an offset, a shift, Unix milliseconds, or the file of a plan.
        topics: The partitions to reset; None stands for all committed partitions.
        is_uncertain: The scenario as-of may use offsets that are not certain.
    """

    scenario: str
    value: Any = None
    topics: tuple[str, ...] | None = None
    is_uncertain: bool = False


RESET = (
    Column("GROUP", lambda line: line[0], is_chosen=True),
    Column("TOPIC", lambda line: line[1][0], is_chosen=True),
    Column("PARTITION", lambda line: line[1][1], is_number=True),
    Column("NEW-OFFSET", lambda line: line[2].offset, is_number=True),
)

_RESETTABLE = {Phase.EMPTY, Phase.DEAD}


def reset_offsets(
    settings: Settings, group_id: str, options: ResetOptions, output: Output, *, execute: bool, export: bool
) -> None:
    """Show the offsets of a reset, and commit them if `execute` is set.

    Raises:
        RequestRefused: The group has members.
        Uncertain: The offsets that were committed at that time are not certain.
        NotFound: A partition does not exist.
    """
    group = folded(settings, [group_id], events=False).groups.get(group_id)
    reset = _planned(settings, group_id, group, options)
    for note in reset.notes:
        tell(f"Warning: {note}")
    if execute:
        commit(settings, group_id, reset.offsets)
    if export:
        output.line(exported(reset.offsets).rstrip("\n"))
    elif output.form is OutputFormat.json:
        output.answer(
            [
                {"group_id": group_id, "topic": topic, "partition": partition, "new_offset": new.offset}
                for (topic, partition), new in sorted(reset.offsets.items())
            ]
        )
    else:
        output.rows(RESET, [(group_id, place, new) for place, new in sorted(reset.offsets.items())])
    if not execute:
        tell("Nothing was changed. --execute commits these offsets.")


def _planned(settings: Settings, group_id: str, group: GroupView | None, options: ResetOptions) -> Reset:
    """Compute the offsets of a reset.

    Raises:
        RequestRefused: The group has members.
        Uncertain, BadReset, NotFound: as `reset_offsets`.
    """
    state = group.state if group else Phase.DEAD
    if state not in _RESETTABLE:
        raise RequestRefused(
            f"Assignments can only be reset if the group '{escape(group_id)}' is inactive,"
            f" but the current state is {state.value}."
        )
    log = BrokerLog(settings)
    committed = {
        (topic, p): each.offset for topic, of in (group.offsets if group else {}).items() for p, each in of.items()
    }
    if options.scenario == "as-of":
        return _as_of(settings, group_id, options, log)
    if options.scenario == "from-file":
        return SCENARIOS[options.scenario]([], read_plan(_text_of(options.value), group_id), log, committed)
    places = sorted(committed) if options.topics is None else read_topics(options.topics, log.partitions)
    return SCENARIOS[options.scenario](places, options.value, log, committed)


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadReset(f"The plan {escape(file)} cannot be read ({error}).") from None


def _as_of(settings: Settings, group_id: str, options: ResetOptions, log: Log) -> Reset:
    past, at_ms, of_all = read_past(settings, group_id, unix_ms()), options.value, options.topics is None
    places = sorted(past.places) if options.topics is None else read_topics(options.topics, log.partitions)
    if not options.is_uncertain and not past.is_certain(places, at_ms, of_all=of_all):
        raise Uncertain(
            f"The committed offsets of {escape(group_id)} at {moment(at_ms)} are not certain, because"
            f" {settings.groups_topic} has been compacted. They are certain from"
            f" {moment(past.certain_from_ms(places, of_all=of_all))} on. --uncertain uses the remaining records."
        )
    found = {place: past.at(place, at_ms) for place in places}
    there = log.bounds(places)
    reset = clip(
        {
            place: NewOffset(record.offset, record.leader_epoch, record.metadata)
            for place, record in found.items()
            if record is not None and place in there
        },
        log,
    )
    notes = [f"{named(place)} is omitted: it had no committed offset then." for place in places if found[place] is None]
    gone = [
        f"{named(p)} is omitted: the partition does not exist any more." for p in places if found[p] and p not in there
    ]
    return Reset(reset.offsets, [*notes, *gone, *reset.notes])


def commit(settings: Settings, group_id: str, offsets: Mapping[PartitionKey, NewOffset]) -> None:
    """Commit offsets for a group without members.

    Raises:
        RequestRefused: The coordinator refused one of them.
    """
    if not offsets:
        return
    with Administration(settings) as administration:
        errors = administration.commit(group_id, offsets)
    if wrong := {place: error for place, error in errors.items() if error != NONE}:
        place, error = next(iter(sorted(wrong.items())))
        why = "The group has members." if error == "UNKNOWN_MEMBER_ID" else message(error)
        raise RequestRefused(
            f"{len(wrong)} of {len(offsets)} offsets were not committed, such as {named(place)}: {why}"
        )
