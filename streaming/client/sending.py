"""Requests on their way to the brokers: the producer of a transport, and the notice of brokers that accept none.

The producer is not idempotent. kafka-python's idempotent producer (3.0.12) has states that it never leaves:

    a batch that had been sent expires    the producer drops its producer id, and requests another one only at its start
    the brokers refuse a single record    all later records fail
    a request for a producer id fails     the same, unless the connection was lost
    then                                  `close` raises an error and leaves the thread and its connections

In the first state no record fails and none is sent. A producer without a producer id has no such state. One request at
a time to each broker keeps the order of the records of a partition.

If the acknowledgement of a batch is lost, the brokers write the batch again, directly behind the first one. The
coordinator recognizes a repeat by its request id, or handles it with the same result, as it does if a member repeats a
request that has no response.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError

from streaming.config.timeouts import REQUEST_TIMEOUT_MS
from streaming.moments import monotonic_ms

log = logging.getLogger(__name__)

DELIVERY_WAIT_MS = 30_000
"""The time for which a request waits for brokers that accept it. Its sender sends it again, or has given up by then.
It is shorter than a session by default, so that a long outage does not end with all heartbeats of that time."""

TOPIC_WAIT_MS = 10_000
"""The longest wait until the brokers have returned the partitions of a topic, and their leaders."""

NOT_READY_MS = 50
"""The pause until the producer looks again for a broker that is not ready. Any event of a connection ends it earlier.
kafka-python takes its seconds for milliseconds, and would look again without a pause."""

CLOSE_WAIT_S = 5.0

OnFailure = Callable[[BaseException], object]
"""Called with the error if the brokers do not accept a request."""


class Outage:
    """Notices that the brokers have accepted no request for longer than a session. It logs one line at the beginning
    of each outage, and one at its end.

    Args:
        servers: The brokers, for the log.
    """

    def __init__(self, servers: object) -> None:
        self._servers = servers
        self._lock = threading.Lock()
        self._waiting_ms: int | None = None  # when the first request since the last acceptance was sent
        self._accepted_ms: int | None = None  # when a request was last accepted
        self._error: BaseException | None = None
        self._logged_ms: int | None = None  # the beginning of the outage that was logged

    def sent(self, now_ms: int) -> None:
        """Note that a request was handed over to the producer."""
        with self._lock:
            if self._waiting_ms is None:
                self._waiting_ms = now_ms

    def accepted(self, now_ms: int) -> None:
        """Note that the brokers have accepted a request."""
        with self._lock:
            self._waiting_ms, self._accepted_ms, self._error = None, now_ms, None

    def refused(self, error: BaseException) -> None:
        """Note that a request was not accepted."""
        with self._lock:
            self._error = error

    def log_changes(self, patience_ms: int, now_ms: int) -> None:
        """Log an outage that has lasted for a time, or its end, once."""
        with self._lock:
            waiting_ms, accepted_ms, error, logged_ms = (
                self._waiting_ms, self._accepted_ms, self._error, self._logged_ms,
            )  # fmt: skip
            if logged_ms is None and waiting_ms is not None and now_ms - waiting_ms >= patience_ms:
                self._logged_ms = waiting_ms
            elif logged_ms is not None and accepted_ms is not None and accepted_ms >= logged_ms:
                self._logged_ms = None
            else:
                return
        if logged_ms is not None and accepted_ms is not None:
            log.warning("the brokers at %s accept requests again, after %d ms", self._servers, accepted_ms - logged_ms)
        elif waiting_ms is not None:
            log.error(
                "The brokers at %s have accepted no request of this process for %d ms (%s), so its members lose their"
                " partitions. Check that the brokers run and can be reached from here; the members then continue.",
                self._servers, now_ms - waiting_ms, error or "no response",
            )  # fmt: skip


class RequestProducer:
    """The producer of all requests of a process. Its delivery time is `DELIVERY_WAIT_MS`.

    Args:
        config: The settings of a KafkaProducer for the connection to the brokers.
        outage: Is told of each request that is sent, accepted or refused.

    Raises:
        KafkaError: No broker answers.
    """

    def __init__(self, config: Mapping[str, Any], outage: Outage) -> None:
        self._outage = outage
        answer_wait_ms = min(REQUEST_TIMEOUT_MS, DELIVERY_WAIT_MS)
        clients: list[Any] = []

        def patient(**settings: Any) -> Any:
            clients.append(make_client(**settings))
            return clients[-1]

        make_client = config["kafka_client"]
        self._producer = KafkaProducer(
            **{
                **config,
                "kafka_client": patient,
                "acks": "all",
                "enable_idempotence": False,
                "max_in_flight_requests_per_connection": 1,
                "linger_ms": 0,
                "request_timeout_ms": min(config.get("request_timeout_ms", answer_wait_ms), answer_wait_ms),
                "delivery_timeout_ms": DELIVERY_WAIT_MS,
                "max_block_ms": min(TOPIC_WAIT_MS, DELIVERY_WAIT_MS),
            }
        )
        (client,) = clients
        delay_s = client.connection_delay
        client.connection_delay = lambda node_id: max(NOT_READY_MS, 1_000 * delay_s(node_id))

    def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions.

        Raises:
            KafkaTimeoutError: No broker has returned the topic within `TOPIC_WAIT_MS`.
        """
        partitions: set[int] = self._producer.partitions_for(topic)
        return partitions

    def send(self, topic: str, key: bytes, value: bytes, partition: int | None, on_failure: OnFailure) -> None:
        """Append a record to a topic. Returns before the brokers have it.

        Raises:
            KafkaError: No broker has returned the topic within `TOPIC_WAIT_MS`, or the record is too large.
        """

        def refused(error: BaseException) -> None:
            self._outage.refused(error)
            on_failure(error)

        self._outage.sent(monotonic_ms())
        sent = self._producer.send(topic, key=key, value=value, partition=partition)
        sent.add_callback(lambda _: self._outage.accepted(monotonic_ms())).add_errback(refused)

    def close(self, timeout: float = CLOSE_WAIT_S) -> None:
        """Send the remaining requests, and stop.

        After the time-out a thread goes on with it, until the brokers have accepted the requests or `DELIVERY_WAIT_MS`
        is over.
        """
        try:
            self._producer.close(timeout=timeout)
        except KafkaTimeoutError:  # it has closed nothing
            log.warning("the last requests were not sent within %g s, and are sent if the brokers return soon", timeout)
            threading.Thread(target=self._producer.close, name="coordinator last requests", daemon=True).start()
