"""What changes, pushed to a browser as server-sent events.

    status   how the reading is                          at once, and when it changes
    reset    look at everything anew                     at once unless resumed; and whenever too much was missed
    group    a group's line, with its id                 of all groups, where no group is asked for
    alarm    there are more alarms than before           the same
    event    an event of the group, in words             of one group
    detail   all of the group                            the same

A stream looks for changes ten times a second, so whatever happens to a group in between is told once. Each `event` is
told. What is sent waits in the connection alone: a browser that does not take it is told nothing until it does.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool

from streaming.dashboard.feed import Change
from streaming.dashboard.live import Live, NoSuchGroup, NotYet, Status, to_row
from streaming.views.answers import EventRow, GroupDetail, GroupSummary, to_json

TOLD: dict[str, Any] = {
    "status": Status,
    "reset": dict[str, Any],
    "group": GroupSummary,
    "alarm": dict[str, Any],
    "event": EventRow,
    "detail": GroupDetail,
}
"""What each event holds."""

A = TypeVar("A")
R = TypeVar("R")

LOOKS_S = 0.1
REST = 10
"""After an answer that took long, a stream rests ten times as long: no browser takes more than a tenth of a core."""


class Stream:
    """One browser's.

    Args:
        group_id: The group it looks at; None for all.
        cursor: The latest change that it was told; None for a new one.
    """

    def __init__(self, live: Live, group_id: str | None, cursor: str | None) -> None:
        self._live, self._group_id, self._cursor = live, group_id, cursor or ""
        self._owes_detail = True
        self._status: Status | None = None
        self._alarms_told: int | None = None
        self._rest_s = LOOKS_S

    async def events(self) -> AsyncIterator[ServerSentEvent]:
        """Yield what there is to tell, until the page closes."""
        while not self._live.is_closed:
            self._rest_s = LOOKS_S
            if self._status != self._live.status:
                self._status = self._live.status
                yield ServerSentEvent(to_json(self._status).decode(), event="status")
            if not self._live.has_begun:
                pass  # the status is all there is to tell
            elif (changes := self._live.since(self._cursor)) is None:
                yield self._begin_anew()
            elif self._group_id is None:
                for event in await self._all(changes):
                    yield event
            else:
                for event in await self._one(changes, self._group_id):
                    yield event
            await asyncio.sleep(self._rest_s)

    def _begin_anew(self) -> ServerSentEvent:
        self._cursor, self._owes_detail = self._live.cursor_of_overview(), False
        self._alarms_told = self._live.alarms_told
        return self._event("reset", b"{}")

    async def _all(self, changes: list[Change]) -> list[ServerSentEvent]:
        told = []
        if changes:
            summaries = await self._ask(self._live.summaries, dict.fromkeys(change.group_id for change in changes))
            # until the last of them is told, the browser resumes from before all of them
            told = [ServerSentEvent(summary.decode(), event="group") for summary in summaries[:-1]]
            self._cursor = changes[-1].cursor
            told += [self._event("group", summary) for summary in summaries[-1:]]
        if self._alarms_told != self._live.alarms_told:
            self._alarms_told = self._live.alarms_told
            told.append(ServerSentEvent("{}", event="alarm"))
        return told

    async def _one(self, changes: list[Change], group_id: str) -> list[ServerSentEvent]:
        told = []
        ours = [change for change in changes if change.group_id == group_id]
        for change in ours:
            self._cursor = change.cursor
            if change.event is not None:
                told.append(self._event("event", to_row(change.event)))
        self._cursor = changes[-1].cursor if changes else self._cursor
        if ours or self._owes_detail:
            self._owes_detail = False
            try:
                told.append(self._event("detail", await self._ask(self._live.detail, group_id)))
            except (NoSuchGroup, NotYet):
                told.append(self._event("reset", b"{}"))
        return told

    async def _ask(self, ask: Callable[[A], R], about: A) -> R:
        began_s = time.monotonic()
        answer = await run_in_threadpool(ask, about)
        self._rest_s = max(LOOKS_S, REST * (time.monotonic() - began_s))
        return answer

    def _event(self, name: str, data: bytes) -> ServerSentEvent:
        return ServerSentEvent(data.decode(), event=name, id=self._cursor)
