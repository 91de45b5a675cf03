"""kafka-python's consumer, which goes on with a partition that was paused in the middle of a response.

kafka-python 3.0 puts the rest of the response aside, and takes it up again only while no other response is open. It
keeps a response that was read to its end as the open one, so that is never the case again
(`findings/kafka-python-partition-paused-in-the-middle-of-a-response.sh`).
"""

from typing import Any

from kafka import KafkaConsumer


class PausingConsumer(KafkaConsumer):  # type: ignore[misc]
    """A KafkaConsumer whose partitions are read again after each pause."""

    def poll(self, *arguments: Any, **options: Any) -> Any:
        """Return records as `KafkaConsumer.poll` does."""
        fetcher = self._fetcher
        if not fetcher._next_partition_records:
            fetcher._next_partition_records = None
        return super().poll(*arguments, **options)
