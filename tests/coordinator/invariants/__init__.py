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
    TheNewestOfAKeyIsKnown,
    VersionsHaveNoGap,
)
from tests.coordinator.invariants.commits import (
    CommitsAreFenced,
    CommitsAreKept,
    OffsetsAreForgottenAtLast,
    OffsetsAreForgottenInTime,
    TheForgottenAreTold,
)
from tests.coordinator.invariants.dropped import NobodyIsDroppedUnheard, PendingIdsAreGood, SessionsEnd
from tests.coordinator.invariants.generations import (
    GenerationsAreAgreed,
    GenerationsGrow,
    HandoversAddUp,
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
from tests.coordinator.invariants.rolls import AnswersFitTheGroup, MisroutedIsRefused
from tests.coordinator.invariants.sizes import OutputsAreBounded
from tests.coordinator.invariants.step import Asked, Checker, Step, Truth
from tests.coordinator.invariants.tokens import TokensGrow
from tests.coordinator.invariants.truth import JumpsHarmNobody, TheUnreadIsHeardFirst

__all__ = ["MisroutedIsRefused", "Step", "Truth", "all_checkers"]


def all_checkers(config: Config) -> list[Checker]:
    """Make one checker for each promise, to be shown the same steps from the first one on."""
    asked = Asked()
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
        TheNewestOfAKeyIsKnown(),
        CommitsAreKept(asked),
        CommitsAreFenced(asked),
        OffsetsAreForgottenInTime(config),
        OffsetsAreForgottenAtLast(config),
        TheForgottenAreTold(),
        GroupsAreBounded(config),
        AnswersFitTheGroup(asked),
        SessionsEnd(asked),
        NobodyIsDroppedUnheard(config, asked),
        PendingIdsAreGood(asked),
        HandoversAddUp(),
        JumpsHarmNobody(config),
        TheUnreadIsHeardFirst(),
        OutputsAreBounded(),
    ]
