"""The clients of a simulation: processes that are members as real clients are, and strangers that follow no rules."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from random import Random

from msgspec.structs import replace

from coordinator.base.consumer_protocol import Subscription, assigned_partitions, write_subscription
from coordinator.member.effects import Assigned, MakePlan, PartitionsLost, PrepareToJoin
from coordinator.member.member import Action, Member, MemberState
from coordinator.member.requests import MemberConfig
from coordinator.messages.consumer_requests import ConsumerGroupDescribe, ConsumerGroupHeartbeat, OwnedPartitions
from coordinator.messages.fields import BaseRequest
from coordinator.messages.heartbeats import Heartbeat
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
    Protocol,
    RebalanceGroup,
    Request,
    SyncGroup,
    TopicPartitions,
    Unreadable,
)
from coordinator.messages.responses import AnyAnswer, JoinedMember
from coordinator.state.classic_group import Group
from coordinator.state.consumer_group import ConsumerGroup
from tests.coordinator.wire import assignment, subscription
from tests.simulation.cluster import Cluster
from tests.simulation.faults import Swarm

AnyGroup = Group | ConsumerGroup
PARTITIONS = 6
POLLS_SOON_MS = 20
BETWEEN_ROUNDS = (MemberState.UNJOINED, MemberState.STABLE)
OFFERS = (("range",), ("range", "sticky"), ("sticky", "range"))
TOPICS = (("t",), ("t", "u"), ("u",))


@cache
def offer(names: tuple[str, ...], topics: tuple[str, ...]) -> tuple[Protocol, ...]:
    """Return the protocols that a consumer of some topics offers."""
    return tuple(Protocol(name, subscription(topics)) for name in names)


@cache
def share(place: int, members: int) -> bytes:
    """Return the assignment of one of `members` members."""
    return assignment({"t": range(place, PARTITIONS, members)})


# -- members -----------------------------------------------------------------------------------------------------------


class Process:
    """A client: the real member, and an owner that polls, computes assignments and commits."""

    def __init__(
        self,
        config: MemberConfig,
        number: int,
        chance: Random,
        swarm: Swarm,
        now_ms: int,
        cluster: Cluster | None = None,
    ) -> None:
        self.config, self.number, self.chance, self.swarm, self.cluster = config, number, chance, swarm, cluster
        self.member = Member(config, f"{config.client_id}.{number}.", now_ms)
        self.topics = chance.choice(TOPICS)
        self.offered = chance.choice(OFFERS)
        self.asleep_until_ms = self.idle_until_ms = self.due_ms = 0
        self.comes_back = chance.random() < 0.8  # after it leaves
        self.asks_for_its_id = chance.random() < 0.5
        self.inbox = config.reply_to
        self.is_cooperative = cluster is not None and chance.random() < 0.4
        self.owned: dict[str, list[int]] = {}
        self._poll_ms = self._deadline_ms = self.position = 0
        self._owed: tuple[int, tuple[JoinedMember, ...], bool] | None = None
        self.member.subscribe()

    @property
    def is_subscribed(self) -> bool:
        return self.member.is_subscribed

    @property
    def member_id(self) -> str:
        return self.member.member_id

    def hear(self, answer: AnyAnswer, now_ms: int) -> list[Request]:
        """Handle a response from the mailbox; return the requests to send."""
        sent = self._do(self.member.receive(answer, now_ms), now_ms)
        self._look_at_the_clock(now_ms, self._poll_ms)
        return sent

    def turn(self, now_ms: int) -> list[Request]:
        """Return the requests that are due."""
        member, chance = self.member, self.chance
        sent = self._do(member.advance(now_ms), now_ms) if self._deadline_ms <= now_ms else []
        if not member.is_subscribed and self.comes_back:
            sent += self.subscribe(now_ms)
        if self.idle_until_ms <= now_ms:
            sent += self._do(member.poll(now_ms), now_ms)
        if member.state is MemberState.STABLE and chance.random() < 0.05:
            self.position += 1
            offset = OffsetToCommit(self.topics[0], chance.randrange(PARTITIONS), self.position, metadata="me")
            sent += self._do(member.commit((offset,), now_ms)[1], now_ms)
        elif chance.random() < 0.01:
            sent += self._do(member.fetch(None, now_ms)[1], now_ms)
        self._look_at_the_clock(now_ms, now_ms + self.config.max_poll_interval_ms // 2)
        return sent

    def _look_at_the_clock(self, now_ms: int, poll_ms: int) -> None:
        """Set the time of the next action; a poll is urgent if the process has to join again."""
        member = self.member
        if member.rejoin_needed and member.state in BETWEEN_ROUNDS and self.idle_until_ms <= now_ms:
            poll_ms = min(poll_ms, now_ms + POLLS_SOON_MS)
        self._poll_ms, self._deadline_ms = poll_ms, member.deadline_ms
        self.due_ms = min(self._deadline_ms, poll_ms)

    def leave(self, now_ms: int) -> list[Request]:
        """Unsubscribe."""
        return self._do(self.member.leave("consumer closed", now_ms), now_ms)

    def subscribe(self, now_ms: int) -> list[Request]:
        """Subscribe to other topics, or join again."""
        self.topics = self.chance.choice(TOPICS)
        return self._do(self.member.subscribe(), now_ms)

    def _do(self, todos: list[Action], now_ms: int) -> list[Request]:
        sent: list[Request] = []
        for todo in todos:
            match todo:
                case BaseRequest():
                    sent.append(self._addressed(todo, now_ms))
                case PrepareToJoin():
                    sent += self._do(self.member.join(self._offer(), now_ms), now_ms)
                case Assigned(assignment=assignment):
                    self.owned = assigned_partitions(assignment) or {}
                case PartitionsLost():
                    self.owned = {}
                case MakePlan(generation_id, _, members, is_planned):
                    sent += self._do(self._plan(generation_id, members, is_planned, now_ms), now_ms)
        return sent

    def _offer(self) -> tuple[Protocol, ...]:
        """Return the protocols; those of a cooperative member name the partitions that it owns (KIP-429)."""
        if not self.is_cooperative:
            return offer(self.offered, self.topics)
        metadata = write_subscription(Subscription(self.topics, owned=self.owned), 1)
        return tuple(Protocol(name, metadata) for name in self.offered)

    def _addressed(self, request: Request, now_ms: int) -> Request:
        """Return a request with the present mailbox, and what a gateway knows of topics.

        If `asks_for_its_id`, a first join requires a known member id.
        """
        if request.reply_to != self.inbox:
            request = replace(request, reply_to=self.inbox)
        if self.asks_for_its_id and isinstance(request, JoinGroup) and not request.member_id:
            request = replace(request, require_known_member_id=True)
        if self.cluster is not None and isinstance(request, JoinGroup):
            request = replace(request, topics=self.cluster.facts(self.topics, now_ms))
        return request

    def _plan(
        self, generation_id: int, members: tuple[JoinedMember, ...], is_planned: bool, now_ms: int
    ) -> list[Action]:
        parts = [Assignment(m.member_id, share(place, len(members))) for place, m in enumerate(members)]
        for fault in self.swarm.faults("assignments"):
            if fault == "fail":
                return self.member.fail_to_plan(generation_id, now_ms)
            if fault == "never come":
                self._owed = generation_id, members, is_planned
                return []
            if fault == "leave one out":
                parts = parts[1:]
            else:
                parts = [*parts[1:], *parts[:2], Assignment("a stranger", b"anything")]
        return self.member.plan(generation_id, () if is_planned else parts, now_ms)

    def make_up(self, now_ms: int) -> list[Request]:
        """Send the assignments that were delayed."""
        owed, self._owed = self._owed, None
        return self._do(self._plan(*owed, now_ms), now_ms) if owed else []


# -- strangers ---------------------------------------------------------------------------------------------------------


class Stranger:
    """Sends any request in any client's name, with ids that it has seen, and with invented ones.

    Args:
        seen: Groups as they were at the last look.
    """

    def __init__(self, chance: Random, group_ids: tuple[str, ...], seen: Mapping[str, AnyGroup]) -> None:
        self.chance, self.group_ids, self.seen = chance, group_ids, seen
        self.count = 0
        self.ids = ["", "made up"]

    def ask(self, kinds: tuple["Maker", ...], group_ids: Sequence[str] | None = None) -> Request:
        """Make a request of one of these kinds, to one of some groups."""
        self.count += 1
        group_id = self.chance.choice(group_ids or self.group_ids)
        make = self.chance.choice(kinds)
        inbox = {"request_id": f"stranger.{self.count}", "reply_to": "stranger", "client_id": "stranger"}
        return KINDS[make](**{"group_id": group_id, **inbox, **make(self, self.seen.get(group_id))})  # type: ignore[arg-type]

    def no_request(self) -> Unreadable:
        """Make a record that is not a valid request."""
        self.count += 1
        who = (f"stranger.{self.count}", "stranger") if self.chance.random() < 0.5 else (None, None)
        return Unreadable("no JSON", *who)

    def anybody(self, group: AnyGroup | None) -> str:
        """Return a member id: of a member, of a former member, or none."""
        if group and group.members and self.chance.random() < 0.7:
            member_id = self.chance.choice(list(group.members))
            self.ids = [*self.ids[-20:], member_id]
            return member_id
        if isinstance(group, Group) and group.hot_state.pending and self.chance.random() < 0.5:
            return self.chance.choice(list(group.hot_state.pending))
        return self.chance.choice(self.ids)

    def instance(self, group: AnyGroup | None) -> str | None:
        """Return an instance id, or none."""
        known = list(group.hot_state.instances) if group else []
        return self.chance.choice([None, None, "i0", "i9", *known])

    def generation(self, group: AnyGroup | None) -> int:
        """Return a generation near the present one."""
        return (group.generation_id if group else 0) + self.chance.choice((0, 0, 0, -1, 1))


Fields = dict[str, object]


def _joins(s: Stranger, group: AnyGroup | None) -> Fields:
    member_id = s.chance.choice(("", s.anybody(group)))
    known = group.protocol_type if isinstance(group, Group) and s.chance.random() < 0.8 else None
    return {
        "member_id": member_id,
        "group_instance_id": s.instance(group),
        "session_timeout_ms": s.chance.choice((6_000, 6_000, 30_000, 1)),
        "rebalance_timeout_ms": s.chance.choice((0, -1, 5_000, 60_000)),
        "protocol_type": known or s.chance.choice(("consumer", "other")),
        "protocols": offer(s.chance.choice((*OFFERS, ("mine",))), s.chance.choice(TOPICS)),
        "require_known_member_id": s.chance.random() < 0.5,
        "supports_skipping_assignment": s.chance.random() < 0.5,
    }


def _comes_back(s: Stranger, group: AnyGroup | None) -> Fields:
    """Make the join of a static member's next process, with the same protocols as before."""
    statics = [m for m in group.members.values() if m.is_static] if isinstance(group, Group) else []
    if not statics:
        return _joins(s, group)
    member = s.chance.choice(statics)
    session = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer"}
    return {"group_instance_id": member.group_instance_id, "protocols": member.protocols, **session}


