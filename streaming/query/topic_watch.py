"""Whether the topics are still what they have to be, looked at while the query runs.

A start is refused where a topic would not do. Anybody who may alter topics can make one so later: with CreateTime on
the request topic clients date their own requests, and with compaction there requests vanish. Both stop the query, as
they would have refused its start. What is wrong with another topic is a warning: groups are still right, and what they
publish can be written again.
"""

import logging
import threading

from streaming.config.settings import Settings
from streaming.errors import TopicMismatch, UserError
from streaming.kafka import topics

log = logging.getLogger(__name__)

CHECK_EVERY_S = 60.0
"""How often the brokers are asked. So long at most are requests read of a topic that would not do."""


class TopicWatch:
    """Looks at the topics in a thread of its own. `refusal` is why the query must end, else None."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.refusal: TopicMismatch | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="topics", daemon=True)

    def start(self) -> None:
        """Look at the topics from now on."""
        self._thread.start()

    def close(self) -> None:
        """Look no more; a question that is under way ends with the process at the latest."""
        self._closing.set()

    def _watch(self) -> None:
        warned: list[str] = []
        while not self._closing.wait(CHECK_EVERY_S) and self.refusal is None:
            try:
                found = topics.mismatches(self._settings)
            except UserError as error:  # brokers that are away are somebody else's to tell, and may be back next time
                log.debug("the topics could not be looked at: %s", error)
                continue
            if any(mismatch.role == "requests" for mismatch in found):
                self.refusal = topics.refusal(found)
            sentences = [mismatch.what for mismatch in found]
            if sentences and sentences != warned and self.refusal is None:
                log.warning("%s", topics.refusal(found))
            warned = sentences
