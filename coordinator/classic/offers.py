"""A vacancy passes to a member: it is offered, the member joins, and its next sync has it.

    standby or owner   offer and call ── its heartbeat: REBALANCE_IN_PROGRESS ──> join, at once ──> sync: it has it
    newcomer           offer ── its join, at once ──> sync: it has it

Until that sync the vacancy can be offered to another member, because nobody was told that it has it.

An index finds the vacancy for a newcomer and the standby for a vacancy at once. It is made when it is needed first.
Until then, functions that change it do nothing. A caller changes the group before it puts something into the index, and
takes something out before it changes the group.

Source: Kafka's classic members of a consumer group join and sync in the same way, each on its own (KIP-848).
"""

from collections.abc import Iterable, Iterator

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import assigned_partitions, write_assignment
from coordinator.base.limits import POLICY_CHANGES_EVERY_MS, SEAT_OFFER_MS
from coordinator.base.states import Phase
from coordinator.classic import decisions
from coordinator.classic.decisions import Rejoin
from coordinator.common.events import member_event
from coordinator.messages.outputs import Output
from coordinator.messages.policy_events import SeatTaken
from coordinator.messages.requests import JoinGroup
from coordinator.messages.responses import RebalanceNotice, Reply
from coordinator.policies.rules import frozen_until_ms, is_seatable, record_sync
from coordinator.state.classic_group import Group, Member, Parked
from coordinator.state.group import Session
from coordinator.state.policy_state import Answered, MatchKey, Offer, Standby, VacancyIndex, checksum_of, digest_of

# -- the index of vacancies --------------------------------------------------------------------------------------------


def index_of(group: Group) -> VacancyIndex:
    """Return the index of a group. The group's `end_hold` drops it."""
    if group.vacancy_index is None:
        group.vacancy_index = VacancyIndex()
        waiting = [group.members[member_id] for member_id in group.policy_state.standbys]
        for member in (
            *(m for m in group.members.values() if m.member_id not in group.policy_state.standbys),
            *waiting,
        ):
            index_member(group, member)
        for key in group.policy_state.vacant:
            index_vacancy(group, key)
    return group.vacancy_index


def match_key_of(group: Group, member: Member) -> MatchKey:
    """Return the properties by which a member finds a vacancy."""
    standby = group.policy_state.standbys.get(member.member_id)
    subscription_digest = (
        standby.subscription_digest if standby else digest_of(group.protocol_type or "", member.protocols)
    )
    return MatchKey(subscription_digest, member.group_instance_id, member.client_id, member.client_host)


def index_member(group: Group, member: Member) -> None:
    """Add a member: as a standby if it waits without an offer, or as an owner."""
    index, policy_state = group.vacancy_index, group.policy_state
    if index is None or member.member_id in policy_state.quarantined:
        return
    if member.member_id not in policy_state.standbys:
        index.owners[match_key_of(group, member).subscription_digest] += 1
    elif member.member_id not in policy_state.offers:
        index.standbys.add(member.member_id, match_key_of(group, member))


def unindex_member(group: Group, member: Member) -> None:
    """Remove what `index_member` has added for a member."""
    index, policy_state = group.vacancy_index, group.policy_state
    if index is None or member.member_id in policy_state.quarantined:
        return
    if member.member_id not in policy_state.standbys:
        index.owners[match_key_of(group, member).subscription_digest] -= 1
    else:
        index.standbys.remove(member.member_id, match_key_of(group, member))


def index_vacancy(group: Group, key: str) -> None:
    """Add a vacancy: as free if it is, and as an assignment that somebody may wait for."""
    index, vacancy = group.vacancy_index, group.policy_state.vacant[key]
    if index is not None:
        index.owners[vacancy.subscription_digest] += 1
        if vacancy.is_free:
            index.vacancies.add(key, vacancy.match_key)


def unindex_vacancy(group: Group, key: str) -> None:
    """Remove what `index_vacancy` has added."""
    index, vacancy = group.vacancy_index, group.policy_state.vacant[key]
    if index is not None:
        index.owners[vacancy.subscription_digest] -= 1
        index.vacancies.remove(key, vacancy.match_key)


