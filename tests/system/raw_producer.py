"""A transactional producer of the tests: it makes the requests of Kafka's protocol one by one."""

from typing import Any

from kafka.errors import UnknownTopicOrPartitionError
from kafka.protocol.producer import AddOffsetsToTxnRequest, EndTxnRequest, TxnOffsetCommitRequest

from tests.system.waiting import wait_until
from tests.system.wire import Wire, new_producer


class RawProducer:
    """A transactional producer that sends each request to the gateway that the test chooses."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: str) -> None:
        self._group_id, self._topic = group_id, topic
        self.transaction = new_producer(bootstrap_servers, f"id-{group_id}")

    def begin(self, wire: Wire) -> None:
        """Begin a transaction by AddOffsetsToTxn. The brokers refuse it until the last transaction is complete."""
        request = AddOffsetsToTxnRequest(version=3, group_id=self._group_id, **self.transaction._asdict())
        wait_until(lambda: wire.call(request).error_code == 0)

    def offsets(self, offsets: dict[int, int]) -> Any:
        """Return a TxnOffsetCommit with the offset of each partition."""
        of_topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        of_partition = of_topic.TxnOffsetCommitRequestPartition
        return TxnOffsetCommitRequest(
            version=3,
            group_id=self._group_id,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                of_topic(
                    name=self._topic,
                    partitions=[
                        of_partition(
                            partition_index=number, committed_offset=offset, committed_leader_epoch=-1,
                            committed_metadata="",
                        )
                        for number, offset in offsets.items()
                    ],
                )
            ],
            **self.transaction._asdict(),
        )  # fmt: skip

    def commit_offsets(self, wire: Wire, offsets: dict[int, int]) -> None:
        """Commit offsets. As a client does, repeat the request while the gateway does not know the new topic yet."""
        codes: list[int] = []

        def is_topic_known() -> bool:
            (answer,) = wire.call(self.offsets(offsets)).topics
            codes[:] = [each.error_code for each in answer.partitions]
            return UnknownTopicOrPartitionError.errno not in codes

        wait_until(is_topic_known)
        assert codes == [0] * len(offsets)

    def end(self, wire: Wire, *, committed: bool) -> None:
        request = EndTxnRequest(version=3, committed=committed, **self.transaction._asdict())
        assert wire.call(request).error_code == 0
