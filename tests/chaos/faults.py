"""The faults of a chaos run, in random order; each kind occurs once in each round."""

import heapq
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from itertools import count

from tests.chaos.deployment import Deployment

PAUSE_SESSIONS = 1.5
"""The length of a pause, in session timeouts: other members have the partitions by then."""

BETWEEN_S = (2.0, 6.0)


class Chaos:
    """Causes one fault after another, and ends each fault after its time.

    Args:
        report: Called with a sentence for each fault.
    """

    def __init__(
        self, deployment: Deployment, chance: random.Random, pause_s: float, report: Callable[[str], None]
    ) -> None:
        self._deployment, self._chance, self._pause_s, self._report = deployment, chance, pause_s, report
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._busy: set[str] = set()
        self.done: Counter[str] = Counter()
        self.faults: dict[str, tuple[str, Callable[[], None]]] = {
            # fault                        process         function
            "member killed":         ("member",      self._kill_member),
            "member paused":         ("member",      self._pause_member),
            "member restarted":      ("member",      self._restart_member),
            "coordinator killed":    ("coordinator", self._kill_coordinator),
            "coordinator paused":    ("coordinator", self._pause_coordinator),
            "coordinator restarted": ("coordinator", self._restart_coordinator),
            "broker killed":         ("broker",      self._kill_broker),
            "broker paused":         ("broker",      self._pause_broker),
            "broker restarted":      ("broker",      self._restart_broker),
        }  # fmt: skip

    def run(self, seconds: float) -> None:
        """Cause faults for `seconds`; processes that are paused at the end stay paused."""
        until_s = time.monotonic() + seconds
        next_s, left = time.monotonic(), self._round()
        while (now_s := time.monotonic()) < until_s:
            while self._later and self._later[0][0] <= now_s:
                heapq.heappop(self._later)[2]()
            self._supervise()
            name = next((name for name in left if not self._is_busy(self.faults[name][0])), None)
            if name and now_s >= next_s:
                self._report(name)
                self.done[name] += 1
                self.faults[name][1]()
                left.remove(name)
                left = left or self._round()
                next_s = time.monotonic() + self._chance.uniform(*BETWEEN_S)
            time.sleep(0.05)

    def _round(self) -> list[str]:
        """Return all faults in random order."""
        names = list(self.faults)
        self._chance.shuffle(names)
        return names

    def _is_busy(self, what: str) -> bool:
        return what in self._busy or (what == "coordinator" and not self._deployment.is_up)

    def _supervise(self) -> None:
        """Start a coordinator that has ended by itself, as it does if its broker is down for too long."""
        if "coordinator" not in self._busy and self._deployment.service.process.poll() is not None:
            self._report("the coordinator has ended by itself")
            self.done["coordinator ended by itself"] += 1
            self._deployment.start_coordinator()

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), call))

    def _pause(self, what: str, pid: int) -> None:
        self._busy.add(what)
        family = self._deployment.pause(pid)

        def resume() -> None:
            self._deployment.resume(*family)
            self._busy.discard(what)

        self._after(self._pause_s * self._chance.uniform(0.8, 1.2), resume)

    # -- members -------------------------------------------------------------------------------------------------------

    def _kill_member(self) -> None:
        self._chance.choice(self._deployment.alive).kill()
        self._after(self._chance.uniform(0, 3), self._start_member)

    def _pause_member(self) -> None:
        self._pause("member", self._chance.choice(self._deployment.alive).pid)

    def _restart_member(self) -> None:
        self._chance.choice(self._deployment.alive).send_signal(signal.SIGTERM)
        self._after(self._chance.uniform(0, 3), self._start_member)

    def _start_member(self) -> None:
        self._deployment.start_member()

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def _kill_coordinator(self) -> None:
        self._deployment.service.kill()
        self._deployment.start_coordinator()

    def _pause_coordinator(self) -> None:
        self._pause("coordinator", self._deployment.service.process.pid)

    def _restart_coordinator(self) -> None:
        self._deployment.service.process.terminate()
        self._busy.add("coordinator")
        self._after(0.1, self._start_when_ended)

    def _start_when_ended(self) -> None:
        if self._deployment.service.process.poll() is None:
            self._after(0.1, self._start_when_ended)
            return
        self._deployment.start_coordinator()
        self._busy.discard("coordinator")

    # -- the broker ----------------------------------------------------------------------------------------------------

    def _kill_broker(self) -> None:
        self._deployment.broker.kill()
        self._deployment.broker.start()

    def _pause_broker(self) -> None:
        self._pause("broker", self._deployment.broker.pid)

    def _restart_broker(self) -> None:
        self._deployment.broker.stop()
        self._deployment.broker.start()
