"""What becomes of a newcomer in a Stable group: `NEWCOMER` decides, the first row that fits.

Whoever is seated is answered at once, with the running generation. It has its session timeout from this response on,
and owes no sync: a member that never syncs never has partitions.
"""

from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import subscribed_topics
from coordinator.base.limits import NEVER_MS, SEATED_MAX
from coordinator.base.policies import NO_SETTLE, NO_SUCCESSION, Policy
from coordinator.base.states import Phase
from coordinator.classic.offers import arm, call, index_member, index_of, match_key_of, offer
from coordinator.classic.offers import record_join as record_seated_join
from coordinator.classic.rebalance import prepare
from coordinator.common.events import member_cause, member_event
from coordinator.messages.events import MemberJoined
from coordinator.messages.outputs import Output
from coordinator.messages.policy_events import MemberQuarantined, RebalanceHeld
from coordinator.messages.requests import JoinGroup
from coordinator.policies.instability import record_join, unstable_client_in_quarantine
from coordinator.policies.rules import (
    begin_freeze,
    end_quarantine,
    frozen_until_ms,
    has_plain_assignments,
    is_seatable,
    owns_partitions,
)
from coordinator.state.classic_group import Group, Member, Parked
from coordinator.state.group import Session
from coordinator.state.policy_state import NO_PARTITIONS, MatchKey, SettleTimer, Standby


class JoinOutcome(Enum):
    """What becomes of a newcomer."""

    REBALANCE = auto()  # its join waits, and all members must rejoin
    QUARANTINED = auto()  # in quarantine: no partitions until that ends
    TAKES_VACANCY = auto()  # a vacancy is offered to it
    STANDBY = auto()  # no partitions until a vacancy is offered to it, or a rebalance begins


class NewMember(NamedTuple):
    """A newcomer: a new member, or one whose quarantine has ended; and the policy entry in force."""

    group: Group
    member: Member
    match_key: MatchKey
    now_ms: int
    policy: Policy
    config: Config


# -- conditions --------------------------------------------------------------------------------------------------------


