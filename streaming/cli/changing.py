"""The writing commands of `coordinator groups`: what is about to be done is shown, done where it may be, and told."""

import sys
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from streaming.administration.resetting import (
    named,
    read_topics,
)
from streaming.cli.asking import NONE, NOT_FOUND, Administration, message
from streaming.cli.output import Column, Output, OutputFormat
from streaming.cli.showing import Wanted, folded, present
from streaming.config.settings import Settings
from streaming.errors import Exit, NotFound, RequestRefused, UserError
from streaming.views import GroupView
from streaming.views.group import Place
from streaming.views.words import brief, escape


class NotConfirmed(UserError):
    """The change needs a confirmation, and no terminal is there to ask on."""

    exit_code = Exit.USAGE


class Ambiguous(UserError):
    """A name means several members."""

    exit_code = Exit.USAGE


def confirm(question: str, *, is_agreed: bool, ask: Callable[[str], bool]) -> None:
    """Have somebody say yes before something cannot be undone.

    Args:
        is_agreed: It was said on the command line.

    Raises:
        NotConfirmed: it was not, and there is nobody at a terminal, or the answer was no.
    """
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise NotConfirmed(f"{question} Nobody can be asked here: say so with --yes.")
    if not ask(question):
        raise NotConfirmed("Nothing was done.")


# -- deleting ----------------------------------------------------------------------------------------------------------


class Status(NamedTuple):
    """How it went with one group or partition."""

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
    """Forget groups that have no members, and their offsets."""
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
    """Forget committed offsets of topics that no member subscribes to; of a whole topic, those that are committed."""
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


def _committed_places(group: GroupView, topics: Collection[str]) -> list[Place]:
    """Find the committed partitions that are meant by `topic` or `topic:0,1`.

    Raises:
        BadReset: a partition is no number.
        NotFound: nothing is committed for one of them.
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
    """Raise what went wrong: that something is not there only where nothing else was wrong."""
    wrong = [status for status in statuses if status.error != NONE]
    if wrong:
        worst = next((status for status in wrong if status.error not in NOT_FOUND), wrong[0])
        kind = NotFound if worst.error in NOT_FOUND else RequestRefused
        raise kind(f"{name(worst.of)}: {message(worst.error)}")


# -- members -----------------------------------------------------------------------------------------------------------


def rebalance(settings: Settings, group_id: str, reason: str | None, output: Output) -> None:
    """Have all members of a group join again."""
    with Administration(settings) as administration:
        answer = administration.rebalance(group_id, reason)
    if output.form is OutputFormat.json:
        output.answer({"group_id": group_id, "state": answer.state, "generation_id": answer.generation_id})
    else:
        output.line(f"{escape(group_id)} is {answer.state.value}, generation {answer.generation_id}.")


def expel(
    settings: Settings, group_id: str, name: str, reason: str | None, output: Output, agree: Callable[[str], None]
) -> None:
    """Take a member out of a group; it may be named by its id, its instance id, or its short name."""
    group = present(folded(settings, [group_id], events=False), group_id)
    who = member_id(group, name)
    agree(f"Take {escape(who)} out of {escape(group_id)}?")
    with Administration(settings) as administration:
        gone = administration.expel(group_id, who, None, reason)
    if output.form is OutputFormat.json:
        output.answer({"group_id": group_id, "member_id": gone})
    else:
        output.line(f"{escape(gone)} was taken out of {escape(group_id)}.")


def member_id(group: GroupView, name: str) -> str:
    """Find whom a name means; one that means nobody that is published yet is taken for a member id.

    Raises:
        Ambiguous: it means several.
    """
    for names in (
        {member.member_id: {member.member_id} for member in group.members},
        _ids(group, lambda member: member.group_instance_id),
        _ids(group, lambda member: brief(member.member_id)),
    ):
        if found := names.get(name):
            if len(found) > 1:
                raise Ambiguous(f"{escape(name)} may be any of {', '.join(map(escape, sorted(found)))}: say which.")
            return found.pop()
    return name


def _ids(group: GroupView, name: Callable[[Any], str | None]) -> dict[str | None, set[str]]:
    ids: dict[str | None, set[str]] = {}
    for member in group.members:
        ids.setdefault(name(member), set()).add(member.member_id)
    return ids
