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
from coordinator.base.policies import Policy
from coordinator.base.states import Phase
from coordinator.classic.offers import arm, call, offer
from coordinator.classic.offers import note_join as note_seated_join
from coordinator.classic.rebalance import prepare
from coordinator.classic.vacancies import index_of, kin_of, put_in
from coordinator.common.events import blame, member_event
from coordinator.messages.events import MemberJoined
from coordinator.messages.outputs import Output
from coordinator.messages.policy_events import MemberQuarantined, RebalanceHeld
from coordinator.messages.requests import JoinGroup
from coordinator.policies.instability import flapper_in_quarantine, note_join
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
from coordinator.state.policy_state import NO_PARTITIONS, Kin, Quiet, Standby


class Becomes(Enum):
    """What becomes of a newcomer."""

    AS_EVER = auto()  # its join waits, and all members must rejoin
    HIDDEN = auto()  # in quarantine: no partitions until that ends
    TAKER = auto()  # a vacancy is offered to it
    STANDBY = auto()  # no partitions until a vacancy is offered to it, or a rebalance begins


class Coming(NamedTuple):
    """A newcomer: a new member, or one whose quarantine has ended; and the policy entry in force."""

    group: Group
    member: Member
    kin: Kin
    now_ms: int
    policy: Policy
    config: Config


# -- conditions --------------------------------------------------------------------------------------------------------


