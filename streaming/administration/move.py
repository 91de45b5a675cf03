"""The moves of groups to another coordinator: the requests of each group, and what their responses mean.

The target is first asked whether it would refuse the group. Then the source is asked to release it; its response comes
when the target has adopted or refused the group. Several groups are in transit at a time. A group without a response is
in transit, and the same request asks for its move once more.

Source: moving.md 0 (decision 8) and 2.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from itertools import takewhile
from typing import Any, NamedTuple

from msgspec import UNSET

from coordinator.base.errors import ErrorCode
from coordinator.messages.move_requests import CheckAdoption, ReleaseGroup
from coordinator.messages.requests import DescribeGroup
from coordinator.state.codec import VERSION
from streaming.administration.parallel import each_in_order
from streaming.errors import NoAnswer, RequestRefused
from streaming.views.text import escape

NONE = ErrorCode.NONE.name
AWAY = ErrorCode.NOT_COORDINATOR.name
INVALID = ErrorCode.INVALID_REQUEST.name

Ask = Callable[[Any], Any]
"""Sends one request to a coordinator, and returns its response. Several threads call it at a time."""


class Status(StrEnum):
    """The result for one group."""

    MOVED = "moved"
    THERE_ALREADY = "there already"
    REFUSED = "refused"
    IN_TRANSIT = "in transit"
    WOULD_BE_MOVED = "would be moved"


class Result(NamedTuple):
    """The result for one group.

    Args:
        why: A sentence about a refusal, or about a group in transit; "" without one.
    """

    group_id: str
    status: StrEnum
    why: str = ""


class Mover:
    """The moves of groups to one target.

    Args:
        source, target: Send requests to the coordinator that has the groups, and to the one that gets them.
        to: The prefix of the target.
        in_transit: How many groups are in transit at a time, at most. Each is in transit for several batches, and the
            batches take longer with more groups.
    """

    def __init__(self, source: Ask, target: Ask, to: str, in_transit: int) -> None:
        self._source, self._target, self._to, self._in_transit = source, target, to, in_transit

    def move_all(self, group_ids: Iterable[str]) -> Iterator[Result]:
        """Move groups, and yield the result of each. After a group without a response, no further one is released.

        Raises:
            RequestRefused: The sender may not move groups.
            NoAnswer: The target does not answer. No group was released since.
        """
        return self._each(self._move, group_ids)

    def check_all(self, group_ids: Iterable[str]) -> Iterator[Result]:
        """Yield for each group whether it would be moved. Nothing is changed.

        Raises:
            RequestRefused, NoAnswer: As `move_all`.
        """
        return self._each(self._check, group_ids)

    def _each(self, work: Callable[[str], Result], group_ids: Iterable[str]) -> Iterator[Result]:
        in_transit: list[Result] = []
        remaining = takewhile(lambda _: not in_transit, group_ids)
        for result in each_in_order(work, remaining, self._in_transit):
            if result.status is Status.IN_TRANSIT:
                in_transit.append(result)
            yield result

    # -- one group -----------------------------------------------------------------------------------------------------

    def _check(self, group_id: str) -> Result:
        answer = self._target(CheckAdoption(request_id="", reply_to="", group_id=group_id, codec=VERSION))
        if answer.error != NONE:
            raise refused("move", group_id, answer)
        if answer.reason is None:
            return Result(group_id, Status.WOULD_BE_MOVED)
        if self._has_released(group_id):  # the target has it from an earlier run
            return Result(group_id, Status.THERE_ALREADY)
        return Result(group_id, Status.REFUSED, answer.why or answer.reason)

    def _move(self, group_id: str) -> Result:
        checked = self._check(group_id)
        if checked.status is Status.REFUSED:
            return checked
        try:
            answer = self._source(ReleaseGroup(request_id="", reply_to="", group_id=group_id, to=self._to))
        except NoAnswer:
            why = f"{escape(self._to)} has not answered; the same command asks once more"
            return Result(group_id, Status.IN_TRANSIT, why)
        if answer.error == NONE:
            return Result(group_id, Status.MOVED)
        if answer.error == INVALID:
            return Result(group_id, Status.REFUSED, answer.error_message)
        if answer.error != AWAY:
            raise refused("move", group_id, answer)
        if answer.moved is not UNSET and answer.moved.to == self._to:
            return Result(group_id, Status.THERE_ALREADY)
        has_it = escape(answer.moved.to) if answer.moved is not UNSET else "another coordinator"
        return Result(group_id, Status.REFUSED, f"{has_it} has the group")

    def _has_released(self, group_id: str) -> bool:
        """Return whether the source has released the group. Otherwise both have a group of that name."""
        return bool(self._source(DescribeGroup(request_id="", reply_to="", group_id=group_id)).error == AWAY)


def remedy_of_silence(to: str) -> str:
    """Return what to do if a target does not answer."""
    return f"Check that the coordinator that reads {escape(to)}.requests is running. The same command continues."


def refused(what: str, group_id: str, answer: Any) -> RequestRefused:
    """Return the error for a response that is about the request itself.

    Args:
        what: What the coordinator did not do: "move".
    """
    why = answer.error_message or answer.error
    return RequestRefused(f"The coordinator did not {what} {escape(group_id)} ({answer.error}: {why}).")
