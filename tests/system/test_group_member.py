"""A pool of workers that share named resources on the real broker and query, without a topic of work."""

import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from kafka.errors import IllegalStateError, InconsistentGroupProtocolError, KafkaConfigurationError, KafkaError

from coordinator.base.consumer_protocol import RESOURCES
from coordinator.base.states import Phase
from coordinator.member.member import MemberState
from coordinator.messages.events import AssignmentChanged, MemberLeft
from coordinator.messages.group_records import GroupRecord
from streaming.client import GroupConsumer, GroupMember
from streaming.config.settings import Settings
from streaming.query.coordinator import Coordinator
from tests.system.staging import TURN_MS, Group, Worker, is_settled
from tests.system.waiting import HANG_S

pytestmark = pytest.mark.long

CAMERAS = ["cellar", "gate", "lift", "ramp", "roof", "yard"]

Call = tuple[str, list[str]]


class Pool(Group):
    """Members by name that poll in turn, all calls of their listeners, and the fencing tokens of all owners."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.members: dict[str, GroupMember] = {}
        self.calls: dict[str, list[Call]] = defaultdict(list)
        self.tokens: dict[str, list[tuple[str, int]]] = defaultdict(list)  # by resource: owners in order

    def member(self, name: str, resources: list[str] | None = None, **more: Any) -> GroupMember:
        def writes_down(what: str) -> Callable[[frozenset[str]], object]:
            return lambda names: self.calls[name].append((what, sorted(names)))

        listeners = {f"on_{what}": writes_down(what) for what in ("assigned", "revoked")}
        member = GroupMember(resources or CAMERAS, **self.config(client_id=name, **listeners) | more)
        self._stack.callback(member.leave)
        self.members[name] = member
        return member

    def leaves(self, name: str) -> None:
        self.members.pop(name).leave()

    def turn(self) -> None:
        for name, member in self.members.items():
            for resource in member.poll(TURN_MS / 1000):
                assert self.owners(resource) == [name], "one owner at any time, as no member expires"
                shown = self.tokens[resource]
                if not shown or shown[-1] != (name, member.fencing_token):
                    shown.append((name, member.fencing_token))

    def account(self) -> object:
        return {name: (member.state, sorted(member.assignment)) for name, member in self.members.items()}

    def owners(self, resource: str) -> list[str]:
        return [name for name, member in self.members.items() if resource in member.assignment]

    def shares(self) -> dict[str, frozenset[str]]:
        return {name: member.assignment for name, member in self.members.items()}

    def is_shared_out(self, *counts: int) -> bool:
        """Return whether all members are settled and own these numbers of resources."""
        are_settled = all(map(is_settled, self.members.values()))
        return are_settled and sorted(map(len, self.shares().values())) == sorted(counts)


@pytest.fixture
def pool(coordinator: Coordinator) -> Iterator[Pool]:
    with Pool(coordinator.settings) as pool:
        yield pool


# -- sharing -----------------------------------------------------------------------------------------------------------


def test_each_resource_has_one_owner_as_workers_join_and_leave(pool: Pool) -> None:
    """S10, S11, S133 for resources: kept resources are never given up, and tokens grow from owner to owner."""
    pool.member("ana")
    pool.member("bo")
    pool.until(lambda: pool.is_shared_out(3, 3))
    before = pool.shares()
    pool.calls.clear()
    pool.member("cy")
    pool.until(lambda: pool.is_shared_out(2, 2, 2))
    between = pool.shares()
    for name in ("ana", "bo"):
        assert between[name] < before[name]
        assert given_up(pool.calls[name]) == before[name] - between[name]
    assert given_up(pool.calls["cy"]) == set()
    assert pool.calls["cy"][0] == ("assigned", [])
    pool.calls.clear()
    pool.leaves("bo")
    assert pool.calls["bo"] == [("revoked", sorted(between["bo"]))]
    pool.until(lambda: pool.is_shared_out(3, 3))
    for name in ("ana", "cy"):
        assert between[name] < pool.shares()[name]
        assert given_up(pool.calls[name]) == set()
    for shown in pool.tokens.values():
        assert all(one < next_one for (_, one), (_, next_one) in pairwise(shown)), shown


def given_up(calls: list[Call]) -> set[str]:
    return {name for what, names in calls if what != "assigned" for name in names}


def test_eager_pool_revokes_all_and_gets_new_assignments(pool: Pool) -> None:
    for name in ("ana", "bo"):
        pool.member(name, partition_assignment_strategy=["roundrobin"])
        pool.until(lambda: pool.is_shared_out(*{1: [6], 2: [3, 3]}[len(pool.members)]))
    first, second = (sorted(pool.members[name].assignment) for name in ("ana", "bo"))
    assert pool.calls["ana"] == [("assigned", CAMERAS), ("revoked", CAMERAS), ("assigned", first)]
    assert pool.calls["bo"] == [("assigned", second)]


def test_members_can_change_their_resources(pool: Pool) -> None:
    """S07 for resources: each resource goes to a member that subscribed to it."""
    ana = pool.member("ana", ["gate", "yard"], session_timeout_ms=60_000)
    bo = pool.member("bo", ["yard", "roof"])
    pool.until(lambda: pool.is_shared_out(1, 2))
    assert ana.assignment | bo.assignment == {"gate", "yard", "roof"}
    assert ana.assignment <= {"gate", "yard"}
    was = ana.member_id
    ana.subscribe(["lift"])
    pool.until(lambda: (ana.assignment, bo.assignment) == ({"lift"}, {"yard", "roof"}))
    assert ana.member_id == was
    assert ("metadata_changed", "subscribed to lift") in pool.rebalances()
    assert "gate" in given_up(pool.calls["ana"])
    assert "roof" not in given_up(pool.calls["bo"])


def test_stand_by_waits_and_takes_over(pool: Pool) -> None:
    ana = pool.member("ana", ["gate"])
    assert ana.wait_for_assignment(HANG_S) == {"gate"}
    bo = pool.member("bo", ["gate"])
    pool.until(lambda: pool.is_shared_out(1, 0))
    assert (bo.assignment, bo.fencing_token) == (frozenset(), -1)
    with pytest.raises(TimeoutError, match=rf"{pool.group_id} assigned this member nothing in 0\.2 s; it is STABLE"):
        bo.wait_for_assignment(0.2)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(bo.wait_for_assignment)
        shown = ana.fencing_token
        ana.leave("my turn is over")
        assert waiting.result(HANG_S) == {"gate"}
    assert bo.fencing_token > shown


# -- expired members ---------------------------------------------------------------------------------------------------


def test_store_with_tokens_refuses_an_expired_member(pool: Pool) -> None:
    """S06, S13 for resources: a worker that was paused for longer than its session works until it learns of it."""
    store: dict[str, int] = {}

    def is_taken(resource: str, token: int) -> bool:
        store[resource] = max(token, store.get(resource, -1))
        return token == store[resource]

    bo: Worker = pool.worker(client_id="bo", resources=["gate"], session_timeout_ms=2_500)
    resources, old = bo.tells("works", lambda: None)
    assert (resources, is_taken("gate", old)) == (["gate"], True)
    ana = pool.member("ana", ["gate"])
    pool.until(lambda: pool.is_shared_out(0))
    bo.signal(signal.SIGSTOP)
    pool.until(lambda: pool.is_shared_out(1))
    assert is_taken("gate", ana.fencing_token)
    bo.drain()
    bo.signal(signal.SIGCONT)
    resources, token = bo.tells("works", pool.turn)
    assert resources == ["gate"]
    assert not is_taken("gate", token)
    assert bo.tells("lost", pool.turn) == ["gate"]
    pool.until(lambda: len(pool.asker.describe().members) == 2)
    assert is_taken("gate", ana.fencing_token)


def test_lost_resources_are_revoked_unless_on_lost_is_set(pool: Pool) -> None:
    lost: list[frozenset[str]] = []
    ana = pool.member("ana", ["gate"])
    pool.member("bo", ["yard"], on_lost=lost.append)
    pool.until(lambda: pool.is_shared_out(1, 1))
    was = ana.member_id
    for member in tuple(pool.members.values()):
        pool.expel(member.member_id)
    pool.until(lambda: lost and len(pool.calls["ana"]) > 2)
    pool.until(lambda: pool.is_shared_out(1, 1))
    assert pool.calls["ana"] == [("assigned", ["gate"]), ("revoked", ["gate"]), ("assigned", ["gate"])]
    assert (given_up(pool.calls["bo"]), lost) == (set(), [{"yard"}])
    assert ana.member_id != was


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_member_leaves_with_a_reason(pool: Pool) -> None:
    """KIP-800: a member that leaves because of an exception gives a reason as well."""
    ana = pool.member("ana", ["gate"])
    pool.until(lambda: pool.is_shared_out(1))
    ana.leave("my turn is over")
    ana.leave("again")
    assert (ana.assignment, ana.fencing_token, ana.state) == (frozenset(), -1, MemberState.UNJOINED)
    for attempt in (ana.poll, ana.wait_for_assignment, lambda: ana.subscribe(["yard"])):
        with pytest.raises(IllegalStateError):
            attempt()
    del pool.members["ana"]

    def fail() -> None:
        with pool.member("bo", ["gate"]) as bo:
            bo.wait_for_assignment(HANG_S)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    left = pool.published(MemberLeft)
    assert [next(left).reason, next(left).reason] == ["my turn is over", "the member failed: ZeroDivisionError"]
    assert len(pool.requests("leave_group")) == 2


def test_error_of_a_listener_is_raised_and_members_continue(pool: Pool) -> None:
    def fail(names: frozenset[str]) -> None:
        raise ZeroDivisionError

    ana = pool.member("ana", ["gate"], on_assigned=fail)
    with pytest.raises(KafkaError) as failed:
        pool.until(lambda: False)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert ana.poll() == {"gate"}


# -- refused settings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"partition_assignment_strategy": ["range"]}, "range assigns each resource separately"),
        ({"partition_assignment_strategy": ["range", "sticky"]}, "range assigns each resource"),
        ({"max_poll_records": 5}, "max_poll_records"),
        ({"auto_offset_reset": "latest"}, "auto_offset_reset"),
        ({"enable_auto_commit": False}, "enable_auto_commit"),
        ({"group_id": None}, "group_id is needed"),
    ],
)
def test_settings_of_consumers_are_refused_by_name(pool: Pool, setting: dict[str, Any], message: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=message):
        GroupMember(["gate"], **pool.config(**setting))


@pytest.mark.parametrize(("resources", "error"), [("gate", TypeError), ([], ValueError), (["", "gate"], ValueError)])
def test_invalid_resources_are_refused(pool: Pool, resources: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="resources"):
        GroupMember(resources, **pool.config())
    ana = pool.member("ana")
    with pytest.raises(error, match="resources"):
        ana.subscribe(resources)


# -- views -------------------------------------------------------------------------------------------------------------


def test_views_name_the_owners(pool: Pool) -> None:
    """S10, S39: the views also show a group without consumers, and no consumer can join it."""
    members = pool.member("ana", ["gate"]), pool.member("bo", ["yard"])
    pool.until(lambda: pool.is_shared_out(1, 1))
    described = pool.asker.describe()
    assert (described.protocol_type, described.protocol_name) == (RESOURCES, "cooperative-sticky")
    stable = (r for r in pool.published(GroupRecord) if r.state is Phase.STABLE and len(r.members) == 2)
    assert {m.client_id: m.assigned for m in next(stable).members} == {"ana": {"gate": [0]}, "bo": {"yard": [0]}}
    owners: dict[str, str | None] = {}
    for change in pool.published(AssignmentChanged):
        owners |= {handover.topic: handover.after for handover in change.handovers}
        if len(owners) == 2:
            break
    assert owners == dict(zip(("gate", "yard"), (m.member_id for m in members), strict=True))

    consumer = GroupConsumer("gate", **pool.config(client_id="cy"))
    with pytest.raises(InconsistentGroupProtocolError):
        pool.until(lambda: False, alone=lambda: consumer.poll(TURN_MS))
    consumer.close()
    assert len(pool.asker.describe().members) == 2
