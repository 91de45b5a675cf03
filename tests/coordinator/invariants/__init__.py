"""What must never break, one checker a promise (promises.md, section 1).

A checker is shown every step: what was asked, what came out, and, where the test can look inside, the groups as they
are after it. It raises AssertionError at the first step that breaks its promise. Whoever cannot look inside (a system
test reading topics) passes `groups=None`; then the checkers that need a look have nothing to say. Whoever knows which
groups a step has left as they were, to the byte, need not show those again.
"""

from coordinator.config import Config
from tests.coordinator.invariants.answers import (
    EachRequestIsAnsweredOnce,
    RepeatsMakeNobodyNew,
    RepliesFitTheirRequests,
    VersionsHaveNoGap,
)
from tests.coordinator.invariants.commits import CommitsAreFenced, CommitsAreKept, OffsetsAreForgottenInTime
from tests.coordinator.invariants.generations import (
    GenerationsAreAgreed,
    GenerationsGrow,
    PhasesAreLegal,
    PlansArePassedOn,
)
from tests.coordinator.invariants.lives import (
    GroupsAreBounded,
    NothingWaitsForEver,
    SessionsAreKept,
    TheGoneStayOut,
    TimeNeverGoesBack,
)
from tests.coordinator.invariants.step import Asked, Checker, Step
from tests.coordinator.invariants.tokens import TokensGrow

__all__ = ["Step", "all_checkers"]


def all_checkers(config: Config) -> list[Checker]:
    """Make one checker for each promise, to be shown the same steps from the first one on."""
    asked = Asked(config.clock_slack_ms)
    return [
        RepliesFitTheirRequests(asked),  # the first one: the others ask what a reply's request was
        GenerationsGrow(),
        PhasesAreLegal(),
        GenerationsAreAgreed(asked),
        PlansArePassedOn(asked),
        TokensGrow(asked),
        EachRequestIsAnsweredOnce(),
        RepeatsMakeNobodyNew(asked),
        VersionsHaveNoGap(),
        TheGoneStayOut(asked),
        SessionsAreKept(asked),
        NothingWaitsForEver(config),
        TimeNeverGoesBack(),
        CommitsAreKept(asked),
        CommitsAreFenced(asked),
        OffsetsAreForgottenInTime(config),
        GroupsAreBounded(config),
    ]