def arm(group: Group, deadline_ms: int) -> int:
    """Note that a pending hold, an offer or a quarantine ends at a time, and return the time."""
    group.hot_state.policy_ms = min(group.hot_state.policy_ms, group.hot_state.track_deadline(deadline_ms))
    return deadline_ms


def rounded(deadline_ms: int) -> int:
    """Return a deadline at which others fire as well, at most `POLICY_CHANGES_EVERY_MS` earlier."""
    return deadline_ms // POLICY_CHANGES_EVERY_MS * POLICY_CHANGES_EVERY_MS


# -- offers ------------------------------------------------------------------------------------------------------------


def offer(group: Group, key: str, member: Member, how: str, now_ms: int) -> None:
    """Offer a vacancy to a member. If it has an offer already, it may have both."""
    policy_state = group.policy_state
    unindex_vacancy(group, key)
    unindex_member(group, member)
    policy_state.vacant[key].offered_to = member.member_id
    if (present := policy_state.offers.get(member.member_id)) is not None:
        present.vacancies.append(key)
        present.how = "adopted"
    else:
        until_ms = rounded(group.hot_state.wait(now_ms, SEAT_OFFER_MS))
        policy_state.offers[member.member_id] = Offer([key], how, arm(group, until_ms))
    index_member(group, member)
    index_vacancy(group, key)


def call(group: Group, member: Member) -> Iterator[Output]:
    """Make a member join again, alone."""
    if member.member_id in group.hot_state.called:
        return
    group.hot_state.called[member.member_id] = None
    notice = RebalanceNotice(
        request_id=None, group_id=group.group_id, generation_id=group.generation_id, member_id=member.member_id
    )
    yield Reply(member.reply_to, notice)


def offer_to_standby(group: Group, key: str, now_ms: int) -> Iterator[Output]:
    """Offer a free vacancy to the standby that fits best, if there is one."""
    vacancy = group.policy_state.vacant[key]
    member_id = index_of(group).standbys.first(vacancy.match_key) if vacancy.is_free else None
    if member_id is not None:
        member = group.members[member_id]
        offer(group, key, member, "passed", now_ms)
        yield from call(group, member)


def withdraw(group: Group, member: Member) -> list[str]:
    """End the offer of a member, and return the vacancies, which are free again and come last.

    A pending hold whose deadline has passed during the offer is due now.
    """
    policy_state, now_ms = group.policy_state, group.hot_state.now_ms
    group.hot_state.called.pop(member.member_id, None)
    offered = policy_state.offers.get(member.member_id)
    for key in offered.vacancies if offered is not None else ():
        unindex_vacancy(group, key)
    keys = policy_state.take_back(member.member_id)
    standby = policy_state.standbys.get(member.member_id)
    for hold in (*(policy_state.vacant[key] for key in keys), *(() if standby is None else (standby,))):
        hold.until_ms = max(hold.until_ms, now_ms)
        arm(group, max(policy_state.due_ms(hold), now_ms))
    if policy_state.settle_timer is not None:
        policy_state.settle_timer.until_ms = max(policy_state.settle_timer.until_ms, now_ms)
    for key in keys:
        index_vacancy(group, key)
    return keys


# -- joins and syncs of members with an offer --------------------------------------------------------------------------


def rejoin(group: Group, member: Member, request: JoinGroup, now_ms: int, config: Config) -> Rejoin:
    """Return how to handle a join of a known member: its seat decides before the table of `decisions`.

    A member in quarantine may change what it subscribes to, because nobody assigns it anything.
    """
    is_leader, is_hidden = member.member_id == group.leader_id, member.member_id in group.policy_state.quarantined
    if (
        is_hidden
        and group.phase is not Phase.PREPARING
        and any(p.name == group.protocol_name for p in request.protocols)
    ):
        return Rejoin.SEAT
    if is_seatable(group, config) and _asks_as_before(group, member, request):
        is_frozen_leader = is_leader and frozen_until_ms(config, now_ms) is not None
        if is_seated_by_joining(group, member) or is_frozen_leader or member.member_id in group.policy_state.declined:
            return Rejoin.SEAT
    return decisions.rejoin(group.phase, is_leader=is_leader, same_protocols=member.protocols == request.protocols)


def is_seated_by_joining(group: Group, member: Member) -> bool:
    """Return whether a join seats a member: it has an offer, or it leads and was not told so."""
    is_untold = group.policy_state.leader_vacancy is not None and group.leader_id == member.member_id
    return is_untold or member.member_id in group.policy_state.offers


