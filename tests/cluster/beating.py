"""Members that send heartbeats and commits at a steady rate, even to an unavailable coordinator, and the responses."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from coordinator.outputs import AnyAnswer, OffsetCommitAnswer
from coordinator.requests import OffsetCommit, OffsetToCommit, Request
from tests.benchmarks.crowd import Ask, Crowd
from tests.benchmarks.members import Member
from tests.system.waiting import HANG_S, wait_until

TOPIC = "orders.placed"


@dataclass
class Asked:
    """A sent request: its time, and the group and the offset of a commit."""

    at_s: float
    group_id: str
    offset: int | None


@dataclass
class Told:
    """The responses so far."""

    answered: int = 0
    refused: list[AnyAnswer] = field(default_factory=list)
    acknowledged: dict[str, int] = field(default_factory=dict)
    """The highest acknowledged offset, by group."""


class Beating(threading.Thread):
    """Settled members that send heartbeats and commits, each every `interval_s`: a `with` block.

    The block ends when all requests are answered.
    """

    def __init__(self, crowd: Crowd, members: Sequence[Member], interval_s: float) -> None:
        super().__init__(name="beating", daemon=True)
        self._crowd, self._members, self._interval_s = crowd, members, interval_s
        self._asked: dict[str, Asked] = {}
        self._offset = 0
        self._ending = threading.Event()
        self.told = Told()
        self.longest_pause_s = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join()
        assert not self._asked, f"{len(self._asked)} requests were never answered"

    def run(self) -> None:
        while not self._ending.is_set():
            begun_s = time.monotonic()
            self._send_round()
            while time.monotonic() < begun_s + self._interval_s:
                self._take(0.05)
            self.longest_pause_s = max(self.longest_pause_s, time.monotonic() - begun_s)
        until_s = time.monotonic() + HANG_S
        while self._asked and time.monotonic() < until_s:
            self._take(0.05)

    def _send_round(self) -> None:
        """Send a heartbeat of each member, and a commit of each group's first member."""
        self._offset += 1
        for member in self._members:
            self._send(member, member.heartbeat, None)
            if member.number == 0:
                self._send(member, partial(_commit, member, self._offset), self._offset)

    def _send(self, member: Member, ask: Ask, offset: int | None) -> None:
        self._asked[self._crowd.send(ask)] = Asked(time.monotonic(), member.group_id, offset)

    def _take(self, wait_s: float) -> None:
        for answer in self._crowd.answers(wait_s):
            asked = self._asked.pop(answer.request_id or "", None)
            if asked is None:
                continue  # a repeat
            self.told.answered += 1
            if answer.code or (isinstance(answer, OffsetCommitAnswer) and any(p.code for p in answer.partitions)):
                self.told.refused.append(answer)
            elif asked.offset is not None:
                before = self.told.acknowledged.get(asked.group_id, 0)
                self.told.acknowledged[asked.group_id] = max(before, asked.offset)

    def await_answers(self, within_s: float) -> float:
        """Wait for the responses to all earlier requests; return how many seconds that took."""
        now_s = time.monotonic()

        def is_answered() -> bool:
            assert self.is_alive(), "the members have ended"
            return all(asked.at_s > now_s for asked in list(self._asked.values()))

        wait_until(is_answered, within_s, lambda: f"{len(self._asked)} requests are not answered")
        return time.monotonic() - now_s


def _commit(member: Member, offset: int, request_id: str) -> Request:
    return OffsetCommit(
        request_id=request_id,
        reply_to=member.inbox,
        group_id=member.group_id,
        generation_id=member.generation_id,
        member_id=member.member_id,
        offsets=(OffsetToCommit(TOPIC, 0, offset),),
    )
