"""The requests of a conversation's lines, with the ids and generations that one side has assigned."""

import re
from collections.abc import Callable, Iterable, Iterator
from struct import pack
from typing import Any

from coordinator.messages.consumer_requests import ConsumerGroupDescribe, ConsumerGroupHeartbeat, OwnedPartitions
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
    Assignment,
    DeleteGroup,
    DescribeGroup,
    JoinGroup,
    LeaveGroup,
    Leaving,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    Request,
    SyncGroup,
    TopicPartitions,
)
from streaming.kafka.patterns import matching
from tests.coordinator.telling import TOPIC
from tests.coordinator.trace import by_topic
from tests.coordinator.wire import assignment, subscription
from tests.differential.language import Line, unfolded
from tests.differential.transacting import (
    AddOffsets,
    AddPartitions,
    EndTransaction,
    InitProducer,
    OfProducer,
    SendOffsets,
)
from tests.differential.transcript import ClientRequest, Member, Names

HOST = "/127.0.0.1"
UNREADABLE = {"none": b"", "broken": subscription([])[:2] + b"\x7f\xff\xff\xff"}
"""Invalid subscriptions: no bytes, and one that announces more topics than it has."""

NEWEST = {
    "join": 9,
    "sync": 5,
    "heartbeat": 4,
    "leave": 5,
    "commit": 9,  # 10 names topics by their ids
    "fetch": 9,
    "beat": 1,
    "describe-consumer": 1,
    "describe": 6,
    "list": 5,
    "delete": 3,
    "forget": 0,
    "init": 5,
    "partitions": 3,  # 4 is for brokers
    "add": 4,
    "send": 4,
    "end": 4,
    "settle": 9,
}

BY_ID = 10
"""The first version of OffsetCommit and OffsetFetch that names topics by their ids."""

WITH_MEMBERS = 9
"""The first version of OffsetFetch with a member id and an epoch."""

UNKNOWN_PRODUCER = 2**40
"""A producer id that no producer has."""

ALL_FIELDS = {"names": TOPIC, "own": "none", "rebalance": "60000"}
"""The fields of a full heartbeat."""

Fields = dict[str, Any]


def ask(line: Line, names: Names, number: int, group_id: Callable[[str], str]) -> ClientRequest:
    """Return a line's request. `group_id` converts a group's name to an id that no other conversation has."""
    client, version = line.who.split("#")[0], int(line.options.get("v", NEWEST[line.verb]))
    known = names.members.get(names.newest_of(client) if "newest" in line.words else line.who)
    if line.verb == "join" and "instance" in line.options:
        names.instances[line.who] = line.options["instance"]
    if "client" in line.options:
        names.client_ids[client] = line.options["client"]
    names.processes[client] += "new" in line.words
    every = {
        "request_id": f"{line.verb} {number}",
        "reply_to": f"{client}, process {names.processes[client]}",
        "client_id": names.client_ids.get(client, client),
        "client_host": HOST,
        "group_id": group_id(unfolded(line.options.get("group", "g"))),
    }
    request = REQUESTS[line.verb](line, names, known, version, every)
    return ClientRequest(f"{client} {line.verb}", client, request, version)


# -- members -----------------------------------------------------------------------------------------------------------


