"""OffsetCommit, OffsetFetch and OffsetDelete.

This module checks that topics and partitions exist, because the coordinator knows only the names in its requests. If
access rules apply, a client without the right to use a topic does not learn that the topic does not exist.

Source: KafkaApis.handleOffsetCommitRequest, handleOffsetFetchRequest and handleOffsetDeleteRequest,
OffsetFetchResponse.Builder, and the JSON schemas of their messages.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, groupby, islice, repeat
from typing import Any

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.group import OffsetCommitResponse, OffsetDeleteResponse, OffsetFetchResponse

from coordinator import requests
from coordinator.access import Operation, Resource
from coordinator.errors import ErrorCode
from coordinator.outputs import (
    AnyAnswer,
    CheckAccessAnswer,
    FetchedOffset,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
)
from streaming.gateway.exchanges.exchange import (
    SERVER_ERROR,
    Asker,
    Exchange,
    GatewayData,
    Question,
    expected,
    may,
    of_one,
)

UNKNOWN_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number

MISSING_GROUP = 9
"""From this version on, a commit to a missing group has the error GROUP_ID_NOT_FOUND; before, ILLEGAL_GENERATION."""

ONE_ERROR = 2
"""From this version on, a failed OffsetFetch contains its error once; before, for each partition."""

MANY_GROUPS = 8
"""From this version on, OffsetFetch concerns many groups (KIP-709)."""

Topics = Iterable[Any]
Codes = Mapping[str, int]


def topics_named(message: Any) -> dict[str, int]:
    """Return the topics of a commit or a deletion, each with the number of partitions that it must have."""
    wanted: dict[str, int] = {}
    for topic in message.topics:
        highest = max((p.partition_index for p in topic.partitions), default=0)
        wanted[topic.name] = max(wanted.get(topic.name, 1), highest + 1)
    return wanted


def _is_there(world: GatewayData, topic: str, partition: int) -> bool:
    return 0 <= partition < (world.partitions_of(topic) or 0)


def each_with_its_code(topics: Topics, codes: Iterator[int], topic_kind: Any, partition_kind: Any) -> list[Any]:
    """Return topics and partitions in the order of a request, each partition with the next code."""
    return [
        topic_kind(
            name=topic.name,
            partitions=[
                partition_kind(partition_index=p.partition_index, error_code=next(codes)) for p in topic.partitions
            ],
        )
        for topic in topics
    ]


def _codes(
    topics: Iterable[str], known: Iterable[bool], said: OffsetCommitAnswer | OffsetDeleteAnswer, secret: Codes
) -> Iterator[int]:
    """Return the code of each partition of a request. The question contained only the partitions that are `known`.

    Args:
        topics: The topic of each partition.
        secret: By topic, the code that replaces the error of a missing partition.
    """
    answered = chain((p.code for p in said.partitions), repeat(said.code or SERVER_ERROR.number))
    return (
        next(answered) if is_known else secret.get(topic, UNKNOWN_PARTITION)
        for topic, is_known in zip(topics, known, strict=True)
    )


def _about_missing(
    world: GatewayData, asker: Asker, group_id: str, operation: Operation, topics: Iterable[str], known: Iterable[bool]
) -> tuple[tuple[str, ...], tuple[Question, ...]]:
    """Return the topics that lack a named partition, and the requests for the client's rights to them."""
    missing = tuple(dict.fromkeys(topic for topic, is_known in zip(topics, known, strict=True) if not is_known))
    if not missing or not world.has_rules:
        return missing, ()
    actions = [(operation, Resource.GROUP, group_id), *((Operation.READ, Resource.TOPIC, each) for each in missing)]
    return missing, (may(asker, group_id, actions),)


def _secret(missing: Sequence[str], answers: Sequence[AnyAnswer]) -> Codes:
    """Return the codes that replace the error of a missing topic, from the answer about the client's rights."""
    if not answers:
        return {}
    said = expected(answers[0], CheckAccessAnswer)
    if said.code:
        return dict.fromkeys(missing, said.code)
    of_group, *of_topics = said.allowed
    if not of_group:
        return dict.fromkeys(missing, ErrorCode.GROUP_AUTHORIZATION_FAILED.number)
    refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED.number
    return {topic: refusal for topic, is_allowed in zip(missing, of_topics, strict=True) if not is_allowed}


# -- committing --------------------------------------------------------------------------------------------------------

