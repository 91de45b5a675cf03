"""The topics of committed offsets: those that are deleted or made anew are reported to their groups.

A thread asks the brokers for the ids of all topics that the groups topic has offsets of, again and again. It knows
these topics from the reader of late repeats, which reads the groups topic from its beginning after each start. So a
topic that was deleted while no coordinator ran is found as well.

    an id that the name does not have    its offsets are dropped
    offsets without an id                get the id that the name has

A broker may be behind the others for a moment. So a report needs two equal answers, one look apart. Each report is a
request to the coordinator, so a replay contains it; `coordinator.common.offsets` has the rules. A report that comes
twice changes nothing.

Source: Kafka's GroupCoordinatorService.onMetadataUpdate.
"""

import logging
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from coordinator.base.hashing import shard_of
from coordinator.base.limits import SUBSCRIBED_NAMES_MAX
from coordinator.common.authorizer import COORDINATOR
from coordinator.messages.consumer_requests import TopicFact
from coordinator.messages.fields import NO_TOPIC
from coordinator.messages.group_records import OffsetRecord
from coordinator.messages.requests import OffsetTopic, OffsetTopics
from streaming.config.settings import Settings
from streaming.config.timeouts import ANSWER_WAIT_S
from streaming.errors import UserError
from streaming.kafka.clients import producer
from streaming.kafka.reader import Record
from streaming.kafka.topic_facts import TopicFacts
from streaming.moments import unix_ms
from streaming.watcher import Watcher
from streaming.wire.records import decode_group_record
from streaming.wire.signing import Signer

log = logging.getLogger(__name__)

ENTRIES_MAX = 200_000
"""Pairs of a group and a topic that are watched, some 200 bytes each. Beyond it those of the topic that was seen first
are forgotten, until their groups commit again."""

REPORTS_AT_ONCE = 1_000
"""The groups that get a report after one look. Each costs the coordinator as much as a commit."""

REST_PART = 20
"""How often the time of a look passes at least before the next one: a large cluster has many topics."""

CLIENT_ID = "coordinator-offset-topics"
SEND_WAIT_MS = 60_000
CLOSE_WAIT_S = 2.0


class Named(NamedTuple):
    """A topic as offsets name it.

    Args:
        topic_id: None for offsets without an id.
    """

    topic: str
    topic_id: str | None


class Suspect(NamedTuple):
    """What the last look has found about offsets that may have to be reported.

    Args:
        current_id: The id that the name had; None if no topic had it.
        committed_ms: By group, the time of the last commit that was read before the look, Unix milliseconds.
    """

    current_id: str | None
    committed_ms: Mapping[str, int]


class WatchedTopics:
    """The topics of offsets, and which of them are to be reported. This class does not use Kafka."""

    def __init__(self) -> None:
        self._groups: dict[Named, dict[str, int]] = {}
        self._entries = 0
        self._suspects: dict[Named, Suspect] = {}

    @property
    def names(self) -> set[str]:
        """The names of the topics."""
        return {named.topic for named in self._groups}

    def handle(self, record: OffsetRecord) -> None:
        """Add the topic of an offset's record."""
        groups = self._groups.setdefault(Named(record.topic, record.topic_id or None), {})
        self._entries += record.group_id not in groups
        groups[record.group_id] = max(record.commit_timestamp_ms, groups.get(record.group_id, 0))
        while self._entries > ENTRIES_MAX:
            self._forget(next(iter(self._groups)))

    def _forget(self, named: Named) -> None:
        self._entries -= len(self._groups.pop(named))

    def compare(self, names: Iterable[str], facts: Mapping[str, TopicFact]) -> Iterator[tuple[str, OffsetTopic]]:
        """Yield the reports of topics about which the brokers have answered the same at the last look.

        Args:
            names: The topics that the brokers were asked about. Their records were read before.
            facts: Their answers. A topic without one is not judged.
        """
        before, self._suspects = self._suspects, {}
        names_asked = set(names)
        for named, groups in list(self._groups.items()):
            fact = facts.get(named.topic) if named.topic in names_asked else None
            if fact is None or named.topic_id == (fact.topic_id or NO_TOPIC):
                continue
            self._suspects[named] = Suspect(fact.topic_id, dict(groups))
            if named in before and before[named].current_id == fact.topic_id:
                for group_id in filter(groups.__contains__, before[named].committed_ms):
                    committed_ms = before[named].committed_ms[group_id]
                    yield group_id, OffsetTopic(named.topic, named.topic_id, fact.topic_id, committed_ms)

    def reported(self, group_id: str, topics: Iterable[OffsetTopic]) -> None:
        """Note that the brokers have a report. Its topics are watched again when the group commits for them."""
        for report in topics:
            named = Named(report.topic, report.topic_id)
            groups = self._groups.get(named, {})
            if groups.get(group_id, report.committed_ms + 1) <= report.committed_ms:
                del groups[group_id]
                self._entries -= 1
                if not groups:
                    del self._groups[named]


