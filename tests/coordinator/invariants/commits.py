"""I13 to I15: commits are kept, fenced, and forgotten in time."""

from collections import defaultdict
from dataclasses import dataclass, field

from coordinator.config import Config
from coordinator.consumer_protocol import CONSUMERS
from coordinator.outputs import (
    GroupRecord,
    MemberFenced,
    MemberJoined,
    OffsetCommitAnswer,
    OffsetFetchAnswer,
    OffsetRecord,
    OffsetsDeleted,
    OffsetsExpired,
    Output,
    Published,
    Reply,
)
from coordinator.phases import Phase
from coordinator.requests import OffsetCommit, OffsetFetch
from tests.coordinator.invariants.step import GONE, NONE, Asked, Step, forgotten


class CommitsAreKept:
    """I13: an acknowledged commit is what every later fetch returns, until another commit or an expiry."""

    def __init__(self, asked: Asked | None = None) -> None:
        self.asked = asked or Asked()
        self.committed: dict[str, dict[tuple[str, int], tuple[int, int, str]]] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.news:
            if isinstance(output, Published):
                self._published(output)
            elif isinstance(output, Reply) and isinstance(output.answer, OffsetCommitAnswer):
                self._acknowledged(self.asked.by(output), output.answer)
            elif isinstance(output, Reply) and isinstance(output.answer, OffsetFetchAnswer):
                self._fetched(self.asked.by(output), output.answer)

    def _published(self, output: Published) -> None:
        if output.key[0] == "group":
            if output.record is None:
                self.committed.pop(output.group_id, None)
            return
        known, place = self.committed.setdefault(output.group_id, {}), (output.key[2], output.key[3])
        if output.record is None:
            del known[place]
        else:
            record = output.record
            assert isinstance(record, OffsetRecord)
            known[place] = record.offset, record.leader_epoch, record.metadata

    def _acknowledged(self, request: OffsetCommit, answer: OffsetCommitAnswer) -> None:
        known = self.committed.get(request.group_id, {})
        kept = {
            (asked.topic, asked.partition): (asked.offset, asked.leader_epoch, asked.metadata or "")
            for asked, ended in zip(request.offsets, answer.partitions, strict=True)
            if ended.code == NONE
        }
        for place, offset in kept.items():
            assert known.get(place) == offset, f"{place}: {offset} is acknowledged, {known.get(place)} published"

    def _fetched(self, request: OffsetFetch, answer: OffsetFetchAnswer) -> None:
        known = self.committed.get(request.group_id, {})
        if request.topics is None:
            assert {(f.topic, f.partition) for f in answer.partitions} == known.keys()
        for fetched in answer.partitions:
            expected = known.get((fetched.topic, fetched.partition), (-1, -1, ""))
            if fetched.code == NONE:
                assert (fetched.offset, fetched.leader_epoch, fetched.metadata) == expected, fetched


@dataclass
class Roll:
    """Who is in a group, as its outputs tell: instance ids by member id."""

    state: Phase = Phase.EMPTY
    generation_id: int = 0
    members: dict[str, str | None] = field(default_factory=dict)

    def note(self, output: Output) -> None:
        if isinstance(output, Published) and isinstance(output.record, GroupRecord):
            self.state, self.generation_id = output.record.state, output.record.generation_id
            self.members = {m.member_id: m.group_instance_id for m in output.record.members}
        elif isinstance(output, MemberJoined):
            self.members[output.member_id] = output.group_instance_id
        elif isinstance(output, GONE):
            del self.members[output.member_id]
            if isinstance(output, MemberFenced):
                self.members[output.replaced_by] = output.group_instance_id


