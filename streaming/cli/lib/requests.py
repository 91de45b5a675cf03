"""The commands' requests to the coordinator about groups, and to the brokers about the partitions that groups read."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from types import TracebackType
from typing import Any, Self

from coordinator.base.errors import ErrorCode
from coordinator.messages.requests import (
    DeleteGroup,
    DescribeGroup,
    ExpelMember,
    OffsetCommit,
    OffsetDelete,
    OffsetToCommit,
    RebalanceGroup,
    TopicPartitions,
)
from coordinator.messages.responses import OffsetCommitAnswer, OffsetDeleteAnswer
from streaming.administration.resetting import NewOffset
from streaming.client.transport import COMMAND_WAIT_S, Transport
from streaming.config.settings import Settings
from streaming.config.timeouts import ANSWER_WAIT_S
from streaming.errors import KeptByKafka, NoCoordinator, NotFound, RequestRefused
from streaming.kafka.offsets import EARLIEST
from streaming.kafka.prefixes import is_observed
from streaming.kafka.topic_facts import TopicFacts
from streaming.views.state.fields import PartitionKey
from streaming.views.state.lag import Bounds, EndOffsets
from streaming.views.text import escape

CLIENT_ID = "coordinator-cli"
AT_ONCE = 1_000
"""The maximum number of partitions in one request."""

NONE = ErrorCode.NONE.name
NOT_FOUND = frozenset({ErrorCode.GROUP_ID_NOT_FOUND.name, ErrorCode.UNKNOWN_MEMBER_ID.name})

MESSAGES = {
    "GROUP_ID_NOT_FOUND": "The group id does not exist.",
    "NON_EMPTY_GROUP": "The group is not empty.",
    "UNKNOWN_MEMBER_ID": "The coordinator is not aware of this member.",
    "FENCED_INSTANCE_ID": "Another member has this instance id now.",
    "GROUP_SUBSCRIBED_TO_TOPIC": "Deleting offsets of a topic is forbidden while the consumer group is actively"
    " subscribed to it.",
    "UNKNOWN_TOPIC_OR_PARTITION": "This server does not host this topic-partition.",
    "GROUP_AUTHORIZATION_FAILED": "Not authorized to access the group.",
    "TOPIC_AUTHORIZATION_FAILED": "Not authorized to access the topic.",
    "INVALID_GROUP_ID": "The group id is invalid.",
    "REBALANCE_IN_PROGRESS": "The group is rebalancing.",
}
"""The text of each error, mostly in Kafka's words."""


def message(error: str) -> str:
    """Return the sentence for an error."""
    return MESSAGES.get(error, f"The coordinator answered {error}.")


def refuse(error: str, about: str) -> None:
    """Raise the exception for a response's error, unless the error is NONE.

    Raises:
        NotFound: The group or the member does not exist.
        RequestRefused: The response has any other error.
    """
    if error != NONE:
        kind = NotFound if error in NOT_FOUND else RequestRefused
        raise kind(f"{about}: {message(error)}")


