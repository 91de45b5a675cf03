"""Owned partitions and the calls of a listener: the table of `owned_partitions` (S121, S122; protocol.md 6.5)."""

from collections.abc import Iterator

import pytest

from coordinator.assignors import RebalanceProtocol
from coordinator.member.owned_partitions import Change, ListenerCall, OwnedPartitions

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE
ASSIGNED, REVOKED, LOST = ListenerCall.ASSIGNED, ListenerCall.REVOKED, ListenerCall.LOST
BOTH = pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE], ids=lambda p: p.name.lower())

Call = tuple[ListenerCall, str, str]
"""A call of the listener: its kind, its partitions, and the partitions owned during the call."""


def letters(partitions: frozenset[str]) -> str:
    return "".join(sorted(partitions))


class Owner:
    """A listener that records every call and the partitions that are owned at that time."""

    def __init__(self, protocol: RebalanceProtocol, owned: str = "") -> None:
        self.holding: OwnedPartitions[str] = OwnedPartitions(protocol)
        if owned:
            self.takes(owned)

    def hears(self, changes: Iterator[Change[str]]) -> list[Call]:
        return [(c.call, letters(c.partitions), letters(self.holding.owned)) for c in changes]

    def prepares(self, wanted: str = "abcdef") -> list[Call]:
        return self.hears(self.holding.prepare(lambda p: p in wanted))

    def takes(self, assigned: str) -> list[Call]:
        return self.hears(self.holding.assign(list(assigned)))

    def loses(self) -> list[Call]:
        return self.hears(self.holding.lose())

    def leaves(self) -> list[Call]:
        return self.hears(self.holding.leave())

    @property
    def owned(self) -> str:
        return letters(self.holding.owned)


# -- before a join -----------------------------------------------------------------------------------------------------


@BOTH
def test_no_call_before_the_first_join(protocol: RebalanceProtocol) -> None:
    """S122, OLD 15: clients up to 2.3 called on_partitions_revoked with no partitions; later ones do not."""
    assert Owner(protocol).prepares() == []


def test_eager_revokes_everything_before_a_join() -> None:
    """S121: partitions are revoked while they are still owned, and are not owned afterwards."""
    owner = Owner(EAGER, "ab")
    assert owner.prepares() == [(REVOKED, "ab", "ab")]
    assert owner.owned == ""


def test_eager_calls_revoked_even_if_nothing_is_owned() -> None:
    """Protocol.md 6.5: "even if empty", after the first join."""
    owner = Owner(EAGER)
    owner.takes("")
    assert owner.prepares() == [(REVOKED, "", "")]


def test_eager_is_not_called_again_if_an_assignment_is_not_applied() -> None:
    """S122: an assignment that is not applied is followed by another prepare, with no partition to revoke."""
    owner = Owner(EAGER, "ab")
    assert [owner.prepares(), owner.prepares()] == [[(REVOKED, "ab", "ab")], [(REVOKED, "", "")]]


def test_cooperative_keeps_its_partitions_during_a_join() -> None:
    """KIP-429: the member continues to read the partitions that it keeps."""
    owner = Owner(COOPERATIVE, "ab")
    assert owner.prepares() == []
    assert owner.owned == "ab"


def test_cooperative_revokes_partitions_of_unsubscribed_topics() -> None:
    """Protocol.md 6.5: partitions of unsubscribed topics are revoked before the join."""
    owner = Owner(COOPERATIVE, "abc")
    assert owner.prepares(wanted="b") == [(REVOKED, "ac", "abc")]
    assert owner.owned == "b"


# -- after a loss of membership ----------------------------------------------------------------------------------------


@BOTH
def test_lost_partitions_are_reported_as_lost_and_never_as_revoked(protocol: RebalanceProtocol) -> None:
    """Protocol.md 6.5: 22 and 25 lead to on_partitions_lost; the join that follows has no partition to revoke."""
    owner = Owner(protocol, "ab")
    assert owner.loses() == [(LOST, "ab", "ab")]
    assert owner.owned == ""
    assert owner.prepares() == []


