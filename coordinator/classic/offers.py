"""A vacancy passes to a member: it is offered, the member joins, and its next sync has it.

    standby or owner   offer and call ── its heartbeat: REBALANCE_IN_PROGRESS ──> join, at once ──> sync: it has it
    newcomer           offer ── its join, at once ──> sync: it has it

Until that sync the vacancy can be offered to another member, because nobody was told that it has it.

Source: Kafka's classic members of a consumer group join and sync in the same way, each on its own (KIP-848).
"""

from collections.abc import Iterable, Iterator

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import assigned_partitions, write_assignment
from coordinator.base.limits import SEAT_OFFER_MS, SEATS_EVERY_MS
from coordinator.base.states import Phase
from coordinator.classic import decisions
from coordinator.classic.decisions import Rejoin
from coordinator.classic.vacancies import index_of, kin_of, put_in, put_in_vacancy, take_out, take_out_vacancy
from coordinator.common.events import member_event
from coordinator.messages.outputs import Output
from coordinator.messages.policy_events import SeatTaken
from coordinator.messages.requests import JoinGroup
from coordinator.messages.responses import RebalanceNotice, Reply
from coordinator.policies.rules import frozen_until_ms, is_seatable, note_sync
from coordinator.state.classic_group import Group, Member, Parked
from coordinator.state.group import Session
from coordinator.state.policy_state import Answered, Offer, Standby, checksum_of, likeness_of


def arm(group: Group, deadline_ms: int) -> int:
    """Note that a debt, an offer or a quarantine ends at a time, and return the time."""
    group.vitals.seats_ms = min(group.vitals.seats_ms, group.vitals.noting(deadline_ms))
    return deadline_ms


def rounded(deadline_ms: int) -> int:
    """Return a deadline at which others fire as well, at most `SEATS_EVERY_MS` earlier."""
    return deadline_ms // SEATS_EVERY_MS * SEATS_EVERY_MS


# -- offers ------------------------------------------------------------------------------------------------------------


def offer(group: Group, key: str, member: Member, how: str, now_ms: int) -> None:
    """Offer a vacancy to a member. If it has an offer already, it may have both."""
    seats = group.seats
    take_out_vacancy(group, key)
    take_out(group, member)
    seats.vacant[key].offered_to = member.member_id
    if (present := seats.offers.get(member.member_id)) is not None:
        present.vacancies.append(key)
        present.how = "adopted"
    else:
        until_ms = rounded(group.vitals.wait(now_ms, SEAT_OFFER_MS))
        seats.offers[member.member_id] = Offer([key], how, arm(group, until_ms))
    put_in(group, member)
    put_in_vacancy(group, key)


def call(group: Group, member: Member) -> Iterator[Output]:
    """Make a member join again, alone."""
    if member.member_id in group.vitals.called:
        return
    group.vitals.called[member.member_id] = None
    notice = RebalanceNotice(
        request_id=None, group_id=group.group_id, generation_id=group.generation_id, member_id=member.member_id
    )
    yield Reply(member.reply_to, notice)


def offer_to_standby(group: Group, key: str, now_ms: int) -> Iterator[Output]:
    """Offer a free vacancy to the standby that fits best, if there is one."""
    vacancy = group.seats.vacant[key]
    member_id = index_of(group).standbys.first(vacancy.kin) if vacancy.is_free else None
    if member_id is not None:
        member = group.members[member_id]
        offer(group, key, member, "passed", now_ms)
        yield from call(group, member)


def withdraw(group: Group, member: Member) -> list[str]:
    """End the offer of a member, and return the vacancies, which are free again and come last.

    A debt whose deadline has passed during the offer is due now.
    """
    seats, now_ms = group.seats, group.vitals.now_ms
    group.vitals.called.pop(member.member_id, None)
    offered = seats.offers.get(member.member_id)
    for key in offered.vacancies if offered is not None else ():
        take_out_vacancy(group, key)
    keys = seats.take_back(member.member_id)
    standby = seats.standbys.get(member.member_id)
    for debt in (*(seats.vacant[key] for key in keys), *(() if standby is None else (standby,))):
        debt.until_ms = max(debt.until_ms, now_ms)
        arm(group, max(seats.due_ms(debt), now_ms))
    if seats.quiet is not None:
        seats.quiet.until_ms = max(seats.quiet.until_ms, now_ms)
    for key in keys:
        put_in_vacancy(group, key)
    return keys


# -- joins and syncs of members with an offer --------------------------------------------------------------------------


def rejoin(group: Group, member: Member, request: JoinGroup, now_ms: int, config: Config) -> Rejoin:
    """Return how to handle a join of a known member: its seat decides before the table of `decisions`.

    A member in quarantine may change what it subscribes to, because nobody assigns it anything.
    """
    is_leader, is_hidden = member.member_id == group.leader_id, member.member_id in group.seats.hidden
    if (
        is_hidden
        and group.phase is not Phase.PREPARING
        and any(p.name == group.protocol_name for p in request.protocols)
    ):
        return Rejoin.SEAT
    if is_seatable(group, config) and _asks_as_before(group, member, request):
        is_frozen_leader = is_leader and frozen_until_ms(config, now_ms) is not None
        if is_seated_by_joining(group, member) or is_frozen_leader or member.member_id in group.seats.lapsed:
            return Rejoin.SEAT
    return decisions.rejoin(group.phase, is_leader=is_leader, same_protocols=member.protocols == request.protocols)


