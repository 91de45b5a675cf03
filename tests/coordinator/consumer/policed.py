"""Conversations with a group of the consumer protocol that has policies."""

from typing import Any

import msgspec

from coordinator.base.policies import Freeze, Settle
from coordinator.messages.events import PlanMade, RebalanceStarted
from coordinator.messages.fields import Event
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.policy_events import (
    FreezeBegun,
    FreezeBroken,
    MemberQuarantined,
    QuarantineEnded,
    RebalanceHeld,
    SeatVacated,
)
from coordinator.messages.requests import RebalanceGroup
from tests.coordinator.consumer.conversation import START_MS
from tests.coordinator.consumer.test_members import TWO
from tests.coordinator.consumer.test_mixed import Mixed

SETTLE = Settle(join_quiet_ms=3_000, leave_quiet_ms=2_000, max_ms=10_000)
BEGIN_MS = 10_000
"""When the conversations of such a group begin, after `START_MS`: the last target assignment is old by then."""


class Policed(Mixed):
    """A Stable group of A with 0 and 1, and B with 2 and 3. Sessions never end, unless a test says so."""

    def __init__(self, **config: Any) -> None:
        defaults = {"group_consumer_session_timeout_ms": 1_800_000, "late_notice_ms": 2**40}
        super().__init__(**{**defaults, **config})
        self.plays(TWO)
        self.passes(BEGIN_MS - (self.now_ms - START_MS))

    def frozen(self, for_ms: int = 100_000, unowned_max_ms: int = 20_000, **policies: Any) -> "Policed":
        """Freeze the group from now on."""
        self.policy(freeze=Freeze(until_ms=self.now_ms + for_ms, unowned_max_ms=unowned_max_ms), **policies)
        return self

    def until(self, at_ms: int) -> "Policed":
        """Pass time until a time after the beginning."""
        self.passes(BEGIN_MS + at_ms - (self.now_ms - START_MS))
        return self

    def beats_of(self, *names: str) -> "Policed":
        """Send a heartbeat of each member, with the partitions that it may use."""
        for name in names:
            owned = " ".join(str(n) for numbers in self.group.members[name].assigned.values() for n in sorted(numbers))
            self.says(f"{name} {self.group.epoch_of(name)} own {owned}")
        return self

    @property
    def said(self) -> list[str]:
        """The events of policies, and the plans, as text. Their times count from the beginning."""
        return [text for event in self.outputs if isinstance(event, Event) if (text := as_text(event)) is not None]

    @property
    def hold(self) -> Any:
        """The effect of policies, as the latest record has it."""
        records = [o.record for o in self.outputs if isinstance(o, Published) and isinstance(o.record, GroupRecord)]
        return records[-1].hold

    @property
    def standing(self) -> dict[str, Any]:
        """The standing of members that have one, as the latest record has it."""
        records = [o.record for o in self.outputs if isinstance(o, Published) and isinstance(o.record, GroupRecord)]
        return {m.member_id: m.standing for m in records[-1].members if m.standing is not msgspec.UNSET}

    def rebalances(self) -> Any:
        """Send the request of an operator for a rebalance."""
        return self.sends(RebalanceGroup)


def since(at_ms: int) -> int:
    return at_ms - START_MS - BEGIN_MS


def as_text(event: Event) -> str | None:
    at_ms = since(event.at_ms)
    match event:
        case _ if at_ms < 0:
            return None
        case RebalanceHeld():
            return f"{at_ms} held {event.cause} {event.member_id or '-'} {event.policy} {since(event.until_ms)}"
        case SeatVacated():
            return f"{at_ms} vacated {event.member_id} {event.policy} {event.cause} {since(event.until_ms)}"
        case RebalanceStarted():
            held = f" {event.held_ms}" if isinstance(event.held_ms, int) else ""
            return f"{at_ms} started {event.cause} {event.member_id or '-'}{held}"
        case PlanMade():
            return f"{at_ms} plan {event.members}"
        case FreezeBegun():
            return f"{at_ms} frozen {since(event.until_ms)}"
        case FreezeBroken():
            return f"{at_ms} broken {event.why} {event.how}"
        case MemberQuarantined():
            return f"{at_ms} quarantined {event.member_id} {event.flaps} {event.times} {since(event.until_ms)}"
        case QuarantineEnded():
            return f"{at_ms} free {event.member_id} {event.why}"
        case _:
            return None
