"""A group in transit is taken back at its source, because its target cannot adopt it any more.

The target decides by its log: which comes first, the last missing part of the group or the cancel of the move. So a
reader of that log knows the decision, also if the target does not run.

Source: moving.md 2.6.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from coordinator.messages.events import AnyEvent
from coordinator.messages.move_events import GroupMoved, GroupReleased, GroupTakenBack
from coordinator.messages.move_requests import AdoptGroup, CancelMove, Evidence, TakeBack
from coordinator.state.move_state import ADOPTED
from streaming.administration.move import INVALID, NONE, Ask, Result, refused
from streaming.errors import NoAnswer, NotFound
from streaming.views.text import escape
from streaming.wire.records import decode_peer_record, decode_request

EARLIER_MS = 3_600_000
"""The target's log is read from this long before the release: clocks differ, and no record is older than that."""


Log = Callable[[int], Iterable[tuple[int, int, bytes | None]]]
"""Returns the records of the group's partition of the target's request topic, from a time in Unix milliseconds to the
present end: partition, offset and value of each."""


class Status(StrEnum):
    """The result for one group."""

    TAKEN_BACK = "taken back"
    ADOPTED = "adopted"
    REFUSED = "refused"


def move_in_transit(group_id: str, events: Iterable[AnyEvent]) -> GroupReleased:
    """Return the release of a group that is in transit.

    Raises:
        NotFound: The group is not in transit.
    """
    last = None
    for event in events:
        if isinstance(event, GroupReleased | GroupMoved | GroupTakenBack):
            last = event
    if not isinstance(last, GroupReleased):
        raise NotFound(f"The group {escape(group_id)} is not in transit to another coordinator.")
    return last


def take_back(move: GroupReleased, source: Ask, target: Ask, log: Log, *, is_lost: bool) -> Result:
    """Cancel a move, and take the group back if its target cannot adopt it.

    Args:
        log: The target's log.
        is_lost: The operator states that the target will not run again, whatever it has decided.

    Raises:
        RequestRefused: The sender may not do this.
    """
    group_id = str(move.group_id)
    who: dict[str, Any] = {
        "request_id": "",
        "reply_to": "",
        "group_id": group_id,
        "move_id": move.move_id,
        "number": move.number,
    }
    try:
        answer = target(CancelMove(**who))
    except NoAnswer:
        pass  # its log shows what it decides
    else:
        if answer.error != NONE:
            raise refused("cancel the move of", group_id, answer)
        if answer.verdict == ADOPTED:
            return Result(group_id, Status.ADOPTED, f"{escape(move.to)} serves the group")
        return Result(group_id, Status.TAKEN_BACK, f"{escape(move.to)} has refused it: {answer.verdict}")
    evidence, parts = _evidence(move, log, is_lost=is_lost)
    if evidence is None:
        return Result(group_id, Status.REFUSED, "the cancel of the move is not in the target's log; try again")
    if parts and evidence.parts_before >= parts and not is_lost:
        why = f"{escape(move.to)} has the whole group in its log, and may have adopted it: start that coordinator"
        return Result(group_id, Status.REFUSED, why)
    answer = source(TakeBack(**who, evidence=evidence))
    if answer.error == INVALID:
        return Result(group_id, Status.REFUSED, answer.error_message)
    if answer.error != NONE:
        raise refused("take back", group_id, answer)
    return Result(group_id, Status.TAKEN_BACK)


def _evidence(move: GroupReleased, log: Log, *, is_lost: bool) -> tuple[Evidence | None, int]:
    """Return what stands before the last cancel of a move in the target's log, and the number of all its parts.

    The target does not accept an earlier cancel that was sent without the right. The last one is the caller's, or it
    stands behind even more parts.
    """
    seen, parts, found = set[int](), 0, None
    for partition, offset, value in log(move.at_ms - EARLIER_MS):
        record = decode_peer_record(value)
        if isinstance(record, AdoptGroup) and record.move_id == move.move_id:
            seen.add(record.part)
            parts = record.parts
        request = None if record is not None else decode_request(value)
        if isinstance(request, CancelMove) and request.move_id == move.move_id:
            found = Evidence(partition=partition, cancel_offset=offset, parts_before=len(seen), target_is_lost=is_lost)
    return found, parts
