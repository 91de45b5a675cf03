"""A consumer in its own process. It notes the records that it reads, commits, and notes each acknowledgement.

    python -m tests.chaos.member FILE TOPIC '{"group_id": "g", "topic_prefix": "chaos", ...}'

Without a topic prefix, the consumer is kafka-python's own, and it uses the coordinator that a gateway names. On SIGTERM
it leaves its group and ends.
"""

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError

from streaming.client import GroupConsumer
from streaming.errors import UserError
from tests.chaos.history import History

POLL_MS = 100
STOCK_POLL_MS = 1_000
"""kafka-python 3.0.12 hangs if a poll ends between the responses to its join and to its sync."""

PAUSE_S = 0.2
"""The wait after a failure, in seconds."""

ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}

Partitions = set[TopicPartition]


class StockConsumer(KafkaConsumer):  # type: ignore[misc]
    """kafka-python's consumer, with access to its private membership data."""

    def __init__(self, partition_assignment_strategy: list[str], **config: Any) -> None:
        strategy = [ASSIGNORS[name] for name in partition_assignment_strategy]
        super().__init__(partition_assignment_strategy=strategy, **config)

    @property
    def generation(self) -> int:
        return int(self._coordinator._generation.generation_id)

    @property
    def member_id(self) -> str:
        return str(self._coordinator._generation.member_id)


class Member(ConsumerRebalanceListener):  # type: ignore[misc]
    """One consumer and its notes."""

    def __init__(self, consumer: GroupConsumer | StockConsumer, history: History) -> None:
        self._consumer, self._history = consumer, history
        self._poll_ms = STOCK_POLL_MS if isinstance(consumer, StockConsumer) else POLL_MS
        self._uncommitted: dict[int, int] = {}

    def work(self, leaving: threading.Event) -> None:
        while not leaving.is_set():
            for place, records in self._poll(leaving).items():
                self._note("read", [place.partition, records[0].offset, records[-1].offset])
                assert [r.offset for r in records] == list(range(records[0].offset, records[-1].offset + 1))
                self._uncommitted[place.partition] = records[-1].offset + 1
            self._commit()

    def _poll(self, leaving: threading.Event) -> dict[TopicPartition, Any]:
        """Return the polled records, or none after an error. A consumer that is closed would leave its group."""
        try:
            return dict(self._consumer.poll(self._poll_ms))
        except KafkaError as error:
            self._note("failed", type(error).__name__)
            leaving.wait(PAUSE_S)
            return {}

    def _commit(self) -> None:
        """Commit the read offsets. After a refused commit, the next commit or the next owner covers the records."""
        if not self._uncommitted:
            return
        identity = self._consumer.generation, self._consumer.member_id
        try:
            self._consumer.commit()
        except KafkaError as error:
            self._note("refused", type(error).__name__)
        else:
            self._history.note("acknowledged", self._uncommitted, *identity)
            self._uncommitted = {}

    def on_partitions_revoked(self, revoked: Partitions) -> None:
        self._commit()
        self._release("revoked", revoked)

    def on_partitions_lost(self, lost: Partitions) -> None:
        self._release("lost", lost)

    def on_partitions_assigned(self, assigned: Partitions) -> None:
        self._note("assigned", sorted(place.partition for place in assigned))

    def _release(self, how: str, places: Partitions) -> None:
        self._note(how, sorted(place.partition for place in places))
        for place in places:
            self._uncommitted.pop(place.partition, None)

    def _note(self, what: str, value: object) -> None:
        self._history.note(what, value, self._consumer.generation, self._consumer.member_id)


def main() -> None:
    file, topic, encoded_config = sys.argv[1:]
    config: dict[str, Any] = json.loads(encoded_config)
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: leaving.set())
    kind = GroupConsumer if "topic_prefix" in config else StockConsumer
    while not leaving.is_set():
        try:
            with kind(**config) as consumer:
                consumer.subscribe([topic], listener=(member := Member(consumer, History(Path(file)))))
                consumer.partitions_for_topic(topic)
                member.work(leaving)
        except (UserError, KafkaError) as error:
            print(f"starting again: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            leaving.wait(PAUSE_S)  # for example, no broker answers yet


if __name__ == "__main__":
    main()
