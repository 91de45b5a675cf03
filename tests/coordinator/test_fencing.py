"""Fencing tokens, by which a store outside Kafka distinguishes owners, over restarts, tombstones and years."""

from random import Random

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import FENCING_TOKEN_FLOOR_MAX, REMOVED_GROUP_MS
from coordinator.base.policies import Succession
from coordinator.messages.events import MemberFenced, RebalanceCompleted
from coordinator.messages.policy_events import SeatTaken
from tests.coordinator.invariants.tokens import JSON_INTEGER_MAX
from tests.coordinator.scenario import Scenario
from tests.tiers import NIGHTLY

NOW_MS = 1_790_000_000_000
"""A day in 2026."""

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FORGOTTEN_AFTER_MS = HOUR_MS
"""A time after which a group without members and offsets is forgotten."""

PLAN = {"ana": {"t": [0]}, "bo": {"t": [1]}}


class Store:
    """A store of one partition's work, which refuses a token below the highest that it has seen."""

    def __init__(self) -> None:
        self.highest = -1

    def takes(self, token: int) -> bool:
        self.highest = max(self.highest, token)
        return token == self.highest


def token_of(s: Scenario, name: str, **fields: object) -> int:
    """Send a sync for a member, and return the token of the response."""
    return int(s.sync(name, **fields).hears(ErrorCode.NONE).said.fencing_token)


def alone(s: Scenario, name: str, **fields: object) -> int:
    """Join a new member to a group without members, and return its token."""
    s.join(name, **fields).is_("CompletingRebalance")
    return int(s.sync(name, plan={name: {"t": [0]}}).hears(ErrorCode.NONE).said.fencing_token)


# -- tokens of assignments ---------------------------------------------------------------------------------------------


def test_all_members_of_a_generation_get_one_token():
    """design.md 17: a token is microseconds of the group's time; a member without an assignment gets it too."""
    s = Scenario.joined("ana", "bo").at(NOW_MS).join("ana").join("bo").sync("ana", plan={"ana": {"t": [0, 1]}})
    assert [s.said.fencing_token, token_of(s, "ana"), token_of(s, "bo")] == [NOW_MS * 1_000] * 3
    (completed,) = s.events(RebalanceCompleted)
    assert completed.fencing_token == NOW_MS * 1_000
    assert [m.fencing_token for m in s.published()[-1].record.members] == [NOW_MS * 1_000] * 2


def test_two_tokens_within_a_millisecond_differ():
    s = Scenario().at(NOW_MS)
    first = alone(s, "ana")
    s.join("bo").join("ana").sync("ana", plan=PLAN)
    assert (first, s.said.fencing_token) == (NOW_MS * 1_000, NOW_MS * 1_000 + 1)


def test_a_repeated_sync_gets_the_same_token():
    s = Scenario.stable("ana", "bo")
    first = token_of(s, "bo")
    assert token_of(s.at(5_000), "bo") == first


def test_an_error_has_no_token():
    s = Scenario.stable("ana", "bo").sync("bo", generation_id=1).hears(ErrorCode.ILLEGAL_GENERATION)
    assert s.said.fencing_token == 0


def test_a_token_fits_into_a_double_as_long_as_the_floor_does():
    s = Scenario(fencing_token_floor=FENCING_TOKEN_FLOOR_MAX).at(NOW_MS)
    assert NOW_MS * 1_000 < FENCING_TOKEN_FLOOR_MAX == alone(s, "ana") < JSON_INTEGER_MAX // 2 + 2


# -- static members ----------------------------------------------------------------------------------------------------


def test_the_new_process_of_a_static_member_has_a_higher_token():
    """The group stays Stable and its generation the same: only the token distinguishes the two processes."""
    s = Scenario().join("ana", group_instance_id="i").sync("ana", plan={"ana": {"t": [0]}})
    store, old = Store(), s.said.fencing_token
    assert store.takes(old)
    s.at(1_000).join("ana", member_id="", group_instance_id="i", reply_to="another inbox").is_("Stable", generation=1)
    new = token_of(s, "ana#2", group_instance_id="i")
    assert store.takes(new)
    assert not store.takes(old)
    assert s.events(MemberFenced)[-1].fencing_token == new == 1_000_000
    s.sync("ana", group_instance_id="i").hears(ErrorCode.FENCED_INSTANCE_ID)
    assert s.said.fencing_token == 0
    (member,) = s.published()[-1].record.members
    assert member.fencing_token == new


@pytest.mark.parametrize("is_planned", [True, False])
def test_a_static_member_without_an_assignment_gets_a_token(is_planned: bool):
    s = Scenario().join("ana", group_instance_id="i-ana").join("bo", group_instance_id="i-bo").join("ana")
    s.sync("ana", plan={"ana": {"t": [0]}, "bo": {}} if is_planned else {"ana": {"t": [0]}})
    before = token_of(s, "bo")
    s.join("bo", member_id="", group_instance_id="i-bo", reply_to="another inbox").is_("Stable")
    assert token_of(s, "bo#2") == before + 1
    assert token_of(s, "ana") == before, "no other member gets a new token"


