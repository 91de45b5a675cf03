"""Bugs of joining, staying alive, taking over and leaving."""

from coordinator import checks, leaving, membership, rebalance
from coordinator.group import Group
from tests.simulation.bugs.bug import Bug

RENEWS = "group.vitals.renew(group.vitals.sessions[{}], now_ms)"

BUGS = (
    # -- sessions ------------------------------------------------------------------------------------------------------
    Bug("a heartbeat renews the member that came first", membership._renewed,
        "vitals.renew(vitals.sessions[request.member_id], now_ms)",
        "vitals.renew(next(iter(vitals.sessions.values())), now_ms)", "SessionsAreKept"),
    Bug("a heartbeat of another generation renews", membership.heartbeat_of_vitals,
        "                return refusal(",
        "                session and vitals.renew(session, now_ms)\n                return refusal(", "SessionsEnd"),
    Bug("a sync that finds the plan renews nobody", membership.sync,
        RENEWS.format("member.member_id"), "pass", "SessionsAreKept"),
    Bug("the plan's arrival renews nobody", rebalance.answer_sync,
        RENEWS.format("member.member_id"), "pass", "SessionsAreKept"),
    Bug("the end of a round renews nobody", rebalance.complete,
        "vitals.renew(vitals.sessions[member.member_id], now_ms)", "pass", "SessionsAreKept"),
    Bug("a pending id is never forgotten", membership._hand_out,
        "group.vitals.renew(session, now_ms)", "pass", "NothingWaitsForEver"),
    Bug("an id comes back and stays pending", Group.add,
        "self.vitals.pending.pop(member.member_id, None)", "pass", "PhasesAreLegal"),
    Bug("a parked join does not save its member", leaving.session_due,
        "if not member.is_new and (member.awaiting_join or member.awaiting_sync):", "if False:", "SessionsAreKept"),
    Bug("a member stays new after its first round", rebalance.complete,
        "member.is_new, member.owes_sync = False, True", "member.owes_sync = True", "SessionsAreKept"),
    # -- answers -------------------------------------------------------------------------------------------------------
    Bug("a heartbeat hears NONE while joins are collected", membership._renewed,
        "error = answers.HEARTBEAT[vitals.phase]", "error = ErrorCode.NONE", "AnswersFitTheGroup"),
    Bug("no generation is illegal to a heartbeat", checks.is_of_this_generation,
        "request.generation_id == vitals.generation_id", "request.generation_id <= vitals.generation_id",
        "AnswersFitTheGroup"),
    Bug("a sync of the last generation is parked for the next plan", checks.is_of_this_generation,
        "request.generation_id == vitals.generation_id", "request.generation_id >= vitals.generation_id - 1",
        "AnswersFitTheGroup"),
    Bug("a member rejoins and notices go where it was", membership._rejoin,
        "member.reply_to = request.reply_to", "pass", "RepliesFitTheirRequests"),
    Bug("a join is answered twice", rebalance.answer_join,
        "yield Reply(parked.reply_to, joined(group, member, parked.request_id))",
        "yield from [Reply(parked.reply_to, joined(group, member, parked.request_id))] * 2",
        "EachRequestIsAnsweredOnce"),
    Bug("a parked join is forgotten with its member", rebalance.let_go,
        "if member.awaiting_join:", "if False:", "EachRequestIsAnsweredOnce"),
    Bug("a parked sync is forgotten with its member", rebalance.let_go,
        "if member.awaiting_sync:", "if False:", "EachRequestIsAnsweredOnce"),
    Bug("a session of any length is let in", checks.session_timeout_is_allowed,
        "config.group_min_session_timeout_ms <= request", "0 <= request", "GroupsAreBounded"),
    Bug("a group has one member too many", checks.has_room,
        "group.joins_parked < config", "group.joins_parked <= config", "GroupsAreBounded"),
    # -- static members ------------------------------------------------------------------------------------------------
    Bug("the fence compares nothing", checks.is_a_member,
        "holder != request.member_id", "False", "AnswersFitTheGroup"),
    Bug("a fenced process is never told", membership._fence, "if parked:", "if False:", "EachRequestIsAnsweredOnce"),
    Bug("a replaced member's deadline is kept", membership._replace,
        "group.vitals.wait(now_ms, session.timeout_ms)", "session.deadline_ms", "SessionsAreKept"),
    Bug("whoever replaces the leader does not lead", Group.replace,
        "self.leader_id = new.member_id", "pass", "PhasesAreLegal"),
    Bug("whoever replaces a member owns nothing", membership._replace,
        "new.assignment, new.is_new = old.assignment, False", "new.is_new = False", "PlansArePassedOn"),
    Bug("a static member goes and its instance id stays", Group._take_out,
        "del self.vitals.instances[member.group_instance_id]", "pass", "PhasesAreLegal"),
    # -- leaving -------------------------------------------------------------------------------------------------------
    Bug("a pending id leaves and the round waits on", leaving.leave,
        "                behind = behind or Blame(\n"
        '                    "member_left", entry.member_id, request.client_id, request.client_host, entry.reason\n'
        "                )\n", "", "NothingWaitsForEver"),
    Bug("who leaves unasked is told of as one that expired", leaving.leave,
        "yield from let_go(group, member, context.now_ms)",
        'yield from drop(group, member, "expelled", context.now_ms)', "CommitsAreFenced"),
    Bug("the leader leaves and goes on leading", Group.remove,
        "self.leader_id = next(iter(self.members), None)", "pass", "PhasesAreLegal"),
)  # fmt: skip
