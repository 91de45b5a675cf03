"""Commands for groups that move from Kafka's own coordinator to this one: compare both, and take the offsets over.

They read the groups of Kafka's coordinator under the prefix of `coordinator observe`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from coordinator.base.states import Phase
from coordinator.messages.group_records import OffsetRecord
from streaming.administration.resetting import Log, NewOffset, Reset, clip, named
from streaming.cli.groups.resets import commit
from streaming.cli.groups.show import ends_of, folded
from streaming.cli.lib.output import Column, Output, OutputFormat
from streaming.cli.lib.requests import BrokerLog
from streaming.config.settings import Settings
from streaming.errors import NotFound, RequestRefused
from streaming.logs import tell
from streaming.moments import unix_ms
from streaming.views import GroupView, Views
from streaming.views.api.answers import Comparison, compare
from streaming.views.api.rows import GroupSummary
from streaming.views.state.fields import PartitionKey
from streaming.views.text import counted, escape

OBSERVED = "observed"
"""The prefix of `coordinator observe` by default."""


def observed_settings(settings: Settings, prefix: str) -> Settings:
    """Return the settings for the groups of Kafka's coordinator."""
    return settings.model_copy(update={"topic_prefix": prefix})


def _there(views: Views, group_id: str) -> GroupView | None:
    group = views.groups.get(group_id)
    return group if group is not None and group.is_there else None


# -- comparing ---------------------------------------------------------------------------------------------------------

FACTS = (
    Column("", lambda line: line[0]),
    Column("HERE", lambda line: line[1], is_chosen=True),
    Column("KAFKA", lambda line: line[2], is_chosen=True),
)

COMPARED = (
    Column("TOPIC", lambda row: row.topic, is_chosen=True),
    Column("PARTITION", lambda row: row.partition, is_number=True),
    Column("OFFSET-HERE", lambda row: row.offset, is_number=True),
    Column("OFFSET-KAFKA", lambda row: row.kafkas_offset, is_number=True),
    Column("AHEAD", lambda row: row.ahead, is_number=True),
    Column("OWNER-HERE", lambda row: row.member_id, is_chosen=True),
    Column("OWNER-KAFKA", lambda row: row.kafkas_member_id, is_chosen=True),
)

_COMPARED_FACTS: dict[str, Callable[[GroupSummary], object]] = {
    "STATE": lambda s: s.state.value,
    "TYPE": lambda s: s.type.value,
    "GENERATION": lambda s: s.generation_id,
    "MEMBERS": lambda s: s.members,
    "PARTITIONS": lambda s: s.partitions,
    "TOTAL-LAG": lambda s: s.total_lag,
    "REBALANCES-1H": lambda s: s.rebalances_1h,
}


def compare_groups(settings: Settings, prefix: str, group_id: str, output: Output) -> None:
    """Show one group of both coordinators, side by side.

    Raises:
        NotFound: Neither coordinator has the group.
    """
    here = _there(folded(settings, [group_id]), group_id)
    kafka = _there(folded(observed_settings(settings, prefix), [group_id]), group_id)
    groups = [group for group in (here, kafka) if group is not None]
    if not groups:
        raise NotFound(f"Neither coordinator has a group '{escape(group_id)}'.")
    show_comparison(compare(group_id, here, kafka, ends_of(settings, groups), unix_ms()), output)


def show_comparison(comparison: Comparison, output: Output) -> None:
    """Write a comparison."""
    if output.form is OutputFormat.json:
        output.answer(comparison)
        return
    if output.form is not OutputFormat.csv:
        sides = (comparison.here, comparison.kafka)
        lines = [(name, *(None if s is None else fact(s) for s in sides)) for name, fact in _COMPARED_FACTS.items()]
        output.rows(FACTS, lines)
        output.line()
    output.rows(COMPARED, comparison.partitions)


# -- taking offsets over -----------------------------------------------------------------------------------------------


KEPT = "kept, newer"
"""The status of an offset here that is newer than Kafka's, and stays."""


class ImportedOffset(NamedTuple):
    """An offset to take over.

    Args:
        here: The committed offset here; None without one.
        new: The offset that is committed; None if the one here stays.
    """

    group_id: str
    place: PartitionKey
    here: int | None
    new: NewOffset | None

    @property
    def status(self) -> str:
        return KEPT if self.new is None else ""


class Taken(NamedTuple):
    """The offsets of a group that are taken over, and those that stay as they are here."""

    reset: Reset
    kept: dict[PartitionKey, int]


