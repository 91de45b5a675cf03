"""The state of policies in a classic group: kept assignments, standbys, offers, and members in quarantine.

    vacancy    the assignment of a member that is gone, kept for another member
    standby    a newcomer without partitions, which waits for a vacancy or for a rebalance
    offer      a vacancy that one member may take, by its next sync
    quarantine a member in it has no partitions: no join round waits for it, and it is assigned nothing
    unstable   a client whose memberships have ended too soon, with the times of these ends

Vacancies and standbys are pending holds: each is cleared by a seat that is taken, or by a rebalance at its deadline. A
group with a pending hold is held. It is Stable, and a rebalance clears all of its pending holds.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple
from zlib import crc32

from msgspec import Struct, field

from coordinator.base.consumer_protocol import subscribed_topics, write_assignment
from coordinator.base.limits import NEVER_MS
from coordinator.messages.requests import Protocol
from coordinator.state.encoding import ENCODER

NO_PARTITIONS = write_assignment({}, version=0)
"""The assignment of a standby. An assignment of no bytes is refused by Java's consumer."""

SUBSCRIPTION_DIGEST_BYTES = 16


class MatchKey(NamedTuple):
    """The properties by which a newcomer and the assignment of a member that is gone find each other.

    Args:
        subscription_digest: Only members with equal digests may have each other's assignment.
    """

    subscription_digest: bytes
    group_instance_id: str | None
    client_id: str
    client_host: str


