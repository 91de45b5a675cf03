"""Take-overs: the serving driver is killed, suspended or stopped, and one of two others that stand by takes over.

 way | the serving driver | afterwards |
 --- | --- | --- |
 killed | kill -9 of driver and Java at the same time | |
 suspended | SIGSTOP of driver, Java and Python workers | SIGCONT when all members are served: it ends with 1 |
 stopped | SIGTERM: it ends its batch, and releases the lease | it ends with 0 |

Then another driver is started, which stands by. The time of a take-over is random: up to a second after the members
were served. Sessions last longer than any take-over, so no rebalance is expected.
"""

import random
import time
from collections import Counter
from collections.abc import Callable

from streaming.errors import Exit
from tests.chaos.deployment import Deployment
from tests.chaos.served import Served
from tests.system.conftest import Service
from tests.system.waiting import HANG_S, wait_until

STAND_BYS = 2
WAYS = {"killed": 6, "suspended": 3, "stopped": 1}
"""The number of take-overs of each way in ten."""

MOMENT_S = 1.0
STANDING = "Standing by: "


class Takeovers:
    """Causes take-overs of a deployment, and counts them."""

    def __init__(self, deployment: Deployment, chance: random.Random, report: Callable[[str], None]) -> None:
        self._deployment, self._chance, self._report = deployment, chance, report
        self._served = Served(deployment.histories)
        self._others = [deployment.start_driver() for _ in range(STAND_BYS)]
        self.done: Counter[str] = Counter()
        self.longest_s: dict[str, float] = {}

    def run(self, times: int, until_s: float) -> None:
        """Cause take-overs until `times` are done or until a time of the machine's monotonic clock."""
        while self.done.total() < times and time.monotonic() < until_s:
            self.take_over(self._chance.choices([*WAYS], [*WAYS.values()])[0])

    def take_over(self, way: str) -> None:
        """End the serving driver, and wait until every member has been served by another one."""
        wait_until(lambda: any(STANDING in other.log for other in self._others), account=self._account)
        self._deployment.producing.join(self._chance.uniform(0, MOMENT_S))
        self._report(f"take-over {self.done.total() + 1}: {way}")
        former, began_s = self._deployment.service, time.monotonic()
        suspended = self._end(former, way)
        wait_until(lambda: any(other.ready_file.exists() for other in self._others), account=self._account)
        self._deployment.service = next(other for other in self._others if other.ready_file.exists())
        self._served.wait(self._check, self._account)
        self.longest_s[way] = max(self.longest_s.get(way, 0.0), round(time.monotonic() - began_s, 1))
        if suspended:
            self._deployment.resume(*suspended)
            exit_code = former.process.wait(HANG_S)
            assert exit_code == Exit.FAILED, (exit_code, former.log)
            assert "stands by" in former.log.splitlines()[-1], former.log
        self.done[way] += 1
        self._others.remove(self._deployment.service)
        self._others.append(self._deployment.start_driver())

    def stop_others(self) -> None:
        """Stop the drivers that stand by: they end with 0."""
        for other in self._others:
            wait_until(lambda: STANDING in other.log, account=self._account)  # noqa: B023
            assert other.stop() == 0, other.log

    def _end(self, driver: Service, way: str) -> list[int]:
        """End or suspend a driver. Return the suspended processes."""
        if way == "killed":
            driver.kill()
        elif way == "suspended":
            return self._deployment.pause(driver.process.pid)
        else:
            assert driver.stop() == 0, driver.log
        return []

    def _check(self) -> None:
        for driver in (self._deployment.service, *self._others):
            assert driver.process.poll() is None, driver.log

    def _account(self) -> str:
        return "; ".join(driver.log[-500:] for driver in (self._deployment.service, *self._others))