def restart(group: Group, old: Member, new: Member, session: Session) -> None:
    """Replace a static member by its new process, which has the same standing. Another subscription ends its offer.

    A newcomer that has lost its offer so waits for nothing any more, and rebalances.
    """
    unindex_member(group, old)
    subscription_digest = digest_of(group.protocol_type or "", new.protocols)
    offered = group.policy_state.offers.get(old.member_id)
    has_lost = offered is not None and subscription_digest != match_key_of(group, old).subscription_digest
    group.replace(old, new, session)
    if has_lost:
        withdraw(group, new)
    if (standby := group.policy_state.standbys.get(new.member_id)) is not None:
        standby.subscription_digest = subscription_digest
    elif has_lost and offered is not None and offered.how == "took":
        now_ms = arm(group, group.hot_state.now_ms)
        group.policy_state.standbys[new.member_id] = Standby(now_ms, now_ms, "succession", 0, subscription_digest)
    index_member(group, new)


def _asks_as_before(group: Group, member: Member, request: JoinGroup) -> bool:
    protocol_type = group.protocol_type or ""
    return digest_of(protocol_type, request.protocols) == digest_of(protocol_type, member.protocols)


def record_join(group: Group, member: Member, request_ref: Parked) -> bool:
    """Note that a member has joined in the running generation. Return whether this is no repeat of its latest join.

    It leads from now on if it was offered the seat of the leader. A leader that joins so is told that it leads, and its
    assignments are awaited.
    """
    policy_state, checksum = group.policy_state, checksum_of(request_ref.request_id, request_ref.reply_to)
    answered = policy_state.answered.setdefault(member.member_id, Answered())
    if answered.join == checksum:
        return False
    answered.join = checksum
    group.hot_state.called.pop(member.member_id, None)
    if (offered := policy_state.offers.get(member.member_id)) is not None:
        offered.has_joined = True
        if policy_state.leader_vacancy in offered.vacancies:
            group.leader_id = member.member_id
    if group.leader_id == member.member_id:
        policy_state.leader_vacancy, policy_state.awaits_plan = None, True
    return True


def record_call(group: Group, member: Member) -> None:
    """Note that a response tells a member that it leads, although the leader's seat is vacant: it leads from now on."""
    if group.policy_state.leader_vacancy is not None and group.leader_id == member.member_id:
        group.policy_state.leader_vacancy, group.policy_state.awaits_plan = None, True


def may_lead(group: Group, member_id: str) -> bool:
    """Return whether a member or a newcomer may be told that it leads, because the leader's seat is vacant."""
    vacancy = (
        None
        if group.policy_state.leader_vacancy is None
        else group.policy_state.vacant[group.policy_state.leader_vacancy]
    )
    return vacancy is not None and vacancy.offered_to in ("", member_id)


def take_vacancy(group: Group, member: Member, request_ref: Parked, now_ms: int, config: Config) -> Iterator[Output]:
    """Assign a member the vacancies that it was offered, if it has joined since, under a new fencing token.

    Args:
        request_ref: The member's sync. A repeat of its latest sync takes nothing.
    """
    offered, answered = (
        group.policy_state.offers.get(member.member_id),
        group.policy_state.answered.get(member.member_id),
    )
    is_repeat = answered is not None and answered.sync == checksum_of(request_ref.request_id, request_ref.reply_to)
    record_sync(group, member.member_id, request_ref)
    if offered is None or not offered.has_joined or is_repeat:
        return
    unindex_member(group, member)
    del group.policy_state.offers[member.member_id]
    group.hot_state.called.pop(member.member_id, None)
    group.policy_state.remove_standby(member.member_id)
    group.policy_state.declined.pop(member.member_id, None)
    index_member(group, member)
    for key in offered.vacancies:
        unindex_vacancy(group, key)
    vacancies = [group.policy_state.vacant.pop(key) for key in offered.vacancies]
    _assign(group, member, [vacancy.assignment for vacancy in vacancies], offered.how)
    member.fencing_token = group.next_token(now_ms, config.fencing_token_floor)
    for vacancy in vacancies:
        group.policy_state.clear(vacancy)
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
    group.is_policy_state_changed = True


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
