"""Reading the coordinator's topics from where they begin, or near their ends, to where they ended when it began."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Self

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, NoCoordinator

POLL_MS = 200
SILENCE_S = 60.0
"""How long the brokers may say nothing before that is an error."""
TELL_EVERY_S = 5.0


class Progress:
    """Tells now and then how far reading has come."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell, self._told_s = tell, time.monotonic()
        self.read = self.total = 0

    def count(self, records: int) -> None:
        self.read += records
        if time.monotonic() - self._told_s >= TELL_EVERY_S:
            self._told_s = time.monotonic()
            self._tell(f"Read {self.read} of some {self.total} records.")


class Topic:
    """One topic, as long as it is now.

    Args:
        records_max: Of each partition no more than the latest of these; None for all.

    Raises:
        BrokerUnreachable: no broker answers.
        NoCoordinator: there is no such topic.
    """

    def __init__(self, settings: Settings, name: str, progress: Progress, records_max: int | None = None) -> None:
        self.name, self._servers, self._progress = name, settings.bootstrap_servers, progress
        try:
            self._consumer = KafkaConsumer(
                **settings.kafka_client_arguments(),
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                allow_auto_create_topics=False,
            )
            numbers = self._consumer.partitions_for_topic(name) or ()
            places = {number: TopicPartition(name, number) for number in sorted(numbers)}
            begins = self._consumer.beginning_offsets(list(places.values())) if places else {}
            ends = self._consumer.end_offsets(list(places.values())) if places else {}
        except KafkaError as error:
            raise BrokerUnreachable.at(self._servers, error) from error
        if not places:
            self._consumer.close()
            raise NoCoordinator.without(name, self._servers)
        self.ends: dict[int, int] = {number: ends[place] for number, place in places.items()}
        self.begins: dict[int, int] = {number: begins[place] for number, place in places.items()}
        if records_max is not None:
            self.begins = {n: max(begin, self.ends[n] - records_max // len(places)) for n, begin in self.begins.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, partition: int) -> Iterator[Any]:
        """Yield the Kafka records of one partition. One partition at a time."""
        place, end = TopicPartition(self.name, partition), self.ends[partition]
        self._progress.total += end - self.begins[partition]
        self._consumer.assign([place])
        self._consumer.seek(place, self.begins[partition])
        heard_s = time.monotonic()
        while self._consumer.position(place) < end:
            records = self._consumer.poll(timeout_ms=POLL_MS).get(place, [])
            if records:
                heard_s = time.monotonic()
                self._progress.count(len(records))
            elif time.monotonic() - heard_s > SILENCE_S:
                raise BrokerUnreachable.at(self._servers, f"{self.name}-{partition} cannot be read on")
            yield from (record for record in records if record.offset < end)
