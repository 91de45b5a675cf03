"""Bugs of policies: seats, holds, calls and quarantines."""

from coordinator.classic import departures, join, newcomers, offers, rebalance
from tests.simulation.bugs.bug import Bug

BUGS = (
    Bug("a seat that was taken is offered again", offers.take_vacancy,
        "group.policy_state.vacant.pop(key) for key", "group.policy_state.vacant[key] for key", "PlansArePassedOn"),
    Bug("a seat is taken with the token of its generation", offers.take_vacancy,
        "group.next_token(now_ms, config.fencing_token_floor)", "group.token", "TokensGrow"),
    Bug("a member that adopts a seat loses its own partitions", offers._assign,
        'if how != "adopted" else', "if True else", "PlansArePassedOn"),
    Bug("a seat is taken by a sync from before the call", offers.take_vacancy,
        "if offered is None or not offered.has_joined or is_repeat:", "if offered is None:", "SeatsEnd"),
    Bug("a called member is not told so", join._renewed,
        "if hot_state.called and request.member_id in hot_state.called:", "if False:", "AnswersFitTheGroup"),
    Bug("a rebalance leaves pending holds", rebalance.prepare, "group.end_hold()", "pass",
        "Coordinator raised AssertionError"),
    Bug("a vacancy has no deadline", departures._until_ms,
        "return arm(group, group.hot_state.wait(now_ms, wait_ms)), wait_ms", "return now_ms + wait_ms, wait_ms",
        "SeatsEnd"),
    Bug("newcomers put a rebalance off without end", newcomers.wait_for_quiet,
        "min(until_ms, longest_ms)", "until_ms + max_ms", "SeatsEnd"),
    Bug("a member in quarantine is in the roll", rebalance.joined,
        "for m in group.visible", "for m in group.members.values()", "GenerationsAreAgreed"),
    Bug("all clients that flap are in quarantine", newcomers.is_quarantined_and_others_own,
        "len(group.policy_state.quarantined) < most and ", "", "SeatsAreBounded"),
)  # fmt: skip
