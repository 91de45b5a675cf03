"""Conversations with a group of the consumer protocol, as text.

    T:4                      topic T has 4 partitions from now on; `T:0` deletes it, `T:4 anew` gives it another id
    A 0 -> 2 {0 1 2 3}       member A sends epoch 0 and hears epoch 2 and an assignment; none if the answer has none
    A(i) 2 own 0 1 -> 3      with the instance id i, and with the partitions that it owns
    A 2 own 0 1 full -> 110  with all fields; the answer is an error
    A 2 again -> 2 {0 1}     a gateway sends it on the member's behalf
    A 2 names T U -> ...     with a subscription; `regex ^a.* = T U` with a pattern and the topics that it matches
    -- 1000                  1,000 ms pass
    = Stable 3 3             the group's state, group epoch and assignment epoch

A partition is a number of topic T, or follows the name of its topic. A join subscribes to T unless it says otherwise.
Each step runs in a shard that stays in memory, in one that is encoded and decoded before the step, and in one that
takes the long path. All must give equal outputs and equal bytes, and every step keeps the promises of `promises`.
"""

from base64 import urlsafe_b64encode
from typing import Any

import msgspec

from coordinator.assignors.server import Target
from coordinator.base.config import Config
from coordinator.base.limits import NEVER_MS
from coordinator.base.policies import Policy
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, GroupTopics, OwnedPartitions, TopicFact
from coordinator.messages.fields import Event
from coordinator.messages.group_records import Published
from coordinator.messages.outputs import Output
from coordinator.messages.requests import JoinGroup, Received, Request, SetPolicies
from coordinator.messages.responses import AnyAnswer, AssignedTopic, AssignmentNotice, Reply
from coordinator.shard.shard import Shard
from coordinator.state.consumer_group import AWAY_EPOCH, ConsumerGroup
from coordinator.state.consumer_member import MemberState
from coordinator.state.member_index import MemberIndexCache
from tests.coordinator.consumer.long_path import long_paths, on_long_path
from tests.coordinator.waking import wake

SECRET = b"sixteen secret bytes"
START_MS = 1_790_000_000_000


def topic_id(name: str, life: int = 0) -> str:
    """Return the id of a topic in one of its lives."""
    return urlsafe_b64encode(f"{name}{life}".encode().rjust(16, b"\0")).rstrip(b"=").decode()


def read_partitions(text: str, lives: dict[str, int]) -> Target:
    """Return the partitions that a text names, by topic id."""
    found: Target = {}
    topic = "T"
    for word in text.replace(",", " ").split():
        if word[0].isdigit():
            first, _, last = word.partition("-")
            found.setdefault(topic_id(topic, lives.get(topic, 0)), []).extend(range(int(first), int(last or first) + 1))
        else:
            topic = word
    return found


