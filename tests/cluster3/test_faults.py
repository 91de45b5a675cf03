"""The faults of three brokers, for all kinds of members.

Each member comes back, none loses its membership or a commit, readiness is true, the query lives, and nothing uses
processor time in vain.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from streaming.verify import verify
from tests.cluster3.brokers import ThreeBrokers
from tests.cluster3.proxy import Cut
from tests.cluster3.scene import Scene
from tests.system.waiting import wait_until
from tests.tiers import NIGHTLY

BASE_S = 10.0
"""For how long the processor time is measured before a fault."""

PROCESSOR_SHARE_MAX = 0.5
"""The most additional cores that our processes may use during a fault. A client of librdkafka that waits for a dead
leader in an admin request takes about one, and three processes had such a client.
"""


@dataclass(frozen=True)
class Fault:
    """A fault.

    Args:
        begin: Causes it, and returns what ends it.
        hold_s: How long it lasts.
    """

    begin: Callable[[ThreeBrokers], Callable[[], object]]
    hold_s: float


def killed(three: ThreeBrokers, number: int) -> Callable[[], object]:
    three.kill(number)
    return lambda: three.start(number)


def suspended(three: ThreeBrokers, number: int) -> Callable[[], object]:
    three.suspend(number)
    return lambda: three.resume(number)


def restarted_in_turn(three: ThreeBrokers) -> Callable[[], object]:
    for number in (1, 2, 3):
        three.restart(number)
        wait_until(three.is_whole)
    return lambda: None


def majority_killed(three: ThreeBrokers) -> Callable[[], object]:
    three.kill(1)
    three.kill(2)
    return three.mend


def leaders_moved(three: ThreeBrokers) -> Callable[[], object]:
    for replicas in ([2, 3, 1], [3, 1, 2], [1, 2, 3]):
        three.place("work", 0, replicas)
        three.elect_preferred()
    return lambda: None


def cut_off(client: str, cut: Cut) -> Callable[[ThreeBrokers], Callable[[], object]]:
    def begin(three: ThreeBrokers) -> Callable[[], object]:
        three.cut_off(client, 2, cut)
        return lambda: three.cut_off(client, 2, Cut.NONE)

    return begin


FAULTS = {
    "killed": Fault(lambda three: killed(three, next(n for n in (1, 2, 3) if n != three.controller())), 20.0),
    "controller killed": Fault(lambda three: killed(three, three.controller()), 20.0),
    "frozen": Fault(lambda three: suspended(three, next(n for n in (1, 2, 3) if n != three.controller())), 40.0),
    "controller frozen": Fault(lambda three: suspended(three, three.controller()), 40.0),
    "restarted in turn": Fault(restarted_in_turn, 0.0),
    "majority killed": Fault(majority_killed, 15.0),
    "leaders moved": Fault(leaders_moved, 5.0),
    "query cut off silently": Fault(cut_off("QUERY", Cut.SILENT), 20.0),
    "query cut off by refusals": Fault(cut_off("QUERY", Cut.REFUSED), 20.0),
    "gateway cut off silently": Fault(cut_off("GATEWAY", Cut.SILENT), 60.0),
}
NO_SAMPLE = [pytest.param(name, marks=NIGHTLY) for name in FAULTS if name != "killed"]


@pytest.fixture(scope="module")
def scene(_shared_brokers: ThreeBrokers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Scene(_shared_brokers, tmp_path_factory.mktemp("faults")) as scene:
        yield scene


@pytest.fixture(scope="module")
def members(scene: Scene, request: pytest.FixtureRequest) -> Scene:
    """The scene with probes of all kinds. The sample has two kinds."""
    is_sample = not any(
        each.get_closest_marker("nightly") for each in request.session.items if each.module is request.module
    )
    scene.stock()
    scene.own()
    if not is_sample:
        scene.stock("consumer")
        scene.own("consumer")
        scene.transactional()
        scene.sharing()
        scene.sharing("consumer")
        scene.start_observer()
    return scene


@pytest.mark.parametrize("name", ["killed", *NO_SAMPLE])
def test_members_are_served_again_after_a_fault(members: Scene, three: ThreeBrokers, name: str) -> None:
    fault, base_s = FAULTS[name], members.processor_s()
    members.await_served(members.probes, time.monotonic() + BASE_S)
    used_before = (members.processor_s() - base_s) / BASE_S
    losses = {probe.group: probe.lost for probe in members.probes}

    began_s, base_s = time.monotonic(), members.processor_s()
    end = fault.begin(three)
    while (left_s := began_s + fault.hold_s - time.monotonic()) > 0:
        time.sleep(left_s)
    used = (members.processor_s() - base_s) / (time.monotonic() - began_s)
    end()
    members.await_served(members.probes, time.monotonic())
    three.mend()

    account = {probe.group: [each for each in probe.errors if each[0] > began_s][:3] for probe in members.probes}
    assert {probe.group: probe.lost for probe in members.probes} == losses, account
    assert members.service.process.poll() is None, members.service.log
    assert used < used_before + PROCESSOR_SHARE_MAX, (used, used_before)
    if members.observer is not None:
        assert members.observer.process.poll() is None, members.observer.log
        wait_until(lambda: members.health["observer"].look().is_ready)
    not_judged = {"observer", *(["gateway-0"] if name.startswith("gateway") else [])}
    untrue = {
        health.of: health.untrue(members.probes, began_s)
        for health in members.health.values()
        if health.of not in not_judged
    }
    assert not any(untrue.values()), (began_s, untrue)


def test_no_acknowledged_commit_is_lost_after_all_faults(members: Scene, three: ThreeBrokers) -> None:
    assert not members.lost_commits()
    assert members.service.stop() == 0
    report = verify(members.settings, settling_ms=0)
    assert not report.findings, report.findings