def is_quarantined_and_others_own(coming: Coming) -> bool:
    """Return whether a newcomer has to be in quarantine, and there is room for it: other members own partitions."""
    group, quarantine = coming.group, coming.policy.quarantine
    fits = group.phase is Phase.PREPARING or _offers_its_assignor(coming)
    if quarantine is None or not (fits and has_plain_assignments(group, coming.config)):
        return False
    if flapper_in_quarantine(group, coming.member, coming.now_ms) is None:
        return False
    most = max(quarantine.percent_max * (len(group.members) + 1) // 100, 1)
    others = (m for m in group.visible if m is not coming.member)
    return len(group.seats.hidden) < most and any(map(owns_partitions, others))


def is_not_seatable(coming: Coming) -> bool:
    """Return whether the group's rebalances are not held, or the newcomer does not offer the group's assignor."""
    return not (_offers_its_assignor(coming) and is_seatable(coming.group, coming.config))


def _offers_its_assignor(coming: Coming) -> bool:
    return any(p.name == coming.group.protocol_name for p in coming.member.protocols)


def finds_a_vacancy_like_it(coming: Coming) -> bool:
    """Return whether a vacancy that the newcomer may take is free."""
    passes = coming.policy.succession is not None or comes_in_a_freeze(coming)
    return passes and index_of(coming.group).vacancies.first(coming.kin) is not None


def comes_in_a_freeze(coming: Coming) -> bool:
    return frozen_until_ms(coming.config, coming.now_ms) is not None


def has_succession_and_is_like_one(coming: Coming) -> bool:
    """Return whether the newcomer may wait for a seat, because some member has one that it could take."""
    succession = coming.policy.succession
    if succession is None or not succession.standby_ms:
        return False
    return index_of(coming.group).owners[coming.kin.likeness] > 0


def has_settle(coming: Coming) -> bool:
    return coming.policy.settle is not None and coming.policy.settle.join_quiet_ms > 0


def anybody(coming: Coming) -> bool:
    return True


NEWCOMER: tuple[tuple[Callable[[Coming], bool], Becomes, str], ...] = (
    # a newcomer that ...              becomes          by the policy
    (is_quarantined_and_others_own,    Becomes.HIDDEN,  "quarantine"),
    (is_not_seatable,                  Becomes.AS_EVER, ""),
    (finds_a_vacancy_like_it,          Becomes.TAKER,   "succession"),
    (comes_in_a_freeze,                Becomes.STANDBY, "freeze"),
    (has_succession_and_is_like_one,   Becomes.STANDBY, "succession"),
    (has_settle,                       Becomes.STANDBY, "settle"),
    (anybody,                          Becomes.AS_EVER, ""),
)  # fmt: skip


def becomes(coming: Coming) -> tuple[Becomes, str]:
    """Return what becomes of a newcomer, and by which policy."""
    return next((then, policy) for fits, then, policy in NEWCOMER if fits(coming))


def coming(group: Group, member: Member, now_ms: int, config: Config) -> Coming | None:
    """Return a newcomer for the table; None if no policy is in force, or if it may not be seated in this generation.

    A repeat of a first join brings back the member id of a member that is gone. In the same generation, the former
    process could commit under that id, so this one needs another generation. So does the newcomer beyond the number of
    members that one generation remembers.
    """
    answered = group.seats.answered
    is_barred = member.member_id in answered or len(answered) >= SEATED_MAX
    if config.policy is None or (is_barred and group.phase is not Phase.PREPARING):
        return None
    return _coming(group, member, now_ms, config, config.policy)


def _coming(group: Group, member: Member, now_ms: int, config: Config, policy: Policy) -> Coming:
    return Coming(group, member, kin_of(group, member), now_ms, policy, config)


# -- what follows ------------------------------------------------------------------------------------------------------


def seat(new: Coming, request: JoinGroup, asked: Parked, then: Becomes, policy: str) -> Iterator[Output]:
    """Add a newcomer to the running generation, without partitions. The caller answers its join."""
    group, member, now_ms = new.group, new.member, new.now_ms
    member.is_new, member.assignment, member.fencing_token = False, NO_PARTITIONS, group.token
    session = Session(NEVER_MS, request.session_timeout_ms)
    group.add(member, session, request.protocol_type)
    group.vitals.renew(session, now_ms)
    group.assigned_bytes += len(NO_PARTITIONS)
    group.subscribe_too(subscribed_topics(member.metadata(group.protocol_name)) if group.is_readable else None)
    note_join(group, member.member_id, now_ms, new.config)
    yield member_event(MemberJoined, group, member, now_ms, reason=request.reason)
    yield from PLACES[then](new, policy, request.reason)
    note_seated_join(group, member, asked)


def hide(new: Coming, policy: str, reason: str | None) -> Iterator[Output]:
    """Keep a newcomer in quarantine."""
    group, member, now_ms = new.group, new.member, new.now_ms
    flapper = flapper_in_quarantine(group, member, now_ms)
    assert flapper is not None, "its row says so"
    group.seats.hidden[member.member_id] = arm(group, flapper.until_ms)
    group.are_seats_news = True
    yield member_event(
        MemberQuarantined,
        group,
        member,
        now_ms,
        identity=member.identity,
        flaps=len(flapper.times_ms),
        times=flapper.count,
        until_ms=flapper.until_ms,
    )


def _offer(new: Coming, policy: str, reason: str | None) -> Iterator[Output]:
    """Offer a newcomer the vacancy that fits best."""
    group, member, now_ms = new.group, new.member, new.now_ms
    put_in(group, member)
    key = index_of(group).vacancies.first(new.kin)
    assert key is not None, "its row says so"
    offer(group, key, member, "took", now_ms)
    yield from ()


def _stand_by(new: Coming, policy: str, reason: str | None) -> Iterator[Output]:
    """Make a newcomer wait, as a debt."""
    group, member, now_ms = new.group, new.member, new.now_ms
    until_ms, wait_ms = _until_ms(new, policy)
    group.seats.standbys[member.member_id] = Standby(now_ms, until_ms, policy, wait_ms, new.kin.likeness, reason)
    put_in(group, member)
    group.are_seats_news = True
    if policy == "freeze":
        yield from begin_freeze(group, now_ms, new.config)
    yield member_event(RebalanceHeld, group, member, now_ms, policy=policy, cause="member_joined", until_ms=until_ms)


def _rebalance(new: Coming, policy: str, reason: str | None) -> Iterator[Output]:
    """Start a rebalance because of a member that was in quarantine."""
    group, member, now_ms = new.group, new.member, new.now_ms
    put_in(group, member)
    yield from prepare(group, blame(member, "member_joined", reason), now_ms, new.config)


PLACES: dict[Becomes, Callable[[Coming, str, str | None], Iterator[Output]]] = {
    Becomes.AS_EVER: _rebalance,
    Becomes.HIDDEN: hide,
    Becomes.TAKER: _offer,
    Becomes.STANDBY: _stand_by,
}


def _until_ms(new: Coming, policy: str) -> tuple[int, int]:
    """Return the time at which the debt of a newcomer is due, noted as a deadline, and how long it waits."""
    group, policies, now_ms = new.group, new.policy, new.now_ms
    if policy == "freeze":
        frozen_ms = frozen_until_ms(new.config, now_ms)
        assert frozen_ms is not None, "its row says so"
        return arm(group, frozen_ms), 0
    if policy == "succession":
        assert policies.succession is not None, "its row says so"
        wait_ms = policies.succession.standby_ms
        return arm(group, group.vitals.wait(now_ms, wait_ms)), wait_ms
    assert policies.settle is not None, "its row says so"
    wait_ms = policies.settle.join_quiet_ms
    return wait_for_quiet(group, wait_ms, policies.settle.max_ms, now_ms), wait_ms


def wait_for_quiet(group: Group, quiet_ms: int, max_ms: int, now_ms: int) -> int:
    """Add a debt to the clock of settle, and return the time at which the rebalance begins now."""
    until_ms, seats = group.vitals.wait(now_ms, quiet_ms), group.seats
    if seats.quiet is None:
        seats.quiet = Quiet(now_ms, until_ms, quiet_ms)
    seats.quiet.wait_ms = quiet_ms
    longest_ms = max(seats.quiet.first_ms + max_ms, now_ms)  # the earlier debts may wait for their offers
    seats.quiet.until_ms = max(seats.quiet.until_ms, min(until_ms, longest_ms))
    seats.quiet.debts += 1
    return arm(group, seats.quiet.until_ms)


# -- the end of a quarantine -------------------------------------------------------------------------------------------


def release(group: Group, member: Member, why: str, now_ms: int, config: Config) -> Iterator[Output]:
    """End the quarantine of a member. It gets the place of a newcomer; while joins are collected it has one."""
    if group.phase is Phase.STABLE:
        index_of(group)  # made without the member, which gets its place below
    yield end_quarantine(group, member, why, now_ms)
    if group.phase is Phase.PREPARING:
        return
    if config.policy is None or group.phase is not Phase.STABLE:
        yield from prepare(group, blame(member, "member_joined"), now_ms, config)
        return
    new = _coming(group, member, now_ms, config, config.policy)
    then, policy = becomes(new)
    yield from PLACES[then](new, policy, None)
    if then is Becomes.TAKER:
        group.seats.offers[member.member_id].how = "passed"
        yield from call(group, member)
