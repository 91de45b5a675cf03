"""OffsetCommit, OffsetFetch and OffsetDelete.

This module checks that topics and partitions exist, because the coordinator knows only the names in its requests. If
access rules apply, a client without the right to use a topic does not learn that the topic does not exist.

Source: KafkaApis.handleOffsetCommitRequest, handleOffsetFetchRequest and handleOffsetDeleteRequest,
OffsetFetchResponse.Builder, and the JSON schemas of their messages.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, groupby, islice, repeat
from typing import Any
from uuid import UUID

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.group import OffsetCommitResponse, OffsetDeleteResponse, OffsetFetchResponse
from msgspec import UNSET

from coordinator.base.access import Operation, Resource
from coordinator.base.errors import ErrorCode
from coordinator.messages import requests
from coordinator.messages.fields import NO_TOPIC
from coordinator.messages.responses import (
    AnyAnswer,
    CheckAccessAnswer,
    FetchedOffset,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    TxnOffsetCommitAnswer,
)
from streaming.gateway.exchanges.exchange import (
    SERVER_ERROR,
    Asker,
    CoordinatorRequest,
    Exchange,
    ListenerData,
    expected,
    may,
    of_one,
)
from streaming.gateway.protocol.topic_ids import id_of, id_text

MISSING_GROUP = 9
"""From this version on, a commit to a missing group has the error GROUP_ID_NOT_FOUND; before, ILLEGAL_GENERATION."""

ONE_ERROR = 2
"""From this version on, a failed OffsetFetch contains its error once; before, for each partition."""

BY_ID = 10
"""From this version on, OffsetCommit and OffsetFetch have the ids of topics in place of their names (KIP-848)."""

KNOWS_UNSTABLE = 7
"""From this version on, clients fetch offsets with the error UNSTABLE_OFFSET_COMMIT again (KIP-447)."""

NOT_NOW = {
    error.number
    for error in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
}
"""The errors of a whole fetch that say that another fetch may succeed.

librdkafka never repeats a fetch for its assignment that was answered with one of the last two, nor with the first one
three times: it does not read the partitions until they are assigned anew. So each partition has the error that every
client repeats a fetch for."""

UNKNOWN_ID = ErrorCode.UNKNOWN_TOPIC_ID.number

MANY_GROUPS = 8
"""From this version on, OffsetFetch concerns many groups (KIP-709)."""

Topics = Iterable[Any]
Codes = Mapping[str | None, int]

NO_NAMES: dict[str | None, int] = {None: UNKNOWN_ID}
"""The code of topics without a name, because their id is unknown."""


def topics_named(message: Any, metadata: ListenerData) -> dict[str, int]:
    """Return the topics of a commit or a deletion, each with the number of partitions that it must have."""
    wanted: dict[str, int] = {}
    for topic in message.topics:
        highest = max((p.partition_index for p in topic.partitions), default=0)
        if name := name_of(topic, metadata):
            wanted[name] = max(wanted.get(name, 1), highest + 1)
    return wanted


def ids_committed(message: Any) -> set[bytes]:
    """Return the ids of the topics of a commit."""
    return {topic.topic_id for topic in message.topics if _has_id(topic)}


def ids_fetched(message: Any) -> set[bytes] | None:
    """Return the ids of the topics that are fetched; None if all topics of a group are."""
    if any(group.topics is None for group in _groups(message)):
        return None
    return {topic.topic_id for group in _groups(message) for topic in group.topics if _has_id(topic)}


def topics_fetched(message: Any, metadata: ListenerData) -> set[str]:
    """Return the names of the topics that are fetched."""
    named = (name_of(topic, metadata) for group in _groups(message) for topic in group.topics or ())
    return {name for name in named if name is not None}


def groups_fetched(message: Any) -> list[str]:
    """Return the ids of the groups whose offsets are fetched, whether they are stable or not."""
    return [] if message.require_stable else [group.group_id for group in _groups(message)]


def _groups(message: Any) -> Sequence[Any]:
    """Return the groups of a fetch, each with its topics."""
    return message.groups if message.version >= MANY_GROUPS else [message]


def name_of(topic: Any, metadata: ListenerData) -> str | None:
    """Return the name of a topic in a request; None for an unknown id."""
    return metadata.topic_of(topic.topic_id) if _has_id(topic) else topic.name


def _called(topic: Any) -> dict[str, Any]:
    """Return the field with which a response names a topic as its request does."""
    return {"topic_id": UUID(bytes=topic.topic_id)} if _has_id(topic) else {"name": topic.name}


def _has_id(topic: Any) -> bool:
    return isinstance(getattr(topic, "topic_id", None), bytes)


def is_there(metadata: ListenerData, topic: str | None, partition: int) -> bool:
    """Return whether a partition exists."""
    return topic is not None and 0 <= partition < (metadata.partitions_of(topic) or 0)


def each_with_its_code(topics: Topics, codes: Iterator[int], topic_kind: Any, partition_kind: Any) -> list[Any]:
    """Return topics and partitions in the order of a request, each partition with the next code."""
    return [
        topic_kind(
            **_called(topic),
            partitions=[
                partition_kind(partition_index=p.partition_index, error_code=next(codes)) for p in topic.partitions
            ],
        )
        for topic in topics
    ]


def codes_of(
    topics: Iterable[str | None],
    known: Iterable[bool],
    said: OffsetCommitAnswer | TxnOffsetCommitAnswer | OffsetDeleteAnswer,
    secret: Codes,
    otherwise: int,
) -> Iterator[int]:
    """Return the code of each partition of a request. The question contained only the partitions that are `known`.

    Args:
        topics: The topic of each partition; None for an unknown id.
        secret: By topic, the code that replaces the error of a missing partition.
        otherwise: The error of the other missing partitions.
    """
    answered = chain((p.code for p in said.partitions), repeat(said.code or SERVER_ERROR.number))
    return (
        next(answered) if is_known else secret.get(topic, otherwise)
        for topic, is_known in zip(topics, known, strict=True)
    )


def about_missing(
    metadata: ListenerData,
    asker: Asker,
    group_id: str,
    operation: Operation,
    topics: Iterable[str | None],
    known: Iterable[bool],
) -> tuple[tuple[str, ...], tuple[CoordinatorRequest, ...]]:
    """Return the topics that lack a named partition, and the requests for the client's rights to them."""
    missing = tuple(
        dict.fromkeys(topic for topic, is_known in zip(topics, known, strict=True) if topic and not is_known)
    )
    if not missing or not metadata.has_rules:
        return missing, ()
    actions = [(operation, Resource.GROUP, group_id), *((Operation.READ, Resource.TOPIC, each) for each in missing)]
    return missing, (may(asker, group_id, actions),)