def _syncs(s: Stranger, group: AnyGroup | None) -> Fields:
    plan = tuple(Assignment(m, share(0, 1)) for m in (group.members if group else ()))
    named = {"protocol_name": s.chance.choice((None, "range", "mine")), "assignments": plan}
    return {**_beats(s, group), **named}


def _beats(s: Stranger, group: AnyGroup | None) -> Fields:
    ids = {"member_id": s.anybody(group), "group_instance_id": s.instance(group)}
    return {"generation_id": s.generation(group), **ids}


def _leaves(s: Stranger, group: AnyGroup | None) -> Fields:
    some = range(s.chance.randint(1, 3))
    return {"members": tuple(Leaving(s.anybody(group), s.instance(group), "why not") for _ in some)}


def _commits(s: Stranger, group: AnyGroup | None) -> Fields:
    return {**_beats(s, group), **_offsets(s, group)}


def _offsets(s: Stranger, group: AnyGroup | None) -> Fields:
    def one() -> OffsetToCommit:
        topic, metadata = s.chance.choice(("t", "u", "v", "t-0")), s.chance.choice((None, "ok", "five!"))
        term_ms = s.chance.choice((-1, -1, -1, 0, 20_000))
        return OffsetToCommit(topic, s.chance.randrange(3), s.chance.choice((0, 1, 99)), 1, metadata, term_ms)

    return {"offsets": tuple(one() for _ in range(s.chance.randrange(4)))}


