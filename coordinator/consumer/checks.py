"""The checks of requests of the consumer protocol, in their order.

A refused heartbeat changes nothing and does not renew the session. The docstring of each check begins with the error of
the response.

The field `generation_id` of a commit or a fetch carries the member epoch. The instance id is not compared, and no
commit renews a session.

Source: Kafka's GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid, GroupMetadataManager's
consumerGroupHeartbeat, getOrMaybeSubscribeStaticConsumerMember and throwIfConsumerGroupMemberEpochIsInvalid;
Kafka's ConsumerGroup.validateOffsetCommit and validateOffsetFetch; KIP-848.
"""

from collections.abc import Collection, Mapping
from itertools import chain

from coordinator.base.config import Config
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import (
    GROUP_RESOLUTIONS_BYTES_MAX,
    GROUP_SUBSCRIPTIONS_BYTES_MAX,
    OWNED_PARTITIONS_MAX,
    PATTERNS_MAX,
    PLANNED_PARTITIONS_MAX,
)
from coordinator.common.handler import GroupCheck
from coordinator.common.offsets import has_short_metadata
from coordinator.common.transactions import names_no_member
from coordinator.consumer import topics
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, GroupTopics
from coordinator.messages.requests import JoinGroup, OffsetCommit, OffsetFetch, TxnOffsetCommit
from coordinator.state.consumer_group import AWAY_EPOCH, ConsumerGroup
from coordinator.state.consumer_member import ConsumerMember, names_bytes, subscription_bytes

JOIN_EPOCH, LEAVE_EPOCH = 0, -1

BLANKS = "".join(map(chr, range(0x21)))
"""The characters that Java's `String.trim` removes."""


def is_blank(text: str) -> bool:
    """Return whether a text is empty, or only of characters that Java's `String.trim` removes."""
    return not text.strip(BLANKS)


# -- of the request ----------------------------------------------------------------------------------------------------


def names_itself(request: ConsumerGroupHeartbeat, config: Config) -> ErrorCode:
    """INVALID_REQUEST: the member id or the group id is empty.

    In version 0 a member may join, or go away for a while, without an id.
    """
    may_be_nameless = request.version < 1 and request.member_epoch in (JOIN_EPOCH, AWAY_EPOCH)
    if is_blank(request.group_id) or (is_blank(request.member_id) and not may_be_nameless):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def check_ids_not_blank(request: ConsumerGroupHeartbeat, config: Config) -> ErrorCode:
    """INVALID_REQUEST: the instance id or the rack is given and empty."""
    places = request.group_instance_id, request.rack_id
    return ErrorCode.INVALID_REQUEST if any(p is not None and is_blank(p) for p in places) else ErrorCode.NONE


def check_join_complete(request: ConsumerGroupHeartbeat, config: Config) -> ErrorCode:
    """INVALID_REQUEST: a join has no rebalance timeout, has owned partitions, or has no subscription."""
    if request.member_epoch != JOIN_EPOCH:
        return ErrorCode.NONE
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    is_whole = request.rebalance_timeout_ms != -1 and request.topic_partitions == () and subscribes
    return ErrorCode.NONE if is_whole else ErrorCode.INVALID_REQUEST


def owns_few_partitions(request: ConsumerGroupHeartbeat, config: Config) -> ErrorCode:
    """INVALID_REQUEST: the request lists more owned partitions than a group may have."""
    fits = sum(len(owned.partitions) for owned in request.topic_partitions or ()) <= OWNED_PARTITIONS_MAX
    return ErrorCode.NONE if fits else ErrorCode.INVALID_REQUEST


def has_a_known_epoch(request: ConsumerGroupHeartbeat, config: Config) -> ErrorCode:
    """INVALID_REQUEST: the epoch is below -2, or a member without an instance id goes away for a while."""
    is_away_without_id = request.member_epoch == AWAY_EPOCH and request.group_instance_id is None
    is_wrong = request.member_epoch < AWAY_EPOCH or is_away_without_id
    return ErrorCode.INVALID_REQUEST if is_wrong else ErrorCode.NONE


def names_a_known_assignor(request: ConsumerGroupHeartbeat, config: Config) -> ErrorCode:
    """UNSUPPORTED_ASSIGNOR: the server assignor is not one of `group_consumer_assignors`."""
    is_known = request.server_assignor is None or request.server_assignor in config.group_consumer_assignors
    return ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_ASSIGNOR


