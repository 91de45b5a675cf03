"""Members that send heartbeats and commits at a steady rate, also while the coordinator is unavailable."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from coordinator.messages.requests import OffsetCommit, OffsetToCommit, Request
from coordinator.messages.responses import AnyAnswer, OffsetCommitAnswer
from tests.benchmarks.crowd import Ask, Crowd
from tests.benchmarks.members import Member
from tests.system.waiting import HANG_S, wait_until

TOPIC = "orders.placed"


@dataclass
class SentRequest:
    """A sent request: its time, and the group and the offset of a commit."""

    at_s: float
    group_id: str
    offset: int | None


@dataclass
class Responses:
    """The counted responses."""

    answered: int = 0
    refused: list[AnyAnswer] = field(default_factory=list)
    acknowledged: dict[str, int] = field(default_factory=dict)
    """The highest acknowledged offset, by group."""


class Beating(threading.Thread):
    """A thread of members that send heartbeats and commits every `interval_s` seconds. Use it in a `with` block.

    The block ends when all requests are answered.
    """

    def __init__(self, crowd: Crowd, members: Sequence[Member], interval_s: float) -> None:
        super().__init__(name="beating", daemon=True)
        self._crowd, self._members, self._interval_s = crowd, members, interval_s
        self._outstanding: dict[str, SentRequest] = {}
        self._offset = 0
        self._ending = threading.Event()
        self.responses = Responses()
        self.longest_pause_s = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join()
        assert not self._outstanding, f"{len(self._outstanding)} requests were never answered"

    def run(self) -> None:
        while not self._ending.is_set():
            begun_s = time.monotonic()
            self._send_round()
            while time.monotonic() < begun_s + self._interval_s:
                self._take(0.05)
            self.longest_pause_s = max(self.longest_pause_s, time.monotonic() - begun_s)
        until_s = time.monotonic() + HANG_S
        while self._outstanding and time.monotonic() < until_s:
            self._take(0.05)

    def _send_round(self) -> None:
        """Send a heartbeat of each member, and a commit of each group's first member."""
        self._offset += 1
        for member in self._members:
            self._send(member, member.heartbeat, None)
            if member.number == 0:
                self._send(member, partial(_commit, member, self._offset), self._offset)

    def _send(self, member: Member, ask: Ask, offset: int | None) -> None:
        self._outstanding[self._crowd.send(ask)] = SentRequest(time.monotonic(), member.group_id, offset)

    def _take(self, wait_s: float) -> None:
        for answer in self._crowd.answers(wait_s):
            request = self._outstanding.pop(answer.request_id or "", None)
            if request is None:
                continue  # a repeated response
            self.responses.answered += 1
            if answer.code or (isinstance(answer, OffsetCommitAnswer) and any(p.code for p in answer.partitions)):
                self.responses.refused.append(answer)
            elif request.offset is not None:
                before = self.responses.acknowledged.get(request.group_id, 0)
                self.responses.acknowledged[request.group_id] = max(before, request.offset)

    def await_answers(self, within_s: float) -> float:
        """Wait for the responses to all earlier requests; return the seconds until then."""
        now_s = time.monotonic()
        wait_until(
            lambda: self.is_answered(now_s), within_s, lambda: f"{len(self._outstanding)} requests are not answered"
        )
        return time.monotonic() - now_s

    def is_answered(self, until_s: float) -> bool:
        """Return whether all requests that were sent until a time of the monotonic clock are answered."""
        assert self.is_alive(), "the thread of the members has ended"
        return all(request.at_s > until_s for request in list(self._outstanding.values()))


def _commit(member: Member, offset: int, request_id: str) -> Request:
    return OffsetCommit(
        request_id=request_id,
        reply_to=member.inbox,
        group_id=member.group_id,
        generation_id=member.generation_id,
        member_id=member.member_id,
        offsets=(OffsetToCommit(TOPIC, 0, offset),),
    )
