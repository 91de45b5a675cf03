"""Rolling deployments of stock clients under succession, through the gateway: members are replaced without a rebalance.

policies.md 1.3 and 1.5: in both orders, a newcomer takes over the assignment of the member that it replaces, in the
running generation. The leader is among the replaced members. `docs/policies.md` has the outcome as a table.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from coordinator.base.policies import Policy, Succession
from streaming.administration.policies import set_policies
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.gateway import Gateway
from streaming.moments import unix_ms
from streaming.query.coordinator import Coordinator
from streaming.verify import verify
from tests.clients import go_programs
from tests.clients.kinds import AIOKAFKA, FRANZ_GO, JAVA, KAFKA_PYTHON, LIBRDKAFKA, SARAMA, Kind
from tests.clients.play import Play, Venue, playing
from tests.clients.worker import Worker
from tests.system.conftest import Service
from tests.system.reading import Reader
from tests.system.waiting import wait_until
from tests.tiers import NIGHTLY

KINDS = (LIBRDKAFKA, JAVA, FRANZ_GO, SARAMA, KAFKA_PYTHON, AIOKAFKA)
LEAVE_FIRST, NEWCOMER_FIRST = "leave first", "newcomer first"
ORDERS = (LEAVE_FIRST, NEWCOMER_FIRST)
MEMBERS = 3
PARTITIONS = 6

SUCCESSION = Succession(vacant_ms=600_000, standby_ms=600_000)
"""No deadline comes during a test, so time alone causes no rebalance."""

Change = tuple[str, frozenset[tuple[str, int]]]


class Deployment:
    """A group of stock clients under succession, and the replacement of its members.

    Args:
        settings: The settings of the group's coordinator.
        kinds: The client of each member.
    """

    def __init__(self, play: Play, settings: Settings, *kinds: Kind, partitions: int = PARTITIONS) -> None:
        self.play, self._settings = play, settings
        self._reader = Reader(settings, play.name)
        self.topic = play.topic(partitions=partitions, records=2)
        self.members = [play.start(kind) for kind in kinds]
        play.until_shared(self.topic, *self.members)
        self._await_stable(len(kinds))
        for member in self.members:
            play.until_read(member)
        # A client that starts late would stand by if the policy were in force already.
        set_policies(settings, (Policy(name=play.name, succession=SUCCESSION),), unix_ms())
        self.generation = self.record()["generation_id"]
        self._rebalances = self.count("rebalance_started")

    def record(self) -> dict[str, Any]:
        """Return the group's latest record."""
        return dict(self._reader.everything().groups[-1])

    def count(self, name: str) -> int:
        """Return how many events of this name the group has published."""
        return len(self._events(name))

    def _events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self._reader.events() if event["event"] == name]

    def _await_stable(self, members: int) -> None:
        def is_stable() -> bool:
            record = self.record()
            return record["state"] == "Stable" and len(record["members"]) == members

        wait_until(is_stable, account=self.record)

    @property
    def leader(self) -> Worker:
        """The member that leads the group."""
        record = self.record()
        (client_id,) = (each["client_id"] for each in record["members"] if each["member_id"] == record["leader"])
        return next(member for member in self.members if member.name == client_id)

    def replace(self, old: Worker, order: str, kind: Kind) -> Worker:
        """Replace a member, and return the new one when it owns the old one's partitions."""
        others = [member for member in self.members if member is not old]
        seat, changes = frozenset(old.owned), [_changes(member) for member in others]
        {LEAVE_FIRST: self.vacate, NEWCOMER_FIRST: lambda _: None}[order](old)
        new = self.play.start(kind)
        if order == NEWCOMER_FIRST:
            wait_until(lambda: new.name in {event["client_id"] for event in self._events("rebalance_held")})
            self.vacate(old)
        self.play.until(lambda: new.owned == seat)
        assert [_changes(member) for member in others] == changes, "a member that stays keeps its partitions"
        self.members = [*others, new]
        return new

    def vacate(self, member: Worker) -> None:
        """Close a member, and wait until its seat is vacant."""
        before = self.count("seat_vacated")
        member.close()
        wait_until(lambda: self.count("seat_vacated") > before)

    def assert_commits_are_accepted(self, member: Worker) -> None:
        """Check that a new owner reads on from its predecessor's partitions, and that its commit is stored."""
        self.play.produce(self.topic, 3)
        self.play.until_read(member)
        if member.kind.obeys:
            member.order("commit")
        ends = {partition: member.read[partition][-1] + 1 for partition in member.owned}
        wait_until(lambda: ends.items() <= self._committed().items(), account=lambda: (ends, self._committed(), member))

    def _committed(self) -> dict[tuple[str, int], int]:
        committed: dict[tuple[str, int], int] = {}
        for offsets in self._reader.everything().offsets:
            committed |= offsets
        return committed

    def assert_no_rebalance(self, replaced: int) -> None:
        """Check that the group has not rebalanced, and that each replacement took one seat."""
        record = self.record()
        assert (record["state"], record["generation_id"], len(record["members"])) == (
            "Stable", self.generation, len(self.members),
        )  # fmt: skip
        assert "hold" not in record, record
        assert self.count("rebalance_started") == self._rebalances
        assert self.count("seat_taken") == replaced
        assert self.count("commit_rejected") == self.count("member_expired") == 0
        assert self.play.until_shared(self.topic, *self.members) >= 0
        assert not verify(self._settings, [self.play.name]).findings


