"""A regular check of the topics while the query runs.

The coordinator refuses to start with an unsuitable topic. Somebody may make a topic unsuitable later:

    what                                                     found after           then
    a topic of the checkpoint is deleted and made anew;      `LOOK_EVERY_S`        the query ends
    the topic of the requests has more partitions
    clients set the times of their requests, or requests     `CHECK_EVERY_S`       the query ends
    vanish (CreateTime, compaction)
    another setting of a topic does not fit                  `CHECK_EVERY_S`       a warning: the groups are still
                                                                                   correct, and can be published again
    brokers may lose acknowledged records                    start, `CHECK_EVERY_S` a warning: nothing is lost yet

Whatever ends the query would have prevented its start.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from kafka.errors import KafkaError

from streaming.config.settings import Settings
from streaming.errors import TopicMismatch, UserError
from streaming.kafka import topics
from streaming.kafka.any_broker import Reconnecting
from streaming.watcher import Watcher

log = logging.getLogger(__name__)

CHECK_EVERY_S = 60.0
"""The time between two checks of the topics' settings."""

LOOK_EVERY_S = 2.0
"""The time between two looks at the topics' ids: about the longest time that the query reads a topic made anew."""


class TopicWatch(Watcher):
    """A thread that checks the topics. `refusal` is the reason why the query must end, else None.

    Args:
        layout: The topics that the query writes, and those of its own that it reads.
    """

    def __init__(self, settings: Settings, layout: topics.Topics | topics.ObservedTopics) -> None:
        self._settings, self._layout = settings, layout
        self.refusal: TopicMismatch | None = None
        self._ids: Mapping[str, str] = {}
        self._looking = threading.Lock()
        self._brokers = Reconnecting({**settings.kafka_client_arguments(), "client_id": "coordinator-topic-watch"})
        super().__init__("the check of the topics", self._brokers.close, end_wait_s=0)

    def start_on(self, ids: Mapping[str, str]) -> None:
        """Start the thread.

        Args:
            ids: The id of each topic to which the checkpoint belongs.
        """
        self._ids = ids
        self.start()

    def _watch(self) -> None:
        warned: list[str] = []
        risks = self._warn_of_risks([])
        check_s = time.monotonic() + CHECK_EVERY_S
        while not self._closing.wait(LOOK_EVERY_S) and self.refusal is None:
            self.check()
            if time.monotonic() >= check_s:
                warned, risks = self._check(warned), self._warn_of_risks(risks)
                check_s = time.monotonic() + CHECK_EVERY_S

    def check(self) -> None:
        """Compare the topics with those of the checkpoint. Other checks report brokers that do not answer."""
        try:
            with self._looking:
                described = self._brokers.run(lambda brokers: brokers.describe_topics(self._ids))
        except KafkaError as error:
            log.debug("the topics' ids could not be read: %s", error)
            return
        if found := list(altered(self._layout, self._ids, described)):
            self.refusal = TopicMismatch(f"{'; '.join(found)}: see {topics.ALTERED}.")

    def _check(self, warned: list[str]) -> list[str]:
        """Check the settings of the topics, and return what was found. It is logged unless it was before."""
        try:
            found = topics.mismatches(self._settings, self._layout)
        except UserError as error:  # other checks report unavailable brokers, and the next check may succeed
            log.debug("the topics could not be checked: %s", error)
            return warned
        if any(mismatch.role == "requests" for mismatch in found):
            self.refusal = self.refusal or topics.refusal(found)
        sentences = [mismatch.what for mismatch in found]
        if sentences and sentences != warned and self.refusal is None:
            log.warning("%s", topics.refusal(found))
        return sentences

    def _warn_of_risks(self, warned: list[str]) -> list[str]:
        """Log the risks of the topics' settings unless they were logged before. Return the risks."""
        try:
            risks = topics.risks(self._settings, self._layout)
        except UserError as error:
            log.debug("the settings of the topics could not be read: %s", error)
            return warned
        for risk in risks:
            if risk not in warned:
                log.warning("%s", risk)
        return risks


def altered(
    layout: topics.Topics | topics.ObservedTopics, ids: Mapping[str, str], described: Mapping[str, Any]
) -> Iterator[str]:
    """Yield why the topics are no longer those of the checkpoint. A topic that brokers do not describe may come back.

    Args:
        ids: The id of each topic to which the checkpoint belongs.
        described: The entries of a Metadata response, by the topics' names.
    """
    for role, topic in layout._asdict().items():
        if (found := described.get(topic.name)) is None or found.error_code:
            continue
        if str(found.topic_id) != ids[topic.name]:
            yield f"{topic.name} was deleted and made anew"
        elif role == "requests" and len(found.partitions) != topic.partitions:
            partitions = len(found.partitions)
            yield f"{topic.name} has {partitions} partitions, and the groups are divided among {topic.partitions}"
