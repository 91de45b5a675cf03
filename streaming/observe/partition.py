"""The translation of one partition of `__consumer_offsets`: records in the order of the log in, outputs out.

The records of one group with one timestamp at consecutive offsets, commits excepted, are one *run*: Kafka has written
them together, and they are judged together. So the tombstone of a classic group is the group's end, or the beginning of
its upgrade to the consumer protocol. The commits of a group without members are such a run as well: whoever sets its
offsets does so by one request.

The outputs follow from the records and the state alone. However the log is cut into batches, the groups and the events
are the same. Only the number of published offsets differs: of each partition of a group, the last commit of a batch is
published.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from coordinator.base.binary import Malformed
from coordinator.messages.events import GroupDeleted, Rejected
from coordinator.messages.observed_events import (
    ObservationBegan,
    OffsetsForgotten,
    OffsetsSet,
    TopicChange,
    TopicNamed,
    TopicsNamed,
)
from coordinator.messages.outputs import Output
from streaming.observe import state
from streaming.observe.classic import take_classic, take_downgrade
from streaming.observe.commits import SETS_FORWARD_MAX, LastOffsets, Pending, Untold, add_set, may_be_set, set_fields
from streaming.observe.epochs import TYPES, Origin, Step, take_run
from streaming.observe.format import Commit, Decoded, Entry, Foreign, Forgotten, decode, group_of
from streaming.observe.names import Names, id_text
from streaming.observe.publishing import CLASSIC, WITH_EPOCHS, Publisher, owners_of
from streaming.observe.schemas import Kind
from streaming.observe.state import HASH_CHANGES_MAX, Group, HashChange, Row, SetOffsets, TopicAndPartition

REJECTED_MAX = 32
"""The events about unreadable records that one batch of a partition may publish; further ones are only counted."""

UNNAMED_REPORTED_MAX = 100
"""The topic ids whose names one batch of a partition asks for."""

HASH_CHANGES_SHOWN_MAX = 20
"""The changes of metadata hashes whose topics one batch of a partition asks for, the oldest first."""

TOPICS_SHOWN_MAX = 1_000
"""The subscribed topics of groups with a new epoch that one batch of a partition names."""

_WITH_NAMES = {
    Kind.OLD_TOPICS: ("topics",),
    Kind.SHARE_PARTITIONS: ("initializing_topics", "initialized_topics", "deleting_topics"),
}
"""The fields with topic ids and their names, by the records that have such."""

_OFFSETS = str(Kind.OFFSET.value)

UNREADABLE, REPLAYED = "unreadable", "replayed"
"""The counts of records that are not known by their type."""

DELETED, EXPIRED, EITHER = "deleted", "expired, most likely", "expired or deleted"

UNUSED = "no member and no offset left"
"""Why a group ends whose end deletes no offset. Kafka's clean-up removes such a group within minutes, whatever the
retention is; a request to delete it gives the same records."""


class Span(NamedTuple):
    """What a start of the query knows about the partition and the brokers.

    Args:
        end: The partition's end at the start. A run that ends a batch before this offset may be cut.
        retention_ms: The brokers' retention of offsets; None if it is not known.
    """

    end: int = 0
    retention_ms: int | None = None


class Named(NamedTuple):
    """The driver's answer about a change of a group's metadata hash; see `state.HashChange`.

    Args:
        changes: Empty if no topic has changed, or if it is not known which one has.
    """

    group_id: str
    group_epoch: int
    hash: int
    changes: tuple[TopicChange, ...]


class Partition:
    """A partition of `__consumer_offsets`.

    Args:
        number: Its number.
        stored: Its state; None for the first batch.

    Raises:
        CorruptState: The state cannot be trusted.
    """

    def __init__(self, number: int, stored: bytes | None, span: Span = Span()) -> None:  # noqa: B008  (immutable)
        self.number, self.span = number, span
        self.stored = state.from_bytes(stored)
        self.names = Names(self.stored.names, self.stored.unnamed)
        self.publisher = Publisher(self.names)
        self.counts: Counter[str] = Counter()
        self._open: dict[str, Group] = {}
        self._pending: dict[str, dict[TopicAndPartition, Pending]] = {}
        self._untold: dict[str, Untold] = {}
        self._offsets: dict[str, LastOffsets] = {}
        self._without_members: set[str] = set()
        self._run: list[Row] = []
        self._steps: list[tuple[int, int, Entry | Forgotten]] = []
        self._rejected = self._commits = 0

    @property
    def outputs(self) -> list[Output]:
        return self.publisher.outputs

    @property
    def members(self) -> int:
        return sum(members for members, _ in self.stored.groups.values())

    def to_bytes(self) -> bytes:
        """Return the state after `read`."""
        self.stored.unnamed = sorted(self.names.unnamed)
        return state.to_bytes(self.stored)

    @property
    def hash_changes(self) -> list[HashChange]:
        """The changes of metadata hashes whose topics are to be named."""
        return self.stored.hash_changes[:HASH_CHANGES_SHOWN_MAX]

    @property
    def topics(self) -> list[str]:
        """The topics to which groups with a new epoch in this batch subscribe."""
        return sorted(self.publisher.topics)[:TOPICS_SHOWN_MAX]

    def read(self, rows: Iterable[Row], named: Iterable[tuple[str, str]] = (), changed: Iterable[Named] = ()) -> None:
        """Translate the records of a batch, and publish the last commits of each partition.

        Args:
            rows: The records in the order of their offsets.
            named: Names of topic ids. Groups that were published with these ids are published anew.
            changed: The changed topics of metadata hashes. An answer to no such change is passed over.
        """
        self._learn(named)
        for each in changed:
            self._name_topics(each)
        held, self.stored.held = self.stored.held, []
        for row in held:
            self._follow(row)
        self.counts.clear()  # the batch that read these records has counted them
        for row in rows:
            offset, expected = row[0], self.stored.next_offset
            if expected is not None and offset < expected:
                self.counts[REPLAYED] += 1
                continue
            if expected is not None and offset > expected:
                self._judge()
                self.stored.hole_end = offset
            self.stored.next_offset = offset + 1
            self._follow(row)
        if self._is_cut():
            self.stored.held = self._run
        else:
            self._judge()
        if self._commits:
            self.counts[_OFFSETS] += self._commits
        self._close()

    # -- runs ----------------------------------------------------------------------------------------------------------

    def _follow(self, row: Row) -> None:
        """Add a record to the run, or begin another one."""
        offset, at_ms, _, _ = row
        decoded = self._decode(row)
        if type(decoded) is Commit:  # nearly all are
            if self._steps or self.stored.offsets_set is not None:
                self._end_before(decoded, offset, at_ms)
            self._commit(decoded, offset, at_ms)
            return
        if decoded is None:
            self._judge()
            return
        assert not isinstance(decoded, Commit)
        self._publish_set()
        if self._steps:
            last_offset, last_ms, last = self._steps[-1]
            is_next = (last_offset + 1, last_ms, last.group) == (offset, at_ms, decoded.group)
            if not is_next or _ends_its_run(last):
                self._judge()
        self._steps.append((offset, at_ms, decoded))
        self._run.append(row)

    def _decode(self, row: Row) -> Commit | Entry | Forgotten | None:
        offset, at_ms, key, value = row
        try:
            decoded: Decoded = decode(key, value)
        except Malformed as error:
            self.counts[UNREADABLE] += 1
            self._reject(offset, at_ms, group_of(key), str(error))
            return None
        if type(decoded) is Commit:
            self._commits += 1
            return decoded
        self.counts[_type_of(decoded)] += 1
        return None if isinstance(decoded, Foreign) else decoded

    def _reject(self, offset: int, at_ms: int, group_id: str | None, why: str) -> None:
        self._judge()
        self._rejected += 1
        if self._rejected <= REJECTED_MAX:
            self.outputs.append(
                Rejected(
                    group_id=group_id,
                    version=None,
                    at_ms=at_ms,
                    generation_id=None,
                    partition=self.number,
                    offset=offset,
                    why=why,
                )
            )

    def _is_cut(self) -> bool:
        """Return whether the batch may have ended inside a run, so that the run has to wait for the next records.

        Only a bound on the batch cuts runs, and only while the query reads what was there when it started.
        """
        if (self.stored.next_offset or 0) >= self.span.end:
            return False
        return self.stored.offsets_set is not None or (bool(self._steps) and not _ends_its_run(self._steps[-1][2]))

    def _end_before(self, commit: Commit, offset: int, at_ms: int) -> None:
        """End the run before a commit, unless the commit continues it."""
        found = self.stored.offsets_set
        if found is None or (found.next_offset, found.at_ms, found.group_id) != (offset, at_ms, commit.group):
            self._judge()

    def _judge(self) -> None:
        """Translate the run that has ended."""
        self._publish_set()
        steps, self._steps, self._run = self._steps, [], []
        if not steps:
            return
        group_id = steps[0][2].group
        entries = [Step(offset, at_ms, step) for offset, at_ms, step in steps if isinstance(step, Entry)]
        forgotten = [step for _, _, step in steps if isinstance(step, Forgotten)]
        group = self._group(group_id)
        if group.version == 0 and all(step.entry.value is None for step in entries):
            del self._open[group_id]  # its history, if it had one, is not in the log any more
            return
        self._tell_commits(group)
        at_ms = steps[-1][1]
        is_end = _is_end(entries)
        why = self._why_ended(group, at_ms, has_offsets=bool(forgotten)) if is_end else EITHER
        if forgotten:
            of_offsets = why if why != EITHER else self._why_forgotten(group, forgotten, at_ms)
            self._forget(group, forgotten, of_offsets, at_ms)
        if is_end:
            self._end(group, why, at_ms)
        elif entries:
            self._translate(group, entries)
        self._update_without_members(self._open[group_id])

    def _translate(self, group: Group, steps: Sequence[Step]) -> None:
        hole_end = self.stored.hole_end
        self._learn_recorded_names(steps)
        of_epochs = [step for step in steps if step.entry.kind in TYPES]
        classics = [step for step in steps if step.entry.kind is Kind.CLASSIC_GROUP]
        values = [step for step in classics if step.entry.value is not None]
        if values and of_epochs and group.type in WITH_EPOCHS:
            last = values[-1]
            take_downgrade(self.publisher, group, last.offset, last.at_ms, last.entry.value or {})
            return
        for each in values:
            take_classic(self.publisher, group, each.offset, each.at_ms, each.entry.value or {}, hole_end)
        if of_epochs and not values:
            origin = Origin.NEW
            if classics and group.type == CLASSIC:
                origin = Origin.CLASSIC
            elif classics and group.version == 0:
                origin = Origin.UNKNOWN
            kind = TYPES[of_epochs[-1].entry.kind]
            take_run(self.publisher, group, kind, of_epochs, hole_end, origin)
            changes, self.publisher.hash_changes = self.publisher.hash_changes, []
            self.stored.hash_changes = [*self.stored.hash_changes, *changes][-HASH_CHANGES_MAX:]

    def _why_ended(self, group: Group, at_ms: int, *, has_offsets: bool) -> str:
        """Return why a group is deleted.

        The retention of offsets counts from the time at which a classic group was emptied; in other groups from the
        last commit.
        """
        if not has_offsets:
            return UNUSED
        since_ms = group.since_ms if group.type == CLASSIC else group.last_commit_ms
        if self.span.retention_ms is None or since_ms is None:
            return EITHER
        return EXPIRED if at_ms - since_ms >= self.span.retention_ms else DELETED

    def _why_forgotten(self, group: Group, forgotten: Sequence[Forgotten], at_ms: int) -> str:
        """Return why offsets of a group that goes on are gone.

        They can have expired only if the retention has passed since a classic group was emptied, or else since their
        commits.
        """
        retention_ms = self.span.retention_ms
        if retention_ms is None:
            return EITHER
        if group.type == CLASSIC and not group.members:
            times_ms: list[int | None] = [group.since_ms]
        else:
            times_ms = [self._committed_ms(each) for each in forgotten]
        is_too_early = all(each is not None and at_ms - each < retention_ms for each in times_ms)
        return DELETED if is_too_early else EITHER

    def _committed_ms(self, place: Forgotten) -> int | None:
        """Return the earliest time at which an offset can have been committed; None if it is not known."""
        at = place.topic, place.partition
        pending, last = self._pending.get(place.group, {}).get(at), self._offsets_of(place.group)
        if pending is not None:
            last = LastOffsets(None)
            last.update({at: pending})
        return last.committed_ms(at)

    def _forget(self, group: Group, forgotten: Sequence[Forgotten], why: str, at_ms: int) -> None:
        places = tuple((each.topic, each.partition) for each in forgotten)
        pending = self._pending.get(group.group_id, {})
        last = self._offsets_of(group.group_id)
        for place in places:
            pending.pop(place, None)
            last.forget(place)
            self.publisher.tombstone(group, place, at_ms)
        self.publisher.event(OffsetsForgotten, group, at_ms, partitions=places, why=why)

    def _end(self, group: Group, why: str, at_ms: int) -> None:
        self.publisher.event(GroupDeleted, group, at_ms, why=why)
        self.publisher.tombstone(group, None, at_ms)
        self._pending.pop(group.group_id, None)
        self._offsets.pop(group.group_id, None)
        self.stored.record_end(group.group_id, group.now_ms)
        self._open[group.group_id] = self._new(group.group_id)

    # -- commits -------------------------------------------------------------------------------------------------------

    def _commit(self, commit: Commit, offset: int, at_ms: int) -> None:
        if (topic_id := id_text(commit.topic_id)) and self.names.known.get(topic_id) != commit.topic:
            self._learn([(topic_id, commit.topic)])
        pending = self._pending.get(commit.group)
        if pending is None:
            group = self._group(commit.group)
            if group.version == 0:
                self.publisher.event(ObservationBegan, group, at_ms, founded=False, from_offset=offset)
            pending = self._pending.setdefault(commit.group, {})
        place = commit.topic, commit.partition
        earlier = pending.get(place)
        if commit.group in self._without_members:
            self._add_set(commit, offset, at_ms, earlier)
        pending[place] = Pending(commit, 1 + (earlier.commits if earlier else 0))
        untold = self._untold.get(commit.group)
        if untold is None:
            untold = self._untold[commit.group] = Untold(self._group(commit.group).last_commit_ms or 0)
        untold.add(place, min(commit.committed_ms, at_ms))

    def _add_set(self, commit: Commit, offset: int, at_ms: int, earlier: Pending | None) -> None:
        """Add a commit of a group without members to those that its request has set."""
        found = self.stored.offsets_set
        if found is None:
            found = self.stored.offsets_set = SetOffsets(commit.group, at_ms, offset)
        if earlier is None:
            before = self._offsets_of(commit.group).offset((commit.topic, commit.partition))
        else:
            before = earlier.commit.offset
        add_set(found, commit, before)
        found.next_offset = offset + 1

    def _publish_set(self) -> None:
        """Publish the offsets that were set in a group without members, if any were."""
        found, self.stored.offsets_set = self.stored.offsets_set, None
        if found is None or not found.total:
            return
        group = self._group(found.group_id)
        if not found.back:
            if group.sets_forward == SETS_FORWARD_MAX:
                return
            group.sets_forward += 1
        self.publisher.event(OffsetsSet, group, found.at_ms, **set_fields(found))

    def _offsets_of(self, group_id: str) -> LastOffsets:
        last = self._offsets.get(group_id)
        if last is None:
            last = self._offsets[group_id] = LastOffsets(self.stored.offsets.get(group_id))
        return last

    def _update_without_members(self, group: Group) -> None:
        """Note whether the next commits of a group can only be set by an operator."""
        if may_be_set(group):
            self._without_members.add(group.group_id)
        else:
            self._without_members.discard(group.group_id)
            group.sets_forward = 0

    def _tell_commits(self, group: Group) -> None:
        """Note the commits since the group's last record at the members that owned their partitions."""
        untold = self._untold.pop(group.group_id, None)
        if untold is None:
            return
        group.last_commit_ms, group.commits = untold.latest_ms, group.commits + untold.commits
        owners = owners_of(group, self.names) if group.members else {}
        for place, at_ms in untold.times_ms.items():
            if owner := group.members.get(owners.get(place, "")):
                owner.last_commit_ms = max(owner.last_commit_ms or 0, at_ms)

    # -- groups and names ----------------------------------------------------------------------------------------------

    def _group(self, group_id: str) -> Group:
        group = self._open.get(group_id)
        if group is None:
            stored = self.stored.groups.get(group_id)
            group = self._new(group_id) if stored is None else state.unpack_group(stored[1])
            self._open[group_id] = group
            self._update_without_members(group)
        return group

    def _new(self, group_id: str) -> Group:
        """Return a group without records. Its times are later than those of a deleted group with this id."""
        ended_ms = self.stored.ended.get(group_id)
        return Group(group_id, now_ms=0 if ended_ms is None else ended_ms + 1)

    def _close(self) -> None:
        """Publish the pending commits, and store the groups that were used."""
        for group_id, group in self._open.items():
            self._tell_commits(group)
            pending = self._pending.get(group_id, {})
            for each in pending.values():
                self.publisher.offset(group, *each)
            if pending or group_id in self._offsets:
                self._store_offsets(group_id, pending)
            if group.version == 0:
                self.stored.groups.pop(group_id, None)
            else:
                self.stored.groups[group_id] = state.pack_group(group)
        self._open, self._pending, self._offsets, self._without_members = {}, {}, {}, set()

    def _store_offsets(self, group_id: str, pending: dict[TopicAndPartition, Pending]) -> None:
        last = self._offsets_of(group_id)
        last.update(pending)
        if (data := last.to_bytes()) is None:
            self.stored.offsets.pop(group_id, None)
        else:
            self.stored.offsets[group_id] = data

    def _learn(self, named: Iterable[tuple[str, str]]) -> None:
        missed = {topic_id: name for topic_id, name in named if self.names.learn(topic_id, name)}
        if missed:
            for group_id in {**self.stored.groups, **self._open}:
                self._rename(self._group(group_id), missed)

    def _name_topics(self, answer: Named) -> None:
        """Publish the changed topics of a metadata hash."""
        wanted = answer.group_id, answer.group_epoch, answer.hash
        others = [each for each in self.stored.hash_changes if (each.group_id, each.group_epoch, each.hash) != wanted]
        is_wanted = len(others) < len(self.stored.hash_changes)
        self.stored.hash_changes = others
        if is_wanted and answer.changes:
            group = self._group(answer.group_id)
            self.publisher.event(TopicsNamed, group, group.now_ms, answer.group_epoch, changes=answer.changes)

    def _learn_recorded_names(self, steps: Sequence[Step]) -> None:
        for step in steps:
            for name in _WITH_NAMES.get(step.entry.kind, ()) if step.entry.value is not None else ():
                topics = (step.entry.value or {})[name]
                self._learn((id_text(topic["topic_id"]) or "", topic["topic_name"]) for topic in topics)

    def _rename(self, group: Group, missed: dict[str, str]) -> None:
        """Publish a group again whose record had topic ids in place of names."""
        if group.type not in WITH_EPOCHS:
            return
        used = {
            topic_id
            for member in group.members.values()
            for owned in (member.assigned, member.revoking, member.target)
            for topic_id in owned.keys() & missed.keys()
        }
        for topic_id in sorted(used):
            self.publisher.event(TopicNamed, group, group.now_ms, topic_id=topic_id, topic_name=missed[topic_id])
        if used:
            self.publisher.record(group)


def _ends_its_run(step: Entry | Forgotten) -> bool:
    """Return whether Kafka writes no further record after this one together with it: a classic group is one record."""
    return isinstance(step, Entry) and step.kind is Kind.CLASSIC_GROUP and step.value is not None


def _is_end(steps: Sequence[Step]) -> bool:
    """Return whether a run ends its group: it has the group's tombstone, and no value that begins it anew."""
    whole = {Kind.CLASSIC_GROUP, Kind.EPOCH, Kind.SHARE_GROUP, Kind.STREAMS_GROUP}
    has_tombstone = any(step.entry.kind in whole and step.entry.value is None for step in steps)
    return has_tombstone and all(step.entry.value is None for step in steps)


def _type_of(decoded: Decoded) -> str:
    match decoded:
        case Commit() | Forgotten():
            return _OFFSETS
        case Entry(kind):
            return str(kind.value)
        case Foreign(number):
            return str(number)
