"""Transactional clients through the gateway while the brokers' feature `transaction.version` is upgraded (KIP-890).

Two copiers of one group copy a topic in transactions, with each client that has them. The feature goes from 0 to 1 and
to 2 while their transactions are open. After each step one copier is replaced, so clients that were started before the
step work beside one that was started after it. With KAFKA_ALONE the clients use the broker and its own coordinator.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import UpdateFeatureType
from kafka.protocol.metadata import ApiVersionsRequest

from streaming.embedded import Broker
from streaming.gateway import Gateway
from tests.clients import go_programs, java_programs, node_programs
from tests.clients.copying import OPTIONS, Committed, assert_copied_once
from tests.clients.groups import Group
from tests.clients.kinds import FRANZ_GO_COPIER, JAVA_COPIER, TRANSACTIONAL, Kind
from tests.clients.play import Play, Venue, playing
from tests.clients.worker import Worker
from tests.conftest import PATIENCE
from tests.system.conftest import Service, start_service
from tests.system.waiting import HANG_S, wait_until
from tests.system.wire import connect
from tests.tiers import NIGHTLY

pytestmark = [*NIGHTLY]

FEATURE = "transaction.version"
FIRST, *UPGRADES = 0, 1, 2
PARTITIONS = 4
RECORDS = 50
MEMBERS = 2

PATIENT = {**OPTIONS, "transaction_ms": int(HANG_S * 1_000)}
"""No transaction times out while its copier waits, also on a busy machine."""

OF_VERSION_2 = (JAVA_COPIER, FRANZ_GO_COPIER)
"""The clients that use version 2 of transactions if the brokers have it when they connect, and announce no offsets."""


class Scene:
    """A broker whose feature changes, with a query and a gateway of its own.

    Attributes:
        bootstrap: The clients' address.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.broker = stack.enter_context(Broker(folder / "broker", properties=PATIENCE))
        self.bootstrap = self.broker.bootstrap_servers
        self._gateway: Gateway | None = None
        if "KAFKA_ALONE" not in os.environ:
            settings = {"bootstrap_servers": self.bootstrap, "group_initial_rebalance_delay_ms": 100}
            self.service: Service = start_service(folder, **settings)
            stack.callback(self.service.kill)
            self.service.await_ready()
            wanted = self.service.settings.model_copy(update={"gateway_port": 0})
            self._gateway = stack.enter_context(Gateway(wanted))
            self.bootstrap = self._gateway.bootstrap_servers

    def levels(self) -> set[int]:
        """Return the levels of the feature that clients see, at the bootstrap address and at that of the broker."""
        with KafkaAdminClient(bootstrap_servers=self.bootstrap) as admin:
            (node,) = admin.describe_cluster()["brokers"]
        request = ApiVersionsRequest(version=4, client_software_name="x", client_software_version="1")
        levels = set()
        for address in (self.bootstrap, f"{node['host']}:{node['port']}"):
            with connect(address) as wire:
                finalized = {each.name: each.max_version_level for each in wire.call(request).finalized_features}
                levels.add(int(finalized.get(FEATURE, 0)))
        return levels

    def set_level(self, level: int) -> None:
        """Change the level of the feature. Return when clients see it."""
        kind = UpdateFeatureType.UPGRADE if level > max(self.levels()) else UpdateFeatureType.SAFE_DOWNGRADE
        with KafkaAdminClient(bootstrap_servers=self.broker.bootstrap_servers) as admin:
            assert admin.update_features({FEATURE: (kind, level)}) == {FEATURE: "OK"}
        wait_until(lambda: self.levels() == {level}, account=self.levels)

    def announced(self) -> int:
        """Return the number of AddOffsetsToTxn at the gateway so far, which transactions of version 2 do without."""
        if self._gateway is None:
            return 0
        api = {"api": "AddOffsetsToTxn"}
        return int(self._gateway.metrics.registry.get_sample_value("groupcoord_gateway_requests_total", api) or 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the programs of all clients."""
    folder = tmp_path_factory.mktemp("copying")
    go_programs.build(folder)
    java_programs.build(folder)
    node_programs.install(folder)
    return folder


@pytest.fixture(scope="module")
def scene(folder: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(folder, stack)


@pytest.fixture
def play(scene: Scene, folder: Path, request: pytest.FixtureRequest) -> Iterator[Play]:
    kind: Kind = request.getfixturevalue("kind")
    name = f"upgraded-{kind}".replace(", ", "-").lower()
    with playing(Venue(scene.broker.bootstrap_servers, scene.bootstrap, folder), name) as play:
        yield play


class Copying:
    """Two copiers of one client, and the records that they have copied."""

    def __init__(self, play: Play, kind: Kind, scene: Scene, committed: Committed) -> None:
        self._play, self._kind, self._committed = play, kind, committed
        self.group = Group(scene.bootstrap, play.name, play.name, PARTITIONS)
        self._started = 0
        self.copiers = [self._start() for _ in range(MEMBERS)]
        self.await_members(MEMBERS)

    def _start(self) -> Worker:
        self._started += 1
        own = {"transactional_id": f"{self._play.name}-{self._started}", "sink": f"{self._play.name}-sink"}
        return self._play.start(self._kind, **PATIENT, **own)

    def await_members(self, members: int) -> None:
        """Wait until the group has this number of members, and each of them has partitions."""

        def told() -> object:
            return self.group.members(), self.copiers

        wait_until(lambda: self.group.is_shared_by(members), account=told)

    def replace(self, number: int) -> None:
        """Close one copier and start another one. The other copier stays."""
        self.copiers[number].close()
        self.await_members(MEMBERS - 1)
        self.copiers[number] = self._start()
        self.await_members(MEMBERS)

    def copy(self) -> None:
        """Produce records, and wait until they are copied and all members have committed their offsets."""
        self._play.produce(self._play.name, RECORDS)
        self.finish()

    def copy_during(self, change: Callable[[], None]) -> None:
        """Change something while each copier waits in the middle of a transaction."""
        held = [len(copier.events_of("held")) for copier in self.copiers]
        for copier in self.copiers:
            copier.order("hold")
        self._play.produce(self._play.name, RECORDS)
        pairs = list(zip(self.copiers, held, strict=True))
        self._play.until(lambda: all(len(copier.events_of("held")) > before for copier, before in pairs))
        change()
        self._play.produce(self._play.name, RECORDS)
        for copier in self.copiers:
            copier.order("resume")
        self.finish()

    def finish(self) -> None:
        """Wait until all records are copied, and each partition is committed to its end."""
        ends = dict(self._play.ends())
        total = sum(ends.values())
        wait_until(lambda: self._committed.read() >= total, account=lambda: (self._committed.read(), self.copiers))
        wait_until(lambda: self.group.stable_offsets() == ends, account=lambda: (self.group.stable_offsets(), ends))

    def close(self) -> None:
        """Close all copiers, and wait until the group has no member."""
        for copier in self.copiers:
            copier.close()
        self.await_members(0)


@pytest.mark.parametrize("kind", TRANSACTIONAL, ids=str)
def test_records_are_copied_once_while_the_feature_is_upgraded(scene: Scene, play: Play, kind: Kind) -> None:
    """KIP-890: clients of the old version continue beside those of the new one. No record is lost or copied twice."""
    play.topic(partitions=PARTITIONS)
    sink = play.topic(partitions=PARTITIONS, suffix="-sink")
    bootstrap = scene.broker.bootstrap_servers
    scene.set_level(FIRST)
    with Committed.of(bootstrap, sink, PARTITIONS) as committed:
        copying = Copying(play, kind, scene, committed)
        told = [scene.announced()]
        copying.copy()
        told.append(scene.announced())
        for level in UPGRADES:
            copying.copy_during(lambda level=level: scene.set_level(level))  # type: ignore[misc]
            copying.replace(0)
            copying.copy()
            told.append(scene.announced())
        copying.replace(1)
        copying.copy()
        told.append(scene.announced())
        copying.close()
    counts = [later - sooner for sooner, later in pairwise(told)]
    print(f"{kind} {kind.version()}: AddOffsetsToTxn at level 0, to 1, to 2, with both started at 2: {counts}")
    assert_copied_once(play, bootstrap, sink)
    assert not (kind in OF_VERSION_2 and counts[-1]), "clients do not see the level of the brokers"