def _join(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    o = line.options
    topics = o.get("topics", TOPIC)
    data = UNREADABLE[topics] if topics in UNREADABLE else _metadata(topics.split(","), o.get("own"), names)
    session_timeout_ms = int(o.get("session", 60_000))
    return JoinGroup(
        **every,
        member_id=_id(line, names, "" if known is None or {"new", "again"} & set(line.words) else known.member_id),
        group_instance_id=_instance(line, names),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=int(o.get("rebalance", 60_000)) if version else session_timeout_ms,
        protocol_type=o.get("type", "consumer"),
        protocols=tuple(Protocol(name, data) for name in o.get("protocols", "range").split(",") if name),
        reason=o.get("reason"),
        require_known_member_id=version >= 4,
        supports_skipping_assignment=version >= 9,
    )


def _metadata(topics: list[str], owned: str | None, names: Names) -> bytes:
    """Return the metadata of a member, with its owned partitions (version 1) if it names them."""
    subscribed = list(map(names.topics.full, topics))
    if owned is None:
        return subscription(subscribed)
    has = by_topic([] if owned == "none" else owned.split(","))
    rest = (
        pack(">i", -1) + assignment({names.topics.full(each): numbers for each, numbers in has.items()}, rest=b"")[2:]
    )
    return subscription(subscribed, version=1, rest=rest)


def _sync(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    plan = line.words[line.words.index("plan") + 1 :] if "plan" in line.words else ()
    known = known or Member(line.who)
    return SyncGroup(
        **every,
        generation_id=int(line.options.get("generation", known.generation_id)),
        member_id=_id(line, names, known.member_id),
        group_instance_id=_instance(line, names),
        protocol_type=_none_if_named(line.options.get("type", known.protocol_type)) if version >= 5 else None,
        protocol_name=_none_if_named(line.options.get("protocol", known.protocol_name)) if version >= 5 else None,
        assignments=tuple(_assignment_of(names, *part.split("=", 1)) for part in plan),
    )


def _assignment_of(names: Names, who: str, partitions: str) -> Assignment:
    member_id = names.members[who].member_id if who in names.members else who
    return Assignment(member_id, b"" if partitions == "none" else assignment(by_topic(partitions.split(","))))


def _heartbeat(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    known = known or Member(line.who)
    return Heartbeat(
        **every,
        generation_id=int(line.options.get("generation", known.generation_id)),
        member_id=_id(line, names, known.member_id),
        group_instance_id=_instance(line, names),
    )


def _leave(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    return LeaveGroup(**every, members=tuple(_leaving(line, names, word) for word in line.words))


def _leaving(line: Line, names: Names, word: str) -> Leaving:
    name, at, instance = word.partition("@")
    member_id = names.members[name].member_id if name in names.members else name
    return Leaving(member_id, (instance or None) if at else names.instances.get(name), line.options.get("reason"))


def _id(line: Line, names: Names, otherwise: str) -> str:
    said = line.options.get("id", otherwise)
    return names.members[said].member_id if said in names.members else said


def _instance(line: Line, names: Names) -> str | None:
    return _none_if_named(line.options.get("instance", names.instances.get(line.who)))


def _none_if_named(said: str | None) -> str | None:
    return None if said == "none" else said


# -- offsets -----------------------------------------------------------------------------------------------------------


def _commit(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    known = known or Member("" if line.who == "outside" else line.who)
    return OffsetCommit(
        **every,
        generation_id=int(line.options.get("generation", known.generation_id)),
        member_id=_id(line, names, known.member_id),
        group_instance_id=_instance(line, names),
        version=version,
        offsets=_offsets(line, names, leader_epoch=int(line.options.get("epoch", -1))),
    )


def _offsets(line: Line, names: Names, *, leader_epoch: int = -1) -> tuple[OffsetToCommit, ...]:
    """Return the offsets of words like `t-0=5`, all with the line's metadata."""
    metadata = line.options.get("metadata")
    offsets = [re.fullmatch(r"(.+)-(-?\d+)=(-?\d+)", word) for word in line.words[1:]]
    return tuple(
        OffsetToCommit(
            topic=names.topics.full(m[1]),
            partition=int(m[2]),
            offset=int(m[3]),
            leader_epoch=leader_epoch,
            metadata=metadata if metadata is None else unfolded(metadata),
            topic_id=names.topics.id_of(m[1]),
        )
        for m in offsets
        if m
    )


def _fetch(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    names_members = version >= WITH_MEMBERS
    return OffsetFetch(
        **every,
        topics=None if "all" in line.words else _topics(_partitions(line), names, with_ids=version >= BY_ID),
        member_id=_id(line, names, line.options["id"]) if "id" in line.options and names_members else None,
        generation_id=int(line.options.get("generation", -1)) if names_members else -1,
        require_stable="stable" in line.words or line.verb == "settle",
    )


def _forget(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    return OffsetDelete(**every, topics=_topics(line.words, names))


def _partitions(line: Line) -> list[str]:
    return [word for word in line.words if word != "stable"]


def _topics(words: Iterable[str], names: Names, *, with_ids: bool = False) -> tuple[TopicPartitions, ...]:
    topics = names.topics
    return tuple(
        TopicPartitions(topics.full(label), tuple(numbers), topics.id_of(label) if with_ids else None)
        for label, numbers in by_topic(words).items()
    )


# -- the consumer protocol ---------------------------------------------------------------------------------------------


def _beat(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    if "instance" in line.options:
        names.instances[line.who] = line.options["instance"]
    epoch = int(line.words[1])
    usual = ALL_FIELDS if epoch == 0 or "full" in line.words else {}
    o = {**usual, **({"names": "null"} if "regex" in line.options else {}), **line.options}
    said = {option: value for option, value in o.items() if value != "null"}
    pattern = names.topics.pattern(said["regex"]) if "regex" in said else None
    found = matching(pattern, names.topics.existing) if pattern else None
    subscribed = None if "names" not in said else _listed(said["names"], names)
    told = (*(subscribed or ()), *(found.topics if found else ()))
    newcomer = "" if version == 0 and epoch == 0 else line.who
    return ConsumerGroupHeartbeat(
        **every,
        member_id=_id(line, names, known.member_id if known else newcomer),
        member_epoch=epoch,
        group_instance_id=_instance(line, names),
        rack_id=said.get("rack"),
        rebalance_timeout_ms=int(said.get("rebalance", -1)),
        subscribed_topic_names=subscribed,
        subscribed_topic_regex=pattern,
        server_assignor=said.get("assignor"),
        topic_partitions=None if "own" not in said else _owned(said["own"], names),
        version=version,
        topics=names.topics.facts(told),
        regex_topics=found.topics if found and found.error is None else None,
        regex_error=found.error if found else None,
    )


def _listed(topics: str, names: Names) -> tuple[str, ...]:
    return () if topics == "none" else tuple(map(names.topics.full, topics.split(",")))


def _owned(partitions: str, names: Names) -> tuple[OwnedPartitions, ...]:
    return () if partitions == "none" else tuple(names.topics.partitions(partitions))


def _describe_consumer(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    return ConsumerGroupDescribe(**every)


# -- transactional producers -------------------------------------------------------------------------------------------


def _producer(line: Line, names: Names, every: Fields) -> Fields:
    """Return the fields of a producer: those that it was given last, unless the line has others."""
    producer_id, epoch = names.producers.get(line.who, (UNKNOWN_PRODUCER, 0))
    return {
        **every,
        "transactional_id": line.options.get("id", names.transactional_id(line.who)),
        "producer_id": producer_id,
        "producer_epoch": int(line.options.get("epoch", epoch)),
    }


def _init(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> InitProducer:
    return InitProducer(**every, transactional_id=names.transactional_id(line.who))


def _add_partitions(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> AddPartitions:
    return AddPartitions(**_producer(line, names, every), topics=_topics(line.words[1:], names))


def _add_offsets(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> AddOffsets:
    return AddOffsets(**_producer(line, names, every))


def _send(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> SendOffsets:
    member = names.members.get(line.options.get("member", ""))
    return SendOffsets(
        **_producer(line, names, every),
        generation_id=int(line.options.get("generation", member.generation_id if member else -1)),
        member_id=member.member_id if member else line.options.get("member", ""),
        group_instance_id=line.options.get("instance"),
        offsets=_offsets(line, names),
    )


def _end(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> EndTransaction:
    return EndTransaction(**_producer(line, names, every), is_committed="commit" in line.words)


# -- administrators ----------------------------------------------------------------------------------------------------


def _describe(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    return DescribeGroup(**every)


def _list(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    return ListGroups(**every, states=tuple(_named(line, "states")), types=tuple(_named(line, "types")))


def _named(line: Line, option: str) -> Iterator[str]:
    yield from filter(None, line.options.get(option, "").split(","))


def _delete(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    return DeleteGroup(**every)


REQUESTS: dict[str, Callable[[Line, Names, Member | None, int, Fields], Request | OfProducer]] = {
    "join": _join,
    "sync": _sync,
    "heartbeat": _heartbeat,
    "leave": _leave,
    "commit": _commit,
    "fetch": _fetch,
    "forget": _forget,
    "beat": _beat,
    "describe-consumer": _describe_consumer,
    "describe": _describe,
    "list": _list,
    "delete": _delete,
    "init": _init,
    "partitions": _add_partitions,
    "add": _add_offsets,
    "send": _send,
    "end": _end,
    "settle": _fetch,
}