class Vacancy(Struct, array_like=True, kw_only=True):
    """The assignment of a member that is gone.

    Args:
        member_id: "" for partitions that were added.
        policy: succession, settle or freeze. Nobody may take a vacancy of settle; it only delays the rebalance.
        wait_ms: The time that the policy gives it, from `since_ms` on or from the end of an outage.
        cause, reason: Those of the rebalance that it delays.
        offered_to: The member that has an offer for it; "" for none.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    subscription_digest: bytes
    assignment: bytes
    since_ms: int
    until_ms: int
    policy: str
    wait_ms: int
    cause: str
    reason: str | None
    offered_to: str = ""

    @property
    def match_key(self) -> MatchKey:
        return MatchKey(self.subscription_digest, self.group_instance_id, self.client_id, self.client_host)

    @property
    def is_free(self) -> bool:
        """True if it may be offered to a member."""
        return not self.offered_to and self.policy != "settle"


class Standby(Struct, array_like=True):
    """The pending hold of a newcomer that waits.

    Args:
        policy: succession, settle or freeze.
        wait_ms: The time that the policy gives it; 0 in a freeze, which lasts until a time.
        reason: The reason of its join.
    """

    since_ms: int
    until_ms: int
    policy: str
    wait_ms: int
    subscription_digest: bytes
    reason: str | None = None


class Offer(Struct, array_like=True):
    """An offer of vacancies to a member.

    Args:
        vacancies: By the member id that is gone. Only a member that adopts partitions has more than one.
        how: As in the event of a seat that is taken: took, passed or adopted.
        has_joined: The member has joined since the offer, so its next sync takes the vacancies.
    """

    vacancies: list[str]
    how: str
    until_ms: int
    has_joined: bool = False


class SettleTimer(Struct, array_like=True):
    """The clock of the policy settle.

    Args:
        first_ms: When the first cause came.
        until_ms: When the rebalance begins.
        wait_ms: The quiet time that the latest cause has asked for.
        pending_holds: The number of causes that are still pending holds.
    """

    first_ms: int
    until_ms: int
    wait_ms: int
    pending_holds: int = 0


class UnstableClient(Struct, array_like=True):
    """A client whose memberships have ended too soon.

    Args:
        times_ms: When they did, the latest ones.
        until_ms: The end of its quarantine.
        count: How often it has been in quarantine.
        shared_ms: When two members had its identity, last; such an identity belongs to no client.
    """

    times_ms: list[int] = field(default_factory=list)
    until_ms: int = 0
    count: int = 0
    shared_ms: int = -NEVER_MS


class Answered(Struct, array_like=True):
    """Checksums of the latest join and the latest sync of a member; 0 for none.

    A request may be repeated in the log. A repeat of a join or a sync from before an offer must not take a seat: its
    sender reads no response to it, and would not know that it has the partitions.
    """

    join: int = 0
    sync: int = 0


def checksum_of(request_id: str, reply_to: str) -> int:
    """Return the checksum of a request."""
    return crc32(reply_to.encode(), crc32(request_id.encode()))


class PolicyState(Struct, array_like=True):
    """All of it that a group has. A group in which no policy has had an effect has the defaults.

    Args:
        vacant: Vacancies by the member id that is gone, the oldest first.
        standbys: By member id, those that have waited longest first.
        offers: By the member that has the offer.
        declined: The members that have let an offer pass in this generation; they come last.
        leader_vacancy: The vacancy of the leader, if no member was told that it leads instead; None if one was.
        settle_timer: The clock of settle; None if it does not run.
        quarantined: The members in quarantine, with the end of it.
        unstable_clients: By identity, the one whose latest end is oldest first.
        expiries_ms: When members expired lately, to recognize an outage.
        joined_ms: When members joined, while a quarantine is in force.
        frozen_until_ms: The end of the freeze that was reported; 0 if none is.
        is_unfinished: The present assignments leave out a partition that a present member owned before.
        awaits_plan: The leader was told that it leads in this generation, and its assignments have not come.
        was_extended: The deadlines of this hold were extended once, as sessions are.
        topics: Topics of standbys that the group's `subscribed_topics` do not have.
        answered: By member id, of all members that this generation had while a policy was in force: checksums of the
            latest join and the latest sync, to recognize their repeats.
    """

    vacant: dict[str, Vacancy] = field(default_factory=dict)
    standbys: dict[str, Standby] = field(default_factory=dict)
    offers: dict[str, Offer] = field(default_factory=dict)
    declined: dict[str, None] = field(default_factory=dict)
    leader_vacancy: str | None = None
    settle_timer: SettleTimer | None = None
    quarantined: dict[str, int] = field(default_factory=dict)
    unstable_clients: dict[str, UnstableClient] = field(default_factory=dict)
    expiries_ms: list[int] = field(default_factory=list)
    joined_ms: dict[str, int] = field(default_factory=dict)
    frozen_until_ms: int = 0
    is_unfinished: bool = False
    awaits_plan: bool = False
    was_extended: bool = False
    topics: dict[str, None] = field(default_factory=dict)
    answered: dict[str, Answered] = field(default_factory=dict)

    @property
    def is_held(self) -> bool:
        """True if a rebalance is held."""
        return bool(self.vacant or self.standbys)

    @property
    def since_ms(self) -> int | None:
        """The time of the oldest pending hold; None if there is none."""
        return min((hold.since_ms for hold in self.pending_holds), default=None)

    @property
    def pending_holds(self) -> list[Vacancy | Standby]:
        """All pending holds, vacancies first."""
        return [*self.vacant.values(), *self.standbys.values()]

    def due_ms(self, hold: Vacancy | Standby) -> int:
        """Return the time at which a pending hold is due."""
        return (
            self.settle_timer.until_ms if hold.policy == "settle" and self.settle_timer is not None else hold.until_ms
        )

    @property
    def holds_until_ms(self) -> int:
        """The earliest time at which a pending hold is due; `NEVER_MS` without one. A hold waits for an open offer."""
        return min(self._due_ms(), default=NEVER_MS)

    def _due_ms(self) -> Iterator[int]:
        yield from (self.due_ms(vacancy) for vacancy in self.vacant.values() if not vacancy.offered_to)
        yield from (self.due_ms(hold) for member_id, hold in self.standbys.items() if member_id not in self.offers)

    @property
    def earliest_ms(self) -> int:
        """The earliest deadline of pending holds, offers and quarantines, and of the freeze that was reported."""
        others = (*(offer.until_ms for offer in self.offers.values()), *self.quarantined.values())
        return min((self.holds_until_ms, self.frozen_until_ms or NEVER_MS, *others))

    def end_hold(self) -> None:
        """Remove all pending holds and offers: a rebalance clears them."""
        self.vacant, self.standbys, self.offers, self.declined, self.topics = {}, {}, {}, {}, {}
        self.leader_vacancy, self.settle_timer, self.awaits_plan, self.was_extended = None, None, False, False

    def clear(self, hold: Vacancy | Standby) -> None:
        """Note that a pending hold is over. With its last pending hold, the clock of settle stops."""
        if hold.policy == "settle" and self.settle_timer is not None:
            self.settle_timer.pending_holds -= 1
            self.settle_timer = self.settle_timer if self.settle_timer.pending_holds else None

    def remove_standby(self, member_id: str) -> None:
        """Remove the pending hold of a newcomer, if it has one."""
        if (standby := self.standbys.pop(member_id, None)) is not None:
            self.clear(standby)

    def remove_member(self, member_id: str) -> None:
        """Remove a member that is gone. The vacancies that it had an offer for are free, and come last."""
        self.remove_standby(member_id)
        self.take_back(member_id)
        for by_member in (self.declined, self.quarantined, self.joined_ms):
            by_member.pop(member_id, None)

    def take_back(self, member_id: str) -> list[str]:
        """End the offer of a member. Return the vacancies, which come last in the order of the free ones."""
        offer = self.offers.pop(member_id, None)
        keys = [] if offer is None else offer.vacancies
        for key in keys:
            vacancy = self.vacant[key] = self.vacant.pop(key)
            vacancy.offered_to = ""
        return keys

    def replace_member(self, old_id: str, new_id: str) -> None:
        """Note that a static member has another member id, with which it keeps what it had."""
        for by_member in (self.standbys, self.offers, self.declined, self.quarantined, self.joined_ms):
            _rename(by_member, old_id, new_id)
        for key in self.offers[new_id].vacancies if new_id in self.offers else ():
            self.vacant[key].offered_to = new_id


def _rename(by_member: dict[str, Any], old_id: str, new_id: str) -> None:
    if old_id in by_member:
        by_member[new_id] = by_member.pop(old_id)


# -- who may have whose assignment -------------------------------------------------------------------------------------


def digest_of(protocol_type: str, protocols: Iterable[Protocol]) -> bytes:
    """Return a digest of a subscription: of the type, of the assignors in their order, and of the topics of each.

    The partitions that a member owns, its user data, its generation and its rack do not count. Metadata that cannot be
    read count by their bytes.
    """
    offered = [(p.name, _topics_of(p)) for p in protocols]
    return blake2b(ENCODER.encode((protocol_type, offered)), digest_size=SUBSCRIPTION_DIGEST_BYTES).digest()


def _topics_of(protocol: Protocol) -> list[str] | bytes:
    topics = subscribed_topics(protocol.metadata)
    return protocol.metadata if topics is None else sorted(set(topics))


class Matches:
    """Vacancies that wait for a member, or members that wait for a vacancy; each found at once, the oldest first."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, OrderedDict[str, None]] = {}

    def add(self, key: str, match_key: MatchKey) -> None:
        """Add a vacancy or a member, as the youngest."""
        for queue in _queues(match_key):
            self._queues.setdefault(queue, OrderedDict())[key] = None

    def remove(self, key: str, match_key: MatchKey) -> None:
        """Remove a vacancy or a member, if it is there."""
        for queue in _queues(match_key):
            waiting = self._queues.get(queue)
            if waiting is not None:
                waiting.pop(key, None)
                if not waiting:
                    del self._queues[queue]

    def first(self, match_key: MatchKey) -> str | None:
        """Return the one with the same instance id, else client id and host, else client id, else the oldest one."""
        found = next((self._queues[queue] for queue in _queues(match_key) if queue in self._queues), None)
        return None if found is None else next(iter(found))


def _queues(match_key: MatchKey) -> Iterator[Hashable]:
    """Yield the queues of a vacancy or a member. One that is found in an earlier queue fits better."""
    if match_key.group_instance_id is not None:
        yield "instance", match_key.subscription_digest, match_key.group_instance_id
    yield "host", match_key.subscription_digest, match_key.client_id, match_key.client_host
    yield "client", match_key.subscription_digest, match_key.client_id
    yield "subscription", match_key.subscription_digest


class VacancyIndex:
    """The seats of a Stable group, indexed, so that no request looks through all of them. It is not stored.

    Args:
        vacancies: Those that may be offered.
        standbys: Those that have no offer.
        owners: By subscription digest, the number of members and vacancies with an assignment of the leader's.
    """

    def __init__(self) -> None:
        self.vacancies, self.standbys = Matches(), Matches()
        self.owners = Counter[bytes]()
