"""A rolling upgrade of the brokers under load, from Kafka 4.0 to 4.4: first the programs, then the features."""

import subprocess
import time
from pathlib import Path

from streaming.embedded import BROKER, TOOLS, fetch, find_java
from tests.cluster3.brokers import IDS, ThreeBrokers
from tests.cluster3.scene import Scene
from tests.compatibility.columns import BROKERS
from tests.system.waiting import HANG_S, wait_until
from tests.tiers import NIGHTLY

pytestmark = [*NIGHTLY]

OLD = BROKERS["4.0"]


def test_brokers_are_upgraded_under_load(tmp_path: Path) -> None:
    """Nobody loses a membership or a commit, and query and observer go on."""
    for name in ("brokers", "scene"):
        (tmp_path / name).mkdir()
    with ThreeBrokers(tmp_path / "brokers", bundle=OLD) as three, Scene(three, tmp_path / "scene") as scene:
        members = [*scene.stock(), *scene.own(), *scene.stock("consumer")]
        control = scene.control()
        observer = scene.start_observer()
        began_s = time.monotonic()
        for number in IDS:
            three.stop(number)
            three.cluster.brokers[number].bundle = BROKER
            three.start(number)
            wait_until(three.is_whole)
        _upgrade_features(three)
        ended_s = time.monotonic()
        scene.await_served([*members, *control], ended_s)

        gaps = {probe.group: round(probe.longest_gap_s(began_s, ended_s), 1) for probe in [*members, *control]}
        print(f"longest times without an acknowledged commit, s: {gaps}")
        assert not [probe.group for probe in members if probe.lost], gaps
        assert scene.service.process.poll() is None, scene.service.log
        assert observer.process.poll() is None, observer.log
        assert not scene.lost_commits()


def _upgrade_features(three: ThreeBrokers) -> None:
    jars = ":".join(map(str, [*fetch(BROKER), *fetch(TOOLS)]))
    command = ["org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", three.bootstrap_servers]
    done = subprocess.run(
        [str(find_java()), "-cp", jars, *command, "upgrade", "--release-version", "4.4"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