@BOTH
def test_no_call_if_no_partition_is_lost(protocol: RebalanceProtocol) -> None:
    """Protocol.md 6.5: "if any are owned"; a member that joins after that has no partition to revoke."""
    owner = Owner(protocol)
    owner.takes("")
    assert owner.loses() == []
    assert owner.prepares() == []


# -- an assignment arrives ---------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("plan", ["ab", ""])
def test_the_first_assignment_is_reported_even_if_it_is_empty(protocol: RebalanceProtocol, plan: str) -> None:
    """S121, S99: the partitions are owned already during the call."""
    owner = Owner(protocol)
    assert owner.takes(plan) == [(ASSIGNED, plan, plan)]
    assert owner.owned == plan


def test_eager_is_assigned_all_partitions_again() -> None:
    """S121: all are revoked, then assigned, once in a rebalance, including those that stay."""
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
def test_cooperative_revokes_removed_and_assigns_new_partitions(owned: str, plan: str, told: list[Call]) -> None:
    """S121, protocol.md 6.5: revoked only if there are partitions to revoke, assigned always."""
    owner = Owner(COOPERATIVE, owned)
    assert owner.prepares() + owner.takes(plan) == told
    assert owner.owned == plan


# -- a leave -----------------------------------------------------------------------------------------------------------


@BOTH
def test_a_leave_revokes_all_partitions(protocol: RebalanceProtocol) -> None:
    """Protocol.md 6.4: they are revoked, if any are owned; the next join is a first join again."""
    owner = Owner(protocol, "ab")
    assert owner.leaves() == [(REVOKED, "ab", "ab")]
    assert owner.owned == ""
    assert owner.leaves() == owner.prepares() == []


# -- a listener that raises --------------------------------------------------------------------------------------------

GIVING_UP = {
    "eager, before it joins": (EAGER, lambda h: h.prepare(lambda p: True), ""),
    "cooperative, before it joins": (COOPERATIVE, lambda h: h.prepare(lambda p: p == "a"), "a"),
    "cooperative, the plan takes away": (COOPERATIVE, lambda h: h.assign("a"), "a"),
    "lost": (COOPERATIVE, lambda h: h.lose(), ""),
    "it leaves": (EAGER, lambda h: h.leave(), ""),
}


@pytest.mark.parametrize("error", [GeneratorExit, KeyboardInterrupt])
@pytest.mark.parametrize(("protocol", "step", "left"), GIVING_UP.values(), ids=GIVING_UP)
def test_revoked_partitions_are_not_owned_after_a_failed_call(
    protocol: RebalanceProtocol, step: object, left: str, error: type[BaseException]
) -> None:
    """S121: other members may get these partitions, even if the listener raised."""
    owner = Owner(protocol, "ab")
    changes = step(owner.holding)  # type: ignore[operator]
    assert next(changes).call in (REVOKED, LOST)
    if error is GeneratorExit:
        changes.close()
    else:
        with pytest.raises(KeyboardInterrupt):
            changes.throw(KeyboardInterrupt)
    assert owner.owned == left
    assert list(changes) == []


@BOTH
def test_an_assignment_is_owned_after_a_failed_call(protocol: RebalanceProtocol) -> None:
    """S99: the assignment is the member's, even if its listener did not finish."""
    holding: OwnedPartitions[str] = OwnedPartitions(protocol)
    changes = holding.assign("ab")
    assert next(changes).call is ASSIGNED
    changes.close()
    assert letters(holding.owned) == "ab"


@BOTH
def test_a_change_has_the_partitions_that_are_owned_from_then_on(protocol: RebalanceProtocol) -> None:
    """S121: before the call for an assignment, after any other call."""
    holding: OwnedPartitions[str] = OwnedPartitions(protocol)
    owned = [
        letters(c.owned) for changes in (holding.assign("ab"), holding.assign("bc"), holding.lose()) for c in changes
    ]
    assert owned == ["ab", "b", "bc", ""]


def test_the_protocol_of_a_holding() -> None:
    assert [OwnedPartitions(protocol).is_cooperative for protocol in (EAGER, COOPERATIVE)] == [False, True]
