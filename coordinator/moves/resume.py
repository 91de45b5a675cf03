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
    hot_state, released_ms = group.hot_state, group.hot_state.now_ms
    hot_state.now_ms = max(hot_state.now_ms, at_ms)
    hot_state.back_ms = 0
    hot_state.record_lateness(noticed_ms, config.late_notice_ms)
    passed_ms = max(hot_state.now_ms, hot_state.back_ms) - released_ms
    if isinstance(group, ConsumerGroup):
        _resume_consumers(group, passed_ms)
    else:
        _resume_classic(group, passed_ms)
    _resume_policy_state(group, passed_ms)
    hot_state.policy_ms = group.policy_state.earliest_ms
    hot_state.publish_ms = _later(hot_state.publish_ms, passed_ms)
    hot_state.offsets_ms = max(hot_state.offsets_ms, hot_state.now_ms)
    hot_state.earliest_ms = hot_state.now_ms


def _later(deadline_ms: int, passed_ms: int) -> int:
    """Return a deadline with the time that was left at the release; one that is not armed stays so."""
    return deadline_ms if deadline_ms >= NEVER_MS else deadline_ms + passed_ms


def _resume_classic(group: Group, passed_ms: int) -> None:
    hot_state = group.hot_state
    for member_id, session in hot_state.sessions.items():
        member = group.members[member_id]
        if member.is_new and member.awaiting_join:
            session.deadline_ms = _later(session.deadline_ms, passed_ms)
        elif session.deadline_ms < NEVER_MS:
            hot_state.renew(session, hot_state.now_ms)
    for session in hot_state.pending.values():
        hot_state.renew(session, hot_state.now_ms)
    hot_state.joins_ms, hot_state.syncs_ms = (
        _later(hot_state.joins_ms, passed_ms),
        _later(hot_state.syncs_ms, passed_ms),
    )


def _resume_consumers(group: ConsumerGroup, passed_ms: int) -> None:
    hot_state = group.hot_state
    for waits in (hot_state.sessions, hot_state.revocations, hot_state.joins, hot_state.syncs):
        for session in waits.values():
            hot_state.renew(session, hot_state.now_ms)
    held = group.held
    if held is not None:
        if held.policy == "settle":
            held.until_ms = _later(held.until_ms, passed_ms)
        held.unowned_until_ms = _later(held.unowned_until_ms, passed_ms)
        hot_state.plan_ms = held.due_ms
    else:
        hot_state.plan_ms = _later(hot_state.plan_ms, passed_ms)


def _resume_policy_state(group: Group | ConsumerGroup, passed_ms: int) -> None:
    """Move pending holds, offers and quarantines to the time that was left. A newcomer waits for a freeze to end."""
    policy_state = group.policy_state
    for hold in policy_state.pending_holds:
        if hold.policy != "freeze" or isinstance(hold, Vacancy):
            hold.until_ms = _later(hold.until_ms, passed_ms)
    for offer in policy_state.offers.values():
        offer.until_ms += passed_ms
    if policy_state.settle_timer is not None:
        policy_state.settle_timer.until_ms += passed_ms
    for member_id, until_ms in policy_state.quarantined.items():
        policy_state.quarantined[member_id] = until_ms + passed_ms
    for client in policy_state.unstable_clients.values():
        client.until_ms += passed_ms if client.until_ms else 0
