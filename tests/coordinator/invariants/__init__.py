"""The promises that must always hold, with one checker for each (promises.md, section 1).

A checker gets every step: the requests, the outputs, and the groups after it, if the test can read the state. It raises
AssertionError at the first step that breaks its promise. A test that cannot read the state (a system test that reads
topics) passes `groups=None`; then the checkers that need the groups check nothing. A step may leave out groups whose
bytes it did not change.
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
from tests.coordinator.invariants.step import Checker, KnownRequests, Step, Truth
from tests.coordinator.invariants.tokens import TokensGrow
from tests.coordinator.invariants.truth import JumpsHarmNobody, TheUnreadIsHeardFirst

__all__ = ["MisroutedIsRefused", "Step", "Truth", "all_checkers"]


def all_checkers(config: Config) -> list[Checker]:
    """Return one checker for each promise. All must get the same steps, from the first one on."""
    asked = KnownRequests()
    return [
        RepliesFitTheirRequests(asked),  # the first one: the others look up a response's request
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
