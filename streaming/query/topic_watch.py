"""A regular check of the topics while the query runs.

The coordinator refuses to start with an unsuitable topic. A user with the right to alter topics can make a topic
unsuitable later: with CreateTime on the request topic, clients set the times of their own requests; with compaction,
requests disappear from it. Both stop the query, because both would have prevented its start. A mismatch of another
topic is a warning: the groups are still correct, and the coordinator can publish them again.
"""

import logging
import threading

from streaming.config.settings import Settings
from streaming.errors import TopicMismatch, UserError
from streaming.kafka import topics
from streaming.query.threads import keep_at

log = logging.getLogger(__name__)

CHECK_EVERY_S = 60.0
"""The time between two checks: the longest time that the query reads an unsuitable topic."""


class TopicWatch:
    """A thread that checks the topics. `refusal` is the reason why the query must end, else None."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.refusal: TopicMismatch | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=keep_at, args=(self._watch, "the check of the topics", self._closing), name="topics", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread. A check that is under way ends with the process at the latest."""
        self._closing.set()

    def _watch(self) -> None:
        warned: list[str] = []
        while not self._closing.wait(CHECK_EVERY_S) and self.refusal is None:
            try:
                found = topics.mismatches(self._settings)
            except UserError as error:  # other checks report unavailable brokers, and the next check may succeed
                log.debug("the topics could not be checked: %s", error)
                continue
            if any(mismatch.role == "requests" for mismatch in found):
                self.refusal = topics.refusal(found)
            sentences = [mismatch.what for mismatch in found]
            if sentences and sentences != warned and self.refusal is None:
                log.warning("%s", topics.refusal(found))
            warned = sentences
