"""Changes, sent to a browser as server-sent events.

    status   the state of reading                        at once, and when it changes
    reset    the browser must load everything again      at once unless resumed; and whenever too much was missed
    group    one line about a group, with its id         of all groups, if the stream names no group
    alarm    another alarm has come                      if the stream names no group
    event    an event of the group, in words             of the stream's group
    detail   all that is known of the group              of the stream's group

A stream checks for changes ten times a second, so several changes of a group in between are sent as one. Each `event`
is sent. Unsent data waits in the connection only: a browser that does not read gets nothing until it reads again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool

from streaming.dashboard.live import Change, LiveViews, NoSuchGroup, NotYet, Status, to_row
from streaming.views.api.answers import to_json
from streaming.views.api.rows import EventRow, GroupDetail, GroupSummary

STATUS_EVENTS: dict[str, Any] = {
    "status": Status,
    "reset": dict[str, Any],
    "group": GroupSummary,
    "alarm": dict[str, Any],
    "event": EventRow,
    "detail": GroupDetail,
}
"""The type of each event's data."""

A = TypeVar("A")
R = TypeVar("R")

LOOKS_S = 0.1
REST = 10
"""After a slow answer a stream pauses ten times as long, so no browser takes more than a tenth of a core."""


class Stream:
    """The stream of one browser.

    Args:
        group_id: The group that it follows; None for all.
        cursor: The last change that the browser received; None for a new stream.
    """

    def __init__(self, live: LiveViews, group_id: str | None, cursor: str | None) -> None:
        self._live, self._group_id, self._cursor = live, group_id, cursor or ""
        self._owes_detail = True
        self._status: Status | None = None
        self._alarms_told: int | None = None
        self._rest_s = LOOKS_S

    async def events(self) -> AsyncIterator[ServerSentEvent]:
        """Yield events until the server closes."""
        while not self._live.is_closed:
            self._rest_s = LOOKS_S
            has_begun = self._live.has_begun  # before the status, so that a browser first learns that all is read
            if self._status != self._live.status:
                self._status = self._live.status
                yield ServerSentEvent(to_json(self._status).decode(), event="status")
            if not has_begun:
                pass  # nothing but the status can be sent yet
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
        sent = []
        if changes:
            summaries = await self._ask(self._live.summaries, dict.fromkeys(change.group_id for change in changes))
            # the browser resumes before all of them until the last one is sent
            sent = [ServerSentEvent(summary.decode(), event="group") for summary in summaries[:-1]]
            self._cursor = changes[-1].cursor
            sent += [self._event("group", summary) for summary in summaries[-1:]]
        if self._alarms_told != self._live.alarms_told:
            self._alarms_told = self._live.alarms_told
            sent.append(ServerSentEvent("{}", event="alarm"))
        return sent

    async def _one(self, changes: list[Change], group_id: str) -> list[ServerSentEvent]:
        sent = []
        ours = [change for change in changes if change.group_id == group_id]
        for change in ours:
            self._cursor = change.cursor
            if change.event is not None:
                sent.append(self._event("event", to_row(change.event)))
        self._cursor = changes[-1].cursor if changes else self._cursor
        if ours or self._owes_detail:
            self._owes_detail = False
            try:
                sent.append(self._event("detail", await self._ask(self._live.detail, group_id)))
            except (NoSuchGroup, NotYet):
                sent.append(self._event("reset", b"{}"))
        return sent

    async def _ask(self, ask: Callable[[A], R], about: A) -> R:
        began_s = time.monotonic()
        answer = await run_in_threadpool(ask, about)
        self._rest_s = max(LOOKS_S, REST * (time.monotonic() - began_s))
        return answer

    def _event(self, name: str, data: bytes) -> ServerSentEvent:
        return ServerSentEvent(data.decode(), event=name, id=self._cursor)
