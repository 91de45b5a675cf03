"""The moves of slots to another coordinator: the requests to the shards of both, and what their responses mean.

Each shard of the source is first asked which of the slots it still owns, and then releases these. When the target has
adopted them all, the names in them are guests of the source, which `moving.Mover` moves one by one. Every step looks at
what is there, so a run that was interrupted is continued by the next one.

Source: moving.md 4.2 and 4.3.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from coordinator.base.limits import SLOTS
from coordinator.base.slots import bitmap_of, ranges_of, slot_of
from coordinator.messages.move_requests import DescribeSlots, ReleaseSlots
from coordinator.messages.responses import DescribeSlotsAnswer
from streaming.administration.move import remedy_of_silence
from streaming.errors import NoAnswer, RequestRefused
from streaming.moments import unix_ms
from streaming.views.text import escape

LOOK_EVERY_S = 0.2

Slots = frozenset[int]

AskShards = Callable[[Any, Sequence[int] | None], Sequence[Any]]
"""Sends one request to some shards of a coordinator, or to all, and returns their responses in the same order."""


class SlotMover:
    """The move of slots to one target.

    Args:
        source, target: Send requests to the coordinator that has the slots, and to the one that gets them.
        of: The prefix of the source.
        to: The prefix of the target.
        slots: The slots that move.
    """

    def __init__(self, source: AskShards, target: AskShards, of: str, to: str, slots: Slots) -> None:
        self._source, self._target, self._of, self._to, self._slots = source, target, of, to, slots

    def left(self) -> Slots:
        """Return the slots that are not released yet.

        Raises:
            RequestRefused: A third coordinator owns one of the slots, or the sender may not see the owners.
            NoAnswer: The source does not answer.
        """
        return frozenset().union(*self._left(described(self._source)))

    def release(self) -> Slots:
        """Release the slots that the source still owns, and return them. The target must run.

        Raises:
            RequestRefused: As `left`; or a shard refuses, and others may have released theirs.
            NoAnswer: Not all shards of the target, or of the source, have answered.
        """
        described(self._target)
        looked = described(self._source)
        left = self._left(looked)
        number = max(unix_ms(), *(each.number + 1 for answer in looked for each in answer.owned))
        for slots, shards in left.items():
            request = ReleaseSlots(request_id="", reply_to="", to=self._to, slots=bitmap_of(slots), made_ms=number)
            for answer in self._source(request, shards):
                if answer.code:
                    raise RequestRefused(f"The slots were not released ({answer.error}: {answer.error_message}).")
        return frozenset().union(*left)

    def _left(self, looked: Sequence[DescribeSlotsAnswer]) -> dict[Slots, list[int]]:
        """Return each set of slots that shards still own, with these shards."""
        left: dict[Slots, list[int]] = {}
        for shard, answer in enumerate(looked):
            if strange := (_of(answer) - _of(answer, self._of, self._to)) & self._slots:
                raise RequestRefused(
                    f"{escape(self._of)} does not own the slots {ranges_of(strange)}. `coordinator slots` shows owners."
                )
            if self._slots & _of(answer, self._of):
                left.setdefault(self._slots - _of(answer, self._to), []).append(shard)
        return left

    def await_adoption(self, timeout_s: float) -> None:
        """Wait until the target owns the slots.

        Raises:
            NoAnswer: It does not within `timeout_s` seconds, or does not answer.
        """
        deadline_s = time.monotonic() + timeout_s
        while missing := self._not_adopted():
            if time.monotonic() > deadline_s:
                slots = ranges_of(missing)
                raise NoAnswer(f"{escape(self._to)} has not adopted the slots {slots}. {remedy_of_silence(self._to)}")
            time.sleep(LOOK_EVERY_S)

    def names(self) -> Iterator[str]:
        """Yield the names in the slots that are still at the source, those without a living group too.

        Raises:
            NoAnswer: The source does not answer.
        """
        for shard, answer in enumerate(described(self._source)):
            guests = list(answer.guests)
            while answer.has_more:
                (answer,) = described(self._source, [shard], after=guests[-1])
                guests += answer.guests
            yield from (name for name in guests if slot_of(name) in self._slots)

    def _not_adopted(self) -> Slots:
        looked = described(self._target)
        return self._slots & frozenset().union(*(_of(answer) - _of(answer, self._to) for answer in looked))


def _of(answer: DescribeSlotsAnswer, *owners: str) -> Slots:
    """Return the slots of some owners, or all slots of a shard."""
    those = (slots_from(each.slots) for each in answer.owned if each.owner in owners or not owners)
    return frozenset().union(*those)


def described(ask: AskShards, shards: Sequence[int] | None = None, after: str = "") -> list[DescribeSlotsAnswer]:
    """Return the slots of some shards, or of all.

    Raises:
        RequestRefused: The sender may not see them, or the coordinator has a version that does not know slots.
        NoAnswer: Not all shards have answered.
    """
    answers = list(ask(DescribeSlots(request_id="", reply_to="", after=after), shards))
    if refused := next((answer for answer in answers if answer.code), None):
        why = refused.error_message or refused.error
        raise RequestRefused(f"The coordinator does not show its slots ({refused.error}: {why}).")
    return answers


# -- slots as text -----------------------------------------------------------------------------------------------------


def slots_from(text: str) -> frozenset[int]:
    """Return the slots of a text such as "0-511,600".

    Raises:
        ValueError: The text is no list of slots and of ranges of slots.
    """
    slots = set[int]()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        those = range(_slot(first), _slot(last if dash else first) + 1)
        if not those:
            raise ValueError(f"{part} ends before it begins")
        slots.update(those)
    return frozenset(slots)


def _slot(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= len(str(SLOTS)) and int(text) < SLOTS:
        return int(text)
    raise ValueError(f"{text!r} is no slot from 0 to {SLOTS - 1}")
