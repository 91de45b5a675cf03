"""The heartbeats of one member: their fields, the ones that await a response, and the time of the next one.

    joining, after an error or without a response     all fields
    if the last response or a notice had news         the owned partitions, and the fields of the next line
    else                                              the fields that differ from the earlier requests
    the instance id                                   always

Heartbeats without another field go out together with those of other members of the process. Members send them at common
times, multiples of the interval by the wall clock. The response to such a heartbeat is a code. While news is expected,
a heartbeat lists the owned partitions, so that it has a record and a response of its own.

At most one heartbeat is under way. If no response comes within the interval, the next heartbeat is sent all the same:
the log keeps it, and a coordinator that was unavailable counts it later. It has all fields, because the heartbeat
before it may have raised the member's epoch. From then on, only the response to the last heartbeat counts: if a member
took partitions from an earlier response, the list of owned partitions in the later request would lack them. The time
until the next repeat doubles, up to `REPEAT_INTERVALS_MAX`, so that a slow coordinator is not always late.

Source: Kafka's ConsumerHeartbeatRequestManager.HeartbeatState and HeartbeatRequestState; KIP-848.
"""

from typing import Any

from msgspec import Struct

from coordinator.base.limits import NEVER_MS, SUBSCRIBED_NAMES_MAX
from coordinator.member.consumer_config import ConsumerProtocolConfig, Partitions, Wanted, written
from coordinator.member.pending_requests import UNANSWERED_HEARTBEATS_MAX
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat

JOIN_EPOCH, LEAVE_EPOCH, AWAY_EPOCH = 0, -1, -2

REPEAT_INTERVALS_MAX = 4
"""The longest time between two heartbeats without a response, in intervals: a session has nine of them by default."""

DEFAULT_INTERVAL_MS = 5_000
"""The interval before a response has named one: Kafka's default."""


class _Sent(Struct):
    """The subscription and the partitions in the latest request of this membership."""

    wanted: Wanted
    owned: Partitions


class HeartbeatBuilder:
    """The heartbeats of one member.

    Args:
        prefix: The beginning of each request id.
    """

    def __init__(self, config: ConsumerProtocolConfig, prefix: str) -> None:
        self._config, self._prefix, self._count = config, prefix, 0
        self._said: _Sent | None = None
        self._outstanding: list[str] = []
        self._sent_ms = 0
        self.interval_ms = DEFAULT_INTERVAL_MS
        self.due_ms = NEVER_MS
        """The time of the next heartbeat, unless a change makes it earlier."""

    @property
    def is_awaited(self) -> bool:
        """True while a response is to come."""
        return bool(self._outstanding)

    # -- requests ------------------------------------------------------------------------------------------------------

    def make(
        self, epoch: int, wanted: Wanted, owned: Partitions, *, has_news: bool, now_ms: int
    ) -> ConsumerGroupHeartbeat:
        """Make the next heartbeat, which is sent at once.

        Args:
            has_news: The member has to acknowledge an assignment, or expects a change: the request lists the owned
                partitions.
        """
        if self._outstanding:
            self._said = None
        said = self._said if epoch != JOIN_EPOCH else None
        request = ConsumerGroupHeartbeat(
            **self._common(), member_epoch=epoch, **self._fields(said, wanted, owned, has_news=has_news)
        )
        self._said = _Sent(wanted, owned)
        self._outstanding = [*self._outstanding, request.request_id][-UNANSWERED_HEARTBEATS_MAX:]
        repeats = min(2 ** (len(self._outstanding) - 1), REPEAT_INTERVALS_MAX)
        wait_ms = self._config.request_timeout_ms if epoch == JOIN_EPOCH else self.interval_ms * repeats
        self._sent_ms, self.due_ms = now_ms, now_ms + wait_ms
        return request

    def _fields(self, said: _Sent | None, wanted: Wanted, owned: Partitions, *, has_news: bool) -> dict[str, Any]:
        if said is None:
            return {
                "rack_id": self._config.rack_id,
                "rebalance_timeout_ms": self._config.max_poll_interval_ms,
                "server_assignor": self._config.server_assignor,
                "topic_partitions": written(owned),
                **_subscription(wanted),
            }
        fields = {"topic_partitions": written(owned)} if has_news or owned != said.owned else {}
        has_changed = (wanted.names, wanted.regex) != (said.wanted.names, said.wanted.regex)
        return {**fields, **_subscription(wanted)} if has_changed else fields

    def farewell(self) -> ConsumerGroupHeartbeat:
        """Make the request with which the member leaves; a static member goes away, and its place is kept for it."""
        is_static = self._config.group_instance_id is not None
        return ConsumerGroupHeartbeat(**self._common(), member_epoch=AWAY_EPOCH if is_static else LEAVE_EPOCH)

    def _common(self) -> dict[str, Any]:
        self._count += 1
        return {
            "request_id": f"{self._prefix}h{self._count}",
            "reply_to": self._config.reply_to,
            "group_id": self._config.group_id,
            "client_id": self._config.client_id,
            "client_host": self._config.client_host,
            "member_id": self._config.member_id,
            "group_instance_id": self._config.group_instance_id,
        }

    # -- responses -----------------------------------------------------------------------------------------------------

    def end(self, request_id: str) -> bool:
        """Note the response to a heartbeat. Return whether it counts: it is the response to the last one."""
        if request_id not in self._outstanding:
            return False
        self._outstanding = self._outstanding[self._outstanding.index(request_id) + 1 :]
        return not self._outstanding

    def answered(self, interval_ms: int, now_ms: int) -> None:
        """Set the time of the next heartbeat: the first common time after the last one."""
        self.interval_ms = interval_ms
        self.due_ms = max(now_ms, self._config.next_heartbeat_ms(self._sent_ms, interval_ms))

    def say_all(self, due_ms: int | None = None) -> None:
        """Make the next heartbeat have all fields, and set its time if one is given."""
        self._said = None
        self.due_ms = self.due_ms if due_ms is None else due_ms

    def forget(self) -> None:
        """End the membership: no heartbeat is due, and responses to earlier ones are ignored."""
        self._said, self._outstanding, self.due_ms = None, [], NEVER_MS


def _subscription(wanted: Wanted) -> dict[str, Any]:
    matched = wanted.matched
    return {
        "subscribed_topic_names": wanted.names,
        "subscribed_topic_regex": wanted.regex,
        "topics": tuple(wanted.facts.values())[:SUBSCRIBED_NAMES_MAX],
        "regex_topics": None if matched is None else matched[:SUBSCRIBED_NAMES_MAX],
    }
