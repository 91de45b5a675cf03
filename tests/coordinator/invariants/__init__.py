"""The promises that must always hold, with one checker for each (promises.md, section 1).

A checker gets every step: the requests, the outputs, and the groups after it, if the test can read the state. It raises
AssertionError at the first step that breaks its promise. A test that cannot read the state (a system test that reads
topics) passes `groups=None`; then the checkers that need the groups check nothing. A step may leave out groups whose
bytes it did not change.
"""

from coordinator.base.config import Config
from tests.coordinator.invariants.agreements import GenerationsAreAgreed, PlansArePassedOn, SeatsHaveOneHolder
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
from tests.coordinator.invariants.consumer_groups import (
    ConsumerSessionsAreKept,
    EpochsGrow,
    PartitionsHaveOneHolder,
    PlansAreComplete,
    RevocationsEnd,
    TheSettledHaveTheirTargets,
)
from tests.coordinator.invariants.consumer_lives import (
    ConsumerGroupsAreBounded,
    ConsumerHandoversAddUp,
    EmptyConsumerGroupsEnd,
    GenerationsOutliveConversions,
    TakersHaveHigherTokens,
)
from tests.coordinator.invariants.consumer_members import (
    CommitsComeFromHolders,
    HeartbeatsFitTheMember,
    PartitionsHaveOneUser,
)
from tests.coordinator.invariants.dropped import NobodyIsDroppedUnheard, PendingIdsAreGood, SessionsEnd
from tests.coordinator.invariants.generations import GenerationsGrow, PhasesAreLegal
from tests.coordinator.invariants.handovers import HandoversAddUp
from tests.coordinator.invariants.held_plans import HoldsEnd, QuarantinesAreBounded
from tests.coordinator.invariants.lives import (
    GroupsAreBounded,
    NothingWaitsForEver,
    SessionsAreKept,
    TheGoneStayOut,
    TimeNeverGoesBack,
)
from tests.coordinator.invariants.rolls import AnswersFitTheGroup, MisroutedIsRefused
from tests.coordinator.invariants.seats import SeatsAreBounded, SeatsEnd
from tests.coordinator.invariants.sizes import OutputsAreBounded
from tests.coordinator.invariants.step import Checker, KnownRequests, Step, Truth
from tests.coordinator.invariants.tokens import TokensGrow
from tests.coordinator.invariants.transactions import checkers_of_transactions
from tests.coordinator.invariants.truth import JumpsHarmNobody, TheUnreadIsHeardFirst
from tests.coordinator.invariants.views import ClassicOnly, ClassicView, name_of

__all__ = ["MisroutedIsRefused", "Step", "Truth", "all_checkers", "name_of"]


def all_checkers(config: Config) -> list[Checker]:
    """Return one checker for each promise. All must get the same steps, from the first one on."""
    asked, by_classic = KnownRequests(), KnownRequests()
    view = ClassicView(asked)

    def classic(checker: Checker) -> Checker:
        return ClassicOnly(checker, view)

    return [
        RepliesFitTheirRequests(asked),  # the first one: the others look up a response's request
        *checkers_of_transactions(asked),
        classic(GenerationsGrow()),
        classic(PhasesAreLegal()),
        *map(classic, _of_generations(config, by_classic)),
        EachRequestIsAnsweredOnce(),
        classic(RepeatsMakeNobodyNew(by_classic)),
        VersionsHaveNoGap(),
        classic(TheGoneStayOut(by_classic)),
        classic(SessionsAreKept(by_classic)),
        classic(NothingWaitsForEver(config)),
        TimeNeverGoesBack(),
        TheNewestOfAKeyIsKnown(),
        CommitsAreKept(asked),
        classic(CommitsAreFenced(by_classic)),
        OffsetsAreForgottenInTime(config),
        OffsetsAreForgottenAtLast(config),
        TheForgottenAreTold(),
        classic(GroupsAreBounded(config)),
        classic(AnswersFitTheGroup(by_classic)),
        classic(SessionsEnd(by_classic)),
        classic(NobodyIsDroppedUnheard(config, by_classic)),
        classic(PendingIdsAreGood(by_classic)),
        classic(HandoversAddUp(by_classic)),
        classic(JumpsHarmNobody(config)),
        classic(TheUnreadIsHeardFirst()),
        OutputsAreBounded(),
        *_of_consumer_groups(config, asked),
    ]


def _of_generations(config: Config, asked: KnownRequests) -> list[Checker]:
    """Return the checkers of leaders, assignments and seats (policies.md 2.4)."""
    return [
        GenerationsAreAgreed(asked),
        PlansArePassedOn(asked),
        SeatsHaveOneHolder(asked),
        SeatsEnd(config, asked),
        SeatsAreBounded(asked),
        TokensGrow(asked),
    ]


def _of_consumer_groups(config: Config, asked: KnownRequests) -> list[Checker]:
    """Return the checkers of the consumer protocol (next-generation.md 10.9)."""
    return [
        PartitionsHaveOneHolder(),
        PartitionsHaveOneUser(asked),
        EpochsGrow(),
        HeartbeatsFitTheMember(asked),
        TheSettledHaveTheirTargets(),
        RevocationsEnd(config),
        PlansAreComplete(),
        CommitsComeFromHolders(asked),
        ConsumerSessionsAreKept(config, asked),
        ConsumerGroupsAreBounded(config),
        ConsumerHandoversAddUp(),
        EmptyConsumerGroupsEnd(),
        GenerationsOutliveConversions(asked),
        TakersHaveHigherTokens(),
        HoldsEnd(asked),
        QuarantinesAreBounded(asked),
    ]
