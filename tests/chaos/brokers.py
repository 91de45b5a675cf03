"""Faults of three brokers: one or two at a time, now and then together with kill -9 of the driver or of a gateway.

 fault | what happens | it ends when |
 --- | --- | --- |
 killed | kill -9 of a broker | it is started again, after 1 to 20 s |
 controller killed | kill -9 of the broker that is the active controller | the same |
 majority killed | kill -9 of two brokers: no topic can be written | the same |
 restarted | SIGTERM of a broker, as in a rolling restart | it is started again at once |
 frozen | SIGSTOP of a broker | SIGCONT, after 1 to 40 s |
 query cut off | the query cannot reach one broker: silence, or connections are refused | it can, after 1 to 20 s |
 gateway cut off | one of two gateways cannot reach one broker | the same |
 leaders moved | the preferred leaders are elected | at once |
 reassigned | the replicas of a request partition change their order, so its preferred leader | at once |

After each fault all members must be served again, and no process may have written a sentence that is not true.
"""

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from tests.chaos.deployment import Deployment
from tests.chaos.served import Served
from tests.cluster3.brokers import IDS, ThreeBrokers
from tests.cluster3.proxy import Cut

HOLD_S = {"frozen": (1.0, 40.0)}
HOLD_S_OTHERS = (1.0, 20.0)
"""How long a fault is held: shorter and longer than the 9 s after which the cluster takes a broker for dead."""

OF_BROKERS = (
    "killed", "controller killed", "majority killed", "restarted", "frozen", "query cut off", "gateway cut off",
    "leaders moved", "reassigned",
)  # fmt: skip
OF_PROCESSES = ("driver", "gateway")

BESIDE_A_MAJORITY = {"majority killed", "leaders moved", "reassigned", *OF_PROCESSES}
"""The faults beside which two brokers may be killed: with another one, a process may reach no broker at all."""

TOGETHER = 0.5
"""The share of faults that have a second one at the same time, and that of those that have a process killed."""

BACK_S = 300.0
"""The time after the end of a fault until all members must be served. kafka-python's own consumer takes the longest: it
waits for up to 30 s before it connects again, and its session may have to end."""

UNTRUE = re.compile(r"No Kafka broker answers|no Kafka broker has answered|is missing")
"""Sentences that are never true in these runs: one broker answers at least, and no topic is deleted."""

End = Callable[[], object]