_COMMITTED_TOPIC = OffsetCommitResponse.OffsetCommitResponseTopic
_COMMITTED = _COMMITTED_TOPIC.OffsetCommitResponsePartition


def commit(message: Any, asker: Asker, world: GatewayData) -> Exchange:
    """Commit offsets. The coordinator gets no commit if the message names no existing partition."""
    version = message.version
    partitions = [(topic.name, partition) for topic in message.topics for partition in topic.partitions]
    named = [topic for topic, _ in partitions]
    known = [_is_there(world, topic, partition.partition_index) for topic, partition in partitions]
    missing, about = _about_missing(world, asker, message.group_id, Operation.READ, named, known)

    def committed(said: OffsetCommitAnswer, rest: Sequence[AnyAnswer]) -> ApiMessage:
        codes: Iterator[int] = _codes(named, known, said, _secret(missing, rest))
        if version < MISSING_GROUP:
            codes = map(_before_missing_group, codes)
        topics = each_with_its_code(message.topics, codes, _COMMITTED_TOPIC, _COMMITTED)
        return OffsetCommitResponse(version=version, topics=topics)

    if not any(known):
        return Exchange(about, lambda answers: committed(OffsetCommitAnswer(request_id=None), answers))
    request = requests.OffsetCommit(
        **asker.fields(),
        group_id=message.group_id,
        generation_id=message.generation_id_or_member_epoch,
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        offsets=tuple(_to_commit(topic, p, message.retention_time_ms) for topic, p in compress(partitions, known)),
    )
    return Exchange(
        (Question(request), *about), lambda answers: committed(expected(answers[0], OffsetCommitAnswer), answers[1:])
    )


def _to_commit(topic: str, partition: Any, retention_ms: int) -> requests.OffsetToCommit:
    return requests.OffsetToCommit(
        topic,
        partition.partition_index,
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata,
        retention_ms,
    )


def _before_missing_group(code: int) -> int:
    return ErrorCode.ILLEGAL_GENERATION.number if code == ErrorCode.GROUP_ID_NOT_FOUND.number else code


# -- fetching ----------------------------------------------------------------------------------------------------------

_FETCHED_TOPIC = OffsetFetchResponse.OffsetFetchResponseTopic
_FETCHED = _FETCHED_TOPIC.OffsetFetchResponsePartition
_FETCHED_GROUP = OffsetFetchResponse.OffsetFetchResponseGroup
_FETCHED_TOPIC_OF_MANY = _FETCHED_GROUP.OffsetFetchResponseTopics
_FETCHED_OF_MANY = _FETCHED_TOPIC_OF_MANY.OffsetFetchResponsePartitions


def fetch(message: Any, asker: Asker, world: GatewayData) -> Exchange:
    """Fetch committed offsets, with one question for each group."""
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
    """Return the found offsets under the topics of the request; under all found topics if the request names none."""
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


# -- deleting ----------------------------------------------------------------------------------------------------------

_DELETED_TOPIC = OffsetDeleteResponse.OffsetDeleteResponseTopic
_DELETED = _DELETED_TOPIC.OffsetDeleteResponsePartition


def delete(message: Any, asker: Asker, world: GatewayData) -> Exchange:
    """Delete offsets. The coordinator always gets a request: the group's error precedes those of missing partitions."""
    named = [(topic.name, tuple(p.partition_index for p in topic.partitions)) for topic in message.topics]
    topics = [topic for topic, partitions in named for _ in partitions]
    known = [_is_there(world, topic, p) for topic, partitions in named for p in partitions]
    missing, about = _about_missing(world, asker, message.group_id, Operation.DELETE, topics, known)
    request = requests.OffsetDelete(
        **asker.fields(),
        group_id=message.group_id,
        topics=tuple(
            requests.TopicPartitions(topic, tuple(p for p in partitions if _is_there(world, topic, p)))
            for topic, partitions in named
        ),
    )

    def deleted(answers: Sequence[AnyAnswer]) -> ApiMessage:
        said = expected(answers[0], OffsetDeleteAnswer)
        if said.code:
            return OffsetDeleteResponse(version=message.version, error_code=said.code)
        codes = _codes(topics, known, said, _secret(missing, answers[1:]))
        ended = each_with_its_code(message.topics, codes, _DELETED_TOPIC, _DELETED)
        return OffsetDeleteResponse(version=message.version, topics=ended)

    return Exchange((Question(request), *about), deleted)
