"""Whether policies may act in a group, and the parts of them that every change of a group has to know."""

from collections.abc import Iterator

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import assigned_partitions
from coordinator.base.states import Phase
from coordinator.common.events import RebalanceCause, event, member_event
from coordinator.messages.policy_events import FreezeBegun, FreezeBroken, QuarantineEnded
from coordinator.state.classic_group import Group, Member, Parked
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.policy_state import Answered, checksum_of

WHY_A_FREEZE_BREAKS = {
    # cause of the rebalance: reason of the broken freeze
    "operator": "operator",
    "session_expired": "unowned_too_long",
    "member_left": "unowned_too_long",
    "sync_overdue": "unowned_too_long",
    "partitions_added": "unowned_too_long",
}
"""The reason for which a rebalance begins in a freeze. For every other cause: metadata_changed."""


def has_plain_assignments(group: Group, config: Config) -> bool:
    """Return whether the group's assignments contain nothing but partitions, as far as its policy says."""
    return config.policy is not None and group.is_readable and group.protocol_name in config.policy.assignors


def may_be_held(group: Group, config: Config) -> bool:
    """Return whether a rebalance of the group may be held: it is Stable, and its assignments are complete."""
    return group.phase is Phase.STABLE and has_plain_assignments(group, config) and not group.policy_state.is_unfinished


def is_seatable(group: Group, config: Config) -> bool:
    """Return whether members may be seated in the running generation. They may not if a rebalance is about to begin."""
    return may_be_held(group, config) and group.round is None


def frozen_until_ms(config: Config, now_ms: int) -> int | None:
    """Return the end of the freeze that is in force; None if none is."""
    return config.policy.frozen_until_ms(now_ms) if config.policy is not None else None


def begin_freeze(group: Group | ConsumerGroup, now_ms: int, config: Config) -> Iterator[FreezeBegun]:
    """Report that a freeze holds a rebalance of the group, if this freeze has not been reported yet."""
    until_ms = frozen_until_ms(config, now_ms)
    if until_ms is not None and group.policy_state.frozen_until_ms != until_ms:
        group.policy_state.frozen_until_ms = until_ms
        group.hot_state.policy_ms = min(group.hot_state.policy_ms, group.hot_state.track_deadline(until_ms))
        yield event(FreezeBegun, group, now_ms, until_ms=until_ms)


def end_freeze(group: Group | ConsumerGroup, now_ms: int, config: Config) -> bool:
    """Remove the freeze that was reported, if none is in force under other policies. Return whether one was removed."""
    is_over = group.policy_state.frozen_until_ms > 0 and frozen_until_ms(config, now_ms) is None
    if is_over:
        group.policy_state.frozen_until_ms = 0
    return is_over


def unowned_max_ms(config: Config) -> int:
    """Return how long a partition may be without an owner in the freeze that is in force."""
    assert config.policy is not None, "a freeze is in force"
    assert config.policy.freeze is not None, "a freeze is in force"
    return config.policy.freeze.unowned_max_ms


def record_requests(group: Group, config: Config) -> None:
    """Store the parked joins of a generation that begins, to recognize their repeats, if a policy may seat members."""
    group.policy_state.answered = {}
    if has_plain_assignments(group, config):
        for member in group.members.values():
            if (parked := member.awaiting_join) is not None:
                group.policy_state.answered[member.member_id] = Answered(
                    checksum_of(parked.request_id, parked.reply_to)
                )


def record_repeated_join(group: Group, member_id: str, request_ref: Parked) -> None:
    """Store the join of a member that is answered as before, if its earlier join was stored.

    A called member that sends another join than before has done what it was called for. Its offer goes on.
    """
    answered, checksum = (
        group.policy_state.answered.get(member_id),
        checksum_of(request_ref.request_id, request_ref.reply_to),
    )
    if answered is None or answered.join != checksum:
        group.hot_state.called.pop(member_id, None)
    if answered is not None:
        answered.join = checksum


def record_sync(group: Group, member_id: str, request_ref: Parked) -> None:
    """Store the sync of a member, if its join was stored."""
    if (answered := group.policy_state.answered.get(member_id)) is not None:
        answered.sync = checksum_of(request_ref.request_id, request_ref.reply_to)


def owns_partitions(member: Member) -> bool:
    """Return whether a member's assignment has partitions, or cannot be read."""
    return assigned_partitions(member.assignment) != {}


def end_quarantine(group: Group, member: Member, why: str, now_ms: int) -> QuarantineEnded:
    """Make a member visible again. The caller then gives it the place of a newcomer."""
    del group.policy_state.quarantined[member.member_id]
    group.is_policy_state_changed = True
    return member_event(QuarantineEnded, group, member, now_ms, identity=member.identity, why=why)


def end_quarantine_of_the_last(group: Group, now_ms: int) -> Iterator[QuarantineEnded]:
    """End all quarantines if no other member is left, because nobody else could own the partitions."""
    if group.policy_state.quarantined and len(group.policy_state.quarantined) == len(group.members):
        for member in list(group.members.values()):
            yield end_quarantine(group, member, "nobody_else", now_ms)


def broken_freeze(group: Group, cause: RebalanceCause, now_ms: int, config: Config) -> Iterator[FreezeBroken]:
    """Report that a rebalance begins although the group is frozen."""
    until_ms = frozen_until_ms(config, now_ms)
    if until_ms is not None and group.members and may_be_held(group, config):
        yield event(
            FreezeBroken,
            group,
            now_ms,
            why=WHY_A_FREEZE_BREAKS.get(cause.name, "metadata_changed"),
            how="rebalanced",
            member_id=cause.member_id,
            client_id=cause.client_id,
            client_host=cause.client_host,
            until_ms=until_ms,
        )
