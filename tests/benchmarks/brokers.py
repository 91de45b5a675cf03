"""Faults of three brokers: the time without answers, beside that of Kafka's own coordinator in the same fault.

Stock consumers commit five times a second, in a group for each broker: through two gateways, and at Kafka's own
coordinator (the control). The longest time without an acknowledged commit counts, of the group that waits the longest.
Kafka's own coordinator stops only for the groups that the faulty broker coordinates; ours has one query for all groups.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import bench
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures
from tests.cluster3.brokers import IDS, ThreeBrokers
from tests.cluster3.scene import Probe, Scene
from tests.system.waiting import wait_until

REST_S, BASE_S = 20.0, 20.0
"""The warm-up, and the time for which the processor time before the faults is measured."""

DEAD_S, FROZEN_S = 25.0, 60.0


class Trial:
    """The scene, its probes, and the figures so far."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._three = scene, scene.three
        self._ours, self._control = scene.stock(), scene.control()
        self.figures: dict[str, float] = {}
        time.sleep(REST_S)
        used_s, began_s = scene.processor_s(), time.monotonic()
        time.sleep(BASE_S)
        self._share_before = (scene.processor_s() - used_s) / (time.monotonic() - began_s)
        self._unready_s = 0.0

    def cause(self, name: str, begin: Callable[[], object], hold_s: float, end: Callable[[], object]) -> None:
        """Cause a fault, end it, and add its figures."""
        began_s, used_s = time.monotonic(), self._scene.processor_s()
        begin()
        time.sleep(max(0.0, hold_s - (time.monotonic() - began_s)))
        share = (self._scene.processor_s() - used_s) / (time.monotonic() - began_s)
        end()
        self._scene.await_served([*self._ours, *self._control], time.monotonic() + 1)
        self._three.mend()
        ours_s, control_s = (_longest(probes, began_s) for probes in (self._ours, self._control))
        self._unready_s += sum(health.untrue_s(self._ours, began_s) for health in self._scene.health.values())
        self.figures |= {
            f"brokers_{name}_s": ours_s,
            f"brokers_{name}_kafka_s": control_s,
            f"brokers_{name}_ratio": ours_s / control_s,
            f"brokers_{name}_processor_ratio": share / self._share_before,
            "brokers_readiness_untrue_s": self._unready_s,
        }
        say(f"{name}: {ours_s:.1f} s, Kafka's own {control_s:.1f} s, processor time {share:.2f} of a core")
        self._three.elect_preferred()
        time.sleep(REST_S)

    def other_than_controller(self) -> int:
        """Return a broker that is not the active controller."""
        controller = self._three.controller()
        return next(number for number in IDS if number != controller)

    def restart_in_turn(self) -> None:
        for number in IDS:
            self._three.restart(number)
            wait_until(self._three.is_whole)


def _longest(probes: list[Probe], began_s: float) -> float:
    return max(probe.longest_gap_s(began_s, time.monotonic()) for probe in probes)


def measure(_: argparse.Namespace) -> Figures:
    """Kill, freeze and restart brokers, and return the times without answers."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-brokers-", ignore_cleanup_errors=True) as name,
        ThreeBrokers(Path(name) / "brokers") as three,
    ):
        (folder := Path(name) / "scene").mkdir()
        with Scene(three, folder, commit_every_s=0.2) as scene:
            trial = Trial(scene)
            killed = trial.other_than_controller()
            trial.cause("killed", lambda: three.kill(killed), DEAD_S, lambda: three.start(killed))
            frozen = trial.other_than_controller()
            trial.cause("frozen", lambda: three.suspend(frozen), FROZEN_S, lambda: three.resume(frozen))
            trial.cause("restarted", trial.restart_in_turn, 0.0, lambda: None)
            return {**trial.figures, "brokers_lost_memberships": sum(probe.lost for probe in scene.probes[:3])}


if __name__ == "__main__":
    bench.main(measure)