def secret_codes(missing: Sequence[str], answers: Sequence[AnyAnswer]) -> Codes:
    """Return the codes that replace the error of a missing topic, from the answer about the client's rights."""
    if not answers:
        return NO_NAMES
    said = expected(answers[0], CheckAccessAnswer)
    if said.code:
        return NO_NAMES | dict.fromkeys(missing, said.code)
    of_group, *of_topics = said.allowed
    if not of_group:
        return NO_NAMES | dict.fromkeys(missing, ErrorCode.GROUP_AUTHORIZATION_FAILED.number)
    refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED.number
    return NO_NAMES | {topic: refusal for topic, is_allowed in zip(missing, of_topics, strict=True) if not is_allowed}


# -- committing --------------------------------------------------------------------------------------------------------

_COMMITTED_TOPIC = OffsetCommitResponse.OffsetCommitResponseTopic
_COMMITTED = _COMMITTED_TOPIC.OffsetCommitResponsePartition


def commit(message: Any, asker: Asker, metadata: ListenerData) -> Exchange:
    """Commit offsets. The coordinator gets no commit if the message names no existing partition."""
    version = message.version
    topics = [(name_of(topic, metadata), topic) for topic in message.topics]
    named = [name for name, topic in topics for _ in topic.partitions]
    known = [is_there(metadata, name, p.partition_index) for name, topic in topics for p in topic.partitions]
    missing, about = about_missing(metadata, asker, message.group_id, Operation.READ, named, known)
    missing_code = metadata.missing_code

    def committed(said: OffsetCommitAnswer, rest: Sequence[AnyAnswer]) -> ApiMessage:
        codes: Iterator[int] = codes_of(named, known, said, secret_codes(missing, rest), missing_code)
        if version < MISSING_GROUP:
            codes = map(_before_missing_group, codes)
        ended = each_with_its_code(message.topics, codes, _COMMITTED_TOPIC, _COMMITTED)
        return OffsetCommitResponse(version=version, topics=ended)

    if not any(known):
        return Exchange(about, lambda answers: committed(OffsetCommitAnswer(request_id=None), answers))
    request = requests.OffsetCommit(
        **asker.fields(),
        group_id=message.group_id,
        generation_id=message.generation_id_or_member_epoch,
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        version=version,
        offsets=tuple(compress(to_commit(topics, metadata, message.retention_time_ms), known)),
    )
    return Exchange(
        (CoordinatorRequest(request), *about),
        lambda answers: committed(expected(answers[0], OffsetCommitAnswer), answers[1:]),
    )


