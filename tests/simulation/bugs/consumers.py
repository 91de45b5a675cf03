"""Bugs of groups of the consumer protocol: members, plans, topics, conversions."""

from coordinator import codec, converting
from coordinator.consumer import checks, heartbeats, offsets, planning, reconciling, topics
from coordinator.consumer_group import ConsumerGroup
from tests.simulation.bugs.bug import Bug

BUGS = (
    # -- partitions ----------------------------------------------------------------------------------------------------
    Bug("a member keeps what it was told to give up", reconciling._next,
        "group.hold(member, keep, revoke)", "group.hold(member, member.assigned, revoke)", "PartitionsHaveOneHolder"),
    Bug("a member that does not say what it owns has given all up", reconciling.owns_any,
        "if owned is None:\n        return True", "if owned is None:\n        return False", "PartitionsHaveOneUser"),
    Bug("a partition is given before it is free", reconciling._next,
        "if holders.get(number, member.member_id) == member.member_id", "if True", "Coordinator raised AssertionError"),
    Bug("a member that waits for partitions counts as stable", reconciling._next,
        "MemberState.UNRELEASED if is_waiting else MemberState.STABLE", "MemberState.STABLE",
        "TheSettledHaveTheirTargets"),
    Bug("a member that waits for partitions never gets them", reconciling.reconcile,
        "member.state is MemberState.STABLE and is_current", "member.state is not MemberState.UNREVOKED and is_current",
        "StableInThreeRounds"),
    Bug("a member that has to give up partitions may wait for ever", heartbeats._await_revocation,
        "if member.state is MemberState.UNREVOKED:", "if False:", "RevocationsEnd"),
    Bug("the deadlines of revocations are lost between batches", codec._encode_consumer_vitals,
        "vitals.revocations,", "{},", "RevocationsEnd"),
    # -- epochs and plans ----------------------------------------------------------------------------------------------
    Bug("a plan has an epoch above the group's", ConsumerGroup.set_targets,
        "self.vitals.assignment_epoch = self.vitals.group_epoch",
        "self.vitals.assignment_epoch = self.vitals.group_epoch + 1", "EpochsGrow"),
    Bug("a member that went away has the epoch of a new one", ConsumerGroup.move_to,
        "member.previous_epoch, pulse.epoch = pulse.epoch, epoch",
        "member.previous_epoch, pulse.epoch = pulse.epoch, max(epoch, 0)", "EpochsGrow"),
    Bug("a plan waits for the next request", planning.schedule,
        "vitals.plan_ms = vitals.noting(max(now_ms, _next_ms(group, config)))", "pass", "RevocationsEnd"),
    Bug("partitions are added and no plan is made", topics.learn,
        "has_changed = has_changed or topic != (before or Topic())",
        "has_changed = has_changed or topic.topic_id != (before or Topic()).topic_id", "PlansAreComplete"),
    Bug("a topic that was made anew keeps its plan", topics.learn,
        "has_changed = has_changed or topic != (before or Topic())",
        "has_changed = has_changed or topic.partitions != (before or Topic()).partitions",
        "TheSettledHaveTheirTargets"),
    Bug("a plan leaves out the members of the classic protocol", planning._spec,
        "for member_id, m in group.members.items()",
        "for member_id, m in group.members.items() if m.classic is None", "PlansAreComplete"),
    # -- heartbeats ----------------------------------------------------------------------------------------------------
    Bug("a heartbeat of a later epoch is accepted", checks.has_an_accepted_epoch,
        "if request.member_epoch == epoch:", "if request.member_epoch >= epoch:", "HeartbeatsFitTheMember"),
    Bug("a heartbeat of any epoch renews a settled member", heartbeats.heartbeat_of_vitals,
        " or pulse.epoch != request.member_epoch:", ":", "HeartbeatsFitTheMember"),
    Bug("a full request is not told the assignment", heartbeats._follow,
        "request.member_epoch == JOIN_EPOCH or request.is_full or member.assigned != before",
        "request.member_epoch == JOIN_EPOCH or member.assigned != before", "HeartbeatsFitTheMember"),
    Bug("a heartbeat that brings news renews no session", heartbeats._follow,
        "if arrival is not None or not request.again:", "if arrival is not None:", "ConsumerSessionsAreKept"),
    Bug("a gateway's heartbeat renews a session", heartbeats.heartbeat_of_vitals,
        "if not request.again:", "if True:", "ConsumerSessionsAreKept"),
    # -- offsets and conversions ---------------------------------------------------------------------------------------
    Bug("a commit of any older epoch is accepted", offsets.may_commit,
        "if is_older and _had_all(group, member, request, config):", "if is_older:", "CommitsComeFromHolders"),
    Bug("a commit of the member's own epoch is refused", offsets.may_commit,
        "if request.generation_id == epoch:", "if request.generation_id == epoch > 3:", "CommitsComeFromHolders"),
    Bug("a parked join is not answered when its group is converted", converting._answer_parked,
        "if member.awaiting_join is not None:", "if False:", "EachRequestIsAnsweredOnce"),
)  # fmt: skip