def is_quarantined_and_others_own(new: NewMember) -> bool:
    """Return whether a newcomer has to be in quarantine, and there is room for it: other members own partitions."""
    group, quarantine = new.group, new.policy.quarantine
    fits = group.phase is Phase.PREPARING or _offers_its_assignor(new)
    if quarantine is None or not (fits and has_plain_assignments(group, new.config)):
        return False
    if unstable_client_in_quarantine(group, new.member, new.now_ms) is None:
        return False
    most = max(quarantine.percent_max * (len(group.members) + 1) // 100, 1)
    others = (m for m in group.visible if m is not new.member)
    return len(group.policy_state.quarantined) < most and any(map(owns_partitions, others))


def is_not_seatable(new: NewMember) -> bool:
    """Return whether the group's rebalances are not held, or the newcomer does not offer the group's assignor."""
    return not (_offers_its_assignor(new) and is_seatable(new.group, new.config))


def _offers_its_assignor(new: NewMember) -> bool:
    return any(p.name == new.group.protocol_name for p in new.member.protocols)


def finds_a_vacancy_like_it(new: NewMember) -> bool:
    """Return whether a vacancy that the newcomer may take is free."""
    passes = new.policy.succession is not None or comes_in_a_freeze(new)
    return passes and index_of(new.group).vacancies.first(new.match_key) is not None


def comes_in_a_freeze(new: NewMember) -> bool:
    return frozen_until_ms(new.config, new.now_ms) is not None


def has_succession_and_is_like_one(new: NewMember) -> bool:
    """Return whether the newcomer may wait for a seat, because some member has one that it could take."""
    may_wait = (new.policy.succession or NO_SUCCESSION).standby_ms > 0
    return may_wait and index_of(new.group).owners[new.match_key.subscription_digest] > 0


def has_settle(new: NewMember) -> bool:
    return (new.policy.settle or NO_SETTLE).join_quiet_ms > 0


def anybody(new: NewMember) -> bool:
    return True


NEWCOMER: tuple[tuple[Callable[[NewMember], bool], JoinOutcome, str], ...] = (
    # a newcomer that ...              becomes                    by the policy
    (is_quarantined_and_others_own,    JoinOutcome.QUARANTINED,   "quarantine"),
    (is_not_seatable,                  JoinOutcome.REBALANCE,     ""),
    (finds_a_vacancy_like_it,          JoinOutcome.TAKES_VACANCY, "succession"),
    (comes_in_a_freeze,                JoinOutcome.STANDBY,       "freeze"),
    (has_succession_and_is_like_one,   JoinOutcome.STANDBY,       "succession"),
    (has_settle,                       JoinOutcome.STANDBY,       "settle"),
    (anybody,                          JoinOutcome.REBALANCE,     ""),
)  # fmt: skip


def join_outcome(new: NewMember) -> tuple[JoinOutcome, str]:
    """Return what becomes of a newcomer, and by which policy."""
    return next((then, policy) for fits, then, policy in NEWCOMER if fits(new))


def new_member(group: Group, member: Member, now_ms: int, config: Config) -> NewMember | None:
    """Return a newcomer for the table; None if no policy is in force, or if it may not be seated in this generation.

    A repeat of a first join brings back the member id of a member that is gone. In the same generation, the former
    process could commit under that id, so this one needs another generation. So does the newcomer beyond the number of
    members that one generation remembers.
    """
    answered = group.policy_state.answered
    is_barred = member.member_id in answered or len(answered) >= SEATED_MAX
    if config.policy is None or (is_barred and group.phase is not Phase.PREPARING):
        return None
    return _new_member(group, member, now_ms, config, config.policy)


def _new_member(group: Group, member: Member, now_ms: int, config: Config, policy: Policy) -> NewMember:
    return NewMember(group, member, match_key_of(group, member), now_ms, policy, config)


# -- what follows ------------------------------------------------------------------------------------------------------


def seat(new: NewMember, request: JoinGroup, request_ref: Parked, then: JoinOutcome, policy: str) -> Iterator[Output]:
    """Add a newcomer to the running generation, without partitions. The caller answers its join."""
    group, member, now_ms = new.group, new.member, new.now_ms
    member.is_new, member.assignment, member.fencing_token = False, NO_PARTITIONS, group.token
    session = Session(NEVER_MS, request.session_timeout_ms)
    group.add(member, session, request.protocol_type)
    group.hot_state.renew(session, now_ms)
    group.assigned_bytes += len(NO_PARTITIONS)
    group.subscribe_too(subscribed_topics(member.metadata(group.protocol_name)) if group.is_readable else None)
    record_join(group, member.member_id, now_ms, new.config)
    yield member_event(MemberJoined, group, member, now_ms, reason=request.reason)
    yield from PLACEMENTS[then](new, policy, request.reason)
    record_seated_join(group, member, request_ref)


def quarantine(new: NewMember, policy: str, reason: str | None) -> Iterator[Output]:
    """Keep a newcomer in quarantine."""
    group, member, now_ms = new.group, new.member, new.now_ms
    client = unstable_client_in_quarantine(group, member, now_ms)
    assert client is not None, "only an unstable client comes into quarantine"
    group.policy_state.quarantined[member.member_id] = arm(group, client.until_ms)
    group.is_policy_state_changed = True
    yield member_event(
        MemberQuarantined,
        group,
        member,
        now_ms,
        identity=member.identity,
        flaps=len(client.times_ms),
        times=client.count,
        until_ms=client.until_ms,
    )


def _offer(new: NewMember, policy: str, reason: str | None) -> Iterator[Output]:
    """Offer a newcomer the vacancy that fits best."""
    group, member, now_ms = new.group, new.member, new.now_ms
    index_member(group, member)
    key = index_of(group).vacancies.first(new.match_key)
    assert key is not None, "a free vacancy was found for the newcomer"
    offer(group, key, member, "took", now_ms)
    yield from ()


def _stand_by(new: NewMember, policy: str, reason: str | None) -> Iterator[Output]:
    """Make a newcomer wait, as a pending hold."""
    group, member, now_ms = new.group, new.member, new.now_ms
    until_ms, wait_ms = _until_ms(new, policy)
    group.policy_state.standbys[member.member_id] = Standby(
        now_ms, until_ms, policy, wait_ms, new.match_key.subscription_digest, reason
    )
    index_member(group, member)
    group.is_policy_state_changed = True
    if policy == "freeze":
        yield from begin_freeze(group, now_ms, new.config)
    yield member_event(RebalanceHeld, group, member, now_ms, policy=policy, cause="member_joined", until_ms=until_ms)


def _rebalance(new: NewMember, policy: str, reason: str | None) -> Iterator[Output]:
    """Start a rebalance because of a member that was in quarantine."""
    group, member, now_ms = new.group, new.member, new.now_ms
    index_member(group, member)
    yield from prepare(group, member_cause(member, "member_joined", reason), now_ms, new.config)


PLACEMENTS: dict[JoinOutcome, Callable[[NewMember, str, str | None], Iterator[Output]]] = {
    JoinOutcome.REBALANCE: _rebalance,
    JoinOutcome.QUARANTINED: quarantine,
    JoinOutcome.TAKES_VACANCY: _offer,
    JoinOutcome.STANDBY: _stand_by,
}


def _until_ms(new: NewMember, policy: str) -> tuple[int, int]:
    """Return the time at which the pending hold of a newcomer is due, noted as a deadline, and how long it waits."""
    group, policies, now_ms = new.group, new.policy, new.now_ms
    if policy == "freeze":
        return arm(group, frozen_until_ms(new.config, now_ms) or now_ms), 0
    if policy == "succession":
        wait_ms = (policies.succession or NO_SUCCESSION).standby_ms
        return arm(group, group.hot_state.wait(now_ms, wait_ms)), wait_ms
    settle = policies.settle or NO_SETTLE
    return wait_for_quiet(group, settle.join_quiet_ms, settle.max_ms, now_ms), settle.join_quiet_ms


def wait_for_quiet(group: Group, quiet_ms: int, max_ms: int, now_ms: int) -> int:
    """Add a pending hold to the clock of settle, and return the time at which the rebalance begins now."""
    until_ms, policy_state = group.hot_state.wait(now_ms, quiet_ms), group.policy_state
    if policy_state.settle_timer is None:
        policy_state.settle_timer = SettleTimer(now_ms, until_ms, quiet_ms)
    policy_state.settle_timer.wait_ms = quiet_ms
    longest_ms = max(
        policy_state.settle_timer.first_ms + max_ms, now_ms
    )  # the earlier pending holds may wait for their offers
    policy_state.settle_timer.until_ms = max(policy_state.settle_timer.until_ms, min(until_ms, longest_ms))
    policy_state.settle_timer.pending_holds += 1
    return arm(group, policy_state.settle_timer.until_ms)


# -- the end of a quarantine -------------------------------------------------------------------------------------------


def readmit(group: Group, member: Member, why: str, now_ms: int, config: Config) -> Iterator[Output]:
    """End the quarantine of a member. It gets the place of a newcomer; while joins are collected it has one."""
    if group.phase is Phase.STABLE:
        index_of(group)  # made without the member, which gets its place below
    yield end_quarantine(group, member, why, now_ms)
    if group.phase is Phase.PREPARING:
        return
    if config.policy is None or group.phase is not Phase.STABLE:
        yield from prepare(group, member_cause(member, "member_joined"), now_ms, config)
        return
    new = _new_member(group, member, now_ms, config, config.policy)
    then, policy = join_outcome(new)
    yield from PLACEMENTS[then](new, policy, None)
    if then is JoinOutcome.TAKES_VACANCY:
        group.policy_state.offers[member.member_id].how = "passed"
        yield from call(group, member)