def is_of_a_newcomer(request: ConsumerGroupHeartbeat) -> bool:
    """Return whether a heartbeat creates its group: it joins."""
    return request.member_epoch == JOIN_EPOCH


OWN_CHECKS = (
    names_itself,
    check_ids_not_blank,
    check_join_complete,
    owns_few_partitions,
    has_a_known_epoch,
    names_a_known_assignor,
)

# -- of the group ------------------------------------------------------------------------------------------------------


def has_room(group: ConsumerGroup, request: ConsumerGroupHeartbeat, config: Config) -> ErrorCode:
    """GROUP_MAX_SIZE_REACHED: the group has `group_consumer_max_size` members, and the sender would be one more.

    A process that replaces a static member adds no member, as in Kafka from 4.4 on.
    """
    is_known = request.member_id in group.members or request.group_instance_id in group.hot_state.instances
    is_refused = request.member_epoch >= JOIN_EPOCH and not is_known
    is_full = len(group.members) >= config.group_consumer_max_size
    return ErrorCode.GROUP_MAX_SIZE_REACHED if is_full and is_refused else ErrorCode.NONE


def has_room_for_its_subscription(group: ConsumerGroup, request: ConsumerGroupHeartbeat, config: Config) -> ErrorCode:
    """GROUP_MAX_SIZE_REACHED: the subscriptions of all members would be too long together."""
    member = group.sender_of(request.member_id, request.group_instance_id)
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    if request.member_epoch < JOIN_EPOCH or (names is None and regex is None):
        return ErrorCode.NONE
    names = (member.names if member else ()) if names is None else names
    regex = (member.regex if member else "") if regex is None else regex
    return has_room_for(group, member, subscription_bytes(set(names), regex))


def has_room_for(group: ConsumerGroup, member: ConsumerMember | None, size: int) -> ErrorCode:
    """GROUP_MAX_SIZE_REACHED: the subscriptions of all members would be too long together.

    Args:
        member: The member that gets another subscription; None for a new member.
        size: The size of its subscription.
    """
    before = member.subscription_bytes if member else 0
    fits = size <= before or group.subscriptions_bytes - before + size <= GROUP_SUBSCRIPTIONS_BYTES_MAX
    return ErrorCode.NONE if fits else ErrorCode.GROUP_MAX_SIZE_REACHED


def has_room_for_its_resolution(group: ConsumerGroup, request: ConsumerGroupHeartbeat, config: Config) -> ErrorCode:
    """GROUP_MAX_SIZE_REACHED: the topics of all patterns would be too long together."""
    if request.regex_topics is None:
        return ErrorCode.NONE
    regex = request.subscribed_topic_regex
    if regex is None and (member := group.members.get(request.member_id)) is not None:
        regex = member.regex
    fits = not regex or has_room_for_resolutions(group, {regex: request.regex_topics})
    return ErrorCode.NONE if fits else ErrorCode.GROUP_MAX_SIZE_REACHED


def check_pattern_size(group: ConsumerGroup, request: GroupTopics, config: Config) -> ErrorCode:
    """INVALID_REQUEST: the topics of all patterns would be too long together."""
    resolved = {each.regex: each.topics for each in request.regexes if topics.is_reported_by_member(group, each)}
    fits = has_room_for_resolutions(group, resolved)
    return ErrorCode.NONE if fits else ErrorCode.INVALID_REQUEST


def has_room_for_resolutions(group: ConsumerGroup, resolved: Mapping[str, Collection[str]]) -> bool:
    """Return whether a group may store the topics of some patterns: they get no longer, or not too long."""
    more = sum(map(names_bytes, resolved.values()))
    before = sum(group.patterns[regex].topics_bytes for regex in resolved if regex in group.patterns)
    return more <= before or group.resolutions_bytes - before + more <= GROUP_RESOLUTIONS_BYTES_MAX


def tells_of_few_partitions(
    group: ConsumerGroup, request: ConsumerGroupHeartbeat | GroupTopics | JoinGroup, config: Config
) -> ErrorCode:
    """INVALID_REQUEST: with these topics, the group would have more partitions than a target assignment may have."""
    if not request.topics:
        return ErrorCode.NONE
    reported = topics.reported_topics(group, request.topics, is_authoritative=isinstance(request, GroupTopics))
    before = sum(topic.partitions for topic in group.topics.values())
    after = sum(topic.partitions for topic in (group.topics | reported).values())
    fits = after <= max(before, PLANNED_PARTITIONS_MAX)
    return ErrorCode.NONE if fits else ErrorCode.INVALID_REQUEST