def _topics(s: Stranger, group: AnyGroup | None) -> Fields:
    return {"topics": tuple(TopicPartitions(topic, (0, 1, 2)) for topic in s.chance.choice(("t", "tu", "v")))}


def _reads(s: Stranger, group: AnyGroup | None) -> Fields:
    topics = _topics(s, group) if s.chance.random() < 0.5 else {}
    return {**topics, "require_stable": s.count % 2 == 0}


def _lists(s: Stranger, group: AnyGroup | None) -> Fields:
    return {"group_id": "", "states": s.chance.choice(((), ("Stable",)))}


def _expels(s: Stranger, group: AnyGroup | None) -> Fields:
    return {"member_id": s.anybody(group), "group_instance_id": s.instance(group)}


def _rebalances(s: Stranger, group: AnyGroup | None) -> Fields:
    return {"reason": s.chance.choice((None, "why not"))}


def _deletes(s: Stranger, group: AnyGroup | None) -> Fields:
    return {}


def _follows(s: Stranger, group: AnyGroup | None) -> Fields:
    """Make a heartbeat of the consumer protocol in some member's name."""
    epoch = s.chance.choice((0, -1, -2, s.generation(group), s.generation(group), s.generation(group)))
    said: Fields = {
        "member_id": s.anybody(group),
        "member_epoch": epoch,
        "group_instance_id": s.instance(group),
        "version": s.chance.choice((0, 1, 1)),
        "server_assignor": s.chance.choice((None, None, "range", "mine")),
        "again": s.chance.random() < 0.2,
    }
    if epoch == 0 and group is not None and said["member_id"] in group.members:
        said["group_instance_id"] = None  # a member would own the instance id of another for ever, and not know it
    if epoch == 0 or s.chance.random() < 0.3:
        topics = tuple(sorted(s.chance.choice(("t", "u", "tu", ""))))
        said |= {"rebalance_timeout_ms": s.chance.choice((0, 5_000)), "subscribed_topic_names": topics}
    if epoch == 0 or s.chance.random() < 0.5:
        said["topic_partitions"] = () if epoch == 0 else _owned(s, group)
    return said


