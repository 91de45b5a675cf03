"""The checks of commits and fetches of a group of the consumer protocol.

The field `generation_id` of a request carries the member epoch. The instance id is not compared, and no commit renews a
session.

Source: Kafka's ConsumerGroup.validateOffsetCommit and validateOffsetFetch; KIP-848.
"""

from coordinator.base.config import Config
from coordinator.base.errors import ErrorCode
from coordinator.common.offsets import has_short_metadata
from coordinator.common.transactions import names_no_member
from coordinator.messages.requests import OffsetCommit, OffsetFetch, TxnOffsetCommit
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.consumer_member import ConsumerMember

MEMBER_EPOCHS_FROM = 9
"""The first version of OffsetCommit in which a member of the consumer protocol may commit."""


def may_commit(group: ConsumerGroup, request: OffsetCommit, config: Config) -> ErrorCode:
    """UNKNOWN_MEMBER_ID: the sender is no member, and the group has members.

    UNSUPPORTED_VERSION: the request is of a version that has no member epoch.
    STALE_MEMBER_EPOCH: the epoch is above the member's; or it is below, and the member was not given one of the
    partitions at that epoch or before. A classic member is answered ILLEGAL_GENERATION instead.
    """
    if request.generation_id < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and request.version < MEMBER_EPOCHS_FROM:
        return ErrorCode.UNSUPPORTED_VERSION
    epoch = group.epoch_of(member.member_id)
    if request.generation_id == epoch:
        return ErrorCode.NONE
    is_older = request.generation_id < epoch
    if is_older and _had_all(group, member, request, config):
        return ErrorCode.NONE
    return _stale(member)


def may_commit_in_transaction(group: ConsumerGroup, request: TxnOffsetCommit, config: Config) -> ErrorCode:
    """UNKNOWN_MEMBER_ID: the sender is no member, and the commit names one.

    STALE_MEMBER_EPOCH: as for other commits.
    """
    if request.generation_id < 0 and (not group.members or names_no_member(request)):
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    epoch = group.epoch_of(member.member_id)
    is_older = request.generation_id < epoch
    if request.generation_id == epoch or (is_older and _had_all(group, member, request, config)):
        return ErrorCode.NONE
    return _stale(member)


def _stale(member: ConsumerMember) -> ErrorCode:
    """Return the error for a wrong epoch, as the member's protocol names it."""
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _had_all(
    group: ConsumerGroup, member: ConsumerMember, request: OffsetCommit | TxnOffsetCommit, config: Config
) -> bool:
    """Return whether a member still has all partitions of a commit, and got them at the commit's epoch or before.

    A partition whose metadata is too long is refused alone, whatever its epoch, as in Kafka.
    """
    given_at: dict[tuple[str, int], int] = {}
    for partitions in (member.revoking, member.assigned):
        for topic_id, numbers in partitions.items():
            name = group.name_of(topic_id)
            given_at.update({(name, number): epoch for number, epoch in numbers.items()})
    never = request.generation_id + 1
    judged = (o for o in request.offsets if has_short_metadata(o, config))
    return all(given_at.get((o.topic, o.partition), never) <= request.generation_id for o in judged)


def may_fetch(group: ConsumerGroup, request: OffsetFetch, config: Config) -> ErrorCode:
    """UNKNOWN_MEMBER_ID: the sender is no member. STALE_MEMBER_EPOCH: the epoch is not the member's.

    A fetch without a member id and without an epoch passes.
    """
    if request.member_id is None and request.generation_id < 0:
        return ErrorCode.NONE
    if request.member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_current = request.generation_id == group.epoch_of(request.member_id)
    return ErrorCode.NONE if is_current else _stale(group.members[request.member_id])