def is_seated_by_joining(group: Group, member: Member) -> bool:
    """Return whether a join seats a member: it has an offer, or it leads and was not told so."""
    is_untold = group.seats.led is not None and group.leader_id == member.member_id
    return is_untold or member.member_id in group.seats.offers


def restart(group: Group, old: Member, new: Member, session: Session) -> None:
    """Replace a static member by its new process, which has the same standing. Another subscription ends its offer.

    A newcomer that has lost its offer so waits for nothing any more, and rebalances.
    """
    take_out(group, old)
    likeness = likeness_of(group.protocol_type or "", new.protocols)
    offered = group.seats.offers.get(old.member_id)
    has_lost = offered is not None and likeness != kin_of(group, old).likeness
    group.replace(old, new, session)
    if has_lost:
        withdraw(group, new)
    if (standby := group.seats.standbys.get(new.member_id)) is not None:
        standby.likeness = likeness
    elif has_lost and offered is not None and offered.how == "took":
        now_ms = arm(group, group.vitals.now_ms)
        group.seats.standbys[new.member_id] = Standby(now_ms, now_ms, "succession", 0, likeness)
    put_in(group, new)


def _asks_as_before(group: Group, member: Member, request: JoinGroup) -> bool:
    protocol_type = group.protocol_type or ""
    return likeness_of(protocol_type, request.protocols) == likeness_of(protocol_type, member.protocols)


def note_join(group: Group, member: Member, asked: Parked) -> bool:
    """Note that a member has joined in the running generation. Return whether this is no repeat of its latest join.

    It leads from now on if it was offered the seat of the leader. A leader that joins so is told that it leads, and its
    assignments are awaited.
    """
    seats, checksum = group.seats, checksum_of(asked.request_id, asked.reply_to)
    answered = seats.answered.setdefault(member.member_id, Answered())
    if answered.join == checksum:
        return False
    answered.join = checksum
    group.vitals.called.pop(member.member_id, None)
    if (offered := seats.offers.get(member.member_id)) is not None:
        offered.has_joined = True
        if seats.led in offered.vacancies:
            group.leader_id = member.member_id
    if group.leader_id == member.member_id:
        seats.led, seats.awaits_plan = None, True
    return True


def note_told(group: Group, member: Member) -> None:
    """Note that a response tells a member that it leads, although the leader's seat is vacant: it leads from now on."""
    if group.seats.led is not None and group.leader_id == member.member_id:
        group.seats.led, group.seats.awaits_plan = None, True


def may_lead(group: Group, member_id: str) -> bool:
    """Return whether a member or a newcomer may be told that it leads, because the leader's seat is vacant."""
    vacancy = None if group.seats.led is None else group.seats.vacant[group.seats.led]
    return vacancy is not None and vacancy.offered_to in ("", member_id)


def take_seat(group: Group, member: Member, asked: Parked, now_ms: int, config: Config) -> Iterator[Output]:
    """Assign a member the vacancies that it was offered, if it has joined since, under a new fencing token.

    Args:
        asked: The member's sync. A repeat of its latest sync takes nothing.
    """
    offered, answered = group.seats.offers.get(member.member_id), group.seats.answered.get(member.member_id)
    is_repeat = answered is not None and answered.sync == checksum_of(asked.request_id, asked.reply_to)
    note_sync(group, member.member_id, asked)
    if offered is None or not offered.has_joined or is_repeat:
        return
    take_out(group, member)
    del group.seats.offers[member.member_id]
    group.vitals.called.pop(member.member_id, None)
    group.seats.remove_standby(member.member_id)
    group.seats.lapsed.pop(member.member_id, None)
    put_in(group, member)
    for key in offered.vacancies:
        take_out_vacancy(group, key)
    vacancies = [group.seats.vacant.pop(key) for key in offered.vacancies]
    _assign(group, member, [vacancy.assignment for vacancy in vacancies], offered.how)
    member.fencing_token = group.next_token(now_ms, config.fencing_token_floor)
    for vacancy in vacancies:
        group.seats.pay(vacancy)
        yield member_event(
            SeatTaken,
            group,
            member,
            now_ms,
            how=offered.how,
            before=vacancy.member_id,
            partitions=assigned_partitions(vacancy.assignment) or {},
            unowned_ms=now_ms - vacancy.since_ms,
            fencing_token=member.fencing_token,
        )
    group.are_seats_news = True


def _assign(group: Group, member: Member, assignments: list[bytes], how: str) -> None:
    """Assign a member one assignment byte for byte, or several beside its own."""
    assignment = assignments[0] if how != "adopted" else merged([member.assignment, *assignments])
    group.assigned_bytes += len(assignment) - len(member.assignment)
    member.assignment = assignment


def merged(assignments: Iterable[bytes]) -> bytes:
    """Return an assignment with the partitions of several ones, which can all be read."""
    partitions: dict[str, set[int]] = {}
    for assignment in assignments:
        for topic, numbers in (assigned_partitions(assignment) or {}).items():
            partitions.setdefault(topic, set()).update(numbers)
    return write_assignment({topic: sorted(numbers) for topic, numbers in partitions.items()}, version=0)
