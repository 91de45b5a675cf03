"""Bugs of joins, sessions, static members and leaves."""

from coordinator import checks, leaving, membership, rebalance
from coordinator.group import Group
from tests.simulation.bugs.bug import Bug

RENEWS = "group.vitals.renew(group.vitals.sessions[{}], now_ms)"

BUGS = (
    # -- sessions ------------------------------------------------------------------------------------------------------
    Bug("a heartbeat renews the session of the first member", membership._renewed,
        "vitals.renew(vitals.sessions[request.member_id], now_ms)",
        "vitals.renew(next(iter(vitals.sessions.values())), now_ms)", "SessionsEnd"),
    Bug("a heartbeat of another generation renews the session", membership.heartbeat_of_vitals,
        "                return refusal(",
        "                session and vitals.renew(session, now_ms)\n                return refusal(", "SessionsEnd"),
    Bug("a sync that finds the assignments renews no session", membership.sync,
        RENEWS.format("member.member_id"), "pass", "SessionsAreKept"),
    Bug("the arrival of the assignments renews no session", rebalance.answer_sync,
        RENEWS.format("member.member_id"), "pass", "SessionsAreKept"),
    Bug("the end of a round renews no session", rebalance.complete,
        "vitals.renew(vitals.sessions[member.member_id], now_ms)", "pass", "NothingWaitsForEver"),
    Bug("a pending id never expires", membership._hand_out,
        "group.vitals.renew(session, now_ms)", "pass", "NothingWaitsForEver"),
    Bug("a pending id joins and stays pending", Group.add,
        "self.vitals.pending.pop(member.member_id, None)", "pass", "PhasesAreLegal"),
    Bug("a parked join does not keep its member alive", leaving.session_due,
        "if not member.is_new and (member.awaiting_join or member.awaiting_sync):", "if False:",
        "NobodyIsDroppedUnheard"),
    Bug("a member stays new after its first round", rebalance.complete,
        "member.is_new, member.owes_sync = False, True", "member.owes_sync = True", "NobodyIsDroppedUnheard"),
    # -- answers -------------------------------------------------------------------------------------------------------
    Bug("a heartbeat is answered NONE in PreparingRebalance", membership._renewed,
        "error = answers.HEARTBEAT[vitals.phase]", "error = ErrorCode.NONE", "AnswersFitTheGroup"),
    Bug("a heartbeat of an older generation is accepted", checks.is_of_this_generation,
        "request.generation_id == vitals.generation_id", "request.generation_id <= vitals.generation_id",
        "AnswersFitTheGroup"),
    Bug("a sync of the previous generation is parked", checks.is_of_this_generation,
        "request.generation_id == vitals.generation_id", "request.generation_id >= vitals.generation_id - 1",
        "AnswersFitTheGroup"),
    Bug("a member rejoins and notices go to its previous mailbox", membership._rejoin,
        "member.reply_to = request.reply_to", "pass", "RepliesFitTheirRequests"),
    Bug("a join is answered twice", rebalance.answer_join,
        "yield Reply(parked.reply_to, joined(group, member, parked.request_id))",
        "yield from [Reply(parked.reply_to, joined(group, member, parked.request_id))] * 2",
        "EachRequestIsAnsweredOnce"),
    Bug("a parked join is not answered when its member is removed", rebalance.let_go,
        "if member.awaiting_join:", "if False:", "EachRequestIsAnsweredOnce"),
    Bug("a parked sync is not answered when its member is removed", rebalance.let_go,
        "if member.awaiting_sync:", "if False:", "EachRequestIsAnsweredOnce"),
    Bug("a session timeout of any length is accepted", checks.session_timeout_is_allowed,
        "config.group_min_session_timeout_ms <= request", "0 <= request", "GroupsAreBounded"),
    Bug("a group has one member too many", checks.has_room,
        "group.joins_parked < config", "group.joins_parked <= config", "GroupsAreBounded"),
    # -- static members ------------------------------------------------------------------------------------------------
    Bug("the member id of a static member is not compared", checks.is_a_member,
        "holder != request.member_id", "False", "AnswersFitTheGroup"),
    Bug("a fenced process gets no response", membership._fence, "if parked:", "if False:", "EachRequestIsAnsweredOnce"),
    Bug("a replaced member's deadline is kept", membership._replace,
        "group.vitals.wait(now_ms, session.timeout_ms)", "session.deadline_ms", "SessionsAreKept"),
    Bug("the process that replaces the leader is not the leader", Group.replace,
        "self.leader_id = new.member_id", "pass", "PhasesAreLegal"),
    Bug("the process that replaces a static member has no assignment", membership._replace,
        "new.assignment, new.is_new = old.assignment, False", "new.is_new = False", "PlansArePassedOn"),
    Bug("a static member is removed and its instance id stays", Group._take_out,
        "del self.vitals.instances[member.group_instance_id]", "pass", "PhasesAreLegal"),
    # -- leaving -------------------------------------------------------------------------------------------------------
    Bug("a pending id leaves and the round still waits for it", leaving.leave,
        "                behind = behind or Blame(\n"
        '                    "member_left", entry.member_id, request.client_id, request.client_host, entry.reason\n'
        "                )\n", "", "NothingWaitsForEver"),
    Bug("a member that leaves by itself is reported as expired", leaving.leave,
        "yield from let_go(group, member, context.now_ms)",
        'yield from drop(group, member, "expelled", context.now_ms)', "CommitsAreFenced"),
    Bug("the leader leaves and stays the leader", Group.remove,
        "self.leader_id = next(iter(self.members), None)", "pass", "PhasesAreLegal"),
)  # fmt: skip
