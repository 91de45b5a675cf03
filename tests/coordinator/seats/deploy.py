"""Conversations with a group of four members that have one partition each, and policies."""

from collections.abc import Sequence
from typing import Any, Self

from coordinator.base.consumer_protocol import Subscription, assigned_partitions, write_subscription
from coordinator.messages.events import RebalanceStarted
from coordinator.messages.policy_events import (
    FreezeBroken,
    MemberQuarantined,
    QuarantineEnded,
    RebalanceHeld,
    SeatTaken,
    SeatVacated,
)
from coordinator.messages.requests import JoinGroup, Protocol
from coordinator.messages.responses import JoinGroupAnswer
from tests.coordinator.scenario import Scenario

LONG = {"session_timeout_ms": 45_000, "rebalance_timeout_ms": 300_000}
NAMES = ("c1", "c2", "c3", "c4")
OF_SEATS = (RebalanceHeld, SeatVacated, SeatTaken, MemberQuarantined, QuarantineEnded, FreezeBroken, RebalanceStarted)


class Deploy(Scenario):
    """A group whose processes are replaced one by one. Joins have long timeouts."""

    @classmethod
    def of(cls, *names: str, protocols: Sequence[str] = ("range",), config: dict[str, Any] | None = None,
           **policies: Any) -> Self:  # fmt: skip
        """Return a Stable group with policies; c1 leads, and each member has one partition."""
        s = cls.stable(*(names or NAMES), protocols=protocols, **LONG, **(config or {}))
        return s.policy(**policies) if policies else s

    def join(self, name: str, **fields: Any) -> Self:
        """Join as one of the group's members does."""
        return super().join(name, **{**LONG, **fields})

    def new(self, name: str, **fields: Any) -> Self:
        """Join as a new process of a client."""
        return self.join(name, member_id="", **fields)

    def beat(self, *names: str) -> Self:
        """Send a heartbeat of some members; of all, if none is named."""
        for name in names or [self.name(member_id) for member_id in self.group.members]:
            self.heartbeat(name)
        return self

    def live_until(self, now_ms: int, *names: str) -> Self:
        """Pass time, while some members send heartbeats; all members, if none is named."""
        while self.now_ms + 20_000 < now_ms:
            self.until(self.now_ms + 20_000).beat(*names)
        return self.until(now_ms)

    def owns(self, name: str) -> list[int]:
        """Return the partitions of a member."""
        return (assigned_partitions(self.group.members[self.ids[name]].assignment) or {}).get("t", [])

    def told(self) -> list[str]:
        """Return the events about seats and rebalances since the policies were set, as short lines."""
        lines = []
        for e in self.events():
            if isinstance(e, OF_SEATS) and e.version > self._begun:
                who = self.name(e.member_id)
                match e:
                    case RebalanceHeld() | SeatVacated():
                        lines.append(f"{e.at_ms} {e.__struct_config__.tag} {who} {e.policy} {e.until_ms}")
                    case SeatTaken():
                        lines.append(f"{e.at_ms} {e.how} {who} {self.name(e.before)} {e.unowned_ms}")
                    case MemberQuarantined():
                        lines.append(f"{e.at_ms} quarantined {who} {e.flaps} {e.times} {e.until_ms}")
                    case QuarantineEnded():
                        lines.append(f"{e.at_ms} released {who} {e.why}")
                    case FreezeBroken():
                        lines.append(f"{e.at_ms} freeze_broken {e.why} {e.how} {who}".strip())
                    case RebalanceStarted():
                        lines.append(f"{e.at_ms} rebalance {e.cause} {who}".strip())
        return lines

    def policy(self, **settings: Any) -> Self:
        """Set policies; events count from the first time on."""
        if not self._settings:
            self._begun = self.group.version if self.shard.group(self.group_id) else 0
        return super().policy(**settings)

    _begun = 0


def joined(s: Scenario, name: str) -> JoinGroupAnswer:
    """Return the response to the latest join of a member."""
    answer = s.heard(name, JoinGroup)
    assert isinstance(answer, JoinGroupAnswer)
    return answer


def cooperative(
    owned: Sequence[int] = (), generation: int = -1, topics: Sequence[str] = ("t",)
) -> tuple[Protocol, ...]:
    """Return the protocols of a cooperative member that owns partitions of t."""
    subscription = Subscription(tuple(topics), owned={"t": list(owned)} if owned else {}, generation_id=generation)
    return (Protocol("cooperative-sticky", write_subscription(subscription)),)
