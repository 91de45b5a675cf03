"""kill -9 of serving processes, in bursts of one to all of the kinds and numbers in `BURST`.

Each burst follows when all members were served after the last one.

 kind | killed process | restarted by |
 --- | --- | --- |
 driver | `coordinator run` with its Java process; its executors then end | the test, as a supervisor |
 executor | one of the two Java processes of a standalone cluster that run tasks | the cluster |
 python worker | a process that runs the operator, or the daemon that forked it | Spark, which repeats the task |
 gateway | one of two, with all of its connections | the test, as a supervisor |

The time of a burst is random: up to a second after the members were served. No rebalance is expected, although the
restart of a driver may take longer than a session: an unavailable coordinator expels no member.
"""

import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import psutil

from tests.chaos.deployment import Deployment
from tests.chaos.gateways import GatewayProcess
from tests.chaos.served import Served
from tests.cluster.standalone import Cluster
from tests.system.waiting import wait_until

MEMBERS = 4
BURST = {"gateway": 1, "python worker": 2, "executor": 1, "driver": 1}
"""How many processes of each kind the largest burst kills. One gateway remains: without any, kafka-python waits for up
to 30 s before it connects again, which is as long as its session. The driver is the last one: its executors end with
it."""

MOMENT_S = 1.0
GONE_WAIT_S = 10.0


class Killer:
    """Kills processes of a deployment, and counts the kills."""

    def __init__(
        self, deployment: Deployment, cluster: Cluster, chance: random.Random, report: Callable[[str], None]
    ) -> None:
        self._deployment, self._cluster, self._chance, self._report = deployment, cluster, chance, report
        self._served = Served(deployment.histories)
        self.done: Counter[str] = Counter()
        self.ended_by_itself = 0
        self.longest_s: dict[str, float] = {}

    def run(self, times: int, until_s: float) -> None:
        """Kill until `times` kills are done or until a time of the machine's monotonic clock."""
        while (left := times - self.done.total()) > 0 and time.monotonic() < until_s:
            self.kill_some(self._chance.randint(1, min(left, sum(BURST.values()))))

    def kill_some(self, count: int) -> None:
        """Kill some processes, and wait until every member has been served after that."""
        kinds = sorted(self._chance.sample([*BURST], count, counts=BURST.values()), key=[*BURST].index)
        self._deployment.producing.join(self._chance.uniform(0, MOMENT_S))
        began_s = time.monotonic()
        self._report(f"kill {self.done.total() + 1}: {', '.join(kinds)}")
        starts = [self._kill(kind) for kind in kinds]
        for start in starts:
            start()
        self.done.update(kinds)
        self._served.wait(self._supervise, lambda: self._deployment.service.log[-500:])
        for kind in kinds:
            self.longest_s[kind] = max(self.longest_s.get(kind, 0.0), round(time.monotonic() - began_s, 1))

    def _kill(self, kind: str) -> Callable[[], None]:
        """Kill a process of a kind. Return the start of the next one; it does nothing where Spark starts it itself."""
        match kind:
            case "gateway":
                gateway = self._chance.choice(self._deployment.gateways)
                gateway.kill()
                return partial(self._start_gateway, gateway)
            case "driver":
                self._deployment.service.kill()
                return self._start_driver
            case "executor":
                self._kill_process(self._cluster.at_work)
            case _:
                self._kill_process(self._cluster.python_workers)
        return lambda: None

    @staticmethod
    def _start_gateway(gateway: GatewayProcess) -> None:
        gateway.start_again()
        gateway.await_ready()

    def _start_driver(self) -> None:
        if self._deployment.service.process.poll() is not None:
            self._deployment.start_coordinator()
            self._deployment.service.await_ready()

    def _kill_process(self, found: Callable[[], list[psutil.Process]]) -> None:
        """Kill one of the found processes, as soon as one is found."""

        def is_found() -> bool:
            self._supervise()
            return bool(found())

        wait_until(is_found, account=lambda: self._deployment.service.log)
        victims = sorted(found(), key=lambda process: process.pid)
        victim = self._chance.choice(victims)
        victim.kill()
        psutil.wait_procs([victim], GONE_WAIT_S)  # so that nothing is killed twice

    def _supervise(self) -> None:
        """Start a coordinator that has ended by itself, as it does if a task failed too often."""
        if self._deployment.service.process.poll() is not None:
            self._report(f"the coordinator has ended by itself: {self._deployment.service.log[-300:]}")
            self.ended_by_itself += 1
            self._deployment.start_coordinator()
            self._deployment.service.await_ready()