class BrokerFaults:
    """Causes faults of the brokers of a deployment, and counts them."""

    def __init__(
        self, deployment: Deployment, three: ThreeBrokers, chance: random.Random, report: Callable[[str], None]
    ) -> None:
        self._deployment, self._three, self._chance, self._report = deployment, three, chance, report
        self._served = Served(deployment.histories)
        self.done: Counter[str] = Counter()
        self.longest_s: dict[str, float] = {}
        self.ended_by_itself = self.not_back = 0
        self.untrue: list[str] = []
        self.faults: dict[str, Callable[[], End]] = {
            # of two faults the upper one is caused first: it may need a majority of the brokers
            "leaders moved": self._move_leaders,
            "reassigned": self._reassign,
            "controller killed": self._kill_controller,
            "killed": self._kill,
            "restarted": self._restart,
            "frozen": self._freeze,
            "query cut off": partial(self._cut_off, "QUERY"),
            "gateway cut off": partial(self._cut_off, "GATEWAY"),
            "majority killed": self._kill_majority,
            "driver": self._kill_driver,
            "gateway": self._kill_gateway,
        }

    def run(self, times: int, until_s: float) -> None:
        """Cause faults until `times` are done or until a time of the machine's monotonic clock."""
        left: list[str] = []
        while self.done.total() < times and time.monotonic() < until_s:
            left = left or self._chance.sample(OF_BROKERS, len(OF_BROKERS))
            names = {left.pop()}
            if self._chance.random() < TOGETHER:
                names.add(self._chance.choice(OF_BROKERS))
            if self._chance.random() < TOGETHER:
                names.add(self._chance.choice(OF_PROCESSES))
            if "majority killed" in names:
                names &= BESIDE_A_MAJORITY
            self.cause(sorted(names, key=[*self.faults].index))

    def cause(self, names: list[str]) -> None:
        """Cause faults together, end them, and wait until every member has been served after that."""
        began_s = time.monotonic()
        self._report(f"fault {self.done.total() + 1}: {' and '.join(names)}")
        ends = [self.faults[name]() for name in names]
        hold_s = max(self._chance.uniform(*HOLD_S.get(name, HOLD_S_OTHERS)) for name in names)
        self._deployment.producing.join(hold_s)
        for end in ends:
            end()
        self._three.mend()
        ended_s = time.monotonic()
        try:
            self._served.wait(partial(self._check, ended_s), lambda: self._deployment.service.log[-500:])
        except NotBack:
            self.not_back += 1
            raise
        self.done.update(names)
        took_s = round(time.monotonic() - began_s, 1)
        self._report(f"served {time.monotonic() - ended_s:.1f} s after its end, {took_s} s after its beginning")
        for name in names:
            self.longest_s[name] = max(self.longest_s.get(name, 0.0), took_s)

    def find_untrue(self) -> None:
        """Find the sentences in all logs that are not true."""
        logs = {file.name: file.read_text(errors="replace") for file in self._deployment.logs}
        self.untrue = [
            f"{name}: {line}" for name, log in logs.items() for line in log.splitlines() if UNTRUE.search(line)
        ]

    # -- faults --------------------------------------------------------------------------------------------------------

    def _kill(self) -> End:
        self._three.kill(number := self._one())
        return partial(self._start, number)

    def _kill_controller(self) -> End:
        self._three.kill(number := self._three.controller())
        return partial(self._start, number)

    def _kill_majority(self) -> End:
        for number in self._chance.sample(IDS, 2):
            self._three.kill(number)
        return self._three.mend

    def _restart(self) -> End:
        self._three.stop(number := self._one())
        return partial(self._start, number)

    def _freeze(self) -> End:
        if (number := self._one()) in self._three.running:
            self._three.suspend(number)
        return self._three.resume_all

    def _cut_off(self, client: str) -> End:
        number = self._one()
        self._three.cut_off(client, number, self._chance.choice([Cut.SILENT, Cut.REFUSED]))
        return partial(self._three.cut_off, client, number, Cut.NONE)

    def _move_leaders(self) -> End:
        self._three.elect_preferred()
        return lambda: None

    def _reassign(self) -> End:
        settings = self._deployment.settings
        partition = self._chance.randrange(settings.request_partitions)
        self._three.place(settings.requests_topic, partition, self._chance.sample(IDS, len(IDS)))
        return lambda: None

    def _one(self) -> int:
        return self._chance.choice(IDS)

    def _start(self, number: int) -> None:
        if number not in self._three.running:
            self._three.start(number)

    def _kill_driver(self) -> End:
        """Kill the driver, and start it again at once, as a supervisor does."""
        self._deployment.service.kill()
        self._deployment.start_coordinator()
        return lambda: None

    def _kill_gateway(self) -> End:
        gateway = self._chance.choice(self._deployment.gateways)
        gateway.kill()
        gateway.start_again()
        return lambda: None

    def _check(self, ended_s: float) -> None:
        """Start processes that have ended by themselves, and raise an error if members do not come back."""
        if self._deployment.service.process.poll() is not None:
            self._report(f"the coordinator has ended by itself: {self._deployment.service.log[-300:]}")
            self.ended_by_itself += 1
            self._deployment.start_coordinator()
        for gateway in self._deployment.gateways:
            if gateway.process is not None and gateway.process.poll() is not None:
                self._report(f"a gateway has ended by itself: {gateway.log[-300:]}")
                gateway.start_again()
        if time.monotonic() - ended_s > BACK_S:
            raise NotBack


class NotBack(Exception):
    """Members were not served again within `BACK_S` after the end of a fault."""
