"""Drivers that stand by while the leader of their lease fails: none takes over in vain, and one does when it must."""

import time
from collections.abc import Iterator

import pytest

from streaming.query.lease import OUTAGE_PATIENCE_S
from tests.cluster3.brokers import ThreeBrokers
from tests.cluster3.scene import Scene
from tests.system.conftest import Service
from tests.system.waiting import wait_until
from tests.tiers import NIGHTLY

pytestmark = list(NIGHTLY)

STANDING, TAKING_OVER = "Standing by: ", "Taking over: "


@pytest.fixture(scope="module")
def scene(_shared_brokers: ThreeBrokers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Scene(_shared_brokers, tmp_path_factory.mktemp("stand-by"), stand_by=True) as scene:
        scene.stock()
        yield scene


@pytest.fixture
def other(scene: Scene) -> Service:
    """A driver that stands by, beside the one that serves."""
    other = scene.start_driver()
    wait_until(lambda: STANDING in other.log, account=lambda: other.log)
    return other


@pytest.mark.parametrize("fault", ["kill", "suspend"])
def test_lease_outlives_its_leader_and_passes_on_with_the_driver(
    scene: Scene, three: ThreeBrokers, other: Service, fault: str
) -> None:
    """A lease that nobody can renew is not claimed. Then the serving driver is killed while the broker is out."""
    serving = next(driver for driver in scene.services if driver.process.poll() is None and driver is not other)
    leader = three.leaders(scene.settings.lease_topic)[0]
    getattr(three, fault)(leader)
    wait_until(lambda: three.leaders(scene.settings.lease_topic)[0] not in (leader, -1))
    scene.await_served(scene.probes, time.monotonic() + OUTAGE_PATIENCE_S)
    assert TAKING_OVER not in other.log, other.log
    assert serving.process.poll() is None, serving.log

    serving.kill()
    wait_until(lambda: TAKING_OVER in other.log, account=lambda: other.log)
    scene.await_served(scene.probes, time.monotonic())
    three.mend()
    assert other.process.poll() is None, other.log
