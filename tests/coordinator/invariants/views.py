"""The part of a step that the checkers of the classic protocol get.

Generations, phases and leaders exist only in classic groups. A group that was ever one of the consumer protocol is left
out from that step on: it has epochs instead, and a classic group that comes from it begins with any generation.
"""

from collections.abc import Iterator
from dataclasses import replace

from msgspec.structs import replace as changed

from coordinator.messages.events import GroupConverted
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Received, Wake
from coordinator.messages.responses import AssignmentNotice, ListGroupsAnswer, RebalanceNotice, Reply
from tests.coordinator.invariants.step import CONVERTED, Checker, KnownRequests, Step


class ClassicView:
    """The steps of groups that were never groups of the consumer protocol."""

    def __init__(self, asked: KnownRequests) -> None:
        self.asked = asked
        self.others: set[str] = set()
        self._latest: Step | None = None
        self._view: Step | None = None

    def of(self, step: Step) -> Step:
        """Return the part of a step that concerns such groups."""
        if step is not self._latest or self._view is None:
            self.asked.note(step)
            converted = {group_id for group_id in map(_turns, step.outputs) if group_id is not None} - self.others
            self.others |= converted
            self._latest = step
            self._view = self._part(step, sorted(converted)) if self.others else step
        return self._view

    def _part(self, step: Step, converted: list[str]) -> Step:
        ends = [Published(group_id, ("group", group_id), None, CONVERTED, 0) for group_id in converted]
        groups = step.groups
        return replace(
            step,
            received=[self._without_request(received) for received in step.received],
            outputs=[*ends, *self._outputs(step)],
            groups=None if groups is None else {g: group for g, group in groups.items() if g not in self.others},
        )

    def _without_request(self, received: Received) -> Received:
        """Return a record; its time counts in any case."""
        is_other = getattr(received.request, "group_id", None) in self.others
        return changed(received, request=Wake()) if is_other else received

    def _outputs(self, step: Step) -> Iterator[Output]:
        for output in step.outputs:
            if self._group_of(output) in self.others:
                continue
            if isinstance(output, Reply) and isinstance(output.answer, ListGroupsAnswer):
                listed = tuple(group for group in output.answer.groups if group.group_id not in self.others)
                yield changed(output, answer=changed(output.answer, groups=listed))
            else:
                yield output

    def _group_of(self, output: Output) -> str | None:
        if not isinstance(output, Reply):
            return output.group_id
        is_notice = isinstance(output.answer, RebalanceNotice | AssignmentNotice)
        return getattr(output.answer if is_notice else self.asked.by(output), "group_id", None)


class ClassicOnly:
    """A checker of the classic protocol, which gets only the steps of `ClassicView`."""

    def __init__(self, checker: Checker, view: ClassicView) -> None:
        self.name, self._checker, self._view = type(checker).__name__, checker, view

    def watch(self, step: Step) -> None:
        self._checker.watch(self._view.of(step))


def name_of(checker: Checker) -> str:
    """Return the name of the promise that a checker watches."""
    return checker.name if isinstance(checker, ClassicOnly) else type(checker).__name__


def _turns(output: Output) -> str | None:
    """Return the group that an output shows to be one of the consumer protocol."""
    if isinstance(output, GroupConverted) and output.group_type == "consumer":
        return output.group_id
    is_record = isinstance(output, Published) and isinstance(output.record, GroupRecord)
    return output.group_id if is_record and output.record.type == "consumer" else None  # type: ignore[union-attr]
