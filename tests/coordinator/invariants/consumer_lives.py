"""What holds for groups of the consumer protocol as for classic ones, and across the conversions between the two.

I1   handovers add up
I2   fencing tokens grow from owner to owner; generations and epochs never fall while the group has members
I22  groups are bounded, and an Empty group ends
"""

from collections import Counter, defaultdict

from coordinator.base.config import Config
from coordinator.base.limits import NEVER_MS, PENDING_OFFSETS_MAX
from coordinator.base.states import Phase
from coordinator.messages.consumer_requests import TopicFact
from coordinator.messages.events import AssignmentChanged, GroupConverted, GroupEmptied, RebalanceCompleted
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.outputs import Output
from coordinator.messages.responses import ConsumerGroupHeartbeatAnswer, JoinGroupAnswer, Reply
from coordinator.state.classic_group import Group
from coordinator.state.consumer_group import AWAY_EPOCH, ConsumerGroup
from tests.coordinator.invariants.step import NONE, KnownRequests, Step, forgotten

Place = tuple[str, int]
"""A partition: topic name and number."""


class ConsumerGroupsAreBounded:
    """I22: members, session timeouts, metadata and pending offsets are within their limits."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sizes: dict[str, int] = {}

    def watch(self, step: Step) -> None:
        for group in (step.groups or {}).values():
            self._pending_fit(group)
        for group_id, group in step.consumer_groups.items():
            size = len(group.members)
            is_larger = size > self.sizes.get(group_id, 0)
            assert size <= self.config.group_consumer_max_size or not is_larger, f"{group_id} has {size} members"
            self.sizes[group_id] = size
            self._pending_fit(group)
            for session in group.hot_state.sessions.values():
                if session.is_classic:
                    assert session.timeout_ms >= self.config.group_min_session_timeout_ms, "a session is too short"
                    assert session.timeout_ms <= self.config.group_max_session_timeout_ms, "a session is too long"
                else:
                    setting_ms = self.config.group_consumer_session_timeout_ms
                    assert session.timeout_ms == setting_ms, f"not the setting: {session}"
            for _, _, offset in group.all_offsets():
                assert len(offset.metadata) <= self.config.offset_metadata_max_bytes, f"too long: {offset}"

    def _pending_fit(self, group: Group | ConsumerGroup) -> None:
        pending = [o for c in group.pending_commits.values() for n in c.offsets.values() for o in n.values()]
        assert len(pending) <= PENDING_OFFSETS_MAX, f"{len(pending)} offsets of {group.group_id} are pending"
        assert all(o is None or len(o.metadata) <= self.config.offset_metadata_max_bytes for o in pending), "too long"


class EmptyConsumerGroupsEnd:
    """I22: an Empty group has a deadline, at which its offsets expire, or the group ends."""

    def watch(self, step: Step) -> None:
        for group_id, group in step.consumer_groups.items():
            is_kept = any((offset.expire_timestamp_ms or 0) >= NEVER_MS for _, _, offset in group.all_offsets())
            has_deadline = group.hot_state.offsets_ms < NEVER_MS or is_kept or bool(group.pending_commits)
            assert has_deadline or group.phase is not Phase.EMPTY, f"{group_id} is Empty for ever"


class AmbiguousNames:
    """The names of topics that wrong facts give to one id. A record may then have either of them."""

    def __init__(self) -> None:
        self.names: defaultdict[str, set[str]] = defaultdict(set)
        """The names of each topic id, as facts have them."""

        self.ambiguous: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.ambiguous

    def note(self, step: Step) -> None:
        for _, request in step.requests:
            for fact in getattr(request, "topics", None) or ():
                if isinstance(fact, TopicFact) and fact.topic_id is not None:
                    names = self.names[fact.topic_id]
                    names.add(fact.topic)
                    self.ambiguous |= names if len(names) > 1 else set()


class ConsumerHandoversAddUp:
    """I1: each handover names the holder before, and the holders after all of them are those of the state.

    Two topics have the same name if one was made anew. They are not told apart here. Ambiguous names are left out.
    """

    def __init__(self) -> None:
        self.holders: defaultdict[str, Counter[tuple[Place, str]]] = defaultdict(Counter)
        self.ambiguous = AmbiguousNames()

    def watch(self, step: Step) -> None:
        self.ambiguous.note(step)
        for output in step.news:
            if forgotten(output) or isinstance(output, GroupConverted):
                self.holders.pop(output.group_id or "", None)
            elif isinstance(output, AssignmentChanged):
                self._changed(output)
            elif isinstance(output, RebalanceCompleted):
                before, after = set(output.members_before), set(output.members_after)
                told = set(output.joined), set(output.gone)
                assert told == (after - before, before - after), f"the members do not add up: {output}"
        for group_id, group in step.consumer_groups.items():
            found: Counter[tuple[Place, str]] = Counter()
            for member_id, member in group.members.items():
                for partitions in (member.assigned, member.revoking):
                    for topic_id, numbers in partitions.items():
                        found.update(((group.name_of(topic_id), number), member_id) for number in numbers)
            told, found = (self._named(held) for held in (+self.holders[group_id], found))
            assert told == found, f"in {group_id}, {found - told} took over untold, {told - found} gave up untold"

    def _named(self, held: Counter[tuple[Place, str]]) -> Counter[tuple[Place, str]]:
        return Counter({key: count for key, count in held.items() if key[0][0] not in self.ambiguous})

    def _changed(self, event: AssignmentChanged) -> None:
        holders = self.holders[event.group_id or ""]
        for handover in event.handovers:
            place = handover.topic, handover.partition
            if handover.before is not None and holders.keys():
                holders[place, handover.before] -= 1
            if handover.after is not None:
                holders[place, handover.after] += 1


class TakersHaveHigherTokens:
    """I2: who takes over a partition has a higher token than all who had it before, in whichever protocol.

    Ambiguous names are left out: the owner of a topic seems to take over another one when wrong facts rename it.
    """

    def __init__(self) -> None:
        self.latest: defaultdict[str, dict[Place, tuple[str, int]]] = defaultdict(dict)
        self.ambiguous = AmbiguousNames()

    def watch(self, step: Step) -> None:
        self.ambiguous.note(step)
        for output in step.news:
            if isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self._published(output.record)

    def _published(self, record: GroupRecord) -> None:
        if record.type != "consumer" and record.state is not Phase.STABLE:
            return
        latest = self.latest[record.group_id]
        taken: Counter[Place] = Counter()
        now: dict[Place, tuple[str, int]] = {}
        for member in record.members:
            for topic, numbers in (member.assigned or {}).items():
                for number in numbers:
                    taken[topic, number] += 1
                    now[topic, number] = member.member_id, member.fencing_token
        for place, (member_id, token) in now.items():
            holder, highest = latest.get(place, ("", 0))
            if taken[place] > 1 or place[0] in self.ambiguous:
                continue  # a classic leader has assigned it twice, or a topic was made anew
            assert holder == member_id or token > highest, (
                f"{member_id} takes {place} from {holder} with the token {token}, after {highest}: {record}"
            )
            latest[place] = member_id, max(token, highest)


class GenerationsOutliveConversions:
    """I2: while a group has members, a conversion sets no generation or epoch below one that a member was told.

    A generation that was told in one protocol does not come again in the other one: the next round has a higher one.
    The exception is an Empty group that the other kind replaces: its generations begin anew (spec 8.1).
    """

    def __init__(self, asked: KnownRequests) -> None:
        self.asked = asked
        self.told: dict[str, int] = {}
        """By group, the highest generation or epoch that a member was told."""

        self.groups: dict[str, int] = {}
        """By group, the latest generation or group epoch."""

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.news:
            self._follow(output)
        for group_id, group in (step.groups or {}).items():
            self._stands(group_id, group.generation_id, "its state")
        for group_id, consumers in step.consumer_groups.items():
            self._stands(group_id, consumers.generation_id, "its state")
            epochs = [p.epoch for p in consumers.hot_state.sessions.values() if p.epoch != AWAY_EPOCH]
            self.told[group_id] = max([self.told.get(group_id, 0), *epochs])

    def _follow(self, output: Output) -> None:
        if isinstance(output, Reply):
            self._answered(output)
            return
        group_id = output.group_id or ""
        if forgotten(output):
            self.told.pop(group_id, None)
            self.groups.pop(group_id, None)
        elif isinstance(output, GroupConverted):
            if not output.members:
                self.told.pop(group_id, None)  # an Empty group is replaced
                self.groups.pop(group_id, None)
                return
            generation_id = output.generation_id or 0
            assert generation_id >= self.told.get(group_id, 0), (
                f"a member was told {self.told[group_id]}, and its generation is {generation_id}: {output}"
            )
            self.groups[group_id] = generation_id  # a raise that no member was told may be taken back
        elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
            self._stands(group_id, output.record.generation_id, output)
        elif isinstance(output, GroupEmptied):
            self._stands(group_id, output.generation_id or 0, output)

    def _stands(self, group_id: str, generation_id: int, where: object) -> None:
        before = self.groups.get(group_id, 0)
        assert generation_id >= before, f"the generation of {group_id} fell from {before} to {generation_id}: {where}"
        self.groups[group_id] = generation_id

    def _answered(self, reply: Reply) -> None:
        answer, request = reply.answer, self.asked.by(reply)
        if isinstance(answer, JoinGroupAnswer) and answer.code == NONE:
            told = answer.generation_id
        elif isinstance(answer, ConsumerGroupHeartbeatAnswer) and answer.code == NONE:
            told = answer.member_epoch
        else:
            return
        self.told[request.group_id] = max(self.told.get(request.group_id, 0), told)
