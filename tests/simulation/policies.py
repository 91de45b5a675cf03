"""The operator of a simulation who sets policies, and changes them while the groups run.

The policies are drawn apart from all else, so a simulation without policies is what it was before there were any.
"""

from collections.abc import Sequence
from random import Random

from coordinator.base.access import Pattern
from coordinator.base.policies import (
    ASSIGNORS,
    MINUTE_MS,
    MONDAY_MS,
    WEEK_MINUTES,
    WEEK_MS,
    Freeze,
    Policies,
    Policy,
    Quarantine,
    Settle,
    Succession,
    Window,
    problems,
)
from coordinator.messages.requests import SetPolicies

RATE = 0.5
"""The share of simulations in which policies are set."""

CHANGES_RATE_MAX = 0.01
"""The highest rate at which they are changed, for each turn."""

FREEZE_MS_MAX = 600_000


class Legislator:
    """Draws policies for the groups of a simulation.

    Args:
        group_ids: The groups; most entries are for one of them, some for a prefix or for all.
    """

    def __init__(self, name: str, group_ids: Sequence[str]) -> None:
        self._chance = chance = Random(f"{name}, policies")
        self._group_ids, self._made_ms, self._sent = group_ids, 0, 0
        self.is_active = chance.random() < RATE
        self._rate = CHANGES_RATE_MAX * chance.random() ** 2

    def begin(self, now_ms: int) -> list[SetPolicies]:
        """Return the request that sets the first policies, if the simulation has any."""
        return [self._request(now_ms, can_freeze=True)] if self.is_active else []

    def turn(self, now_ms: int) -> list[SetPolicies]:
        """Return the requests of a turn."""
        is_due = self.is_active and self._chance.random() < self._rate
        return [self._request(now_ms, can_freeze=True)] if is_due else []

    def calm(self, now_ms: int) -> list[SetPolicies]:
        """Return the last request, often one that takes all policies back. No freeze begins from now on."""
        is_due = self.is_active and self._chance.random() < 0.7
        return [self._request(now_ms, can_freeze=False)] if is_due else []

    def _request(self, now_ms: int, *, can_freeze: bool) -> SetPolicies:
        self._sent += 1
        self._made_ms = max(self._made_ms + 1, now_ms)
        names = [(group_id, Pattern.LITERAL) for group_id in self._group_ids]
        names += [("group", Pattern.PREFIXED), ("*", Pattern.LITERAL)]
        entries = tuple(
            self._entry(name, pattern, now_ms, can_freeze=can_freeze)
            for name, pattern in names
            if self._chance.random() < 0.7
        )
        is_wrong = any(problems(Policies(self._made_ms, entries)))
        assert not is_wrong, list(problems(Policies(self._made_ms, entries)))
        return SetPolicies(
            request_id=f"policies.{self._sent}",
            reply_to="operator",
            client_id="operator",
            made_ms=self._made_ms,
            policies=entries,
        )

    def _entry(self, name: str, pattern: Pattern, now_ms: int, *, can_freeze: bool) -> Policy:
        chance = self._chance
        return Policy(
            name=name,
            pattern=pattern,
            succession=self._succession() if chance.random() < 0.7 else None,
            settle=self._settle() if chance.random() < 0.5 else None,
            freeze=self._freeze(now_ms) if can_freeze and chance.random() < 0.3 else None,
            quarantine=self._quarantine() if chance.random() < 0.4 else None,
            assignors=chance.choice((("range",), ("range", "sticky"), ("range", "sticky", "mine"), ASSIGNORS)),
        )

    def _succession(self) -> Succession:
        choice = self._chance.choice
        return Succession(
            vacant_ms=choice((0, 1_000, 10_000, 60_000)),
            standby_ms=choice((0, 1_000, 10_000, 90_000)),
            vacant_percent_max=choice((1, 50, 100)),
        )

    def _settle(self) -> Settle:
        choice = self._chance.choice
        return Settle(join_quiet_ms=choice((0, 1, 1_000, 5_000)), leave_quiet_ms=choice((0, 0, 2_000)), max_ms=20_000)

    def _freeze(self, now_ms: int) -> Freeze:
        chance, unowned_max_ms = self._chance, self._chance.choice((5_000, 20_000))
        if chance.random() < 0.5:
            return Freeze(until_ms=self._made_ms + chance.randint(1, FREEZE_MS_MAX), unowned_max_ms=unowned_max_ms)
        begin = (now_ms - MONDAY_MS) % WEEK_MS // MINUTE_MS + chance.randrange(5)
        end = begin + chance.randint(1, FREEZE_MS_MAX // MINUTE_MS)
        window = Window(from_minute=begin % WEEK_MINUTES, until_minute=end % WEEK_MINUTES)
        return Freeze(windows=(window,), unowned_max_ms=unowned_max_ms)

    def _quarantine(self) -> Quarantine:
        choice = self._chance.choice
        return Quarantine(
            flaps=choice((2, 3)),
            within_ms=choice((60_000, 600_000)),
            for_ms=choice((5_000, 30_000)),
            for_max_ms=60_000,
            percent_max=choice((10, 50)),
        )