def is_a_member(group: ConsumerGroup, request: ConsumerGroupHeartbeat, config: Config) -> ErrorCode:
    """UNKNOWN_MEMBER_ID: the group has no such member, or no member has the instance id.

    FENCED_INSTANCE_ID: another member has the instance id. A heartbeat that joins passes.
    """
    if request.member_epoch == JOIN_EPOCH:
        return ErrorCode.NONE
    if request.group_instance_id is None:
        return ErrorCode.NONE if request.member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID
    holder = group.hot_state.instances.get(request.group_instance_id)
    if holder is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if holder == request.member_id else ErrorCode.FENCED_INSTANCE_ID


def check_instance_id_released(group: ConsumerGroup, request: ConsumerGroupHeartbeat, config: Config) -> ErrorCode:
    """UNRELEASED_INSTANCE_ID: a member that has not gone away has the instance id of the join.

    The sender may be that member.
    """
    if request.member_epoch != JOIN_EPOCH or request.group_instance_id is None:
        return ErrorCode.NONE
    holder = group.hot_state.instances.get(request.group_instance_id)
    is_taken = holder is not None and group.members[holder].classic is None and group.epoch_of(holder) != AWAY_EPOCH
    return ErrorCode.UNRELEASED_INSTANCE_ID if is_taken else ErrorCode.NONE


def has_an_accepted_epoch(group: ConsumerGroup, request: ConsumerGroupHeartbeat, config: Config) -> ErrorCode:
    """FENCED_MEMBER_EPOCH: the epoch is not the member's.

    The previous epoch is accepted if the request lists owned partitions, and all of them are assigned to the member:
    the last response to it was lost. A member for which a gateway has sent heartbeats may have missed several changes.
    It may still own partitions that it has to give up, and is told of that again.
    """
    member = group.members.get(request.member_id)
    if member is None or request.member_epoch <= JOIN_EPOCH:
        return ErrorCode.NONE
    epoch = group.epoch_of(member.member_id)
    if request.member_epoch == epoch:
        return ErrorCode.NONE
    is_previous = request.member_epoch == member.previous_epoch
    if member.may_be_unaware:
        is_previous = request.member_epoch >= member.previous_epoch
    is_behind = is_previous and request.member_epoch < epoch
    return ErrorCode.NONE if is_behind and _owns_no_more(member, request) else ErrorCode.FENCED_MEMBER_EPOCH


def _owns_no_more(member: ConsumerMember, request: ConsumerGroupHeartbeat) -> bool:
    """Return whether a request lists owned partitions, and the member may own all of them."""
    if request.topic_partitions is None:
        return False
    may_own = (member.assigned, member.revoking) if member.may_be_unaware else (member.assigned,)
    return all(
        set(o.partitions) <= set(chain.from_iterable(some.get(o.topic_id, ()) for some in may_own))
        for o in request.topic_partitions
    )


def has_a_pattern_that_is_taken(group: ConsumerGroup, request: ConsumerGroupHeartbeat, config: Config) -> ErrorCode:
    """INVALID_REGULAR_EXPRESSION: the sender could not compile the pattern, and no member has it already.

    GROUP_MAX_SIZE_REACHED: the members have too many different patterns.
    """
    if not request.subscribed_topic_regex or request.subscribed_topic_regex in group.patterns:
        return ErrorCode.NONE
    if request.regex_error is not None:
        return ErrorCode.INVALID_REGULAR_EXPRESSION
    fits = len(group.patterns) < PATTERNS_MAX
    return ErrorCode.NONE if fits else ErrorCode.GROUP_MAX_SIZE_REACHED


GROUP_CHECKS: tuple[GroupCheck, ...] = (
    has_room,
    has_room_for_its_subscription,
    has_room_for_its_resolution,
    tells_of_few_partitions,
    is_a_member,
    check_instance_id_released,
    has_an_accepted_epoch,
    has_a_pattern_that_is_taken,
)


# -- commits and fetches -----------------------------------------------------------------------------------------------


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
