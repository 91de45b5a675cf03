"""Outages of some brokers: a query that fails at them begins again in its process, for as long as some broker answers.

Spark's sink gives up a write after `broker_wait_ms`, and the query fails. Another start of the process would cure
nothing while too few replicas are in sync, or while the leader of a partition does not answer. So the query begins
again from its checkpoint, after a pause. If no broker answers for `broker_wait_ms`, the process ends, and the
supervisor starts it again.

    what failed        a write or a read that the brokers have not answered or not accepted in time (`OF_BROKERS`)
    what is asked      each broker (`streaming.kafka.brokers`)
    the query begins   if some broker answers, the topics exist, and there is a fault that may pass; without a fault,
    again              since it may have passed meanwhile, but not twice without a batch between them; if none answers,
                       until that has lasted for `broker_wait_ms`
"""

import logging
import re
import threading
import time
from collections.abc import Collection

from streaming.config.settings import Settings
from streaming.errors import Exit, UserError
from streaming.kafka.brokers import Brokers, check_brokers
from streaming.query.spark.failures import CAUSES, KAFKA_TIMEOUT, Causes, because
from streaming.query.watchers.store_watch import StoreWatch

log = logging.getLogger(__name__)

AGAIN_AFTER_S = 5.0
"""The pause before the query begins again. Each attempt lasts for up to `broker_wait_ms`."""

OF_BROKERS = (
    rf"Expiring \d+ record|{KAFKA_TIMEOUT}|NotEnoughReplicas|NOT_ENOUGH_REPLICAS|NotLeaderOrFollower|BrokerNotAvailable"
    r"|LeaderNotAvailable|Connection to node .* could not be established|DisconnectException|NetworkException"
)
"""The pattern of a failure that the brokers have caused, and that may pass."""


class Outage:
    """The latest outage of some brokers, and whether the query waits for its end. `sentence` says what it was.

    Args:
        topics: The topics that the query reads and writes.
        causes: The table of the query's failures.
    """

    def __init__(self, settings: Settings, topics: Collection[str], causes: Causes = CAUSES) -> None:
        self._settings, self._topics, self._causes = settings, topics, causes
        self._batches, self._was_unexplained = -1, False
        self._silent_since_s: float | None = None
        self._asked_s = 0.0
        self.sentence = ""

    def refusal(self, account: str, kind: type[UserError], batches: int) -> UserError | None:
        """Return why a failed query must end; None if it is to begin again. Ask the brokers if they have caused it.

        Args:
            account: Spark's report of the failure.
            batches: The number of batches that have ended so far.
        """
        error = because(account, self._settings, kind, self._causes)
        if error.exit_code != Exit.FAILED or not re.search(OF_BROKERS, account):
            return error
        brokers, self._asked_s = check_brokers(self._settings.kafka_client_arguments(), self._topics), time.monotonic()
        is_unexplained = not brokers.sentence
        is_first = batches > self._batches or not self._was_unexplained
        if not may_begin_again(brokers, is_first=is_first, is_over=self._is_silence_over(brokers)):
            return kind(brokers.sentence) if brokers.sentence else error
        self._batches, self._was_unexplained = batches, is_unexplained
        self.sentence = brokers.sentence or "The brokers did not answer in time, and answer now."
        return None

    def _is_silence_over(self, brokers: Brokers) -> bool:
        """Return whether no broker has answered for `broker_wait_ms`, at each failure of that time."""
        if brokers.answering:
            self._silent_since_s = None
            return False
        now_s = time.monotonic()
        self._silent_since_s = now_s if self._silent_since_s is None else self._silent_since_s
        return now_s - self._silent_since_s >= self._settings.broker_wait_ms / 1_000

    def pause(self, store: StoreWatch, stopping: threading.Event) -> bool:
        """Wait after a failure of the brokers or of the store, and return whether the query may begin again now."""
        if store.is_waited_for:
            return store.is_back()
        log.warning("%s The query begins again.", self.sentence)
        return not stopping.wait(AGAIN_AFTER_S)

    def reasons(self, batches: int) -> list[str]:
        """Return the sentence about the brokers, and its age, if the query has ended no batch since; else nothing.

        They are asked at each failure of the query, and others may answer meanwhile.
        """
        if not self.sentence or batches > self._batches:
            return []
        return [f"{time.monotonic() - self._asked_s:.0f} s ago: {self.sentence}"]


def may_begin_again(brokers: Brokers, *, is_first: bool, is_over: bool) -> bool:
    """Return whether a query that has failed at these brokers can succeed later without another start.

    Args:
        is_first: Whether the last failure had another cause, or a batch has ended since.
        is_over: Whether no broker has answered for as long as the query waits.
    """
    if is_over or brokers.missing:
        return False
    return bool(brokers.sentence) or is_first
