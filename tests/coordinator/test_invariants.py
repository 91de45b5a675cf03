"""Checkers find bugs that simulations seldom meet: the steps that these need are written out here."""

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.base.config import Config
from coordinator.messages.requests import OffsetToCommit, Received, SettleTransactions, TxnOffsetCommit
from tests.coordinator.consumer.test_mixed import Mixed, classic
from tests.coordinator.invariants import Step, all_checkers
from tests.coordinator.reports import report
from tests.simulation.bugs import BUGS


class Watched(Mixed):
    """A conversation whose steps the checkers watch."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._checkers = all_checkers(self.config)

    def steps(self, log: list[Received]) -> None:
        super().steps(log)
        groups = {g: group for g in self.shard.group_ids if (group := self.shard.group(g)) is not None}
        consumers = {g: group for g in self.shard.group_ids if (group := self.shard.consumer_group(g)) is not None}
        step = Step(log, self.latest, log[-1].at_ms, groups, consumer_groups=consumers)
        for checker in self._checkers:
            checker.watch(step)


OFFSETS = (OffsetToCommit("T", 0, 7), OffsetToCommit("T", 1, 7))


def commits(c: Watched, place: int) -> None:
    c.sends(TxnOffsetCommit, place=place, producer_id=1, producer_epoch=0, offsets=OFFSETS)


def downgrades_without_a_removal() -> None:
    """A policy that a restart changes allows the downgrade: no request has raised the epoch."""
    c = Watched(group_consumer_migration_policy="upgrade")
    c.plays("T:2\nA 0 -> 2 {0 1}\n-- 1000")
    c.joins("P")
    c.plays("A -1 -> -1\n-- 1000")
    c.joins("P")
    c.config = Config(group_consumer_migration_policy="bidirectional")
    c._living = c.new_shard(c.shard.to_bytes())
    c.beats("P", 4)


def empties() -> None:
    """The only member leaves, after the deadline of the new group has passed."""
    c = Watched()
    c.plays("T:2\nA 0 -> 2 {0 1}\n-- 1000\nA -1 -> -1\n-- 1000")


def converts_with_an_open_transaction() -> None:
    c = Watched(group_initial_rebalance_delay_ms=0)
    classic(c)
    commits(c, 0)
    c.plays("T:4\nX 0 -> 3 {}")


def reports_of_two_topics() -> None:
    """The topic is made anew while a transaction is open: its end is lost, and nobody has committed it."""
    c = Watched()
    c.sends(SettleTransactions, **report(c.shard, 0, topic_id="one"))
    commits(c, 3)
    c.sends(SettleTransactions, **report(c.shard, 4, [3], topic_id="two"))


STEPS: dict[str, tuple[Callable[[], None], str]] = {
    # a bug, the steps that it needs, and what its checker says
    "a downgrade without a removal takes a generation back": (downgrades_without_a_removal, "a member was told 4"),
    "an Empty group of the consumer protocol stays for ever": (empties, "is Empty for ever"),
    "a converted group loses its pending commits": (converts_with_an_open_transaction, "is pending, and is lost"),
    "pending commits outlive their topic": (reports_of_two_topics, "belong to no committed transaction"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_checker_finds_a_rare_bug(name: str, monkeypatch: pytest.MonkeyPatch):
    steps, message = STEPS[name]
    steps()
    BUGS[name].plant(monkeypatch)
    with pytest.raises(AssertionError, match=message):
        steps()


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_changes_text_that_the_core_still_has(name: str, monkeypatch: pytest.MonkeyPatch):
    BUGS[name].plant(monkeypatch)
