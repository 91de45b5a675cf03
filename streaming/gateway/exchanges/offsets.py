"""OffsetCommit, OffsetFetch and OffsetDelete.

Whether there is such a topic and such a partition is looked up here: the coordinator knows only the names it is told.

Source: KafkaApis.handleOffsetCommitRequest, handleOffsetFetchRequest and handleOffsetDeleteRequest,
OffsetFetchResponse.Builder, and the JSON schemas of their messages.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress, groupby, islice, repeat
from typing import Any

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.group import OffsetCommitResponse, OffsetDeleteResponse, OffsetFetchResponse

from coordinator import requests
from coordinator.errors import ErrorCode
from coordinator.outputs import AnyAnswer, FetchedOffset, OffsetCommitAnswer, OffsetDeleteAnswer, OffsetFetchAnswer
from streaming.gateway.exchanges.exchange import SERVER_ERROR, Asker, Exchange, Question, World, expected, of_one

UNKNOWN_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number

MISSING_GROUP = 9
"""From this version on a commit to a group that is not there hears so; before, it is one of a wrong generation."""

ONE_ERROR = 2
"""From this version on an OffsetFetch that fails says so once; before, for each partition."""

MANY_GROUPS = 8
"""From this version on an OffsetFetch asks about many groups (KIP-709)."""

Topics = Iterable[Any]


def topics_named(message: Any) -> dict[str, int]:
    """Name the topics of a commit or a deletion, and how many partitions each must have for all to be there."""
    wanted: dict[str, int] = {}
    for topic in message.topics:
        highest = max((p.partition_index for p in topic.partitions), default=0)
        wanted[topic.name] = max(wanted.get(topic.name, 1), highest + 1)
    return wanted


def _is_there(world: World, topic: str, partition: int) -> bool:
    return 0 <= partition < (world.partitions_of(topic) or 0)


def each_with_its_code(topics: Topics, codes: Iterator[int], topic_kind: Any, partition_kind: Any) -> list[Any]:
    """List topics and partitions as a request lists them, each partition with the next code."""
    return [
        topic_kind(
            name=topic.name,
            partitions=[
                partition_kind(partition_index=p.partition_index, error_code=next(codes)) for p in topic.partitions
            ],
        )
        for topic in topics
    ]


def _codes(known: Iterable[bool], said: OffsetCommitAnswer | OffsetDeleteAnswer) -> Iterator[int]:
    """Say how each partition of a request ended, of which only those that are `known` were asked about."""
    answered = chain((p.code for p in said.partitions), repeat(said.code or SERVER_ERROR.number))
    return (next(answered) if is_known else UNKNOWN_PARTITION for is_known in known)


# -- committing --------------------------------------------------------------------------------------------------------

_COMMITTED_TOPIC = OffsetCommitResponse.OffsetCommitResponseTopic
_COMMITTED = _COMMITTED_TOPIC.OffsetCommitResponsePartition


def commit(message: Any, asker: Asker, world: World) -> Exchange:
    """Store offsets. Where no partition is known, or none named, the group is not asked."""
    version = message.version
    partitions = [(topic.name, partition) for topic in message.topics for partition in topic.partitions]
    known = [_is_there(world, topic, partition.partition_index) for topic, partition in partitions]

    def committed(said: OffsetCommitAnswer) -> ApiMessage:
        codes = _codes(known, said) if version >= MISSING_GROUP else map(_of_old, _codes(known, said))
        topics = each_with_its_code(message.topics, codes, _COMMITTED_TOPIC, _COMMITTED)
        return OffsetCommitResponse(version=version, topics=topics)

    if not any(known):
        return Exchange((), lambda answers: committed(OffsetCommitAnswer(request_id=None)))
    request = requests.OffsetCommit(
        **asker.fields(),
        group_id=message.group_id,
        generation_id=message.generation_id_or_member_epoch,
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        offsets=tuple(_to_commit(topic, p, message.retention_time_ms) for topic, p in compress(partitions, known)),
    )
    return of_one(request, lambda answer: committed(expected(answer, OffsetCommitAnswer)))


def _to_commit(topic: str, partition: Any, retention_ms: int) -> requests.OffsetToCommit:
    return requests.OffsetToCommit(
        topic,
        partition.partition_index,
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata,
        retention_ms,
    )


def _of_old(code: int) -> int:
    return ErrorCode.ILLEGAL_GENERATION.number if code == ErrorCode.GROUP_ID_NOT_FOUND.number else code


# -- fetching ----------------------------------------------------------------------------------------------------------

_FETCHED_TOPIC = OffsetFetchResponse.OffsetFetchResponseTopic
_FETCHED = _FETCHED_TOPIC.OffsetFetchResponsePartition
_FETCHED_GROUP = OffsetFetchResponse.OffsetFetchResponseGroup
_FETCHED_TOPIC_OF_MANY = _FETCHED_GROUP.OffsetFetchResponseTopics
_FETCHED_OF_MANY = _FETCHED_TOPIC_OF_MANY.OffsetFetchResponsePartitions


def fetch(message: Any, asker: Asker, world: World) -> Exchange:
    """Ask for committed offsets, of each group by itself."""
    if message.version < MANY_GROUPS:
        request = _offset_fetch(message, asker, message.require_stable)
        return of_one(request, lambda answer: _fetched_of_one(answer, message))
    asked = tuple(
        _offset_fetch(group, asker, message.require_stable, member_id=group.member_id, generation_id=group.member_epoch)
        for group in message.groups
    )
    return Exchange(tuple(map(Question, asked)), lambda answers: _fetched_of_many(answers, message))


def _offset_fetch(group: Any, asker: Asker, require_stable: bool, **who: Any) -> requests.OffsetFetch:
    topics = group.topics
    if topics is not None:
        topics = tuple(requests.TopicPartitions(topic.name, tuple(topic.partition_indexes)) for topic in topics)
    return requests.OffsetFetch(
        **asker.fields(), group_id=group.group_id, topics=topics, require_stable=require_stable, **who
    )


def _fetched_of_one(answer: AnyAnswer, message: Any) -> ApiMessage:
    said, version = expected(answer, OffsetFetchAnswer), message.version
    found: Sequence[FetchedOffset] = said.partitions
    if said.code and version < ONE_ERROR:
        found = [FetchedOffset(t.name, p, code=said.code) for t in message.topics for p in t.partition_indexes]
    is_told = not said.code or version < ONE_ERROR
    topics = _by_topic(message.topics, found, _FETCHED_TOPIC, _FETCHED) if is_told else []
    return OffsetFetchResponse(version=version, error_code=said.code, topics=topics)


def _fetched_of_many(answers: Sequence[AnyAnswer], message: Any) -> ApiMessage:
    groups = []
    for group, answer in zip(message.groups, answers, strict=True):
        said = expected(answer, OffsetFetchAnswer)
        kinds = _FETCHED_TOPIC_OF_MANY, _FETCHED_OF_MANY
        topics = [] if said.code else _by_topic(group.topics, said.partitions, *kinds)
        groups.append(_FETCHED_GROUP(group_id=group.group_id, error_code=said.code, topics=topics))
    return OffsetFetchResponse(version=message.version, groups=groups)


def _by_topic(asked: Topics | None, found: Sequence[FetchedOffset], topic_kind: Any, partition_kind: Any) -> list[Any]:
    """List what was found under the topics that were asked about, or if nothing was said, under all there are."""
    rest = iter(found)
    named = (
        groupby(found, key=lambda offset: offset.topic)
        if asked is None
        else ((topic.name, islice(rest, len(topic.partition_indexes))) for topic in asked)
    )
    return [
        topic_kind(
            name=name,
            partitions=[
                partition_kind(
                    partition_index=o.partition,
                    committed_offset=o.offset,
                    committed_leader_epoch=o.leader_epoch,
                    metadata=o.metadata,
                    error_code=o.code,
                )
                for o in offsets
            ],
        )
        for name, offsets in named
    ]


# -- forgetting --------------------------------------------------------------------------------------------------------

_DELETED_TOPIC = OffsetDeleteResponse.OffsetDeleteResponseTopic
_DELETED = _DELETED_TOPIC.OffsetDeleteResponsePartition


def delete(message: Any, asker: Asker, world: World) -> Exchange:
    """Forget offsets. The group is asked in any case: what it refuses as a whole goes before unknown partitions."""
    named = [(topic.name, tuple(p.partition_index for p in topic.partitions)) for topic in message.topics]
    known = [_is_there(world, topic, p) for topic, partitions in named for p in partitions]
    request = requests.OffsetDelete(
        **asker.fields(),
        group_id=message.group_id,
        topics=tuple(
            requests.TopicPartitions(topic, tuple(p for p in partitions if _is_there(world, topic, p)))
            for topic, partitions in named
        ),
    )
    return of_one(request, lambda answer: _deleted(expected(answer, OffsetDeleteAnswer), message, known))


def _deleted(said: OffsetDeleteAnswer, message: Any, known: Iterable[bool]) -> ApiMessage:
    if said.code:
        return OffsetDeleteResponse(version=message.version, error_code=said.code)
    topics = each_with_its_code(message.topics, _codes(known, said), _DELETED_TOPIC, _DELETED)
    return OffsetDeleteResponse(version=message.version, topics=topics)
