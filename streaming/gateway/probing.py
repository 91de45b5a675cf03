"""Whether the coordinator answers, for clients that look for the coordinator of their groups.

A client that finds no coordinator sends nothing about its group. If its session began before the coordinator became
unavailable, the coordinator then has to know that it was unavailable for this group: a session goes on once more if a
request about the group has waited in the log (`coordinator.common.timers`). So the gateway sends one about each such
group, a heartbeat with no member id, which changes nothing else.
"""

from collections.abc import Sequence

from coordinator.base.limits import GROUP_ID_CHARS_MAX
from coordinator.messages.heartbeats import Heartbeat
from streaming.gateway.coordinators import Coordinators

FRESH_S = 10.0
"""A coordinator whose last answer is not older than this counts as available."""

PROBED_MAX = 10_000
"""The groups about which a heartbeat waits for an answer. About further groups none is sent: the log does not grow
without end while the coordinator is unavailable."""


class Probing:
    """Heartbeats with no member id, sent while the coordinator does not answer.

    Args:
        hold_ms: The longest wait for an answer.
    """

    def __init__(self, asking: Coordinators, hold_ms: int) -> None:
        self._asking, self._hold_ms = asking, hold_ms
        self._mailbox = asking.open_inbox()
        self._probed: dict[str, str] = {}
        """By group, the id of the heartbeat that waits for an answer."""

    async def is_served(self, group_ids: Sequence[str]) -> bool:
        """Return whether the coordinator answers. Wait up to `hold_ms` for an answer.

        Args:
            group_ids: The groups that a client looks for. A member looks for one.
        """
        if self._asking.silence_s() < FRESH_S:
            self._forget_lost()
            return True
        is_one = len(group_ids) == 1 and len(group_ids[0]) <= GROUP_ID_CHARS_MAX
        self._probe(group_ids[0] if is_one else "")
        return await self._asking.heard(self._hold_ms / 1_000)

    def _probe(self, group_id: str) -> None:
        """Send a heartbeat about a group, unless one waits for an answer."""
        if group_id in self._probed or len(self._probed) >= PROBED_MAX:
            return
        request_id = self._probed[group_id] = self._asking.request_id()
        about = Heartbeat(
            request_id=request_id, reply_to=self._mailbox, group_id=group_id, generation_id=-1, member_id=""
        )
        self._asking.send(about, lambda answer, size: self._probed.pop(group_id, None))

    def _forget_lost(self) -> None:
        """Wait no longer for answers, since the coordinator answers others."""
        if self._probed:
            self._asking.forget(self._mailbox, self._probed.values())
            self._probed.clear()