class Administration:
    """A client that sends administrative requests to the coordinator.

    Raises:
        BrokerUnreachable, NoCoordinator: No broker answers, or the coordinator's topics do not exist.
        NoAnswer: A request was not answered within `answer_wait_s`. Each request can raise it.
        KeptByKafka: The topic prefix has groups that Kafka's own coordinator keeps. Each request raises it.
    """

    def __init__(self, settings: Settings, answer_wait_s: float = COMMAND_WAIT_S) -> None:
        self._settings, self._wait_s = settings, answer_wait_s
        self._transport: Transport | None = None
        try:
            self._transport = Transport(settings.kafka_client_arguments(), settings.topic_prefix, settings.signer_at)
        except NoCoordinator:
            if not is_observed(settings):
                raise
        self._client_host = self._transport.client_host() if self._transport is not None else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._transport is not None:
            self._transport.close()

    def delete(self, group_id: str) -> str:
        """Delete a group, and return the name of an error, or NONE."""
        return str(self._ask(DeleteGroup, group_id).error)

    def rebalance(self, group_id: str, reason: str | None) -> Any:
        """Make all members of a group join again, and return the response."""
        answer = self._ask(RebalanceGroup, group_id, reason=reason)
        refuse(answer.error, f"The group {escape(group_id)} was not asked to rebalance")
        return answer

    def describe(self, group_id: str) -> Any:
        """Return the coordinator's description of a group, with the members that a rebalance waits for, and the
        deadline."""
        return self._ask(DescribeGroup, group_id)

    def expel(self, group_id: str, member_id: str, instance_id: str | None, reason: str | None) -> str:
        """Remove a member from its group, and return the member's id."""
        answer = self._ask(ExpelMember, group_id, member_id=member_id, group_instance_id=instance_id, reason=reason)
        refuse(answer.error, f"{escape(member_id or instance_id or '')} was not removed from {escape(group_id)}")
        return str(answer.member_id)

    def delete_offsets(self, group_id: str, places: Collection[PartitionKey]) -> tuple[str, dict[PartitionKey, str]]:
        """Delete committed offsets, and return the error of the request and the error of each partition."""
        ended: dict[PartitionKey, str] = {}
        for some in _portions(places):
            topics: dict[str, list[int]] = {}
            for topic, partition in some:
                topics.setdefault(topic, []).append(partition)
            asked = tuple(TopicPartitions(topic, tuple(each)) for topic, each in topics.items())
            answer = self._ask(OffsetDelete, group_id, topics=asked)
            if not isinstance(answer, OffsetDeleteAnswer) or answer.error != NONE:
                return answer.error, {**ended, **dict.fromkeys(places, answer.error)}
            ended |= {(each.topic, each.partition): each.error for each in answer.partitions}
        return NONE, ended

    def commit(self, group_id: str, offsets: Mapping[PartitionKey, NewOffset]) -> dict[PartitionKey, str]:
        """Commit offsets for a group without members, with the ids of their topics. Return the error of each partition.

        Raises:
            BrokerUnreachable: No broker answers about the topics.
        """
        ended: dict[PartitionKey, str] = {}
        with closing(TopicFacts(self._settings, CLIENT_ID)) as asker:
            facts = asker.of({topic for topic, _ in offsets}, ANSWER_WAIT_S)
        for some in _portions(offsets):
            asked = tuple(
                OffsetToCommit(
                    topic, partition, new.offset, new.leader_epoch, new.metadata,
                    topic_id=facts[topic].topic_id if topic in facts else None,
                )
                for (topic, partition), new in ((place, offsets[place]) for place in some)
            )  # fmt: skip
            answer = self._ask(OffsetCommit, group_id, offsets=asked)
            if not isinstance(answer, OffsetCommitAnswer) or not answer.partitions:
                return {**ended, **dict.fromkeys(some, answer.error)}
            ended |= {(each.topic, each.partition): each.error for each in answer.partitions}
        return ended

    def _ask(self, kind: type[Any], group_id: str, **fields: Any) -> Any:
        if self._transport is None:
            raise KeptByKafka.group(escape(group_id))
        who = {"client_id": CLIENT_ID, "client_host": self._client_host}
        request = kind(request_id="", reply_to="", group_id=group_id, **who, **fields)
        return self._transport.ask(request, self._wait_s)


def _portions(places: Iterable[PartitionKey]) -> Iterator[list[PartitionKey]]:
    remaining = iter(places)
    while some := list(islice(remaining, AT_ONCE)):
        yield some


class BrokerLog:
    """The brokers' data about the partitions that groups read: a `resetting.Log`."""

    def __init__(self, settings: Settings) -> None:
        self._offsets = EndOffsets(settings)

    def partitions(self, topics: Collection[str]) -> dict[str, list[int]]:
        """Return each topic's partitions."""
        return self._offsets.partitions(topics)

    def bounds(self, places: Collection[PartitionKey]) -> dict[PartitionKey, Bounds]:
        """Return the first offset and the end offset of each partition."""
        ends = self._offsets.of(places)
        begins = self._offsets.of(ends, EARLIEST)
        return {place: Bounds(begins[place], ends[place]) for place in places if place in begins}

    def at(self, places: Collection[PartitionKey], at_ms: int) -> dict[PartitionKey, int]:
        """Return the first offset of each partition at or after a time."""
        found = self._offsets.of(places, at_ms)
        return {place: offset for place, offset in found.items() if offset >= 0}