def test_a_static_member_that_restarts_in_a_rebalance_gets_the_higher_token():
    """It gets the token of the assignments, which is above that of its replacement."""
    s = Scenario.stable("ana").join("bo", group_instance_id="i").join("ana").is_("CompletingRebalance")
    s.join("bo", member_id="", group_instance_id="i", reply_to="another inbox").is_("PreparingRebalance")
    replaced = s.events(MemberFenced)[-1].fencing_token
    s.join("ana").sync("ana", plan={"ana": {}, "bo#2": {"t": [0]}})
    assert token_of(s, "bo#2") == replaced + 1


# -- after a group's end -----------------------------------------------------------------------------------------------


def test_tokens_grow_after_a_deletion_with_a_clock_behind():
    """A tombstone is kept for a day. The log's clock is behind when the group is created again, later than it ended."""
    s = Scenario().at(NOW_MS)
    assert alone(s, "ana") == NOW_MS * 1_000
    s.leave("ana").delete().is_gone()
    assert alone(s.at(NOW_MS - HOUR_MS), "bo") == (NOW_MS + 1) * 1_000


def test_a_group_forgotten_for_a_day_starts_at_generation_1_with_a_higher_token():
    """In the bug, the token was the generation, and a store refused every worker from then on."""
    s, store = Scenario().at(NOW_MS), Store()
    for name in ("ana", "bo", "cy"):
        assert store.takes(alone(s, name))
        s.is_("Stable", generation=1).leave(name).until(s.now_ms + 51 * HOUR_MS).is_gone()


def test_a_floor_ahead_of_time_holds_for_a_forgotten_group():
    """If the tokens are ahead of time after a day, the tombstone is kept until time has passed them."""
    ahead_ms = 3 * DAY_MS
    s = Scenario(fencing_token_floor=(NOW_MS + ahead_ms) * 1_000).at(NOW_MS)
    store = Store()
    assert store.takes(alone(s, "ana"))
    s.leave("ana").until(NOW_MS + REMOVED_GROUP_MS + HOUR_MS).is_gone()
    assert store.takes(alone(s, "bo"))
    assert store.highest == (NOW_MS + ahead_ms) * 1_000 + 1
    s.leave("bo").until(NOW_MS + ahead_ms + DAY_MS).is_gone()
    assert store.takes(alone(s, "cy"))
    assert store.highest == s.now_ms * 1_000


# -- ten years ---------------------------------------------------------------------------------------------------------

TEN_YEARS_MS = 3_652 * DAY_MS


def passed_on(s: Scenario, owner: str, name: str) -> int:
    """Replace the only owner by a newcomer, and return the newcomer's token."""
    s.join(name).sync(name).leave(owner).join(name).is_("Stable")
    return token_of(s, name)


def lives(s: Scenario, chance: Random, until_ms: int) -> list[int]:
    """Run joins, leaves, expiries and restarts of a group until then, and return its tokens in order."""
    tokens, number = [], len(s.ids)
    while s.now_ms < until_ms:
        number += 1
        name, is_static = f"c{number}", chance.random() < 0.5
        tokens.append(alone(s, name, group_instance_id="i" if is_static else None))
        for _ in range(chance.randrange(3) * is_static):
            s.at(s.now_ms + chance.choice((0, 5_000))).join(name, member_id="", group_instance_id="i")
            tokens.append(token_of(s, [*s.ids][-1]))
        for _ in range(chance.randrange(3)):
            number += 1
            tokens.append(passed_on(s, [*s.ids][-1], f"c{number}"))
        if chance.random() < 0.5:
            s.leave([*s.ids][-1])
        s.until(s.now_ms + chance.choice((FORGOTTEN_AFTER_MS, DAY_MS, 51 * HOUR_MS, 40 * DAY_MS))).is_gone()
    return tokens


@pytest.mark.parametrize("number", [0, *(pytest.param(each, marks=NIGHTLY) for each in (1, 2))])
def test_a_store_accepts_every_owner_for_ten_years(number: int):
    """Members, seats and topics change, and a checkpoint is lost while the clocks are behind: no owner is refused.

    Each of these begins without any state; the last one with the floor that a start with an empty checkpoint reads.
    """
    chance, store, now_ms, floor = Random(number), Store(), NOW_MS, 0
    generations = set()
    for back_ms in (0, 0, 30 * DAY_MS):
        if back_ms:
            now_ms, floor = now_ms - back_ms, store.highest + 1
        s = Scenario(fencing_token_floor=floor).at(now_ms).policy(succession=Succession())
        tokens = lives(s, chance, now_ms + TEN_YEARS_MS // 3)
        assert all(map(store.takes, tokens))
        assert tokens == sorted(set(tokens)), "each owner has another token than the one before"
        assert s.events(SeatTaken), "seats pass on"
        generations |= {event.generation_id for event in s.events(RebalanceCompleted)}
        now_ms = s.now_ms
    assert 1 in generations, "generations are not tokens: they start again at 1"
    assert now_ms > NOW_MS + TEN_YEARS_MS - 31 * DAY_MS
