"""Groups move between two coordinators while a broker fails, and their members keep their membership and commits."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.config.settings import Settings
from streaming.kafka import topics
from tests.cluster3.brokers import ThreeBrokers
from tests.cluster3.scene import SHARDS, Scene
from tests.system.conftest import Service, start_service
from tests.system.moving import move
from tests.system.reading import Reader
from tests.tiers import NIGHTLY

pytestmark = list(NIGHTLY)

PEER = "three-peer"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "peers.key"
    file.write_text("of-both-coordinators,-32-bytes-or-more")
    return file


@pytest.fixture
def scene(three: ThreeBrokers, tmp_path: Path, key_file: Path) -> Iterator[Scene]:
    topics.ensure(_settings(three))
    with Scene(three, tmp_path, peers=(PEER,), peer_key_file=str(key_file), slots="all") as scene:
        yield scene


@pytest.fixture
def peer(scene: Scene, three: ThreeBrokers, tmp_path: Path, key_file: Path) -> Iterator[Service]:
    """The coordinator that owns the groups that it gets."""
    (folder := tmp_path / "peer").mkdir()
    peer = start_service(
        folder,
        bootstrap_servers=three.bootstrap_servers,
        topic_prefix=PEER,
        replication_factor=3,
        request_partitions=SHARDS,
        peers=(scene.prefix,),
        peer_key_file=str(key_file),
        slots="none",
    )
    peer.await_ready()
    yield peer
    if peer.process.poll() is None:
        peer.kill()


def test_groups_move_there_and_back_while_a_broker_is_down(three: ThreeBrokers, scene: Scene, peer: Service) -> None:
    probes = [*scene.stock(), *scene.stock("consumer"), *scene.own(), *scene.transactional(), *scene.sharing()]
    groups = {probe.group for probe in probes}
    named = [word for group in sorted(groups) for word in ("-g", group)]
    for source, target, begin, end in (
        (scene.settings, peer.settings, three.kill, three.start),
        (peer.settings, scene.settings, three.suspend, three.resume),
    ):
        begin(2)
        assert set(move(source, target, *named, "--yes")) <= groups
        scene.await_served(probes, time.monotonic())
        end(2)
        three.mend()
        assert {group for group in groups if _is_owner(target, group)} == groups
    assert {probe.group: probe.lost for probe in probes} == dict.fromkeys(groups, 0)
    assert not scene.lost_commits()
    for service in (scene.service, peer):
        assert service.stop() == 0, service.log


def _settings(three: ThreeBrokers) -> Settings:
    return Settings(
        bootstrap_servers=three.bootstrap_servers, topic_prefix=PEER, replication_factor=3, request_partitions=SHARDS
    )


def _is_owner(settings: Settings, group: str) -> bool:
    """Return whether the last event of a group at a coordinator is none of its leaving."""
    events = [each["event"] for each in Reader(settings, group).events()]
    return bool(events) and events[-1] not in ("group_released", "group_moved")
