"""Conversations with one shard, so that a test reads as a conversation.

    s = Scenario.stable("ana", "bo", session_timeout_ms=10_000)
    s.at(s.now_ms + 9_999).heartbeat("ana").hears(ErrorCode.NONE)

Members have short names. A name is a client id; its member id is read from the responses. A client that joins again as
a new member has another id: `ana#2`. Each step runs three times: in a shard that stays in memory, in a shard that is
encoded and decoded before the step, and in a shard without caches that takes the long path for heartbeats. All must
give equal outputs and equal bytes. Every checker of `invariants` checks the step.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self
from unittest.mock import patch

from coordinator.base.config import Config
from coordinator.base.errors import ErrorCode
from coordinator.base.policies import Policy
from coordinator.messages.events import MemberFenced, MemberJoined
from coordinator.messages.fields import Event
from coordinator.messages.group_records import Published
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.outputs import Output
from coordinator.messages.requests import (
    Assignment,
    DeleteGroup,
    DescribeGroup,
    ExpelMember,
    JoinGroup,
    LeaveGroup,
    Leaving,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    OffsetTopic,
    OffsetTopics,
    Protocol,
    RebalanceGroup,
    Received,
    RepublishGroup,
    Request,
    SetPolicies,
    SyncGroup,
    TopicPartition,
    TopicPartitions,
    Unreadable,
)
from coordinator.messages.responses import AnyAnswer, JoinGroupAnswer, RebalanceNotice, Reply
from coordinator.shard.handlers import HANDLERS
from coordinator.shard.shard import Shard
from coordinator.state.classic_group import Group
from coordinator.state.member_index import MemberIndexCache
from tests.coordinator.invariants import Step, all_checkers
from tests.coordinator.plain import PlainHeartbeat, long_path
from tests.coordinator.waking import wake
from tests.coordinator.wire import assignment, subscription

SECRET = b"sixteen secret bytes"


Partitions = Mapping[str, Sequence[int]]
"""By topic."""


class Scenario:
    """One shard, its clients, and all requests and responses so far.

    Args:
        delay_ms: The initial rebalance delay. The default is 0, unlike Kafka's: most tests are shorter without it.
        config: Further settings, by their names in `Config`.
    """

    def __init__(self, *, delay_ms: int = 0, **config: Any) -> None:
        self.config = Config(group_initial_rebalance_delay_ms=delay_ms, **config)
        self.member_indexes = MemberIndexCache()
        self.shard, self._living = self.new_shard(), self.new_shard()
        self._checkers = all_checkers(self.config)
        self.now_ms = 0
        self.group_id = "g"
        self.batches: list[tuple[list[Received], int]] = []
        self.outputs: list[Output] = []
        self.latest: list[Output] = []
        self.ids: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.asked: dict[str, tuple[str, Request | Unreadable]] = {}
        self.answers: dict[str, list[AnyAnswer]] = {}
        self.latest_request_id = ""
        self._offset = self._made_ms = 0
        self._settings: dict[str, Any] = {}
        self._waiting: list[Received] | None = None

    def new_shard(self, state: bytes | None = None, **config: Any) -> Shard:
        """Return a shard with this scenario's settings, from `state` or empty."""
        changed = {**{name: getattr(self.config, name) for name in Config.__struct_fields__}, **config}
        return Shard(0, 1, SECRET, Config(**changed), state, self.member_indexes)

    @classmethod
    def joined(cls, *names: str, session_timeout_ms: int = 10_000, rebalance_timeout_ms: int = 10_000,
               protocols: Sequence[str] = ("range",), **config: Any) -> Self:  # fmt: skip
        """Return a scenario in which `names` have joined; the first one leads, and the assignments are awaited."""
        s = cls(**config)
        joining = {
            "session_timeout_ms": session_timeout_ms,
            "rebalance_timeout_ms": rebalance_timeout_ms,
            "protocols": protocols,
        }
        for name in names:
            s.join(name, **joining)
        if len(names) > 1:
            s.join(names[0], **joining)
        s.is_("CompletingRebalance")
        return s

    @classmethod
    def stable(cls, *names: str, **settings: Any) -> Self:
        """Return a scenario in which `names` have synced; the first one owns partition 0 of t, and so on."""
        s = cls.joined(*names, **settings)
        s.sync(names[0], plan={name: {"t": [place]} for place, name in enumerate(names)})
        for name in names[1:]:
            s.sync(name)
        s.is_("Stable")
        return s

    # -- time ----------------------------------------------------------------------------------------------------------

    def at(self, now_ms: int) -> Self:
        """Set the time of the next request."""
        self.now_ms = now_ms
        return self

    def until(self, now_ms: int) -> Self:
        """Run batches without requests until all deadlines up to `now_ms` have fired, each at its alarm."""
        self.now_ms = now_ms
        if self._waiting is None:
            slack_ms = self.config.clock_slack_ms
            while (due_ms := self.shard.next_deadline_ms) is not None and due_ms < now_ms:
                self.step([], due_ms + slack_ms)
            self.step([], now_ms + slack_ms)
        return self

    def away(self) -> Self:
        """Stop the coordinator: further requests wait in the log."""
        self._waiting = []
        return self

    def back(self, now_ms: int, batch_ms: int | None = None) -> Self:
        """Start the coordinator at `now_ms`: one batch reads all waiting requests, at `batch_ms` if given."""
        waiting, self._waiting, self.now_ms = self._waiting or [], None, now_ms
        self.step([*waiting, wake(now_ms)], now_ms if batch_ms is None else batch_ms)
        return self

    # -- requests ------------------------------------------------------------------------------------------------------

    def join(self, name: str, *, session_timeout_ms: int = 10_000, rebalance_timeout_ms: int = 10_000,
             protocols: Sequence[str] = ("range",), topics: Sequence[str] = ("t",), **fields: Any) -> Self:  # fmt: skip
        """Join as a new member, or with the known member id. `fields` are further fields of the request."""
        fields.setdefault("protocol_type", "consumer")
        fields.setdefault("require_known_member_id", False)
        if "protocols_as_they_are" in fields:
            offers = fields.pop("protocols_as_they_are")
        else:
            offers = tuple(Protocol(protocol, subscription(topics)) for protocol in protocols)
        timeouts = {"session_timeout_ms": session_timeout_ms, "rebalance_timeout_ms": rebalance_timeout_ms}
        return self.ask(name, JoinGroup, protocols=offers, **timeouts, **fields)

    def sync(self, name: str, plan: Mapping[str, Partitions | bytes] | None = None, **fields: Any) -> Self:
        """Sync, as the leader with the assignments `plan`."""
        assignments = tuple(
            Assignment(self.ids.get(who, who), what if isinstance(what, bytes) else assignment(what))
            for who, what in (plan or {}).items()
        )
        return self.ask(name, SyncGroup, assignments=assignments, **fields)

    def heartbeat(self, name: str, **fields: Any) -> Self:
        """Send a heartbeat."""
        return self.ask(name, Heartbeat, **fields)

    def leave(self, *names: str, reason: str | None = None, instance: str | None = None, **fields: Any) -> Self:
        """Leave; the first member sends the request. `ana/i1` also names ana's instance id, `/i1` only that."""
        entries = [(who, own if slash else instance) for who, slash, own in (name.partition("/") for name in names)]
        members = tuple(Leaving(self.ids.get(who, who), own, reason) for who, own in entries)
        return self.ask(entries[0][0] or "admin", LeaveGroup, members=members, **fields)

    def remove(self, *instances: str, reason: str | None = None, **fields: Any) -> Self:
        """Remove members by their instance ids alone, as an administrator does."""
        members = tuple(Leaving("", instance, reason) for instance in instances)
        return self.ask("admin", LeaveGroup, members=members, **fields)

    def commit(self, name: str, offsets: Mapping[tuple[str, int], int], *, metadata: str | None = None, topic_id:
               str | None = None, leader_epoch: int = -1, retention_ms: int = -1, **fields: Any) -> Self:  # fmt: skip
        """Commit with the last generation that the member received."""
        return self.ask(
            name,
            OffsetCommit,
            offsets=tuple(
                OffsetToCommit(topic, partition, offset, leader_epoch, metadata, retention_ms, topic_id)
                for (topic, partition), offset in offsets.items()
            ),
            **fields,
        )

    def commit_from_outside(self, name: str, offsets: Mapping[tuple[str, int], int], **fields: Any) -> Self:
        """Commit without being a member, as tools do."""
        return self.commit(name, offsets, member_id="", generation_id=-1, **fields)

    def fetch(self, name: str, topics: Partitions | None = None, topic_id: str | None = None, **fields: Any) -> Self:
        """Fetch the committed offsets of `topics`, or all of them."""
        asked = None if topics is None else tuple(TopicPartitions(t, tuple(p), topic_id) for t, p in topics.items())
        return self.ask(name, OffsetFetch, topics=asked, **fields)

    def describe(self, name: str = "admin", **fields: Any) -> Self:
        """Describe the group."""
        return self.ask(name, DescribeGroup, **fields)

    def list_groups(self, name: str = "admin", **fields: Any) -> Self:
        """List the groups."""
        return self.ask(name, ListGroups, group_id="", **fields)

    def delete_offsets(self, name: str, topics: Partitions, **fields: Any) -> Self:
        """Delete committed offsets."""
        asked = tuple(TopicPartitions(t, tuple(p)) for t, p in topics.items())
        return self.ask(name, OffsetDelete, topics=asked, **fields)

    def delete(self, name: str = "admin", **fields: Any) -> Self:
        """Delete the group."""
        return self.ask(name, DeleteGroup, **fields)

    def rebalance(self, name: str = "admin", **fields: Any) -> Self:
        """Start a rebalance."""
        return self.ask(name, RebalanceGroup, **fields)

    def republish(self, topics: Partitions, name: str = "admin", *, group: bool = True, **fields: Any) -> Self:
        """Request that records are written again."""
        offsets = tuple(TopicPartition(topic, p) for topic, partitions in topics.items() for p in partitions)
        return self.ask(name, RepublishGroup, group=group, offsets=offsets, **fields)

    def topics(self, *topics: OffsetTopic, name: str = "coordinator", **fields: Any) -> Self:
        """Report what has become of the topics of offsets."""
        return self.ask(name, OffsetTopics, topics=topics, **fields)

    def expel(self, who: str, name: str = "admin", **fields: Any) -> Self:
        """Expel the member with that name or member id."""
        return self.ask(name, ExpelMember, member_id=self.ids.get(who, who), **fields)

    def policies(self, *entries: Policy) -> Self:
        """Set all policies of the shard."""
        self._made_ms = max(self._made_ms + 1, self.now_ms)
        return self.ask("admin", SetPolicies, group_id="", made_ms=self._made_ms, policies=entries)

    def policy(self, **settings: Any) -> Self:
        """Set policies of the group, beside those that were set so before; None for a policy switches it off."""
        self._settings |= settings
        return self.policies(Policy(name=self.group_id, **self._settings))

    def ask(self, name: str, kind: type[Any], **fields: Any) -> Self:
        """Send any request, by default with the member id and generation of `name`."""
        known = set(kind.__struct_fields__)
        client = name.split("#")[0]
        fields.setdefault("group_id", self.group_id)
        fields.setdefault("reply_to", f"{client}'s inbox")
        fields.setdefault("client_id", client)
        fields.setdefault("client_host", f"/{client}.example")
        if "member_id" in known:
            fields.setdefault("member_id", self.ids.get(name, "" if kind is JoinGroup else name))
        if "generation_id" in known:
            fields.setdefault("generation_id", self.generations.get(name, -1))
        fields.setdefault("request_id", f"{name} {kind.__struct_config__.tag} {len(self.asked) + 1}")
        return self.send(name, kind(**fields))

    def send(self, name: str, request: Request | Unreadable) -> Self:
        """Append a request to the log, which may be a repeated one."""
        self._offset += 1
        if request.request_id is not None:
            self.asked.setdefault(request.request_id, (name, request))
            self.latest_request_id = request.request_id
        received = Received(self._offset, self.now_ms, request)
        if self._waiting is not None:
            self._waiting.append(received)
        else:
            self.step([received], self.now_ms)
        return self

    def last_request(self, name: str, kind: type[Any]) -> Any:
        """Return the latest request of a kind that `name` sent."""
        return next(r for n, r in reversed(self.asked.values()) if n == name and isinstance(r, kind))

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self, log: list[Received], now_ms: int) -> list[Output]:
        """Run one batch in each of the shards, and check every promise."""
        log, before = log or [wake(now_ms)], self.shard.to_bytes()
        self.shard = self.new_shard(before)
        self.latest = self.shard.step(log, now_ms)
        assert self._living.step(log, now_ms) == self.latest, "encoding and decoding changes the outputs (I18)"
        state = self.shard.to_bytes()
        assert self._living.to_bytes() == state, "the same history gives different bytes (I16)"
        assert self.new_shard(state).to_bytes() == state, "decoding and encoding changes the bytes (I18)"
        self.member_indexes = MemberIndexCache()
        by_long_path = self.new_shard(before)
        with patch.dict(HANDLERS, {PlainHeartbeat: HANDLERS[Heartbeat]}):
            assert by_long_path.step([*map(long_path, log)], now_ms) == self.latest, "the short path changes outputs"
        assert by_long_path.to_bytes() == state, "the short path of heartbeats changes the bytes"
        self.batches.append((log, now_ms))
        self.outputs += self.latest
        self._learn(self.latest)
        groups = {group_id: self.shard.group(group_id) for group_id in self.shard.group_ids}
        step = Step(log, self.latest, now_ms, groups)
        for checker in self._checkers:
            checker.watch(step)
        return self.latest

    def _learn(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            if isinstance(output, MemberJoined):
                self._name(output.member_id, output.client_id)
            if isinstance(output, MemberFenced):
                self._name(output.replaced_by, output.replaced_by_client_id)
            if not isinstance(output, Reply) or output.answer.request_id is None:
                continue
            answer = output.answer
            self.answers.setdefault(answer.request_id, []).append(answer)
            if isinstance(answer, JoinGroupAnswer):
                _, request = self.asked[answer.request_id]
                if answer.error == ErrorCode.MEMBER_ID_REQUIRED.name:
                    self._name(answer.member_id, request.client_id)
                elif answer.error == ErrorCode.NONE.name:
                    self.generations[self.names[answer.member_id]] = answer.generation_id

    def _name(self, member_id: str, client_id: str) -> None:
        if member_id in self.names:
            return
        number = sum(name.split("#")[0] == client_id for name in self.ids) + 1
        name = client_id if number == 1 else f"{client_id}#{number}"
        self.ids[name], self.names[member_id] = member_id, name

    # -- checks --------------------------------------------------------------------------------------------------------

    @property
    def group(self) -> Group:
        """The group in its present state."""
        group = self.shard.group(self.group_id)
        assert group is not None, f"group {self.group_id} does not exist"
        return group

    def name(self, member_id: str | None) -> str:
        """Return the name of a member; an unknown id stays as it is."""
        return self.names.get(member_id or "", member_id or "")

    @property
    def said(self) -> AnyAnswer:
        """The only response to the latest request."""
        answers = self.answers.get(self.latest_request_id, [])
        assert len(answers) == 1, f"{self.latest_request_id} got {answers or 'no response'}"
        return answers[0]

    def hears(self, error: ErrorCode, **fields: Any) -> Self:
        """Expect the response `error` to the latest request, with the given `fields`."""
        said = self.said
        assert said.error == error.name, f"{self.latest_request_id} got {said.error}"
        assert {field: getattr(said, field) for field in fields} == fields
        return self

    def is_parked(self) -> Self:
        """Expect no response to the latest request."""
        assert self.latest_request_id not in self.answers, f"{self.latest_request_id} was answered"
        return self

    def heard(self, name: str, kind: type[Any]) -> Any:
        """Return the last response to the latest request of a kind from `name`."""
        return self.answers[self.last_request(name, kind).request_id][-1]

    def is_(self, phase: str, *, generation: int | None = None, members: str | None = None) -> Self:
        """Expect a phase, a generation, and members by name in the order in which they joined."""
        group = self.group
        assert group.phase.value == phase
        assert generation is None or group.generation_id == generation
        assert members is None or " ".join(map(self.name, group.members)) == members
        return self

    def is_gone(self) -> Self:
        """Expect that the group does not exist."""
        assert self.shard.group(self.group_id) is None
        return self

    def events(self, kind: type[Any] = Event) -> list[Any]:
        """Return the events of a kind so far."""
        return [output for output in self.outputs if isinstance(output, kind)]

    def published(self) -> list[Published]:
        """Return the published records so far."""
        return [output for output in self.outputs if isinstance(output, Published)]

    def noticed(self) -> set[str]:
        """Return the names of the members that got a rebalance notice in the latest step."""
        notices = [o.answer for o in self.latest if isinstance(o, Reply) and isinstance(o.answer, RebalanceNotice)]
        assert len({n.member_id for n in notices}) == len(notices), "a member got two notices"
        return {self.name(n.member_id) for n in notices}
