"""`coordinator move`: groups move with their members to another coordinator on the same brokers."""

from collections.abc import Callable, Sequence
from functools import partial

from coordinator.requests import ListGroups
from streaming.administration.listing import list_groups
from streaming.administration.moving import Mover, Status
from streaming.cli.output import Column, Output
from streaming.cli.results import collected, show
from streaming.client.transport import COMMAND_WAIT_S, Transport
from streaming.config.settings import Settings
from streaming.errors import NoAnswer, RequestRefused
from streaming.views.text import counted, escape

ANSWER_WAIT_S = 10.0
"""The time in which a released group must be adopted or refused. Without a response no further group is released."""

COLUMNS = (
    Column("GROUP", lambda result: result.group_id, is_chosen=True),
    Column("STATUS", lambda result: result.status),
    Column("WHY", lambda result: result.why or None),
)


def move_groups(
    settings: Settings,
    to: str,
    group_ids: Sequence[str] | None,
    output: Output,
    agree: Callable[[str], None],
    *,
    is_dry_run: bool,
) -> None:
    """Move groups, and show the result of each.

    Args:
        to: The prefix of the other coordinator.
        group_ids: None for all groups.

    Raises:
        RequestRefused: A group is refused, or the sender may move no groups.
        NoAnswer: A group is in transit, and the other coordinator has not answered.
        UserError: The brokers or the coordinators do not answer.
    """
    target_settings = settings.model_copy(update={"topic_prefix": to})
    with (
        Transport(settings.kafka_client_arguments(), settings.topic_prefix, settings.signer()) as source,
        Transport(target_settings.kafka_client_arguments(), to, target_settings.signer()) as target,
    ):
        names = list(dict.fromkeys(group_ids)) if group_ids is not None else _all_groups(source)
        if not is_dry_run:
            agree(f"Move {counted(len(names), 'group')} from {escape(settings.topic_prefix)} to {escape(to)}?")
        ask = partial(Transport.ask, timeout_s=ANSWER_WAIT_S, follows=False)
        mover = Mover(partial(ask, source), partial(ask, target), to)
        found = mover.check_all(names) if is_dry_run else mover.move_all(names)
        results = collected(found, "Moving the groups", len(names))
    show(results, Status, COLUMNS, output)
    if open_ := [result for result in results if result.status is Status.IN_TRANSIT]:
        raise NoAnswer(
            f"{counted(len(open_), 'group')} of {len(names)} are in transit, and {len(names) - len(results)} were not"
            f" released. Check that the coordinator that reads {escape(to)}.requests is running. The same command"
            f" continues."
        )


def _all_groups(transport: Transport) -> list[str]:
    listed = list_groups(transport, ListGroups(request_id="", reply_to="", group_id=""), COMMAND_WAIT_S)
    if listed.code:
        raise RequestRefused(f"The groups were not listed ({listed.error}).")
    return [group.group_id for group in listed.groups]
