"""The writing commands of `coordinator groups`: each shows the change, confirms it, makes it, and prints the result."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from coordinator.base.states import Phase
from streaming.administration.resetting import (
    named,
    read_topics,
)
from streaming.cli.groups.show import Wanted, folded, present
from streaming.cli.lib.output import Column, Output, OutputFormat
from streaming.cli.lib.requests import NONE, NOT_FOUND, Administration, message
from streaming.config.settings import Settings
from streaming.errors import Exit, NotFound, RequestRefused, UserError
from streaming.views import GroupView
from streaming.views.state.fields import PartitionKey
from streaming.views.text import brief, escape


class Ambiguous(UserError):
    """A name means several members."""

    exit_code = Exit.USAGE


# -- deleting ----------------------------------------------------------------------------------------------------------


class Status(NamedTuple):
    """The result for one group or partition."""

    of: Any
    error: str

    @property
    def text(self) -> str:
        return "deleted" if self.error == NONE else message(self.error)


DELETED_GROUPS = (
    Column("GROUP", lambda status: status.of, is_chosen=True),
    Column("STATUS", lambda status: status.text),
)
DELETED_OFFSETS = (
    Column("TOPIC", lambda status: status.of[0], is_chosen=True),
    Column("PARTITION", lambda status: status.of[1], is_number=True),
    Column("STATUS", lambda status: status.text),
)


def delete(settings: Settings, wanted: Wanted, output: Output, agree: Callable[[str], None]) -> None:
    """Delete groups without members, and their offsets."""
    group_ids = list(dict.fromkeys(wanted.names))
    if wanted.is_regex:
        group_ids = [group.group_id for group in wanted.of(folded(settings, events=False))]
    agree(f"Delete {', '.join(map(escape, group_ids))}, with all committed offsets?")
    with Administration(settings) as administration:
        statuses = [Status(group_id, administration.delete(group_id)) for group_id in group_ids]
    _show(statuses, DELETED_GROUPS, output)
    _refuse(statuses, lambda group_id: escape(str(group_id)))


def delete_offsets(
    settings: Settings, group_id: str, topics: Collection[str], output: Output, agree: Callable[[str], None]
) -> None:
    """Delete committed offsets of topics without a subscribed member; for a whole topic, all its committed offsets."""
    group = present(folded(settings, [group_id], events=False), group_id)
    places = _committed_places(group, topics)
    agree(f"Delete {len(places)} committed offsets of {escape(group_id)}?")
    with Administration(settings) as administration:
        error, by_place = administration.delete_offsets(group_id, places)
    if error != NONE:
        by_place = dict.fromkeys(places, error)
    statuses = [Status(place, by_place[place]) for place in sorted(by_place)]
    _show(statuses, DELETED_OFFSETS, output)
    _refuse(statuses, named)


def _committed_places(group: GroupView, topics: Collection[str]) -> list[PartitionKey]:
    """Return the committed partitions that `topic` or `topic:0,1` names.

    Raises:
        BadReset: A partition is not a number.
        NotFound: One of the partitions has no committed offset.
    """
    return read_topics(topics, lambda names: {t: sorted(each) for t, each in group.offsets.items() if t in names})


def _show(statuses: list[Status], columns: Any, output: Output) -> None:
    if output.form is OutputFormat.json:
        output.answer([{**_name(each.of), "error": each.error} for each in statuses])
    else:
        output.rows(columns, statuses)


def _name(of: Any) -> dict[str, object]:
    return {"group_id": of} if isinstance(of, str) else {"topic": of[0], "partition": of[1]}


def _refuse(statuses: Collection[Status], name: Callable[[Any], str]) -> None:
    """Raise the worst error. Raise `NotFound` only if no other kind of error occurred."""
    wrong = [status for status in statuses if status.error != NONE]
    if wrong:
        worst = next((status for status in wrong if status.error not in NOT_FOUND), wrong[0])
        kind = NotFound if worst.error in NOT_FOUND else RequestRefused
        raise kind(f"{name(worst.of)}: {message(worst.error)}")


# -- members -----------------------------------------------------------------------------------------------------------


def rebalance(settings: Settings, group_id: str, reason: str | None, output: Output) -> None:
    """Make all members of a group join again, or in a group of the consumer protocol make a new plan."""
    with Administration(settings) as administration:
        answer = administration.rebalance(group_id, reason)
    if output.form is OutputFormat.json:
        output.answer({"group_id": group_id, "state": answer.state, "generation_id": answer.generation_id})
    else:
        number = "group epoch" if answer.state in (Phase.ASSIGNING, Phase.RECONCILING) else "generation"
        output.line(f"{escape(group_id)} is {answer.state.value}, {number} {answer.generation_id}.")


def expel(
    settings: Settings, group_id: str, name: str, reason: str | None, output: Output, agree: Callable[[str], None]
) -> None:
    """Remove a member from a group. The name is the member's id, its instance id, or its short name."""
    group = present(folded(settings, [group_id], events=False), group_id)
    who = member_id(group, name)
    agree(f"Remove {escape(who)} from {escape(group_id)}?")
    with Administration(settings) as administration:
        gone = administration.expel(group_id, who, None, reason)
    if output.form is OutputFormat.json:
        output.answer({"group_id": group_id, "member_id": gone})
    else:
        output.line(f"{escape(gone)} was removed from {escape(group_id)}.")


def member_id(group: GroupView, name: str) -> str:
    """Return the id of the member with a name. A name of no published member is returned as a member id.

    Raises:
        Ambiguous: The name matches several members.
    """
    for names in (
        {member.member_id: {member.member_id} for member in group.members},
        _ids(group, lambda member: member.group_instance_id),
        _ids(group, lambda member: brief(member.member_id)),
    ):
        if found := names.get(name):
            if len(found) > 1:
                raise Ambiguous(f"{escape(name)} matches {', '.join(map(escape, sorted(found)))}. Choose one.")
            return found.pop()
    return name


def _ids(group: GroupView, name: Callable[[Any], str | None]) -> dict[str | None, set[str]]:
    ids: dict[str | None, set[str]] = {}
    for member in group.members:
        ids.setdefault(name(member), set()).add(member.member_id)
    return ids
