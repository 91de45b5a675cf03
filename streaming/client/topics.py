"""The existing topics, read again and again by a thread of its own.

Members that subscribe to a pattern, and leaders, have to notice new topics and new partitions. Polling and heartbeats
must not wait for that, so a thread reads the topics: once every `metadata_max_age_ms`, sooner if a member asks about a
topic that has not been read, and every second while a topic that a member asks about does not exist. Members of the
consumer protocol name a shorter time: what their group knows of topics is what its members' clients tell it.

Source: Kafka's ConsumerMetadata and ConsumerCoordinator.MetadataSnapshot; KIP-848, KIP-881 for racks.
"""

import logging
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from kafka import KafkaAdminClient
from kafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from msgspec import Struct

from streaming.config.timeouts import ANSWER_WAIT_S
from streaming.kafka.starting import Attempt, started
from streaming.moments import monotonic_ms

log = logging.getLogger(__name__)

AGAIN_S = 1.0
CLOSE_WAIT_S = 5.0

ID_AGE_MS = 30_000
"""The age up to which the id of a topic is given to commits and fetches. An older one may be of a deleted topic; the
coordinator finds the id itself then."""

_CLEAR = {0, UnknownTopicOrPartitionError.errno, InvalidTopicError.errno, TopicAuthorizationFailedError.errno}
"""The codes that say whether a topic exists. One that this client may not describe counts as one that does not."""


class Topic(Struct, frozen=True):
    """A topic as it was last read.

    Args:
        racks: Partition by partition, the racks that hold a replica.
        topic_id: As Kafka prints it.
    """

    racks: tuple[frozenset[str], ...]
    is_internal: bool = False
    topic_id: str = ""


class Snapshot(Struct, frozen=True):
    """The topics at one time.

    Args:
        known: The names that were looked up; None if all topics were.
        unclear: The topics for which the brokers returned an error that does not mean that they do not exist.
        asked_ms: When the brokers were asked, by the monotonic clock.
    """

    topics: Mapping[str, Topic] = {}
    known: frozenset[str] | None = frozenset()
    unclear: frozenset[str] = frozenset()
    asked_ms: int = 0

    def knows(self, names: Collection[str]) -> bool:
        """Return whether all these topics were looked up, including those that do not exist."""
        return self.known is None or self.known.issuperset(names)


class _TopicRequest(NamedTuple):
    """The topics that a member asks about, all of them if None, and how old the answer may become, in seconds."""

    names: frozenset[str] | None
    age_s: float


