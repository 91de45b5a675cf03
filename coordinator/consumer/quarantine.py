"""Quarantines: a client whose memberships end too soon, too often, is planned without for a while.

A member in quarantine is a member like all others, and its target is empty. Neither its join nor its end raises the
group epoch, because nothing moves. `instability` counts the ends of memberships.
"""

from collections.abc import Iterator

from coordinator.base.config import Config
from coordinator.common.events import member_event
from coordinator.messages.policy_events import MemberQuarantined, QuarantineEnded
from coordinator.policies.instability import End, record_end, unstable_client_in_quarantine
from coordinator.state.consumer_group import AWAY_EPOCH, ConsumerGroup
from coordinator.state.consumer_member import ConsumerMember

ENDS = {"session_expired": End.EXPIRED, "expelled": End.REFUSED}
"""The ends of memberships by the reasons of removals; an operator's request does not count. All others are overdue."""


def record_removal(group: ConsumerGroup, member: ConsumerMember, why: str, now_ms: int, config: Config) -> None:
    """Count the end of a membership that the coordinator ends, before the member is removed.

    A static member that went away had left by itself.
    """
    is_away = group.epoch_of(member.member_id) == AWAY_EPOCH
    record_end(group, member, End.LEFT if is_away else ENDS.get(why, End.OVERDUE), now_ms, config)


def quarantine(
    group: ConsumerGroup, member: ConsumerMember, now_ms: int, config: Config
) -> Iterator[MemberQuarantined]:
    """Keep a newcomer in quarantine if its client has to be, and other members can have the partitions."""
    quarantine = config.policy.quarantine if config.policy is not None else None
    client = unstable_client_in_quarantine(group, member, now_ms) if quarantine is not None else None
    if quarantine is None or client is None:
        return
    most = max(quarantine.percent_max * len(group.members) // 100, 1)
    if len(group.policy_state.quarantined) >= most or not any(group.targets.values()) or _is_needed(group, member):
        return
    group.policy_state.quarantined[member.member_id] = group.hot_state.track_deadline(client.until_ms)
    group.hot_state.policy_ms = min(group.hot_state.policy_ms, client.until_ms)
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


def _is_needed(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether no other member that is visible subscribes to some topic of a member."""
    subscriptions = {(m.names, m.regex): m for m in group.visible if m is not member}
    covered = set[str]().union(*(group.names_of(m) for m in subscriptions.values()))
    return not subscriptions or not covered.issuperset(group.names_of(member))


def end_where_needed(group: ConsumerGroup, now_ms: int) -> Iterator[QuarantineEnded]:
    """End the quarantines of members without which nobody could own the partitions of some topic."""
    for member in [group.members[member_id] for member_id in group.policy_state.quarantined]:
        if _is_needed(group, member):
            yield end_quarantine(group, member, "nobody_else", now_ms)


def end_quarantine(group: ConsumerGroup, member: ConsumerMember, why: str, now_ms: int) -> QuarantineEnded:
    """End the quarantine of a member. The caller raises the group epoch."""
    del group.policy_state.quarantined[member.member_id]
    group.set_target(member.member_id, None)
    group.pending_changes.is_changed = True
    return member_event(QuarantineEnded, group, member, now_ms, identity=member.identity, why=why)