def _changes(member: Worker) -> list[Change]:
    """Return the changes of a member's partitions so far. A callback without partitions is none."""
    calls = member.events_of("assigned", "revoked", "lost")
    return [(call["event"], frozenset((t, n) for t, n in call["partitions"])) for call in calls if call["partitions"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rolling")


@pytest.fixture(scope="module")
def go_folder(folder: Path) -> Path:
    """Return the folder, with the programs that are written in Go."""
    go_programs.build(folder)
    return folder


@pytest.fixture
def play(
    broker: Broker, gateway: Gateway, folder: Path, request: pytest.FixtureRequest, group_id: str
) -> Iterator[Play]:
    if request.node.get_closest_marker("long"):
        request.getfixturevalue("go_folder")
    venue = Venue(broker.bootstrap_servers, gateway.bootstrap_servers, folder)
    name = "rolling-" + "".join(c if c.isalnum() else "-" for c in group_id.partition("[")[2].rstrip("]") or "mixed")
    with playing(venue, name) as play:
        yield play


def _marks(kind: Kind) -> list[pytest.MarkDecorator]:
    """Return the marks of a test: one client runs always, and the others each night; a mixed group has all of them."""
    return [] if kind is LIBRDKAFKA else [*NIGHTLY]


@pytest.mark.parametrize(
    ("kind", "order"),
    [pytest.param(kind, order, marks=_marks(kind)) for kind in KINDS for order in ORDERS],
    ids=str,
)
def test_replaced_members_cause_no_rebalance(play: Play, coordinator: Coordinator, kind: Kind, order: str) -> None:
    """policies.md 6: the leader and a follower are replaced, and then the new leader."""
    deployment = Deployment(play, coordinator.settings, *[kind] * MEMBERS)
    leader = deployment.leader
    new_leader = deployment.replace(leader, order, kind)
    assert deployment.leader is new_leader
    deployment.assert_commits_are_accepted(new_leader)
    follower = deployment.members[0]
    deployment.assert_commits_are_accepted(deployment.replace(follower, order, kind))
    deployment.replace(new_leader, order, kind)
    deployment.assert_no_rebalance(replaced=3)


@pytest.mark.long
@pytest.mark.nightly
def test_members_of_a_mixed_group_are_replaced_by_other_clients(play: Play, coordinator: Coordinator) -> None:
    """Each of six clients is replaced by the next one in the table, in alternating orders; the first one leads."""
    deployment = Deployment(play, coordinator.settings, *KINDS, partitions=2 * len(KINDS))
    leader = deployment.leader
    old = [leader, *(member for member in deployment.members if member is not leader)]
    for number, member in enumerate(old):
        kind = KINDS[(KINDS.index(member.kind) + 1) % len(KINDS)]
        new = deployment.replace(member, ORDERS[number % len(ORDERS)], kind)
        deployment.assert_commits_are_accepted(new)
    deployment.assert_no_rebalance(replaced=len(old))


@pytest.mark.long
@pytest.mark.nightly
def test_seat_passes_on_although_the_coordinator_is_killed(
    broker: Broker, run_service: Callable[..., Service], folder: Path
) -> None:
    """The coordinator is killed with SIGKILL while the leader's seat is vacant; the newcomer starts without it."""
    with ExitStack() as stack:
        service = run_service("rolling-killed")
        service.await_ready()
        gateway = stack.enter_context(Gateway(service.settings.model_copy(update={"gateway_port": 0})))
        venue = Venue(broker.bootstrap_servers, gateway.bootstrap_servers, folder)
        play = stack.enter_context(playing(venue, "rolling-killed"))
        deployment = Deployment(play, service.settings, *[LIBRDKAFKA] * MEMBERS)
        old = deployment.leader
        seat, others = set(old.owned), [member for member in deployment.members if member is not old]
        changes = [_changes(member) for member in others]
        deployment.vacate(old)
        service.kill()
        new = play.start(LIBRDKAFKA)
        again = run_service("rolling-killed")
        again.await_ready()
        play.until(lambda: new.owned == seat)
        assert [_changes(member) for member in others] == changes
        deployment.members = [*others, new]
        assert deployment.leader is new
        deployment.assert_commits_are_accepted(new)
        deployment.assert_no_rebalance(replaced=1)
