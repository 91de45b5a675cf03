"""What a member owns and what its owner is told: the table of `holding`, row by row (S121, S122; protocol.md 6.5)."""

from collections.abc import Iterator

import pytest

from coordinator.assignors import RebalanceProtocol
from coordinator.holding import Change, Holding, Told

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
ASSIGNED, REVOKED, LOST = Told.ASSIGNED, Told.REVOKED, Told.LOST
BOTH = pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE], ids=lambda p: p.name.lower())

Call = tuple[Told, str, str]
"""What is told, of which partitions, and what is owned meanwhile."""


def letters(partitions: frozenset[str]) -> str:
    return "".join(sorted(partitions))


class Owner:
    """Is told everything, and looks at what it owns meanwhile."""

    def __init__(self, protocol: RebalanceProtocol, owned: str = "") -> None:
        self.holding: Holding[str] = Holding(protocol)
        if owned:
            self.takes(owned)

    def hears(self, changes: Iterator[Change[str]]) -> list[Call]:
        return [(c.told, letters(c.partitions), letters(self.holding.owned)) for c in changes]

    def prepares(self, wanted: str = "abcdef") -> list[Call]:
        return self.hears(self.holding.prepare(lambda p: p in wanted))

    def takes(self, assigned: str) -> list[Call]:
        return self.hears(self.holding.take(list(assigned)))

    def loses(self) -> list[Call]:
        return self.hears(self.holding.lose())

    def leaves(self) -> list[Call]:
        return self.hears(self.holding.leave())

    @property
    def owned(self) -> str:
        return letters(self.holding.owned)


# -- before it joins ---------------------------------------------------------------------------------------------------


@BOTH
def test_nothing_is_told_before_the_very_first_join(protocol: RebalanceProtocol) -> None:
    """S122, OLD 15: clients up to 2.3 called on_partitions_revoked with nothing; since then nobody does."""
    assert Owner(protocol).prepares() == []


def test_eager_gives_up_everything_before_it_joins() -> None:
    """S121: revoked while it is still owned, and no longer afterwards."""
    owner = Owner(EAGER, "ab")
    assert owner.prepares() == [(REVOKED, "ab", "ab")]
    assert owner.owned == ""


def test_eager_tells_of_a_rebalance_even_if_nothing_is_owned() -> None:
    """Protocol.md 6.5: "even if empty", once it has been in."""
    owner = Owner(EAGER)
    owner.takes("")
    assert owner.prepares() == [(REVOKED, "", "")]


def test_eager_is_not_told_again_where_a_plan_comes_to_nothing() -> None:
    """S122: a plan that is not applied is followed by another prepare, with nothing left to give up."""
    owner = Owner(EAGER, "ab")
    assert [owner.prepares(), owner.prepares()] == [[(REVOKED, "ab", "ab")], [(REVOKED, "", "")]]


def test_cooperative_keeps_what_it_wants_while_it_joins() -> None:
    """KIP-429: what is retained is read on."""
    owner = Owner(COOPERATIVE, "ab")
    assert owner.prepares() == []
    assert owner.owned == "ab"


def test_cooperative_gives_up_what_it_no_longer_asks_for() -> None:
    """Protocol.md 6.5: partitions of topics that it has unsubscribed from, before the others are told so."""
    owner = Owner(COOPERATIVE, "abc")
    assert owner.prepares(wanted="b") == [(REVOKED, "ac", "abc")]
    assert owner.owned == "b"


# -- having lost its membership ----------------------------------------------------------------------------------------


@BOTH
def test_what_is_lost_is_told_as_lost_and_never_as_revoked(protocol: RebalanceProtocol) -> None:
    """Protocol.md 6.5: 22 and 25 lead to on_partitions_lost; the join that follows finds nothing to give up."""
    owner = Owner(protocol, "ab")
    assert owner.loses() == [(LOST, "ab", "ab")]
    assert owner.owned == ""
    assert owner.prepares() == []


@BOTH
def test_nothing_cannot_be_lost(protocol: RebalanceProtocol) -> None:
    """Protocol.md 6.5: "if any are owned"; and who comes in from nowhere has nothing to revoke."""
    owner = Owner(protocol)
    owner.takes("")
    assert owner.loses() == []
    assert owner.prepares() == []


# -- the plan has come -------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("plan", ["ab", ""])
def test_the_first_plan_is_told_also_if_it_gives_nothing(protocol: RebalanceProtocol, plan: str) -> None:
    """S121, S99: it is owned already while that is told."""
    owner = Owner(protocol)
    assert owner.takes(plan) == [(ASSIGNED, plan, plan)]
    assert owner.owned == plan