def to_commit(
    topics: Iterable[tuple[str | None, Any]], metadata: ListenerData, retention_ms: int = -1
) -> Iterator[requests.OffsetToCommit]:
    """Return the offset of each partition. A commit by name contains the topic's id if the gateway knows it."""
    for name, topic in topics:
        topic_id = id_text(topic.topic_id) if _has_id(topic) else metadata.topic_id_of(name or "")
        for p in topic.partitions:
            where = name or "", p.partition_index
            what = p.committed_offset, p.committed_leader_epoch, p.committed_metadata
            yield requests.OffsetToCommit(*where, *what, retention_ms, topic_id)


def _before_missing_group(code: int) -> int:
    return ErrorCode.ILLEGAL_GENERATION.number if code == ErrorCode.GROUP_ID_NOT_FOUND.number else code


# -- fetching ----------------------------------------------------------------------------------------------------------

_FETCHED_TOPIC = OffsetFetchResponse.OffsetFetchResponseTopic
_FETCHED = _FETCHED_TOPIC.OffsetFetchResponsePartition
_FETCHED_GROUP = OffsetFetchResponse.OffsetFetchResponseGroup
_FETCHED_TOPIC_OF_MANY = _FETCHED_GROUP.OffsetFetchResponseTopics
_FETCHED_OF_MANY = _FETCHED_TOPIC_OF_MANY.OffsetFetchResponsePartitions


def fetch(message: Any, asker: Asker, metadata: ListenerData) -> Exchange:
    """Fetch committed offsets, with one question for each group."""
    if message.version < MANY_GROUPS:
        request = _offset_fetch(message, asker, metadata, message.require_stable)
        return of_one(request, lambda answer: _fetched_of_one(answer, message, metadata))
    requests_ = tuple(
        _offset_fetch(
            group, asker, metadata, message.require_stable, member_id=group.member_id, generation_id=group.member_epoch
        )
        for group in message.groups
    )
    return Exchange(
        tuple(map(CoordinatorRequest, requests_)), lambda answers: _fetched_of_many(answers, message, metadata)
    )


def _offset_fetch(
    group: Any, asker: Asker, metadata: ListenerData, require_stable: bool, **who: Any
) -> requests.OffsetFetch:
    """Return the request for the offsets of a group, without the topics whose id is unknown."""
    topics = group.topics
    if topics is not None:
        named = ((name_of(topic, metadata), topic) for topic in topics)
        topics = tuple(_of_topic(name, topic, metadata) for name, topic in named if name is not None)
    return requests.OffsetFetch(
        **asker.fields(), group_id=group.group_id, topics=topics, require_stable=require_stable, **who
    )


def _of_topic(name: str, topic: Any, metadata: ListenerData) -> requests.TopicPartitions:
    """Return the partitions of a topic. With its id, a fetch by name finds no offsets of an earlier topic."""
    topic_id = id_text(topic.topic_id) if _has_id(topic) else metadata.topic_id_of(name)
    return requests.TopicPartitions(name, tuple(topic.partition_indexes), topic_id)


def _fetched_of_one(answer: AnyAnswer, message: Any, metadata: ListenerData) -> ApiMessage:
    version = message.version
    said = _repeatable(expected(answer, OffsetFetchAnswer), message.topics, version, metadata)
    found: Sequence[FetchedOffset] = said.partitions
    if said.code and version < ONE_ERROR:
        found = [FetchedOffset(t.name, p, code=said.code) for t in message.topics for p in t.partition_indexes]
    is_told = not said.code or version < ONE_ERROR
    named = (
        _by_name(_present(found, metadata))
        if message.topics is None
        else _as_requested(message.topics, found, metadata)
    )
    topics = _topics_of(named, _FETCHED_TOPIC, _FETCHED) if is_told else []
    return OffsetFetchResponse(version=version, error_code=said.code, topics=topics)


def _fetched_of_many(answers: Sequence[AnyAnswer], message: Any, metadata: ListenerData) -> ApiMessage:
    groups = []
    for group, answer in zip(message.groups, answers, strict=True):
        said = _repeatable(expected(answer, OffsetFetchAnswer), group.topics, message.version, metadata)
        if group.topics is not None:
            named = _as_requested(group.topics, said.partitions, metadata)
        elif message.version < BY_ID:
            named = _by_name(_present(said.partitions, metadata))
        else:
            named = _by_id(_present(said.partitions, metadata), metadata)
        topics = [] if said.code else _topics_of(named, _FETCHED_TOPIC_OF_MANY, _FETCHED_OF_MANY)
        groups.append(_FETCHED_GROUP(group_id=group.group_id, error_code=said.code, topics=topics))
    return OffsetFetchResponse(version=message.version, groups=groups)


