"""I13 to I15: commits are kept, fenced, and forgotten in time."""

from collections import defaultdict
from itertools import repeat

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import CONSUMERS
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Phase
from coordinator.messages.events import GroupDeleted, OffsetsDeleted, OffsetsDropped, OffsetsExpired
from coordinator.messages.group_records import GroupRecord, OffsetRecord, Published
from coordinator.messages.requests import OffsetCommit, OffsetFetch, TxnOffsetCommit
from coordinator.messages.responses import (
    JoinGroupAnswer,
    OffsetCommitAnswer,
    OffsetFetchAnswer,
    OffsetTopicsAnswer,
    Reply,
    RepublishGroupAnswer,
    SettleTransactionsAnswer,
    TxnOffsetCommitAnswer,
)
from coordinator.state.classic_group import Group
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.group import Offset
from tests.coordinator.invariants.rolls import Roll
from tests.coordinator.invariants.step import NONE, KnownRequests, Step, forgotten

NO_TERM_MS = NEVER_MS // 2
"""A retention that is longer counts as one without an end."""

NOTHING = (-1, -1, "")
"""The fetched offset, leader epoch and metadata of a partition without a commit."""


class CommitsAreKept:
    """I13: an acknowledged commit is what every later fetch returns, until another commit or an expiry."""

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.committed: dict[str, dict[tuple[str, int], tuple[int, int, str, str | None]]] = {}
        self.terms_ms: dict[tuple[object, ...], int] = {}

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
            known.pop(place, None)  # a tombstone may be written again
        else:
            record = output.record
            assert isinstance(record, OffsetRecord)
            known[place] = record.offset, record.leader_epoch, record.metadata, record.topic_id or None
            is_timed = record.expire_timestamp_ms is not None
            self.terms_ms[output.key] = record.expire_timestamp_ms - record.commit_timestamp_ms if is_timed else -1

    def _acknowledged(self, request: OffsetCommit, answer: OffsetCommitAnswer) -> None:
        known = self.committed.get(request.group_id, {})
        kept = {
            (asked.topic, asked.partition): (
                asked.offset,
                asked.leader_epoch,
                asked.metadata or "",
                asked.topic_id,
            )
            for asked, ended in zip(request.offsets, answer.partitions, strict=True)
            if ended.code == NONE
        }
        for place, offset in kept.items():
            assert known.get(place) == offset, f"{place}: {offset} is acknowledged, {known.get(place)} is published"
        asked_ms = {
            (asked.topic, asked.partition): min(max(asked.retention_ms, -1), NO_TERM_MS)
            for asked, ended in zip(request.offsets, answer.partitions, strict=True)
            if ended.code == NONE
        }
        for place in kept:
            term_ms = min(self.terms_ms["offset", request.group_id, *place], NO_TERM_MS)
            assert term_ms == asked_ms[place], f"{place} is kept for {term_ms} ms instead of {asked_ms[place]}"

    def _fetched(self, request: OffsetFetch, answer: OffsetFetchAnswer) -> None:
        if answer.code != NONE:
            assert all(fetched.code != NONE for fetched in answer.partitions), f"a refusal has offsets: {answer}"
            return
        known = self.committed.get(request.group_id, {})
        if request.topics is None:
            assert {(f.topic, f.partition) for f in answer.partitions} == known.keys()
        wanted = [t.topic_id for t in request.topics or () for _ in t.partitions] or repeat(None)
        for fetched, topic_id in zip(answer.partitions, wanted, strict=False):
            *offset, stored_id = known.get((fetched.topic, fetched.partition), (*NOTHING, None))
            is_of_earlier_topic = topic_id and stored_id and topic_id != stored_id
            if fetched.code == NONE:
                found = fetched.offset, fetched.leader_epoch, fetched.metadata
                assert found == (NOTHING if is_of_earlier_topic else tuple(offset)), fetched


