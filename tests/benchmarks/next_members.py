"""Members of the consumer protocol (KIP-848), and the heartbeats that they send to the core."""

from dataclasses import dataclass
from uuid import NAMESPACE_OID, uuid5

from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, OwnedPartitions, TopicFact
from coordinator.messages.responses import ConsumerGroupHeartbeatAnswer
from streaming.gateway.protocol.topic_ids import id_text
from tests.benchmarks.members import REBALANCE_TIMEOUT_MS

TOPIC = "orders.placed"
TOPIC_ID = id_text(uuid5(NAMESPACE_OID, TOPIC).bytes)


@dataclass
class Member:
    """A member of one of many equal groups, with its epoch and the partitions from its responses."""

    group_id: str
    number: int
    partitions: int
    epoch: int = 0
    owned: tuple[int, ...] = ()
    owes_acknowledgement: bool = False
    is_settled: bool = False

    @property
    def member_id(self) -> str:
        return id_text(uuid5(NAMESPACE_OID, f"{self.group_id} {self.number}").bytes)

    def request(self, request_id: str) -> ConsumerGroupHeartbeat:
        """Return the next heartbeat: the join, the acknowledgement of an assignment, or a plain one."""
        if self.epoch == 0:
            return self._heartbeat(
                request_id,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                subscribed_topic_names=(TOPIC,),
                topic_partitions=(),
                topics=(TopicFact(TOPIC, TOPIC_ID, self.partitions),),
            )
        if self.owes_acknowledgement:
            self.owes_acknowledgement = False
            owned = (OwnedPartitions(TOPIC_ID, self.owned),) if self.owned else ()
            return self._heartbeat(request_id, topic_partitions=owned)
        return self._heartbeat(request_id)

    def take(self, answer: ConsumerGroupHeartbeatAnswer) -> None:
        """Store the epoch and the assignment of a response."""
        assert not answer.code, f"{self.member_id} was refused: {answer.error}"
        self.epoch = answer.member_epoch
        self.is_settled = answer.assignment is None and answer.pending == "none"
        if answer.assignment is not None:
            self.owned = tuple(number for topic in answer.assignment for number in topic.partitions)
            self.owes_acknowledgement = True

    def _heartbeat(self, request_id: str, **fields: object) -> ConsumerGroupHeartbeat:
        return ConsumerGroupHeartbeat(
            request_id=request_id,
            reply_to=uuid5(NAMESPACE_OID, self.member_id).hex,
            client_id=f"consumer-{self.group_id}-{self.number}",
            client_host=f"/10.20.30.{self.number}",
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            **fields,  # type: ignore[arg-type]
        )


def members(groups: int, each: int) -> list[Member]:
    """Make the members of `groups` groups of one topic with a partition for each member, group by group."""
    return [Member(f"orders-{group:05}", number, each) for group in range(groups) for number in range(each)]
