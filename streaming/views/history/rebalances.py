"""Rebalances, read from a group's events: causes, durations, members that joined and left, partitions that moved.

In a group of the consumer protocol, partitions move one by one while the rebalance runs. The next owner of a partition
waits until the member that has it gives it up, leaves or is dropped: `Wait`.

In a classic group with a cooperative assignor, a rebalance may have several rounds. In the first one, members get
assignments without some of their partitions; they give these up and join again, and a further round gives them to
others. All rounds are one rebalance: `Passed`.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from coordinator.messages.events import (
    AnyEvent,
    AssignmentChanged,
    Estimate,
    GroupEmptied,
    Handover,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    PlanMade,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.messages.observed_events import HistoryGap, MemberGone
from streaming.views.state.causes import cause_of, is_further_round
from streaming.views.state.fields import known
from streaming.views.state.partition_moves import WaitingPartitions

LATE = frozenset({"joins_overdue", "syncs_overdue", "revocation_overdue"})
"""The reasons for the expulsion of members for which other members waited without success.

A member whose session expired is one of them only if it had partitions that a plan had given to another member.
"""

GIVEN_UP = "given_up"
"""The end of a wait for a member that gave up the partition. All others are ends of the membership."""

_ENDS = (RebalanceCompleted, GroupEmptied)

INFERRED = "inferred"
"""How a rebalance is known whose start Kafka does not record."""

TopicAndPartition = tuple[str, int]


def named(event: AssignmentChanged) -> list[Handover]:
    """Return the handovers of partitions whose topic is known.

    The coordinator has forgotten the names of the topics when the last member of a consumer group is gone.
    """
    return [each for each in event.handovers if each.topic]


class Wait(Struct):
    """A partition that a plan had given to one member while another member was its owner.

    Args:
        member_id: The owner.
        next_id: The member that got the partition; null if none has it yet.
        wait_ms: The time from the plan that moved the partition until the owner gave it up, left or was dropped.
        ended: `given_up`, `member_left`, or the reason for which the owner was dropped.
    """

    topic: str
    partition: int
    member_id: str
    next_id: str | None
    wait_ms: int
    ended: str = GIVEN_UP


class Passed(Struct, frozen=True):
    """Partitions that one member gave up in a round, and that another member got in a later one; null for none yet."""

    before: str
    after: str | None
    partitions: int


class Rebalance(Struct, kw_only=True):
    """One rebalance, from its first reason to the assignments.

    Args:
        started: Its reasons, in order. A second reason during the sync phase begins another join phase.
        rounds: Its completed rounds before the last one; none unless the assignor is cooperative.
        given_up: By partition, the member that gave it up in a round.
        gap: The generations before it that Kafka's log does not have any more; None if it has all.
        completed: None while the rebalance runs, and if it ended without any member.
        ended_ms: The time at which the assignments were computed, or the last member left; None while it runs.
        moves: The owners of each partition that changed hands, before and after the rebalance.
        late: Members that were expelled while others waited for them.
        plans_ms: The times of the plans of server assignors, by group epoch. Only groups of the consumer protocol have
            them.
        moving_ms: The times of the plans that moved partitions.
        waits: Partitions that waited for a member, by topic and partition.
        confirmed: By member, how many of the plans that moved partitions it has followed by giving some up.
    """

    generation_id: int
    started: list[RebalanceStarted]
    completed: RebalanceCompleted | None = None
    ended_ms: int | None = None
    moves: dict[TopicAndPartition, Handover] = field(default_factory=dict)
    late: list[MemberExpired] = field(default_factory=list)
    plans_ms: dict[int, int] = field(default_factory=dict)
    moving_ms: list[int] = field(default_factory=list)
    waits: dict[TopicAndPartition, Wait] = field(default_factory=dict)
    confirmed: dict[str, int] = field(default_factory=dict)
    rounds: list[RebalanceCompleted] = field(default_factory=list)
    given_up: dict[TopicAndPartition, str] = field(default_factory=dict)
    gap: HistoryGap | None = None

    @property
    def is_inferred(self) -> bool:
        """Whether its start and its cause are not recorded. `started_ms` is then the latest possible start."""
        return bool(self.started) and self.started[0].how_known == INFERRED

    @property
    def not_before_ms(self) -> int | None:
        """The earliest time at which an inferred rebalance can have begun; None if that is not known."""
        return known(self.started[0].not_before_ms) if self.started else None

    @property
    def unplanned_rounds(self) -> int:
        """The number of generations before it that ended without an assignment."""
        return max((known(each.unplanned_rounds) or 0 for each in self.started), default=0)

    @property
    def duration_ms(self) -> int | None:
        """Its duration; None while it runs, and if its start is not recorded."""
        return None if self.ended_ms is None or self.is_inferred else self.ended_ms - self.started_ms

    @property
    def estimate(self) -> Estimate | None:
        """About how long it took, if its start is not recorded and commits tell; None otherwise."""
        return known(self.completed.estimate) if self.completed else None

    @property
    def generations(self) -> list[int]:
        """The generations of its completed rounds."""
        return [each.generation_id or 0 for each in self._completed]

    @property
    def joined(self) -> list[str]:
        """The members that joined, in all rounds."""
        return list(dict.fromkeys(member_id for each in self._completed for member_id in each.joined))

    @property
    def gone(self) -> list[str]:
        """The members that were gone, in all rounds."""
        return list(dict.fromkeys(member_id for each in self._completed for member_id in each.gone))

    @property
    def _completed(self) -> list[RebalanceCompleted]:
        return [*self.rounds, *([self.completed] if self.completed else [])]

    def resume(self) -> None:
        """Begin a further round."""
        assert self.completed is not None, "only a completed round has another one"
        self.rounds.append(self.completed)
        self.completed = self.ended_ms = None

    @property
    def passed(self) -> list[Passed]:
        """The partitions that passed from one member to another in several rounds, by both members."""
        counts: dict[tuple[str, str | None], int] = {}
        for place, before in self.given_up.items():
            after = self.moves[place].after
            counts[before, after] = counts.get((before, after), 0) + 1
        return [Passed(*members, number) for members, number in counts.items() if members[0] != members[1]]

    @property
    def started_ms(self) -> int:
        """The start of the rebalance, Unix milliseconds. Without its first event, computed from its duration."""
        if self.started:
            return self.started[0].at_ms
        return self.completed.at_ms - (self.completed.duration_ms or 0) if self.completed else 0

    @property
    def cause(self) -> str:
        """The cause of its first reason."""
        return cause_of(self.started[0]) if self.started else "unknown"

    @property
    def held_ms(self) -> int | None:
        """How long a policy has held it; None if none has."""
        return known(self.started[0].held_ms) if self.started else None

    @property
    def handovers(self) -> list[Handover]:
        """The partitions whose owner after the rebalance is another one than before it."""
        return [move for move in self.moves.values() if move.before != move.after]

    def hand_over(self, event: AssignmentChanged, left: "Left", waiting_partitions: WaitingPartitions) -> None:
        """Add partitions that changed hands.

        Args:
            left: The members that are gone, because they left or were dropped.
        """
        since_ms = self._since_ms(event, left, waiting_partitions)
        for each in named(event):
            place = each.topic, each.partition
            first = self.moves.get(place, each)
            self.moves[place] = Handover(*place, first.before, each.after)
            if each.before is not None and each.after is None and each.before not in left:
                self.given_up[place] = each.before
            if each.before is not None and place in since_ms:
                ended = _why_gone(left[each.before]) if each.before in left else GIVEN_UP
                self.waits[place] = Wait(*place, each.before, None, event.at_ms - since_ms[place], ended)
            elif each.after is not None and (wait := self.waits.get(place)) is not None:
                wait.next_id = each.after
        for member_id in {each.before for each in event.handovers if each.before is not None and each.after is None}:
            self.confirmed[member_id] = self.confirmed.get(member_id, 0) + 1
            self._record_late(left.get(member_id))

    def _since_ms(
        self, event: AssignmentChanged, left: "Left", waiting_partitions: WaitingPartitions
    ) -> dict[TopicAndPartition, int]:
        """Return since when others waited for the partitions that became free.

        The records show which plan had moved a partition. Without them, a member that gave partitions up is taken to
        have followed the first plan that it had not followed yet; of a member that is gone nothing is known.
        """
        latest, since_ms = len(self.moving_ms) - 1, dict[TopicAndPartition, int]()
        freed = {(each.topic, each.partition): each.before for each in named(event) if each.before and not each.after}
        if latest < 0:
            return since_ms
        epochs = waiting_partitions.within(self.first_version, event.version) if freed else {}
        for place, owner in freed.items():
            if (epoch := epochs.get((place, owner))) in self.plans_ms:
                since_ms[place] = self.plans_ms[epoch]
        shown = {freed[place] for place in since_ms}
        for place, owner in freed.items():
            if owner not in shown and (owner not in left or _why_gone(left[owner]) in LATE):
                since_ms[place] = self.moving_ms[min(self.confirmed.get(owner, 0), latest)]
        return since_ms

    def _record_late(self, gone: "MemberExpired | MemberGone | MemberLeft | None") -> None:
        """Note a member whose session expired while others waited for it."""
        if not isinstance(gone, MemberExpired) or gone.why in LATE or gone in self.late:
            return
        if gone.why == "session_expired" and any(w.member_id == gone.member_id for w in self.waits.values()):
            self.late.append(gone)

    @property
    def first_version(self) -> int:
        """The version of its first event; 0 if that is unknown."""
        return (self.started[0].version or 0) if self.started else 0


Left = dict[str, MemberExpired | MemberGone | MemberLeft]
"""The events of the members that are gone, by member id."""


def _why_gone(event: MemberExpired | MemberGone | MemberLeft) -> str:
    if isinstance(event, MemberExpired):
        return event.why
    return "member_gone" if isinstance(event, MemberGone) else "member_left"


def _begun(rebalances_: list[Rebalance], event: RebalanceStarted) -> Rebalance:
    """Return the rebalance that an event begins: a new one, or the last one if the event begins a further round."""
    if is_further_round(event) and rebalances_ and rebalances_[-1].completed is not None:
        rebalances_[-1].resume()
    else:
        rebalances_.append(Rebalance(generation_id=event.generation_id or 0, started=[]))
    return rebalances_[-1]


def rebalances(events: Iterable[AnyEvent], waiting_partitions: WaitingPartitions | None = None) -> list[Rebalance]:
    """Return the rebalances in a group's events, the oldest first. The events are in order.

    Args:
        waiting_partitions: The partitions that waited for their owners; None if they are not of interest.
    """
    rebalances_: list[Rebalance] = []
    running: Rebalance | None = None
    gap: HistoryGap | None = None
    left: Left = {}
    waiting_partitions = waiting_partitions or WaitingPartitions()
    for event in events:
        match event:
            case RebalanceStarted():
                running = running or _begun(rebalances_, event)
                running.started.append(event)
                if gap is not None and gap.at_ms == event.at_ms:
                    running.gap = gap
                gap = None
            case HistoryGap():
                gap = event
            case MemberJoined():
                left.pop(event.member_id, None)
            case MemberExpired() | MemberGone() | MemberLeft():
                left[event.member_id] = event
                if running is not None and isinstance(event, MemberExpired) and event.why in LATE:
                    running.late.append(event)
            case RebalanceCompleted() | GroupEmptied():
                _end(rebalances_, running, event)
                running = None
            case PlanMade() if running is not None:
                running.plans_ms[event.generation_id or 0] = event.at_ms
                running.moving_ms += [event.at_ms] if event.moved else []
            case AssignmentChanged() if running is not None:
                running.hand_over(event, left, waiting_partitions)
            case AssignmentChanged() if (
                rebalances_ and rebalances_[-1].ended_ms == event.at_ms and not rebalances_[-1].plans_ms
            ):
                rebalances_[-1].hand_over(event, left, waiting_partitions)
    return rebalances_


def _end(rebalances_: list[Rebalance], running: Rebalance | None, event: RebalanceCompleted | GroupEmptied) -> None:
    """End the running rebalance. Of a rebalance that completed, the beginning may be unknown."""
    if running is None and isinstance(event, GroupEmptied):
        return
    ended = running or Rebalance(generation_id=0, started=[])
    if running is None:
        rebalances_.append(ended)
    ended.generation_id, ended.ended_ms = event.generation_id or 0, event.at_ms
    ended.completed = event if isinstance(event, RebalanceCompleted) else None


def latest(events: Sequence[AnyEvent], waiting_partitions: WaitingPartitions | None = None) -> Rebalance | None:
    """Return the last rebalance in a group's events, without reading all events before it."""
    for index in range(len(events) - 1, -1, -1):
        if isinstance(events[index], _ENDS):
            rebalances_ = rebalances(events[index + 1 :], waiting_partitions)
            if rebalances_ and not (rebalances_[0].started and is_further_round(rebalances_[0].started[0])):
                return rebalances_[-1]
    rebalances_ = rebalances(events, waiting_partitions)
    return rebalances_[-1] if rebalances_ else None