class CommitsAreFenced:
    """I14: a commit is accepted from a member of this generation, or from outside in a group without members.

    Any other commit stores no offset, and its response has an error for each partition. A commit inside a transaction
    is accepted from such a sender too, or from one that names no member. `transactions` has what becomes of it.
    """

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.rolls: defaultdict[str, Roll] = defaultdict(Roll)

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        stored: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for output in step.news:
            if isinstance(output, Reply):
                if isinstance(output.answer, JoinGroupAnswer) and output.answer.code == NONE:
                    self.rolls[self.asked.by(output).group_id].joined(output.answer)
                elif isinstance(output.answer, OffsetCommitAnswer):
                    request = self.asked.by(output)
                    self._judge(request, output.answer, stored.pop(request.group_id, []))
                elif isinstance(output.answer, TxnOffsetCommitAnswer):
                    if any(p.code == NONE for p in output.answer.partitions):
                        self._is_fenced(self.asked.by(output))
                elif isinstance(output.answer, SettleTransactionsAnswer):
                    stored.clear()
                elif isinstance(output.answer, RepublishGroupAnswer | OffsetTopicsAnswer):
                    stored.pop(self.asked.by(output).group_id, None)
            elif forgotten(output):
                self.rolls.pop(output.group_id, None)
            elif isinstance(output, Published) and isinstance(output.record, OffsetRecord):
                stored[output.group_id].append((output.record.topic, output.record.partition))
            elif output.group_id is not None:
                self.rolls[output.group_id].note(output)
        assert not stored, f"no response has {dict(stored)}"

    def _judge(self, request: OffsetCommit, answer: OffsetCommitAnswer, stored: list[tuple[str, int]]) -> None:
        taken = [(p.topic, p.partition) for p in answer.partitions if p.code == NONE]
        assert taken == stored, f"{request.request_id} is answered {taken}, and {stored} are stored"
        if taken:
            self._is_fenced(request)

    def _is_fenced(self, request: OffsetCommit | TxnOffsetCommit) -> None:
        """Check that the sender of an accepted commit may commit."""
        roll = self.rolls.get(request.group_id)
        if roll and request.generation_id < 0 and roll.state is Phase.EMPTY:
            return
        is_in_transaction, sender = isinstance(request, TxnOffsetCommit), (request.member_id, request.group_instance_id)
        if is_in_transaction and request.generation_id < 0 and sender == ("", None):
            return
        assert roll is not None, f"{request.member_id} commits to a group that does not exist"
        assert is_in_transaction or roll.state in (Phase.PREPARING, Phase.STABLE), (
            f"{request.member_id} commits before the assignments have arrived"
        )
        assert request.member_id in roll.members, f"{request.member_id} commits and is not a member"
        assert request.generation_id == roll.generation_id, f"{request.member_id} commits for another generation"
        assert request.group_instance_id in (None, roll.members[request.member_id]), "under another's instance id"