class TopicWatch:
    """Keeps a `snapshot` of the topics that members ask about. The first question opens the connection.

    Args:
        kafka: The connection settings, as kafka-python's clients take them.
    """

    def __init__(self, kafka: Mapping[str, object]) -> None:
        self._kafka = {name: value for name, value in kafka.items() if name in KafkaAdminClient.DEFAULT_CONFIG}
        self._max_age_s = {**KafkaAdminClient.DEFAULT_CONFIG, **kafka}["metadata_max_age_ms"] / 1000
        self._changed = threading.Condition()
        self._requests: dict[object, _TopicRequest] = {}
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self.snapshot = Snapshot()

    def ask(self, who: object, names: Collection[str] | None, age_ms: int | None = None) -> None:
        """Watch these topics from now on, or all topics if None, in place of the earlier question of `who`.

        Args:
            age_ms: How often to read them, in milliseconds; None for `metadata_max_age_ms`.
        """
        age_s = self._max_age_s if age_ms is None else min(age_ms / 1000, self._max_age_s)
        with self._changed:
            self._requests[who] = _TopicRequest(None if names is None else frozenset(names), age_s)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="coordinator topics", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def forget(self, who: object) -> None:
        """Stop watching topics for `who`."""
        with self._changed:
            self._requests.pop(who, None)

    def wait(self, names: Collection[str], wait_s: float) -> Snapshot:
        """Wait until these topics have been looked up, and return the snapshot. A member must have asked about them.

        Raises:
            KafkaTimeoutError: they have not been looked up after `wait_s`.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.snapshot.knows(names), wait_s):
                raise KafkaTimeoutError(f"The brokers did not return the topics' partitions within {wait_s:g} s")
            return self.snapshot

    def id_of(self, topic: str) -> str | None:
        """Return the id of a topic; None if the snapshot does not have it, or is older than `ID_AGE_MS`."""
        snapshot = self.snapshot
        seen = snapshot.topics.get(topic)
        is_young = monotonic_ms() - snapshot.asked_ms <= ID_AGE_MS
        return seen.topic_id or None if seen is not None and is_young else None

    def close(self) -> None:
        """Stop the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_WAIT_S)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        admin: Any = None
        while not self._is_closing:
            try:
                admin = admin or started(self._open, ANSWER_WAIT_S)
                self._update(admin, self._wanted())
            except (KafkaError, OSError) as error:
                log.warning("the lookup of topics and partitions failed and is retried: %s", error)
                self._wait(lambda: self._is_closing, AGAIN_S)
            except Exception:  # members must learn of new partitions after any error
                log.exception("the lookup of topics and partitions failed and is retried")
                self._wait(lambda: self._is_closing, AGAIN_S)
            else:
                age_s = self._age_s()
                wait_s = min(AGAIN_S, age_s) if self._misses_some() else age_s
                self._wait(partial(self._must_look_before, age_s), wait_s)
        if admin is not None:
            admin.close()

    def _open(self, attempt: Attempt) -> Any:
        return KafkaAdminClient(**attempt.config(self._kafka))

    def _wait(self, until: Callable[[], bool], wait_s: float) -> None:
        with self._changed:
            self._changed.wait_for(until, wait_s)

    def _wanted(self) -> frozenset[str] | None:
        with self._changed:
            requested = [question.names for question in self._requests.values()]
        if None in requested:
            return None
        return frozenset().union(*(names for names in requested if names is not None))

    def _age_s(self) -> float:
        with self._changed:
            return min((question.age_s for question in self._requests.values()), default=self._max_age_s)

    def _has_gap(self) -> bool:
        wanted = self._wanted()
        return self.snapshot.known is not None and (wanted is None or not self.snapshot.knows(wanted))

    def _must_look_before(self, age_s: float) -> bool:
        return self._is_closing or self._has_gap() or self._age_s() < age_s

    def _misses_some(self) -> bool:
        """Return whether a member has asked about a topic by name that does not exist yet."""
        return not (self.snapshot.known or frozenset()).issubset(self.snapshot.topics)

    def _update(self, admin: Any, wanted: frozenset[str] | None) -> None:
        asked_ms = monotonic_ms()
        described = [] if wanted == frozenset() else admin.describe_topics(None if wanted is None else sorted(wanted))
        racks = _racks(admin) if described else {}
        topics = {each["name"]: _topic(each, racks) for each in described if not each["error_code"]}
        unclear = frozenset(each["name"] for each in described if each["error_code"] not in _CLEAR)
        with self._changed:
            self.snapshot = Snapshot(topics, wanted, unclear, asked_ms)
            self._changed.notify_all()


def _racks(admin: Any) -> dict[int, str | None]:
    """Return each broker's rack; no racks if this client may not ask, since assignments do not require them."""
    try:
        return {broker["broker_id"]: broker["rack"] for broker in admin.describe_cluster()["brokers"]}
    except ClusterAuthorizationFailedError:
        return {}


def _topic(described: Mapping[str, Any], racks: Mapping[int, str | None]) -> Topic:
    partitions = sorted(described["partitions"], key=lambda p: p["partition_index"])
    return Topic(
        racks=tuple(frozenset(rack for node in p["replica_nodes"] if (rack := racks.get(node))) for p in partitions),
        is_internal=described.get("is_internal", False),
        topic_id=_id_text(described["topic_id"]) if described.get("topic_id") else "",
    )


def _id_text(topic_id: str) -> str:
    """Return a UUID, which kafka-python prints in hexadecimal, as Kafka prints it: URL-safe base64 without padding."""
    return urlsafe_b64encode(UUID(topic_id).bytes).decode().rstrip("=")