IMPORTED = (
    Column("GROUP", lambda line: line.group_id, is_chosen=True),
    Column("TOPIC", lambda line: line.place[0], is_chosen=True),
    Column("PARTITION", lambda line: line.place[1], is_number=True),
    Column("OFFSET-HERE", lambda line: line.here, is_number=True),
    Column("NEW-OFFSET", lambda line: line.new and line.new.offset, is_number=True),
    Column("STATUS", lambda line: line.status or None),
)


def import_offsets(
    settings: Settings, prefix: str, group_ids: Iterable[str], output: Output, *, execute: bool, rewinds: bool = False
) -> None:
    """Show the offsets that Kafka's coordinator keeps for some groups, and commit them here if `execute` is set.

    All groups are checked before the first commit. A repetition takes over only what has become newer at Kafka's.

    Args:
        rewinds: Offsets here that are newer are replaced too.

    Raises:
        NotFound: Kafka's coordinator keeps no offsets of a group, or a partition does not exist.
        RequestRefused: A group has members here.
    """
    wanted = list(dict.fromkeys(group_ids))
    ours = folded(settings, wanted, events=False)
    theirs = folded(observed_settings(settings, prefix), wanted, events=False)
    log = BrokerLog(settings)
    taken = {each: imported(each, ours.groups.get(each), _there(theirs, each), log, rewinds=rewinds) for each in wanted}
    for each in taken.values():
        for note in each.reset.notes:
            tell(f"Warning: {note}")
    if execute:
        for group_id, each in taken.items():
            commit(settings, group_id, each.reset.offsets)
    _show_imported(ours, taken, output)
    if not execute:
        tell("Nothing was changed. --execute commits these offsets.")


def imported(
    group_id: str, ours: GroupView | None, theirs: GroupView | None, log: Log, *, rewinds: bool = False
) -> Taken:
    """Return the offsets of a group that are taken over, and those that stay.

    Args:
        ours, theirs: The group here and at Kafka's coordinator.
        rewinds: No offset stays.

    Raises:
        NotFound: Kafka's coordinator keeps no offsets of the group, or a partition does not exist.
        RequestRefused: The group has members here.
    """
    name = escape(group_id)
    committed = theirs.committed() if theirs is not None else {}
    if not committed:
        raise NotFound(f"Kafka's coordinator keeps no offsets of a group '{name}', as far as it was observed.")
    if ours is not None and ours.state not in (Phase.EMPTY, Phase.DEAD):
        raise RequestRefused(f"'{name}' has members here. Stop them, so that offsets can be taken over.")
    notes = []
    if theirs is not None and theirs.members:
        still = counted(len(theirs.members), "member")
        notes.append(f"{name} still has {still} at Kafka's coordinator. Their later commits are not taken over.")
    mine = ours.committed() if ours is not None else {}
    newer = {p: mine[p].offset for p, each in committed.items() if p in mine and is_newer(mine[p], each)}
    if rewinds:
        notes += [f"{named(place)} of {name} goes back: it is newer here." for place in sorted(newer)]
    kept = {} if rewinds else newer
    wanted = {
        p: NewOffset(each.offset, each.leader_epoch, each.metadata) for p, each in committed.items() if p not in kept
    }
    reset = clip(wanted, log)
    return Taken(Reset(reset.offsets, [*notes, *reset.notes]), kept)


def is_newer(mine: OffsetRecord, kafkas: OffsetRecord) -> bool:
    """Return whether an offset here is newer than the one of Kafka's coordinator: it differs, and is later or further.

    A later one may be a reset on purpose, and a further one has been worked off: neither may be lost by a repetition.
    """
    is_later = mine.commit_timestamp_ms > kafkas.commit_timestamp_ms
    return mine.offset != kafkas.offset and (is_later or mine.offset > kafkas.offset)


def _show_imported(ours: Views, taken: Mapping[str, Taken], output: Output) -> None:
    lines = []
    for group_id, each in taken.items():
        mine = ours.groups[group_id].committed() if group_id in ours.groups else {}
        new = {**each.reset.offsets, **dict.fromkeys(each.kept)}
        for place in sorted(new):
            lines.append(ImportedOffset(group_id, place, mine[place].offset if place in mine else None, new[place]))
    if output.form is OutputFormat.json:
        output.answer([_in_json(line) for line in lines])
    else:
        output.rows(IMPORTED, lines)


def _in_json(line: ImportedOffset) -> dict[str, object]:
    topic, partition = line.place
    new = {
        "new_offset": line.new and line.new.offset,
        "metadata": line.new and line.new.metadata,
        "status": line.status,
    }
    return {"group_id": line.group_id, "topic": topic, "partition": partition, "offset": line.here, **new}
