"""The requests of a conversation's lines, with the ids and generations that one side has assigned."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from coordinator.requests import (
    Assignment,
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
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
from tests.coordinator.telling import TOPIC
from tests.coordinator.trace import by_topic
from tests.coordinator.wire import assignment, subscription
from tests.differential.language import Line, unfolded
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
    "describe": 6,
    "list": 5,
    "delete": 2,
    "forget": 0,
}

Fields = dict[str, Any]


def ask(line: Line, names: Names, number: int, group_id: Callable[[str], str]) -> ClientRequest:
    """Return a line's request. `group_id` converts a group's name to an id that no other conversation has."""
    client, version = line.who.split("#")[0], int(line.options.get("v", NEWEST[line.verb]))
    known = names.members.get(names.newest_of(client) if "newest" in line.words else line.who)
    if line.verb == "join" and "instance" in line.options:
        names.instances[line.who] = line.options["instance"]
    names.processes[client] += "new" in line.words
    every = {
        "request_id": f"{line.verb} {number}",
        "reply_to": f"{client}, process {names.processes[client]}",
        "client_id": client,
        "client_host": HOST,
        "group_id": group_id(unfolded(line.options.get("group", "g"))),
    }
    request = REQUESTS[line.verb](line, names, known, version, every)
    return ClientRequest(f"{client} {line.verb}", client, request, version)


# -- members -----------------------------------------------------------------------------------------------------------


def _join(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    o = line.options
    topics = o.get("topics", TOPIC)
    data = UNREADABLE[topics] if topics in UNREADABLE else subscription(topics.split(","))
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
    metadata, epoch = line.options.get("metadata"), int(line.options.get("epoch", -1))
    offsets = [re.fullmatch(r"(.+)-(-?\d+)=(-?\d+)", word) for word in line.words[1:]]
    return OffsetCommit(
        **every,
        generation_id=int(line.options.get("generation", known.generation_id)),
        member_id=_id(line, names, known.member_id),
        group_instance_id=_instance(line, names),
        offsets=tuple(
            OffsetToCommit(m[1], int(m[2]), int(m[3]), epoch, metadata if metadata is None else unfolded(metadata))
            for m in offsets
            if m
        ),
    )


def _fetch(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    return OffsetFetch(
        **every,
        topics=None if line.words == ("all",) else _topics(line.words),
        member_id=line.options.get("id"),
        generation_id=int(line.options.get("generation", -1)),
    )


def _forget(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    return OffsetDelete(**every, topics=_topics(line.words))


def _topics(words: Iterable[str]) -> tuple[TopicPartitions, ...]:
    return tuple(TopicPartitions(topic, tuple(numbers)) for topic, numbers in by_topic(words).items())


# -- administrators ----------------------------------------------------------------------------------------------------


def _describe(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    return DescribeGroup(**every)


def _list(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    return ListGroups(**every, states=tuple(_named(line, "states")), types=tuple(_named(line, "types")))


def _named(line: Line, option: str) -> Iterator[str]:
    yield from filter(None, line.options.get(option, "").split(","))


def _delete(line: Line, names: Names, known: Member | None, version: int, every: Fields) -> Request:
    return DeleteGroup(**every)


REQUESTS: dict[str, Callable[[Line, Names, Member | None, int, Fields], Request]] = {
    "join": _join,
    "sync": _sync,
    "heartbeat": _heartbeat,
    "leave": _leave,
    "commit": _commit,
    "fetch": _fetch,
    "forget": _forget,
    "describe": _describe,
    "list": _list,
    "delete": _delete,
}
