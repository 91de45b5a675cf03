"""Bugs of groups of the consumer protocol: members, plans, topics, conversions."""

from coordinator.common import offsets as committed
from coordinator.consumer import checks, heartbeat, publish, reconcile, target_assignment, topics
from coordinator.shard import converting
from coordinator.state import hot_state_codec
from coordinator.state.consumer_group import ConsumerGroup
from tests.simulation.bugs.bug import Bug

BUGS = (
    # -- partitions ----------------------------------------------------------------------------------------------------
    Bug("a member keeps what it was told to give up", reconcile._next,
        "group.hold(member, keep, revoke)", "group.hold(member, member.assigned, revoke)", "PartitionsHaveOneHolder"),
    Bug("a member that does not say what it owns has given all up", reconcile.owns_any,
        "if owned is None:\n        return True", "if owned is None:\n        return False", "PartitionsHaveOneUser"),
    Bug("a partition is given before it is free", reconcile._next,
        "if holders.get(number, member.member_id) == member.member_id", "if True", "Coordinator raised AssertionError"),
    Bug("a member that waits for partitions counts as stable", reconcile._next,
        "MemberState.UNRELEASED if is_waiting else MemberState.STABLE", "MemberState.STABLE",
        "TheSettledHaveTheirTargets"),
    Bug("a member that waits for partitions never gets them", reconcile.reconcile,
        "member.state is MemberState.STABLE and is_current", "member.state is not MemberState.UNREVOKED and is_current",
        "ComesToRest"),
    Bug("a member that has to give up partitions may wait for ever", heartbeat._await_revocation,
        "if member.state is MemberState.UNREVOKED:", "if False:", "RevocationsEnd"),
    Bug("the deadlines of revocations are lost between batches", hot_state_codec._encode_consumer_hot_state,
        "hot_state.revocations,", "{},", "RevocationsEnd"),
    # -- epochs and plans ----------------------------------------------------------------------------------------------
    Bug("a plan has an epoch above the group's", ConsumerGroup.set_targets,
        "self.hot_state.assignment_epoch = self.hot_state.group_epoch",
        "self.hot_state.assignment_epoch = self.hot_state.group_epoch + 1", "EpochsGrow"),
    Bug("a member that went away has the epoch of a new one", ConsumerGroup.move_to,
        "member.previous_epoch, session.epoch = session.epoch, epoch",
        "member.previous_epoch, session.epoch = session.epoch, max(epoch, 0)", "EpochsGrow"),
    Bug("a plan waits for the next request", target_assignment.schedule,
        "hot_state.plan_ms = hot_state.track_deadline(max(now_ms, _next_ms(group, config)))", "pass", "RevocationsEnd"),
    Bug("partitions are added and no plan is made", topics.learn,
        "topic != (before or Topic())", "topic.topic_id != (before or Topic()).topic_id", "PlansAreComplete"),
    Bug("a topic that was made anew keeps its plan", topics.learn,
        "topic != (before or Topic())", "topic.partitions != (before or Topic()).partitions",
        "TheSettledHaveTheirTargets"),
    Bug("a plan leaves out the members of the classic protocol", target_assignment._spec,
        "for m in group.visible\n        ],",
        "for m in group.visible if m.classic is None\n        ],", "PlansAreComplete"),
    # -- heartbeats ----------------------------------------------------------------------------------------------------
    Bug("a heartbeat of a later epoch is accepted", checks.has_an_accepted_epoch,
        "if request.member_epoch == epoch:", "if request.member_epoch >= epoch:", "HeartbeatsFitTheMember"),
    Bug("a heartbeat of any epoch renews a settled member", heartbeat.answer_heartbeat,
        " or session.epoch != request.member_epoch:", ":", "HeartbeatsFitTheMember"),
    Bug("a full request is not told the assignment", heartbeat._follow,
        "request.member_epoch == JOIN_EPOCH or request.is_full or member.assigned != before",
        "request.member_epoch == JOIN_EPOCH or member.assigned != before", "HeartbeatsFitTheMember"),
    Bug("a heartbeat that brings news renews no session", heartbeat._follow,
        "if arrival is not None or not request.again:", "if arrival is not None:", "ConsumerSessionsAreKept"),
    Bug("a gateway's heartbeat renews a session", heartbeat.answer_heartbeat,
        "if not request.again:", "if True:", "ConsumerSessionsAreKept"),
    # -- offsets and conversions ---------------------------------------------------------------------------------------
    Bug("a commit of any older epoch is accepted", checks.may_commit,
        "if is_older and _had_all(group, member, request, config):", "if is_older:", "CommitsComeFromHolders"),
    Bug("a commit of the member's own epoch is refused", checks.may_commit,
        "if request.generation_id == epoch:", "if request.generation_id == epoch > 3:", "CommitsComeFromHolders"),
    Bug("a parked join is not answered when its group is converted", converting._answer_parked,
        "if member.awaiting_join is not None:", "if False:", "EachRequestIsAnsweredOnce"),
    Bug("a downgrade without a removal takes a generation back", converting.downgrade,
        "group.hot_state.group_epoch -= has_lost_consumer", "group.hot_state.group_epoch -= 1",
        "GenerationsOutliveConversions"),
    # -- as in classic groups ------------------------------------------------------------------------------------------
    Bug("a member takes a partition with its earlier token", heartbeat._follow,
        "member.fencing_token = group.next_token(now_ms, config.fencing_token_floor)", "pass",
        "TakersHaveHigherTokens"),
    Bug("the size of a group of the consumer protocol is not limited", checks.has_room,
        "is_refused = request.member_epoch >= JOIN_EPOCH and not is_known", "is_refused = False",
        "ConsumerGroupsAreBounded"),
    Bug("offsets of topics that consumers subscribe to expire", ConsumerGroup.subscribes,
        "return topic in self.subscribed", "return False", "OffsetsAreForgottenInTime"),
    Bug("an Empty group of the consumer protocol stays for ever", committed.next_expiry_ms,
        "if not group.offsets and group.phase is Phase.EMPTY:",
        "if not group.offsets and group.phase is Phase.EMPTY and group.type.value == 'classic':",
        "EmptyConsumerGroupsEnd"),
    Bug("offsets of topics that no consumer subscribes to stay", publish._publish_changes,
        "group.schedule_offset_expiry(now_ms)", "pass", "OffsetsAreForgottenAtLast"),
    Bug("a release of partitions is not reported", ConsumerGroup.hold,
        "self.pending_changes.handovers.append((topic_id, number, member_id, None))", "pass", "ConsumerHandoversAddUp"),
)  # fmt: skip
