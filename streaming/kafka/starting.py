"""The start of kafka-python's clients.

A client chooses one of its brokers at random and gives it the whole of `bootstrap_timeout_ms`, even if it accepts the
connection and never answers. So a start consists of attempts, and takes the brokers in turn. Each attempt has twice the
time of the one before it: on a busy machine a broker that answers may need more than the first has.

Source: kafka.net.manager.KafkaConnectionManager of kafka-python 3.0.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from itertools import count, cycle, islice
from operator import attrgetter
from threading import Event
from typing import Any, NamedTuple, TypeVar

from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager

from streaming.config.timeouts import ATTEMPT_WAIT_S, CONNECT_TIMEOUT_MS, RETRY_WAIT_S
from streaming.kafka.any_broker import may_pass

T = TypeVar("T")

FIRST_MAX = 1_000

CONNECTION_WAITS = {
    "socket_connection_setup_timeout_ms": CONNECT_TIMEOUT_MS,
    "socket_connection_setup_timeout_max_ms": CONNECT_TIMEOUT_MS,
}
"""How long a client waits for a connection. By itself it waits for 10 s, then 20 and 30 s, for a broker that hangs: its
machine still accepts connections. Meanwhile the broker's partitions get other leaders. kafka-python's consumers and
producers refuse these settings, and their network client takes them."""


class Attempt(NamedTuple):
    """One attempt to start a client.

    Args:
        number: The number of the attempt. The first one has a random number, so that processes differ.
    """

    number: int
    timeout_ms: float

    def config(self, kafka: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a client with those of the attempt."""
        make = kafka.get("kafka_client", KafkaNetClient)

        def client(**settings: Any) -> Any:
            made = make(**{**CONNECTION_WAITS, **settings})
            self._rotate_brokers(made.cluster)
            return made

        return {**kafka, "bootstrap_timeout_ms": self.timeout_ms, "kafka_client": client}

    def connect(self, manager: KafkaConnectionManager) -> None:
        """Connect to one of the brokers, and fetch the metadata.

        Raises:
            KafkaError: None answers in time.
        """
        self._rotate_brokers(manager.cluster)
        manager.bootstrap(self.timeout_ms)

    def _rotate_brokers(self, cluster: Any) -> None:
        """Make a client take its brokers in turn, where it would choose one of them at random."""
        brokers = sorted(type(cluster).bootstrap_brokers(cluster), key=attrgetter("host", "port"))
        turns = islice(cycle(brokers), self.number % len(brokers), None)
        cluster.bootstrap_brokers = lambda: [next(turns)]


def started(start: Callable[[Attempt], T], within_s: float, closing: Event | None = None) -> T:
    """Return what a start returns, as soon as an attempt succeeds.

    Args:
        start: Makes one attempt.
        within_s: The longest wait for all attempts together.
        closing: No attempt follows when it is set.

    Raises:
        KafkaError, OSError: The last attempt has failed, or another one cannot succeed either.
    """
    until_s, wait_s = time.monotonic() + within_s, ATTEMPT_WAIT_S
    for number in count(secrets.randbelow(FIRST_MAX)):
        try:
            return start(Attempt(number, 1_000 * min(wait_s, max(0.0, until_s - time.monotonic()))))
        except (KafkaError, OSError) as error:
            if not may_pass(error) or time.monotonic() + RETRY_WAIT_S >= until_s:
                raise
            if closing is not None and closing.is_set():
                raise
        wait_s *= 2
        time.sleep(RETRY_WAIT_S)
    raise AssertionError("unreachable")