def _owned(s: Stranger, group: AnyGroup | None) -> tuple[OwnedPartitions, ...]:
    """Return partitions of some member, or none."""
    if not isinstance(group, ConsumerGroup) or not group.members:
        return ()
    member = s.chance.choice(list(group.members.values()))
    return tuple(OwnedPartitions(topic_id, tuple(numbers)) for topic_id, numbers in member.assigned.items())


def _describes(s: Stranger, group: AnyGroup | None) -> Fields:
    return {}


def _describes_consumers(s: Stranger, group: AnyGroup | None) -> Fields:
    return {}


def _drops_offsets(s: Stranger, group: AnyGroup | None) -> Fields:
    return _topics(s, group)


Maker = Callable[[Stranger, AnyGroup | None], Fields]

KINDS: dict[Maker, type[Request]] = {
    _joins: JoinGroup,
    _comes_back: JoinGroup,
    _syncs: SyncGroup,
    _beats: Heartbeat,
    _leaves: LeaveGroup,
    _commits: OffsetCommit,
    _offsets: OffsetCommit,
    _reads: OffsetFetch,
    _lists: ListGroups,
    _describes: DescribeGroup,
    _describes_consumers: ConsumerGroupDescribe,
    _follows: ConsumerGroupHeartbeat,
    _drops_offsets: OffsetDelete,
    _deletes: DeleteGroup,
    _rebalances: RebalanceGroup,
    _expels: ExpelMember,
}

STRANGERS = (_joins, _joins, _comes_back, _syncs, _beats, _beats, _leaves, _commits, _commits, _reads)
OPERATORS = (_lists, _describes, _describes_consumers, _drops_offsets, _deletes, _rebalances, _expels, _reads)
TOOLS = (_offsets, _reads)
FOLLOWERS = (_follows,)