def test_eager_is_assigned_all_of_it_again() -> None:
    """S121: revoked, then assigned, once a rebalance, also what stays where it was."""
    owner = Owner(EAGER, "ab")
    assert owner.prepares() + owner.takes("bc") == [(REVOKED, "ab", "ab"), (ASSIGNED, "bc", "bc")]


COOPERATIVE_PLANS = {
    "nothing moves": ("ab", "ab", [(ASSIGNED, "", "ab")]),
    "more comes": ("ab", "abc", [(ASSIGNED, "c", "abc")]),
    "some goes": ("ab", "a", [(REVOKED, "b", "ab"), (ASSIGNED, "", "a")]),
    "all goes": ("ab", "", [(REVOKED, "ab", "ab"), (ASSIGNED, "", "")]),
    "some goes and more comes": ("ab", "bc", [(REVOKED, "a", "ab"), (ASSIGNED, "c", "bc")]),
}


@pytest.mark.parametrize(("owned", "plan", "told"), COOPERATIVE_PLANS.values(), ids=COOPERATIVE_PLANS)
def test_cooperative_gives_up_what_the_plan_takes_and_is_assigned_what_is_new(
    owned: str, plan: str, told: list[Call]
) -> None:
    """S121, protocol.md 6.5: revoked only if there is anything to revoke, assigned always."""
    owner = Owner(COOPERATIVE, owned)
    assert owner.prepares() + owner.takes(plan) == told
    assert owner.owned == plan


# -- it leaves ---------------------------------------------------------------------------------------------------------


@BOTH
def test_who_leaves_gives_up_what_there_is(protocol: RebalanceProtocol) -> None:
    """Protocol.md 6.4: revoked, if anything is owned; coming back is a first join again."""
    owner = Owner(protocol, "ab")
    assert owner.leaves() == [(REVOKED, "ab", "ab")]
    assert owner.owned == ""
    assert owner.leaves() == owner.prepares() == []


# -- broken off --------------------------------------------------------------------------------------------------------

GIVING_UP = {
    "eager, before it joins": (EAGER, lambda h: h.prepare(lambda p: True), ""),
    "cooperative, before it joins": (COOPERATIVE, lambda h: h.prepare(lambda p: p == "a"), "a"),
    "cooperative, the plan takes away": (COOPERATIVE, lambda h: h.take("a"), "a"),
    "lost": (COOPERATIVE, lambda h: h.lose(), ""),
    "it leaves": (EAGER, lambda h: h.leave(), ""),
}


@pytest.mark.parametrize("error", [GeneratorExit, KeyboardInterrupt])
@pytest.mark.parametrize(("protocol", "step", "left"), GIVING_UP.values(), ids=GIVING_UP)
def test_a_telling_that_is_broken_off_leaves_nothing_behind_that_was_given_up(
    protocol: RebalanceProtocol, step: object, left: str, error: type[BaseException]
) -> None:
    """S121: whatever the listener did, others may be given these."""
    owner = Owner(protocol, "ab")
    changes = step(owner.holding)  # type: ignore[operator]
    assert next(changes).told in (REVOKED, LOST)
    if error is GeneratorExit:
        changes.close()
    else:
        with pytest.raises(KeyboardInterrupt):
            changes.throw(KeyboardInterrupt)
    assert owner.owned == left
    assert list(changes) == []


@BOTH
def test_a_plan_whose_telling_is_broken_off_is_owned_all_the_same(protocol: RebalanceProtocol) -> None:
    """S99: it is the member's by the plan, whether or not its listener came to an end."""
    holding: Holding[str] = Holding(protocol)
    changes = holding.take("ab")
    assert next(changes).told is ASSIGNED
    changes.close()
    assert letters(holding.owned) == "ab"


@BOTH
def test_a_change_says_what_is_owned_from_there_on(protocol: RebalanceProtocol) -> None:
    """S121: before an assignment is told, after anything else."""
    holding: Holding[str] = Holding(protocol)
    owned = [letters(c.owned) for changes in (holding.take("ab"), holding.take("bc"), holding.lose()) for c in changes]
    assert owned == ["ab", "b", "bc", ""]


def test_which_of_the_two_it_is() -> None:
    assert [Holding(protocol).is_cooperative for protocol in (EAGER, COOPERATIVE)] == [False, True]
