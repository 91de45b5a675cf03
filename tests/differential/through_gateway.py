"""This project's side of a conversation, as Kafka's own clients see it: the running query behind a gateway.

A batch of the query takes about as long as a session timeout in a conversation. So all times are `SLOWNESS` times as
long here. The conversations take 20 minutes in all, so many are held at once. They use plain sockets.
"""

from collections.abc import Mapping
from dataclasses import replace

from kafka.protocol.metadata import ApiVersionsRequest
from msgspec.structs import replace as replaced

from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.requests import JoinGroup, OffsetCommit, OffsetDelete, Request
from coordinator.messages.responses import AnyAnswer
from tests.differential.differences import DIFFERENCES
from tests.differential.language import Conversation, Heard, Line
from tests.differential.ours import config_of
from tests.differential.theirs import Theirs
from tests.differential.transacting import OfProducer
from tests.differential.transcript import ClientRequest, Description

SLOWNESS = 40
"""The factor of all times. The longest conversation takes 44 s. A line may take seconds before 300 ms count as over."""

AT_ONCE = 50
"""More than the conversations with waits; fewer than all, because batches must not be long during those waits."""

AT_BROKERS = OffsetCommit | OffsetDelete | ConsumerGroupHeartbeat | OfProducer
"""Requests that may wait until the brokers have answered a question of the gateway. They are never parked."""

CONSUMER_SESSION_MS = 600_000
"""The session timeout of the consumer protocol. No conversation waits for its end; a busy machine must not reach it."""

RULED_MS = ("group_initial_rebalance_delay_ms", "group_min_session_timeout_ms", "group_max_session_timeout_ms")


def settings_of(rules: Mapping[str, str]) -> dict[str, int]:
    """Return the query's settings for those of Kafka's `rules` that it has as well."""
    config = config_of(rules)
    return {name: getattr(config, name) * SLOWNESS for name in RULED_MS} | {
        "group_max_size": config.group_max_size,
        "group_consumer_max_size": config.group_consumer_max_size,
        "group_consumer_assignment_interval_ms": config.group_consumer_assignment_interval_ms,
        "group_consumer_session_timeout_ms": CONSUMER_SESSION_MS,
        "gateway_consumer_heartbeat_hold_ms": 0,
        "clock_slack_ms": 0,
        "late_notice_ms": 600_000,  # a busy machine must not count as an outage
    }


class ThroughGateway(Theirs):
    """This coordinator, with requests sent as to Kafka's.

    Requests of two connections have no order until the gateway has read them. After a request, a third client (the
    onlooker) sends a request to the gateway. Once it is answered, the gateway has sent the first request to the log. So
    a description of the group comes after all responses to the first request. The responses to requests of `AT_BROKERS`
    are waited for.
    """

    looks = 0
    _looks_ahead = False
    _described: Description | None = None

    def ask(self, asked: ClientRequest) -> None:
        super().ask(replace(asked, request=_slower(asked.request)))
        self._looks_ahead = not isinstance(asked.request, AT_BROKERS)

    def wait(self, ms: int, *, quietly: bool = False) -> None:
        super().wait(ms * SLOWNESS, quietly=quietly)
        self._looks_ahead = quietly

    def hear(self, expected: tuple[Heard, ...]) -> list[tuple[ClientRequest, AnyAnswer]]:
        if self._looks_ahead:
            self._onlooker.call(ApiVersionsRequest(), 0)  # the gateway answers this request itself
            self._described = self.look(self._group_id)
        return super().hear(expected)

    def look(self, group_id: str) -> Description:
        """Describe the group, unless `hear` has just done so."""
        described, self._described = self._described, None
        return described or super().look(group_id)


def _slower(request: Request | OfProducer) -> Request | OfProducer:
    if isinstance(request, ConsumerGroupHeartbeat) and request.rebalance_timeout_ms > 0:
        return replaced(request, rebalance_timeout_ms=request.rebalance_timeout_ms * SLOWNESS)
    if not isinstance(request, JoinGroup):
        return request
    return replaced(
        request,
        session_timeout_ms=request.session_timeout_ms * SLOWNESS,
        rebalance_timeout_ms=request.rebalance_timeout_ms * SLOWNESS,
    )


def as_clients_find_it(conversation: Conversation) -> Conversation:
    """Return a conversation without the differences that only clients of this project's topics see."""
    return replace(conversation, lines=tuple(map(_of_a_client, conversation.lines)))


def _of_a_client(line: Line) -> Line:
    if line.difference and DIFFERENCES[line.difference].is_over_topics_only:
        return replace(line, ours=line.kafka, difference=None)
    return line
