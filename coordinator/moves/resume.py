"""Times and addresses of a group that is served again after a move, at its target or at its source (moving.md 2.5)."""

from coordinator.base.config import Config
from coordinator.base.limits import NEVER_MS
from coordinator.state.classic_group import Group, Member, Parked
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.policy_state import Vacancy

NO_ADDRESS = ""
"""The mailbox of requests and members whose real mailbox is at another coordinator. Nothing is written to it."""


def remove_addresses(group: Group | ConsumerGroup) -> None:
    """Remove the mailboxes of all members and of their parked requests, which stay parked."""
    for member in group.members.values():
        member.reply_to = NO_ADDRESS
        if isinstance(member, Member):
            member.awaiting_join = _without_address(member.awaiting_join)
            member.awaiting_sync = _without_address(member.awaiting_sync)


def _without_address(parked: Parked | None) -> Parked | None:
    return None if parked is None else Parked(parked.request_id, NO_ADDRESS)


def lacks_addresses(group: Group | ConsumerGroup) -> bool:
    """Return whether the mailbox of a member is missing."""
    return any(member.reply_to == NO_ADDRESS for member in group.members.values())


def resume(group: Group | ConsumerGroup, at_ms: int, noticed_ms: int, config: Config) -> None:
    """Continue a group's time from `at_ms`, or from its own time if that is later.

    Sessions start again, and other waits have the time that was left at the release. `earliest_ms` becomes the group's
    time, so the shard looks at all deadlines.

    Args:
        at_ms: The time of the record with which the group is served again.
        noticed_ms: The coordinator's present time, which may be much later.
    """
    vitals, released_ms = group.vitals, group.vitals.now_ms
    vitals.now_ms = max(vitals.now_ms, at_ms)
    vitals.back_ms = 0
    vitals.note_lateness(noticed_ms, config.late_notice_ms)
    passed_ms = max(vitals.now_ms, vitals.back_ms) - released_ms
    if isinstance(group, ConsumerGroup):
        _resume_consumers(group, passed_ms)
    else:
        _resume_classic(group, passed_ms)
    _resume_seats(group, passed_ms)
    vitals.seats_ms = group.seats.earliest_ms
    vitals.publish_ms = _later(vitals.publish_ms, passed_ms)
    vitals.offsets_ms = max(vitals.offsets_ms, vitals.now_ms)
    vitals.earliest_ms = vitals.now_ms


def _later(deadline_ms: int, passed_ms: int) -> int:
    """Return a deadline with the time that was left at the release; one that is not armed stays so."""
    return deadline_ms if deadline_ms >= NEVER_MS else deadline_ms + passed_ms


def _resume_classic(group: Group, passed_ms: int) -> None:
    vitals = group.vitals
    for member_id, session in vitals.sessions.items():
        member = group.members[member_id]
        if member.is_new and member.awaiting_join:
            session.deadline_ms = _later(session.deadline_ms, passed_ms)
        elif session.deadline_ms < NEVER_MS:
            vitals.renew(session, vitals.now_ms)
    for session in vitals.pending.values():
        vitals.renew(session, vitals.now_ms)
    vitals.joins_ms, vitals.syncs_ms = _later(vitals.joins_ms, passed_ms), _later(vitals.syncs_ms, passed_ms)


def _resume_consumers(group: ConsumerGroup, passed_ms: int) -> None:
    vitals = group.vitals
    for waits in (vitals.sessions, vitals.revocations, vitals.joins, vitals.syncs):
        for session in waits.values():
            vitals.renew(session, vitals.now_ms)
    held = group.held
    if held is not None:
        if held.policy == "settle":
            held.until_ms = _later(held.until_ms, passed_ms)
        held.unowned_until_ms = _later(held.unowned_until_ms, passed_ms)
        vitals.plan_ms = held.due_ms
    else:
        vitals.plan_ms = _later(vitals.plan_ms, passed_ms)


def _resume_seats(group: Group | ConsumerGroup, passed_ms: int) -> None:
    """Move debts, offers and quarantines to the time that was left. A newcomer in a freeze waits for its end."""
    seats = group.seats
    for debt in seats.debts:
        if debt.policy != "freeze" or isinstance(debt, Vacancy):
            debt.until_ms = _later(debt.until_ms, passed_ms)
    for offer in seats.offers.values():
        offer.until_ms += passed_ms
    if seats.quiet is not None:
        seats.quiet.until_ms += passed_ms
    for member_id, until_ms in seats.hidden.items():
        seats.hidden[member_id] = until_ms + passed_ms
    for flapper in seats.flappers.values():
        flapper.until_ms += passed_ms if flapper.until_ms else 0