class Conversation:
    """One shard and its clients."""

    def __init__(self, **config: Any) -> None:
        self.config = Config(**config)
        self.member_indexes = MemberIndexCache()
        self.shard = self.new_shard()
        self._living = self.new_shard()
        self.now_ms = START_MS
        self.group_id = "g"
        self.counts: dict[str, int] = {}
        self.lives: dict[str, int] = {}
        self.log: list[Received] = []
        self.latest: list[Output] = []
        self.outputs: list[Output] = []
        self._offset = 0

    def new_shard(self, state: bytes | None = None) -> Shard:
        """Return a shard with this conversation's settings."""
        return Shard(0, 1, SECRET, self.config, state, self.member_indexes)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def plays(self, text: str) -> "Conversation":
        """Play a conversation; fail at the first line that is not answered as it says."""
        for line in (each.partition("#")[0].strip() for each in text.splitlines()):
            if line:
                self._play(line)
        return self

    def _play(self, line: str) -> None:
        if line.startswith("--"):
            self.passes(int(line[2:]))
        elif line.startswith("="):
            assert self.state == line[1:].strip(), f"{line}: the group is {self.state}"
        elif "->" in line:
            said, _, heard = line.partition("->")
            answer = self.says(said)
            assert self.told(answer) == " ".join(heard.split()), f"{line}: {self.told(answer)}"
        else:
            self.sets(line)

    def sets(self, line: str) -> None:
        """Change a topic."""
        name, _, rest = line.partition(":")
        count, _, anew = rest.partition(" ")
        self.counts[name] = int(count)
        self.lives[name] = self.lives.get(name, 0) + (anew == "anew")

    def fact(self, name: str) -> TopicFact:
        """Return what a gateway's metadata say of a topic."""
        count = self.counts.get(name, 0)
        return TopicFact(name, topic_id(name, self.lives.get(name, 0)) if count else None, count)

    def says(self, text: str) -> AnyAnswer:
        """Send the heartbeat that a text describes, and return the answer."""
        who, epoch, *words = text.split()
        name, _, instance = who.rstrip(")").partition("(")
        fields: dict[str, Any] = {"group_instance_id": instance or None, "member_epoch": int(epoch)}
        said = _fields(words)
        if int(epoch) == 0 or "full" in said:
            fields.update(rebalance_timeout_ms=30_000, topic_partitions=())
            if "regex" not in said:
                fields["subscribed_topic_names"] = ("T",)
        if "own" in said:
            owned = read_partitions(said["own"], self.lives).items()
            fields["topic_partitions"] = tuple(OwnedPartitions(t, tuple(numbers)) for t, numbers in owned)
        if "names" in said:
            fields["subscribed_topic_names"] = tuple(w for w in said["names"].split() if w != "none")
        if "regex" in said:
            pattern, _, topics = said["regex"].partition("=")
            fields["subscribed_topic_regex"] = pattern.strip()
            fields["regex_topics"] = tuple(topics.split()) if "=" in said["regex"] else None
        fields["again"] = "again" in said
        if "by" in said:
            fields["server_assignor"] = said["by"]
        names = (*(fields.get("subscribed_topic_names") or ()), *(fields.get("regex_topics") or ()))
        fields["topics"] = tuple(self.fact(each) for each in dict.fromkeys(names))
        return self.sends(
            ConsumerGroupHeartbeat, member_id=name, **{k: v for k, v in fields.items() if v is not None or k == "x"}
        )

    def tells_topics(self, *names: str) -> AnyAnswer:
        """Send the group the present facts about topics."""
        return self.sends(GroupTopics, topics=tuple(map(self.fact, names)))

    def sends(self, kind: type[Request], **fields: Any) -> Any:
        """Send a request in a step of its own, and return the answer."""
        self._offset += 1
        name = fields.get("member_id") or "?"
        defaults = {"client_id": f"client-{name}", "client_host": "/10.0.0.1", "group_id": self.group_id}
        request = kind(request_id=f"r{self._offset}", reply_to=f"box-{name}", **{**defaults, **fields})
        self.steps([Received(self._offset, self.now_ms, request)])
        reply = next(o for o in self.latest if isinstance(o, Reply) and o.answer.request_id == f"r{self._offset}")
        assert reply.to == request.reply_to
        return reply.answer

    def policy(self, **policies: Any) -> "Conversation":
        """Set the policies of the group, and no others."""
        entry = Policy(name=self.group_id, **policies)
        self._offset += 1
        request = SetPolicies(
            request_id=f"r{self._offset}", reply_to="operator", made_ms=self.now_ms, policies=(entry,)
        )
        self.steps([Received(self._offset, self.now_ms, request)])
        answers = [output.answer for output in self.latest if isinstance(output, Reply)]
        assert answers[-1].code == 0, answers[-1]
        return self

    def steps_join(self, fields: dict[str, Any]) -> None:
        """Send a join of the classic protocol, which is answered later."""
        self._offset += 1
        request = JoinGroup(request_id=f"r{self._offset}", reply_to="box", group_id=self.group_id, **fields)
        self.steps([Received(self._offset, self.now_ms, request)])

    def passes(self, ms: int) -> None:
        """Move the time on, and read the log up to it."""
        self.now_ms += ms
        self._offset += 1
        self.steps([wake(self.now_ms + self.config.clock_slack_ms, self._offset)])

    def steps(self, log: list[Received]) -> None:
        """Handle records in one step of each of the three shards."""
        now_ms = log[-1].at_ms
        self.log += log
        state = self.shard.to_bytes()
        stored, slow = self.new_shard(state), Shard(0, 1, SECRET, self.config, state)
        outputs = stored.step(log, now_ms)
        assert outputs == self._living.step(log, now_ms)
        with long_paths():
            assert outputs == slow.step([on_long_path(each) for each in log], now_ms)
        assert stored.to_bytes() == self._living.to_bytes() == slow.to_bytes()
        self.shard, self.latest = stored, outputs
        self.outputs += outputs
        are_well_formed(outputs)
        if (group := stored.consumer_group(self.group_id)) is not None:
            keeps_its_promises(group)

    def in_one_step(self) -> "Conversation":
        """Check that a shard that reads the whole log in one step gives the same outputs and has the same group.

        The time up to which no deadline has to be looked for may be earlier than that of many steps.
        """
        shard = self.new_shard()
        assert shard.step(self.log, self.log[-1].at_ms) == self.outputs
        group, expected = shard.consumer_group(self.group_id), self.group
        assert group is not None
        group.hot_state.earliest_ms = expected.hot_state.earliest_ms = 0
        assert group == expected
        return self

    # -- what can be seen ----------------------------------------------------------------------------------------------

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.consumer_group(self.group_id)
        assert group is not None, "there is no such group of the consumer protocol"
        return group

    @property
    def state(self) -> str:
        group = self.group
        return f"{group.phase.value} {group.hot_state.group_epoch} {group.hot_state.assignment_epoch}"

    def told(self, answer: Any) -> str:
        """Return an answer as text: an epoch with an assignment, or the number of an error."""
        if answer.code:
            return str(answer.code)
        if answer.assignment is None:
            return str(answer.member_epoch)
        return f"{answer.member_epoch} {{{self._partitions(answer.assignment)}}}"

    def _partitions(self, assignment: tuple[AssignedTopic, ...]) -> str:
        told = {each.topic: " ".join(map(str, each.partitions)) for each in assignment}
        if set(told) <= {"T"}:
            return told.get("T", "")
        return ", ".join(f"{topic} {numbers}" for topic, numbers in sorted(told.items()))

    def events(self, kind: type[Event]) -> list[Any]:
        """Return all events of one kind so far."""
        return [output for output in self.outputs if isinstance(output, kind)]

    @property
    def noticed(self) -> list[str]:
        """The members that the latest step told to send a heartbeat."""
        answers = [output.answer for output in self.latest if isinstance(output, Reply)]
        return [answer.member_id for answer in answers if isinstance(answer, AssignmentNotice)]