class OffsetsAreForgottenInTime:
    """I15: an expired offset has had its whole retention, and no member reads its topic; every removal is reported.

    The retention counts from when the group became Empty. It counts from the commit if the group did not exist, or if
    its members no longer subscribe to the topic, and always in a group of the consumer protocol. A commit may have its
    own.
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
                elif place in known:  # otherwise a tombstone is written again
                    gone[group_id][place] = known.pop(place)
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self.groups[group_id] = output.record
            elif isinstance(output, OffsetsExpired | OffsetsDeleted | OffsetsDropped):
                told = gone.pop(group_id, {})
                assert list(told) == list(output.partitions), f"{list(told)} are gone, reported is {output}"
                for offset in told.values():
                    if isinstance(output, OffsetsExpired):
                        assert output.at_ms >= self._promised_ms(self.groups[group_id], offset), f"early: {offset}"
                    elif isinstance(output, OffsetsDeleted):
                        self._is_unsubscribed(self.groups[group_id], offset.topic)
        assert not any(gone.values()), f"no event reports {dict(gone)}"

    @staticmethod
    def _is_unsubscribed(group: GroupRecord, topic: str) -> None:
        """Check that no member can be reading an offset that is deleted on request."""
        if group.state is not Phase.EMPTY:
            assert group.protocol_type == CONSUMERS, f"the topics of its members are not known: {group}"
            assert group.subscribed_topics is not None, f"the topics of its members cannot be read: {group}"
            assert topic not in group.subscribed_topics, f"{topic} is subscribed: {group}"

    def _promised_ms(self, group: GroupRecord, offset: OffsetRecord) -> int:
        since_ms, is_classic = offset.commit_timestamp_ms, group.type != "consumer"
        if is_classic:
            assert group.state in (Phase.EMPTY, Phase.STABLE), f"{group.state} and an offset expires"
        elif group.members:
            assert offset.topic not in (group.subscribed_topics or ()), f"{offset.topic} is subscribed"
        if is_classic and group.state is Phase.EMPTY and group.protocol_type:
            since_ms = group.since_ms
        if is_classic and group.state is Phase.STABLE:
            assert group.protocol_type == CONSUMERS, "the topics of its members are not known"
            assert group.subscribed_topics is not None, "the topics of its members cannot be read"
            assert offset.topic not in group.subscribed_topics, f"{offset.topic} is subscribed"
        if offset.expire_timestamp_ms is not None:
            return offset.expire_timestamp_ms
        kept_ms = self.config.offsets_retention_by_group_ms.get(group.group_id, self.config.offsets_retention_ms)
        return since_ms + kept_ms


class OffsetsAreForgottenAtLast:
    """I15, I22: offsets of groups without members expire at the end of their retention.

    In a group of the consumer protocol, so do those of topics to which no member subscribes.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.earliest_ms: dict[str, int] = {}
        self.read_ms = -NEVER_MS

    def watch(self, step: Step) -> None:
        for output in step.news:
            if forgotten(output):
                self.earliest_ms.pop(output.group_id, None)
        for group_id, group in (step.groups or {}).items():
            kept = group.all_offsets() if group.phase is Phase.EMPTY else ()
            expiries_ms = [self._expiry_ms(group, o) for t, p, o in kept if not group.is_unstable(t, p)]
            self.earliest_ms[group_id] = min(expiries_ms, default=NEVER_MS)
        for group_id, consumers in step.consumer_groups.items():
            unread = [(t, p, o) for t, p, o in consumers.all_offsets() if not consumers.subscribes(t)]
            expiries_ms = [self._expiry_ms(consumers, o) for t, p, o in unread if not consumers.is_unstable(t, p)]
            self.earliest_ms[group_id] = min(expiries_ms, default=NEVER_MS)
        if step.received:
            self.read_ms = max(self.read_ms, step.received[-1].at_ms)
        horizon_ms = min(step.now_ms, self.read_ms) - self.config.clock_slack_ms
        for group_id, at_ms in self.earliest_ms.items() if step.has_honest_clocks and not step.deferred else ():
            assert at_ms > horizon_ms, f"an offset of {group_id} had to expire at {at_ms}"

    def _expiry_ms(self, group: Group | ConsumerGroup, offset: Offset) -> int:
        if offset.expire_timestamp_ms is not None:
            return offset.expire_timestamp_ms
        kept_ms = self.config.offsets_retention_by_group_ms.get(group.group_id, self.config.offsets_retention_ms)
        counts_from_empty = isinstance(group, Group) and group.protocol_type
        return (group.since_ms if counts_from_empty else offset.commit_timestamp_ms) + kept_ms


class TheForgottenAreTold:
    """I8, I13: a forgotten group has a tombstone for each offset, then one for the group."""

    def __init__(self) -> None:
        self.published: defaultdict[str, set[tuple[object, ...]]] = defaultdict(set)

    def watch(self, step: Step) -> None:
        deleted: set[str] = set()
        for output in step.news:
            if isinstance(output, GroupDeleted):
                deleted.add(output.group_id or "")
            elif forgotten(output):
                left = self.published.pop(output.group_id) - {output.key}
                assert not left, f"{output.group_id} is forgotten, and {left} have no tombstone"
                deleted.discard(output.group_id)
            elif isinstance(output, Published) and output.record is None:
                self.published[output.group_id].discard(output.key)
            elif isinstance(output, Published):
                self.published[output.group_id].add(output.key)
        assert not deleted, f"{deleted} are deleted and then published"
