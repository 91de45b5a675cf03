"""Responses as text for the comparison of both sides: ids become member names, and free choices are normalized.

These are free: the order of the members that the leader gets, of the members of a description, of the groups of a
listing, the order of responses that come together, and the form of an id after its prefix (protocol.md, end of
section 10).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import asdict

from coordinator.base.errors import ErrorCode
from coordinator.base.states import Phase
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.requests import JoinGroup, Request
from coordinator.messages.responses import (
    AnyAnswer,
    ConsumerGroupDescribeAnswer,
    ConsumerGroupHeartbeatAnswer,
    DescribeGroupAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
)
from tests.differential.topics import Topics
from tests.differential.transacting import OfProducer, ProducerAnswer

SUFFIX_CHARS = 37
"""A dash and a UUID: the part that makes an id unique, after the client's id or the instance id."""

UNSEEN = {"request_id", "error", "error_message", "topic_id", "pending", "fencing_token", "ask", "producer_id"}
UNSEEN_IN_A_DESCRIPTION = UNSEEN | {
    *("since_ms", "generation_id", "leader", "subscribed_topics", "awaited", "deadline_ms"),
    *("session_timeout_ms", "rebalance_timeout_ms", "awaiting"),
}
"""Fields that only our own topics have."""

SHORT = {
    "group_instance_id": "instance",
    "protocol_type": "type",
    "protocol_name": "protocol",
    "client_host": "host",
    "member_epoch": "epoch",
    "producer_epoch": "epoch",
    "heartbeat_interval_ms": "interval",
    "subscribed_topic_names": "names",
    "subscribed_topic_regex": "regex",
}

PARTITIONS = {"assignment": "has", "target_assignment": "target"}
"""Fields with partitions, in the consumer protocol."""

WITH_SENTENCES = ConsumerGroupHeartbeatAnswer | ConsumerGroupDescribeAnswer
"""Responses that have a sentence beside their error code. Only its presence is compared."""

Description = DescribeGroupAnswer | ConsumerGroupDescribeAnswer


@dataclass(frozen=True)
class ClientRequest:
    """A request that was sent: its client, and its version."""

    label: str
    who: str
    request: Request | OfProducer
    version: int


@dataclass(frozen=True)
class Step:
    """A line of a conversation and all of its responses, on one side."""

    line: str
    heard: tuple[tuple[str, str, str], ...]
    """For each response: the client, the codes, and the whole response."""
    group: str

    def __str__(self) -> str:
        return "\n".join([self.line, *(f"    {answer}" for *_, answer in self.heard), f"    = {self.group}"])


@dataclass
class Member:
    """A client's data about its membership."""

    member_id: str
    generation_id: int = -1
    protocol_type: str | None = "consumer"
    protocol_name: str | None = "range"