def _repeatable(
    said: OffsetFetchAnswer, requested: Topics | None, version: int, metadata: ListenerData
) -> OffsetFetchAnswer:
    """Return an answer. If another fetch of named partitions may succeed, each of them says so."""
    if said.code not in NOT_NOW or requested is None or version < KNOWS_UNSTABLE:
        return said
    error = ErrorCode.UNSTABLE_OFFSET_COMMIT
    named = ((name, topic.partition_indexes) for topic in requested if (name := name_of(topic, metadata)) is not None)
    found = tuple(
        FetchedOffset(name, p, error=error.name, code=error.number) for name, indexes in named for p in indexes
    )
    return OffsetFetchAnswer(request_id=said.request_id, partitions=found)


Named = Iterable[tuple[dict[str, Any], Iterable[FetchedOffset]]]
"""Offsets by topic, each topic as the field of a response that names it."""


def _as_requested(requested: Topics, found: Iterable[FetchedOffset], metadata: ListenerData) -> Named:
    """Return the found offsets under the topics of the request, and an error for each partition of an unknown id."""
    rest = iter(found)
    for topic in requested:
        indexes = topic.partition_indexes
        is_unknown = name_of(topic, metadata) is None
        unknown = (FetchedOffset("", p, code=UNKNOWN_ID) for p in indexes)
        yield _called(topic), unknown if is_unknown else islice(rest, len(indexes))


def _by_name(found: Iterable[FetchedOffset]) -> Named:
    """Return the found offsets by the names of their topics."""
    return (({"name": name}, offsets) for name, offsets in groupby(found, key=lambda offset: offset.topic))


def _present(found: Iterable[FetchedOffset], metadata: ListenerData) -> Iterator[FetchedOffset]:
    """Yield the found offsets without those whose topic is missing now, or was made anew, as far as is known."""
    ids = dict[str, str | None]()
    for offset in found:
        if offset.topic not in ids:
            ids[offset.topic] = metadata.topic_id_of(offset.topic)
        topic_id = ids[offset.topic]
        if topic_id is None or (topic_id != NO_TOPIC and offset.topic_id in (UNSET, topic_id)):
            yield offset


def _by_id(found: Iterable[FetchedOffset], metadata: ListenerData) -> Named:
    """Return the found offsets by the ids of their topics, without the topics whose id is not known."""
    for name, offsets in groupby(found, key=lambda offset: offset.topic):
        if topic_id := metadata.topic_id_of(name):
            yield {"topic_id": id_of(topic_id)}, offsets


def _topics_of(named: Named, topic_kind: Any, partition_kind: Any) -> list[Any]:
    return [
        topic_kind(
            **field,
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
        for field, offsets in named
    ]


# -- deleting ----------------------------------------------------------------------------------------------------------

_DELETED_TOPIC = OffsetDeleteResponse.OffsetDeleteResponseTopic
_DELETED = _DELETED_TOPIC.OffsetDeleteResponsePartition


def delete(message: Any, asker: Asker, metadata: ListenerData) -> Exchange:
    """Delete offsets. The coordinator always gets a request: the group's error precedes those of missing partitions."""
    named = [(topic.name, tuple(p.partition_index for p in topic.partitions)) for topic in message.topics]
    topics = [topic for topic, partitions in named for _ in partitions]
    known = [is_there(metadata, topic, p) for topic, partitions in named for p in partitions]
    missing, about = about_missing(metadata, asker, message.group_id, Operation.DELETE, topics, known)
    missing_code = metadata.missing_code
    request = requests.OffsetDelete(
        **asker.fields(),
        group_id=message.group_id,
        topics=tuple(
            requests.TopicPartitions(topic, tuple(p for p in partitions if is_there(metadata, topic, p)))
            for topic, partitions in named
        ),
    )

    def deleted(answers: Sequence[AnyAnswer]) -> ApiMessage:
        said = expected(answers[0], OffsetDeleteAnswer)
        if said.code:
            return OffsetDeleteResponse(version=message.version, error_code=said.code)
        codes = codes_of(topics, known, said, secret_codes(missing, answers[1:]), missing_code)
        ended = each_with_its_code(message.topics, codes, _DELETED_TOPIC, _DELETED)
        return OffsetDeleteResponse(version=message.version, topics=ended)

    return Exchange((CoordinatorRequest(request), *about), deleted)
