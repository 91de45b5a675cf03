"""Bugs of committed offsets and of published records."""

from coordinator.classic import checks
from coordinator.common import offsets
from coordinator.state.classic_group import Group
from tests.simulation.bugs.bug import Bug

BUGS = (
    # -- committing and fetching ---------------------------------------------------------------------------------------
    Bug("a commit does not renew its member", offsets.commit,
        "group.hot_state.renew(session, context.now_ms)", "pass", "SessionsAreKept"),
    Bug("a commit below the stored offset is lost", offsets.store_offset,
        "group.store_offset(topic, partition, offset)",
        "known = group.offsets.get(topic, {}).get(partition)\n"
        "    if known is None or known.offset <= offset.offset:\n"
        "        group.store_offset(topic, partition, offset)", "CommitsAreKept"),
    Bug("offset 0 reads as none", offsets._fetched,
        "if offset is None:", "if offset is None or not offset.offset:", "CommitsAreKept"),
    Bug("a fetched offset is one too high", offsets._fetched,
        "offset.offset, offset.leader_epoch", "offset.offset + 1, offset.leader_epoch", "CommitsAreKept"),
    Bug("a commit of an older generation is accepted", checks.is_of_this_generation,
        "request.generation_id == hot_state.generation_id",
        "request.generation_id <= hot_state.generation_id and hasattr(request, 'offsets')"
        " or request.generation_id == hot_state.generation_id", "CommitsAreFenced"),
    Bug("a commit is accepted in CompletingRebalance", checks.commits_are_taken,
        "return decisions.COMMIT[group.phase]", "return ErrorCode.NONE", "CommitsAreFenced"),
    Bug("a commit from outside is accepted in a group with members", checks.is_from_outside,
        "request.generation_id < 0 and group.phase is Phase.EMPTY", "request.generation_id < 0", "CommitsAreFenced"),
    Bug("a commit's own retention is ignored", offsets._store,
        "expire_ms = None if entry.retention_ms < 0 else min(now_ms + entry.retention_ms, NEVER_MS)",
        "expire_ms = None", "CommitsAreKept"),
    Bug("metadata may be one byte too long", offsets.has_short_metadata,
        "<= config.offset_metadata_max_bytes", "<= config.offset_metadata_max_bytes + 1", "GroupsAreBounded"),
    # -- forgetting ----------------------------------------------------------------------------------------------------
    Bug("offsets of subscribed topics expire", Group.subscribes,
        "return topic in self.subscribed_topics", "return False", "OffsetsAreForgottenInTime"),
    Bug("offsets of subscribed topics are deleted on request", offsets.delete,
        "if group.subscribes(topic)", "if False", "OffsetsAreForgottenInTime"),
    Bug("offsets of an Empty group expire by their commit", Group.retained_since_ms,
        "self.since_ms if self.protocol_type else offset.commit_timestamp_ms", "offset.commit_timestamp_ms",
        "OffsetsAreForgottenInTime"),
    Bug("a group's own retention is ignored", offsets.expiry_ms,
        "config.offsets_retention_by_group_ms.get(group.group_id, config.offsets_retention_ms)",
        "config.offsets_retention_ms", "OffsetsAreForgottenInTime"),
    Bug("committed offsets never expire", offsets._store,
        "group.schedule_offset_expiry(max(now_ms, expiry_ms(group, entry.topic, offset, config)))", "pass",
        "OffsetsAreForgottenInTime"),
    Bug("a group is deleted while it has members", checks.is_empty,
        "group.phase is Phase.EMPTY", "True", "Coordinator raised IllegalMove"),
    Bug("offsets of an unreadable group are deleted", checks.is_of_consumers_or_empty,
        "group.phase is Phase.EMPTY or group.is_of_consumers", "True", "OffsetsAreForgottenInTime"),
    # -- published records ---------------------------------------------------------------------------------------------
    Bug("an offset's tombstone is lost", offsets.remove_offsets,
        "yield Published(group.group_id, key, None, group.next_version(), now_ms)", "yield from ()",
        "OffsetsAreForgottenInTime"),
    Bug("an offset's tombstone has the version before", offsets.remove_offsets,
        "group.next_version()", "group.version", "VersionsHaveNoGap"),
    Bug("a group's tombstone is lost", offsets._forget,
        'yield Published(group.group_id, ("group", group.group_id), None, group.next_version(), now_ms)', "pass",
        "NothingWaitsForEver"),
    Bug("a group is forgotten and its offsets stay published", offsets.delete_group,
        "yield from remove_offsets(group, [(topic, partition) for topic, partition, _ in group.all_offsets()], now_ms)",
        "pass", "TheForgottenAreTold"),
)  # fmt: skip