@dataclass
class Names:
    """One side's ids and the names of the members that first had them."""

    topics: Topics = field(default_factory=lambda: Topics("", ()))
    prefix: str = ""
    """The first part of this side's transactional ids: both sides use the same brokers."""
    members: dict[str, Member] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    client_ids: dict[str, str] = field(default_factory=dict)
    """The client ids of those clients that have another one than their name."""
    processes: Counter[str] = field(default_factory=Counter)
    """The number of restarts of each client."""
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The producer id and the epoch that each producer was given last."""
    _names: dict[str, str] = field(default_factory=dict)

    def learn(self, asked: ClientRequest, answer: AnyAnswer) -> None:
        """Store ids, generations and epochs from responses to joins, heartbeats of consumers, and new producers."""
        if isinstance(answer, ConsumerGroupHeartbeatAnswer) and isinstance(asked.request, ConsumerGroupHeartbeat):
            if not answer.code:
                assert answer.member_id, "a response without a member id"
                self._named(asked.who, answer.member_id).generation_id = answer.member_epoch
            return
        if isinstance(answer, ProducerAnswer) and answer.producer_id >= 0:
            self.producers[asked.who] = (answer.producer_id, answer.producer_epoch)
        if not isinstance(answer, JoinGroupAnswer) or not isinstance(asked.request, JoinGroup):
            return
        if answer.code not in (ErrorCode.NONE.number, ErrorCode.MEMBER_ID_REQUIRED.number):
            return
        if answer.member_id not in self._names:
            instance = asked.request.group_instance_id
            prefix = asked.request.client_id if instance is None else instance
            is_bare = self.form(answer.member_id) == "bare"
            assert is_bare or answer.member_id[:-SUFFIX_CHARS] == prefix, f"{answer.member_id} is not of {prefix}"
        member = self._named(asked.who, answer.member_id)
        if answer.code == ErrorCode.NONE.number:
            member.generation_id = answer.generation_id
            member.protocol_type, member.protocol_name = answer.protocol_type or "consumer", answer.protocol_name

    def transactional_id(self, name: str) -> str:
        """Return the transactional id of a producer on this side."""
        return f"{self.prefix}.{name}"

    def _named(self, who: str, member_id: str) -> Member:
        """Return the member of an id. An id that is new gets the client's next name."""
        if member_id not in self._names:
            number = sum(name.split("#")[0] == who for name in self.members) + 1
            name = who if number == 1 else f"{who}#{number}"
            self.members[name], self._names[member_id] = Member(member_id), name
        return self.members[self._names[member_id]]

    @staticmethod
    def form(member_id: str) -> str:
        """Return whether an id has the client's id or an instance id before its unique part."""
        return "prefixed" if len(member_id) > SUFFIX_CHARS else "bare"

    def newest_of(self, client: str) -> str:
        """Return the latest name of a client."""
        return [name for name in self.members if name.split("#")[0] == client][-1]

    def name(self, member_id: str) -> str:
        """Return the name of an id. An unknown id shows its prefix; other text stays as it is."""
        if member_id in self._names:
            return self._names[member_id]
        return f"{member_id[:-SUFFIX_CHARS]}-?" if len(member_id) > SUFFIX_CHARS else member_id

    def tell(self, answer: AnyAnswer) -> str:
        """Return a response as text for the comparison."""
        unseen = UNSEEN_IN_A_DESCRIPTION if isinstance(answer, DescribeGroupAnswer) else UNSEEN
        is_ordered = isinstance(answer, LeaveGroupAnswer)  # like the request
        if isinstance(answer, ConsumerGroupDescribeAnswer) and answer.state is Phase.EMPTY:
            unseen = unseen | {"assignment_epoch"}  # 4.3 keeps it when the last member leaves, 4.4 raises it
        rest = []
        if isinstance(answer, WITH_SENTENCES):
            rest = [f"explained={'yes' if answer.error_message else 'no'}"]
        elif isinstance(answer, JoinGroupAnswer) and answer.member_id:
            rest = [f"form={self.form(answer.member_id)}"]
        return " ".join([*self._fields(asdict(answer), unseen, is_ordered), *rest])

    def tell_group(self, described: Description) -> str:
        """Return a group's description as text, sorted by its members' names."""
        members = "+".join(sorted(self.name(m.member_id) for m in described.members))
        return f"{described.state.value}: members={members or 'none'} {self.tell(described)}"

    def _fields(self, fields: dict[str, Any], unseen: set[str], is_ordered: bool) -> Iterator[str]:
        for field_name, value in fields.items():
            if field_name in unseen:
                continue
            key = SHORT.get(field_name, field_name.removesuffix("_id"))
            if field_name in PARTITIONS and not isinstance(value, bytes):
                yield f"{PARTITIONS[field_name]}={'same' if value is None else self.topics.tell(value)}"
            elif key == "names":
                yield f"names={','.join(sorted(map(self.topics.short, value))) or 'none'}"
            elif isinstance(value, tuple):
                entries = [" ".join(self._fields(asdict(entry), unseen, is_ordered)) for entry in value]
                yield f"{key}=[{'; '.join(entries if is_ordered else sorted(entries))}]"
            else:
                yield f"{key}={self._value(key, value)}"

    def _value(self, key: str, value: Any) -> str:
        match key, value:
            case (("member" | "leader"), str()):
                return self.name(value) or "nobody"
            case "group", str():
                return self.groups.get(value, value)
            case "topic", str():
                return self.topics.name_of(value)
            case "regex", str():
                return self.topics.plain(value) or "none"
            case _, bytes():
                return value.hex() or "empty"
            case _, Phase():
                return value.value
        return str(value)


def codes(answer: AnyAnswer) -> str:
    """Return the code of a response, or else the codes of its entries without repetition."""
    entries = getattr(answer, "partitions", getattr(answer, "members", ()))
    found = [str(entry.code) for entry in entries if hasattr(entry, "code")]
    if answer.code:
        return str(answer.code)
    return "/".join(found if len(set(found)) > 1 else found[:1]) or str(answer.code)