WORDS = ("own", "full", "again", "names", "regex", "by")


def _fields(words: list[str]) -> dict[str, str]:
    """Return the words after each word of `WORDS`."""
    said: dict[str, str] = {}
    last = ""
    for word in words:
        if word in WORDS:
            last, said[word] = word, ""
        else:
            said[last] += f" {word}"
    return {word: rest.strip() for word, rest in said.items()}


def are_well_formed(outputs: list[Output]) -> None:
    """Check that every field of an output has its type, and that no version is left out between two outputs."""
    versions: dict[str, int] = {}
    for output in outputs:
        told = output.record if isinstance(output, Published) else output
        assert msgspec.convert(msgspec.to_builtins(told), type(told)) == told
        if isinstance(output, Event | Published) and output.group_id is not None and output.version is not None:
            assert versions.setdefault(output.group_id, output.version) == output.version
            versions[output.group_id] += 1


def keeps_its_promises(group: ConsumerGroup) -> None:
    """Check what must hold of a group after every step (next-generation.md 10.9, 1 to 4)."""
    hot_state = group.hot_state
    held: dict[tuple[str, int], str] = {}
    for member in group.members.values():
        for partitions in (member.assigned, member.revoking):
            for each, numbers in partitions.items():
                for number in numbers:
                    assert held.setdefault((each, number), member.member_id) == member.member_id, "two owners"
        session = hot_state.sessions[member.member_id]
        assert session.epoch == AWAY_EPOCH or session.epoch <= hot_state.assignment_epoch <= hot_state.group_epoch
        assert bool(member.revoking) <= (member.state is MemberState.UNREVOKED)
        must_confirm = member.state is MemberState.UNREVOKED and session.epoch != AWAY_EPOCH and member.classic is None
        assert (member.member_id in hot_state.revocations) == must_confirm
        is_settled = member.state is MemberState.STABLE and session.epoch == hot_state.assignment_epoch
        assert session.is_settled == is_settled
        if is_settled and hot_state.group_epoch == hot_state.assignment_epoch:
            target = group.targets.get(member.member_id, {})
            wanted = {(t, n) for t, numbers in target.items() for n in numbers if t in group.topic_ids_of(member)}
            assert {(t, n) for t, numbers in member.assigned.items() for n in numbers} == wanted
    assert hot_state.unsettled == sum(not session.is_settled for session in hot_state.sessions.values())
    assert group.state is group.phase
    keeps_its_holds(group)


def keeps_its_holds(group: ConsumerGroup) -> None:
    """Check that the effects of policies have deadlines that fire, and fit the members."""
    hot_state, held, hidden = group.hot_state, group.held, group.policy_state.quarantined
    assert hot_state.is_frozen == (held is not None and held.policy == "freeze")
    assert (held is None) or hot_state.group_epoch > hot_state.assignment_epoch
    assert held is None or hot_state.now_ms < hot_state.plan_ms == held.due_ms
    assert hidden.keys() <= group.members.keys()
    assert not any(group.targets.get(member_id) for member_id in hidden), "a member in quarantine has a target"
    assert hot_state.now_ms < hot_state.policy_ms <= min(hidden.values(), default=NEVER_MS)
    assert hot_state.earliest_ms <= min(hot_state.plan_ms, hot_state.policy_ms)


def reconciling() -> Conversation:
    """Return a conversation in which a second member waits for the partitions of the first one."""
    return Conversation().plays("""
        T:4
        A 0               -> 2 {0 1 2 3}
        -- 1000
        B(i) 0            -> 3 {}
        A 2               -> 2 {0 1}
        = Reconciling 3 3
    """)