class OffsetTopicWatch(Watcher):
    """A thread that reports the topics of offsets that were deleted or made anew."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._watched = settings, WatchedTopics()
        self._lock = threading.Lock()
        self._signer = Signer(settings.signing(), COORDINATOR)
        self._facts = TopicFacts(settings, CLIENT_ID)
        super().__init__("the look at the topics of offsets", self._facts.close)

    def handle(self, raw: Record) -> None:
        """Add the next record of the groups topic. Any thread may call this."""
        if raw.value is None or not raw.key.startswith(b'["offset"'):
            return
        try:
            _, record = decode_group_record(raw.key, raw.value)
        except ValueError:
            return
        if isinstance(record, OffsetRecord):
            with self._lock:
                self._watched.handle(record)

    def _watch(self) -> None:
        sender = producer(self._settings, CLIENT_ID, {"linger.ms": 0, "message.timeout.ms": SEND_WAIT_MS})
        rest_s = period_s = self._settings.metadata_refresh_ms / 1_000
        try:
            while not self._closing.wait(rest_s):
                begun_s = time.monotonic()
                try:
                    self._check(sender)
                except UserError as error:  # other checks report unavailable brokers, and the next look may succeed
                    log.debug("the topics of offsets could not be looked at: %s", error)
                rest_s = max(period_s, REST_PART * (time.monotonic() - begun_s))
        finally:
            sender.flush(CLOSE_WAIT_S)

    def _check(self, sender: Producer) -> None:
        """Request the facts from the brokers once, and send the reports that are due.

        Raises:
            BrokerUnreachable: No broker answers.
        """
        sender.poll(0)
        with self._lock:
            names = self._watched.names
        facts = self._facts.of(sorted(names), ANSWER_WAIT_S)
        reports: dict[str, list[OffsetTopic]] = {}
        with self._lock:
            for group_id, report in self._watched.compare(names, facts):
                if len(reports) < REPORTS_AT_ONCE or group_id in reports:
                    reports.setdefault(group_id, []).append(report)
        for group_id, topics in reports.items():
            request = _request(group_id, topics[:SUBSCRIBED_NAMES_MAX])
            value = self._signer.value_of(request, unix_ms())
            shard = shard_of(group_id, self._settings.request_partitions)
            sent = partial(self._sent, request)
            sender.produce(self._settings.requests_topic, value, group_id.encode(), partition=shard, on_delivery=sent)

    def _sent(self, request: OffsetTopics, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            log.warning("the brokers do not take a report about topics of offsets; it is made again: %s", error)
            return
        with self._lock:
            self._watched.reported(request.group_id, request.topics)


def _request(group_id: str, topics: Iterable[OffsetTopic]) -> OffsetTopics:
    return OffsetTopics(
        request_id=f"offset-topics-{uuid.uuid4().hex}",
        reply_to=CLIENT_ID,
        group_id=group_id,
        client_id="coordinator",
        principal=COORDINATOR,
        topics=tuple(topics),
    )