class CommitsAreFenced:
    """I14: a commit is taken from a member of this generation, or from outside while nobody is in; else it stores
    nothing, and what it does not store it says, partition by partition.
    """

    def __init__(self, asked: Asked | None = None) -> None:
        self.asked = asked or Asked()
        self.rolls: defaultdict[str, Roll] = defaultdict(Roll)

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        stored: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for output in step.news:
            if isinstance(output, Reply):
                if isinstance(output.answer, OffsetCommitAnswer):
                    request = self.asked.by(output)
                    self._judge(request, output.answer, stored.pop(request.group_id, []))
            elif forgotten(output):
                del self.rolls[output.group_id]
            elif isinstance(output, Published) and isinstance(output.record, OffsetRecord):
                stored[output.group_id].append((output.record.topic, output.record.partition))
            elif output.group_id is not None:
                self.rolls[output.group_id].note(output)
        assert not stored, f"nobody is told of {dict(stored)}"

    def _judge(self, request: OffsetCommit, answer: OffsetCommitAnswer, stored: list[tuple[str, int]]) -> None:
        taken = [(p.topic, p.partition) for p in answer.partitions if p.code == NONE]
        assert taken == stored, f"{request.request_id} hears of {taken}, and {stored} are stored"
        roll = self.rolls.get(request.group_id)
        if not taken or (roll and request.generation_id < 0 and roll.state is Phase.EMPTY):
            return
        assert roll is not None, f"there is no group for {request.member_id} to commit to"
        assert request.member_id in roll.members, f"{request.member_id} is no member and commits"
        assert request.generation_id == roll.generation_id, f"{request.member_id} commits for another generation"
        assert request.group_instance_id in (None, roll.members[request.member_id]), "under another's instance id"


class OffsetsAreForgottenInTime:
    """I15: what expires has been kept as long as was promised, and nobody reads it; whatever goes is told of.

    The promise counts from when its group emptied; from the commit where there was no group, or its members stopped
    reading the topic; or is the commit's own.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.groups: dict[str, GroupRecord] = {}
        self.offsets: defaultdict[str, dict[tuple[str, int], OffsetRecord]] = defaultdict(dict)

    def watch(self, step: Step) -> None:
        gone: defaultdict[str, dict[tuple[str, int], OffsetRecord]] = defaultdict(dict)
        for output in step.news:
            if isinstance(output, Reply) or output.group_id is None:
                continue
            group_id = output.group_id
            if forgotten(output):
                for memory in (self.groups, self.offsets, gone):
                    memory.pop(group_id, None)
            elif isinstance(output, Published) and output.key[0] == "offset":
                known, place = self.offsets[group_id], (output.key[2], output.key[3])
                if isinstance(output.record, OffsetRecord):
                    known[place] = output.record
                else:
                    gone[group_id][place] = known.pop(place)
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self.groups[group_id] = output.record
            elif isinstance(output, OffsetsExpired | OffsetsDeleted):
                told = gone.pop(group_id, {})
                assert list(told) == list(output.partitions), f"{list(told)} are gone, told is {output}"
                for offset in told.values() if isinstance(output, OffsetsExpired) else ():
                    assert output.at_ms >= self._promised_ms(self.groups[group_id], offset), f"early: {offset}"
        assert not any(gone.values()), f"nobody is told of {dict(gone)}"

    def _promised_ms(self, group: GroupRecord, offset: OffsetRecord) -> int:
        assert group.state in (Phase.EMPTY, Phase.STABLE), f"{group.state} and an offset expires"
        since_ms = offset.commit_timestamp_ms
        if group.state is Phase.EMPTY and group.protocol_type:
            since_ms = group.since_ms
        if group.state is Phase.STABLE:
            assert group.protocol_type == CONSUMERS, "what its members read is not known"
            assert group.subscribed_topics is not None, "what its members read cannot be told"
            assert offset.topic not in group.subscribed_topics, f"{offset.topic} is being read"
        if offset.expire_timestamp_ms is not None:
            return offset.expire_timestamp_ms
        kept_ms = self.config.offsets_retention_by_group_ms.get(group.group_id, self.config.offsets_retention_ms)
        return since_ms + kept_ms
