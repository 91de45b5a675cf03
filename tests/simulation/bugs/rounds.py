"""Bugs of join rounds, generations, assignments and deadlines."""

from coordinator.classic import checks, deadlines, join, leave, rebalance
from coordinator.common.timers import Timers
from coordinator.state.classic_group import Group
from tests.simulation.bugs.bug import Bug

BUGS = (
    # -- generations ---------------------------------------------------------------------------------------------------
    Bug("a round ends and the generation stays", rebalance.complete,
        "hot_state.generation_id += 1", "pass", "GenerationsGrow"),
    Bug("a group empties and the generation stays", rebalance._become_empty,
        "group.hot_state.generation_id += 1", "pass", "GenerationsGrow"),
    Bug("a generation is skipped", rebalance.complete,
        "hot_state.generation_id += 1", "hot_state.generation_id += 2", "GenerationsGrow"),
    # -- rounds --------------------------------------------------------------------------------------------------------
    Bug("an absent static member stays the leader", rebalance.complete,
        'if not group.members[group.leader_id or ""].awaiting_join or', "if", "GenerationsAreAgreed"),
    Bug("a member that did not rejoin stays", rebalance.complete,
        "if not m.awaiting_join and not m.is_static", "if False", "GenerationsAreAgreed"),
    Bug("an absent static member is dropped", rebalance.complete,
        "if not m.awaiting_join and not m.is_static", "if not m.awaiting_join", "NobodyIsDroppedUnheard"),
    Bug("the chosen assignor is not supported by all members", rebalance.vote,
        "if supporters == len(group.members)", "if supporters", "PhasesAreLegal"),
    Bug("any protocol is accepted", checks.check_protocol,
        "if group.supports(request.protocol_type, request.protocols):", "if True:", "Coordinator raised RuntimeError"),
    Bug("a protocol that a member no longer offers still counts", Group.offer,
        "self._count_protocols(member, -1)", "pass", "PhasesAreLegal"),
    Bug("a new round begins and parked syncs stay", rebalance.prepare,
        "if group.phase is Phase.COMPLETING:", "if False:", "PhasesAreLegal"),
    Bug("the deadline of a round stays after the round", rebalance.complete,
        "hot_state.joins_ms, hot_state.extended, group.delay = NEVER_MS, False, None",
        "hot_state.extended, group.delay = False, None", "Coordinator raised IllegalMove"),
    Bug("the wait for assignments has no deadline", rebalance.complete,
        "hot_state.syncs_ms = hot_state.wait(now_ms, group.rebalance_timeout_ms)", "pass", "NothingWaitsForEver"),
    Bug("an overdue sync expels all members", leave.syncs_due,
        "if m.owes_sync], True", "], True", "NobodyIsDroppedUnheard"),
    Bug("an initial delay never ends", rebalance.joins_due,
        "group.delay = Delay(next_ms, max(delay.remaining_ms - delay.delay_ms, 0))", "pass", "NothingWaitsForEver"),
    Bug("all members have joined and the round does not complete", join._park_join,
        "group.joins_parked += earlier is None",
        "group.joins_parked += earlier is None and group.phase.value != 'Stable'",
        "PhasesAreLegal"),
    # -- assignments ---------------------------------------------------------------------------------------------------
    Bug("a follower's assignments are accepted", join.sync,
        "if member.member_id == group.leader_id:", "if request.assignments:", "PlansArePassedOn"),
    Bug("all members get the first member's assignment", rebalance.install,
        'plan.get(member.member_id, b"")', 'next(iter(plan.values()), b"")', "PlansArePassedOn"),
    Bug("a member without an assignment keeps its previous one", rebalance.install,
        'plan.get(member.member_id, b"")', "plan.get(member.member_id, member.assignment)", "PlansArePassedOn"),
    Bug("a round does not store the previous owners", Group.open_round,
        "for m in self.members.values()}", "for m in self.members.values() if m.is_static}", "HandoversAddUp"),
    # -- deadlines -----------------------------------------------------------------------------------------------------
    Bug("an earlier deadline is not stored", Group.schedule_offset_expiry,
        "self.hot_state.offsets_ms = self.hot_state.track_deadline(min(self.hot_state.offsets_ms, at_ms))",
        "self.hot_state.offsets_ms = min(self.hot_state.offsets_ms, at_ms)", "NothingWaitsForEver"),
    Bug("after a deadline the next one is not set", Timers.advance,
        "hot_state.earliest_ms = min(d.at_ms for d in self.deadlines(group))", "pass", "NothingWaitsForEver"),
    Bug("a deadline that is due now does not fire", Timers.advance,
        "while hot_state.earliest_ms <= until_ms:", "while hot_state.earliest_ms < until_ms:", "NothingWaitsForEver"),
    Bug("a silent member's deadline is extended without end", deadlines._wait_once_more,
        " or (session or hot_state).extended:", ":", "SessionsEnd"),
    Bug("an extended deadline is not stored", deadlines._wait_once_more,
        "session.extended = True", "pass", "SessionsEnd"),
    Bug("members expire while the coordinator is unavailable", deadlines._wait_once_more,
        " or (session or hot_state).extended:", " or True:", "NobodyIsDroppedUnheard"),
    Bug("members expire soon after the coordinator was unavailable", Timers.advance,
        " else hot_state.back_ms", " else 0", "NobodyIsDroppedUnheard"),
)  # fmt: skip
