"""Bugs of other implementations, and some invented ones, put in as `test_known_bugs` does."""

from collections.abc import Callable

import pytest
from msgspec import Struct

from coordinator.classic import join
from coordinator.common import offsets
from coordinator.messages.requests import JoinGroup
from coordinator.shard.handlers import HANDLERS
from coordinator.state.classic_group import HotState
from tests.coordinator.test_known_bugs import SEEDS, change_row


class Known(Struct, frozen=True):
    """A bug that a function of its own puts in; see `Bug`."""

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    found_by: str


def _takes_a_repeat_for_another_join(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(join, "is_known_by_its_id", lambda request: False)


def _forgets_a_moment_early(patch: pytest.MonkeyPatch) -> None:
    expiry_ms = offsets.expiry_ms
    patch.setattr(offsets, "expiry_ms", lambda *arguments: expiry_ms(*arguments) - 1)


def _lets_everybody_in(patch: pytest.MonkeyPatch) -> None:
    change_row(patch, JoinGroup, of_the_group=HANDLERS[JoinGroup].of_the_group[1:])


def _waits_twice_as_long(patch: pytest.MonkeyPatch) -> None:
    wait = HotState.wait
    patch.setattr(HotState, "wait", lambda self, now_ms, wait_ms: wait(self, now_ms, wait_ms * 2))


MADE_UP = (
    Known("a repeated join adds a second member", _takes_a_repeat_for_another_join, "RepeatsMakeNobodyNew"),
    Known("offsets expire a moment early", _forgets_a_moment_early, "OffsetsAreForgottenInTime"),
    Known("the size of a group is not limited", _lets_everybody_in, "GroupsAreBounded"),
    Known("all waits are doubled", _waits_twice_as_long, "NothingWaitsForEver"),
)

FOUND_BY = {
    # a bug of `test_known_bugs`, and its checker in simulations; only the scenarios find the other bugs of that list
    "Kafka's joined timer keys": "CommitsAreKept",
    "Kafka's comments on heartbeats": "AnswersFitTheGroup",
    "KAFKA-20938, joins": "EachRequestIsAnsweredOnce",
    "KAFKA-20985, repeats": "Coordinator raised AssertionError",
    "KAFKA-9801": "PlansArePassedOn",
    "librdkafka #2631": "TheGoneStayOut",
    "Iceberg connect #17551": "CommitsAreFenced",
    "SeaweedFS, a fetch right after a commit": "CommitsAreKept",
    "Redpanda #31483": "EqualBytes",
    "KAFKA-8069": "EqualBytes",
    "Redpanda #3300": "NothingWaitsForEver",
    "a group that is created again starts with generation 1": "GenerationsGrow",
    "a join round completes without a member that left": "PhasesAreLegal",
    "followers receive the list of members": "GenerationsAreAgreed",
    "a response goes to another mailbox": "RepliesFitTheirRequests",
    "a version is skipped": "VersionsHaveNoGap",
    "sessions are rounded down": "SessionsAreKept",
    "a broker's clock goes back": "TimeNeverGoesBack",
}

BUGS = (*MADE_UP, *(Known(name, SEEDS[name].bug, found_by) for name, found_by in FOUND_BY.items()))
