"""Settings of one member, under Kafka's consumer names, with Kafka's defaults."""

from msgspec import Struct


class MemberConfig(Struct, frozen=True, kw_only=True):
    """A member's identity and its timeouts.

    Args:
        reply_to: The mailbox that responses are read from.
        group_instance_id: Makes it a static member, which sends no leave request (KIP-345).
        max_poll_interval_ms: The longest time between two calls of `poll`; also the rebalance timeout.
        moments_ms: Heartbeats are sent when the member's time plus this number is a multiple of the interval. With the
            difference of the wall clock and the member's clock, members of many processes send them at the same times.
        request_timeout_ms: How long a response may take before the request is sent again.
    """

    group_id: str
    reply_to: str
    client_id: str = ""
    client_host: str = ""
    group_instance_id: str | None = None
    protocol_type: str = "consumer"
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    request_timeout_ms: int = 30_000
    moments_ms: int = 0
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000

    def next_heartbeat_ms(self, now_ms: int, interval_ms: int = 0) -> int:
        """Return the next time for a heartbeat, at most one interval later.

        Args:
            interval_ms: The interval that the coordinator has named; 0 for that of the configuration.
        """
        interval_ms = interval_ms or self.heartbeat_interval_ms
        return now_ms + interval_ms - (now_ms + self.moments_ms) % interval_ms
