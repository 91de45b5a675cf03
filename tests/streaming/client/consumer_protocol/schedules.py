"""Random faults for members of both protocols: of messages, workers, topics and the coordinator, as a seed selects."""

import random

import pytest

from coordinator.base.config import Config
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.heartbeats import Heartbeats
from coordinator.messages.requests import Request
from tests.streaming.client.consumer_protocol.simulation import BothSimulation, ConsumerWorker
from tests.streaming.client.schedules import SETTINGS as CLASSIC
from tests.streaming.client.schedules import RandomFaults
from tests.streaming.client.simulation import COOPERATIVE, Faults

FAULT_TURNS = 40
WORKERS_MAX = 5
PARTITIONS_MAX = 7
SESSION_MS, INTERVAL_MS = 6_000, 1_500
SETTINGS = {"max_poll_interval_ms": 8_000, "request_timeout_ms": 2_000}
RANDOM_EVENTS = (
    "sleep", "sleep", "idle", "leave", "back", "subscribe", "start", "restart", "kill", "grow", "anew", "away", "away",
)  # fmt: skip
TO_ALL = ((("t", "u"), ""), ((), "t|u"))
"""In mixed groups: members of the classic protocol tell the coordinator of no topic."""

SUBSCRIPTIONS = ((("t",), ""), (("t",), ""), (("t", "u"), ""), (("u",), ""), ((), "t|u"), ((), "u.*"))


class FaultsOfTheTransport(RandomFaults):
    """Random faults. The producer is idempotent, so that no heartbeat is twice in the log if its response is lost."""

    def repeated_after_ms(self, request: Request) -> int | None:
        """Return 0 for an immediate retry of the producer."""
        is_heartbeat = isinstance(request, ConsumerGroupHeartbeat | Heartbeats)
        return None if is_heartbeat and self._loses else super().repeated_after_ms(request)


class ConsumerSchedule:
    """The schedule of one seed: some workers, a time with faults, and then a time without.

    Args:
        classics: The share of workers that use the classic protocol.
    """

    def __init__(self, patch: pytest.MonkeyPatch, seed: int, classics: float = 0.0) -> None:
        self.chance, self.classics = random.Random(seed), classics
        config = Config(
            group_initial_rebalance_delay_ms=0,
            group_consumer_session_timeout_ms=SESSION_MS,
            group_consumer_heartbeat_interval_ms=INTERVAL_MS,
            group_consumer_assignors=self.chance.choice((("uniform", "range"), ("range",))),
        )
        topics = {"t": self.chance.randint(1, 5), "u": self.chance.randint(1, 3)}
        self.s = BothSimulation(patch, topics, config, FaultsOfTheTransport(self.chance))
        self.s.batch_ms = self.chance.choice((0, 200, 1_000))
        for _ in range(self.chance.randint(1, 3)):
            self.start()

    def run(self) -> None:
        for _ in range(FAULT_TURNS):
            if self.chance.random() < 0.4:
                self.apply_random_event()
            self.s.turn(self.chance.choice((20, 100, 250, 600)))
            self.remove_refused()
        self.calm_down()
        self.s.settle()
        self.check_rest()

    def start(self, instance: str | None = None) -> None:
        name = f"w{len(self.s.workers) + len(self.s.gone)}"
        names, regex = self.chance.choice(TO_ALL if self.classics else SUBSCRIPTIONS)
        if self.chance.random() < self.classics:
            self.s.start(name, self.chance.choice((("t",), ("t", "u"))), COOPERATIVE, **CLASSIC)
            return
        instance = instance or self.chance.choice((None, None, "i0", "i1"))
        if instance in {worker.instance for worker in self.s.consumers}:
            instance = None
        self.s.start_consumer(name, names, regex=regex, group_instance_id=instance, **SETTINGS)

    def apply_random_event(self) -> None:
        """Apply one random event to one worker, to the topics or to the coordinator."""
        if not self.s.workers:
            self.start()
        worker = self.chance.choice(self.s.workers)
        member = worker.driver.member
        match self.chance.choice(RANDOM_EVENTS):
            case "sleep":
                worker.is_awake = not worker.is_awake
            case "idle":
                worker.is_polling = not worker.is_polling
            case "leave" if worker.is_awake and member.is_subscribed:
                worker.leave()
            case "back" if worker.is_awake and not member.is_subscribed:
                worker.come_back()
            case "subscribe" if worker.is_awake and isinstance(worker, ConsumerWorker):
                names, regex = self.chance.choice(TO_ALL if self.classics else SUBSCRIPTIONS)
                worker.subscribe(*names, regex=regex)
            case "start" if len(self.s.workers) < WORKERS_MAX:
                self.start()
            case "restart" if isinstance(worker, ConsumerWorker) and worker.instance and worker.is_awake:
                worker.leave()
                self.s.kill(worker)  # type: ignore[arg-type]
                self.start(worker.instance)
            case "kill":
                self.s.kill(worker)
            case "grow":
                topic = self.chance.choice(("t", "u"))
                self.s.topics[topic] = min(self.s.topics[topic] + 1, PARTITIONS_MAX)
            case "anew":
                self.s.make_anew(self.chance.choice(("t", "u")), self.chance.randint(1, PARTITIONS_MAX))
            case "away" if self.s.is_up:
                self.s.is_up = False
            case "away":
                self.s.come_back(with_its_state=self.chance.random() < 0.5)

    def remove_refused(self) -> None:
        """End the processes that the coordinator refuses: their instance id was still taken."""
        for worker in [each for each in self.s.consumers if each.failed is not None]:
            assert worker.instance is not None, f"{worker} was refused: {worker.failed}"
            self.s.kill(worker)  # type: ignore[arg-type]

    def calm_down(self) -> None:
        self.s.faults = Faults()
        self.s.come_back()
        for worker in self.s.workers:
            worker.is_awake = worker.is_polling = True
        self.s.run(SESSION_MS + 4_000)  # fenced and refused workers learn it, and dead ones expire
        self.remove_refused()
        if not any(w.driver.member.is_subscribed for w in self.s.workers):
            self.s.workers[0].come_back() if self.s.workers else self.start()

    def check_rest(self) -> None:
        """Check that a group at rest stays so: no partition changes its owner, and no listener is called."""
        histories = self.s.histories()
        for _ in range(4):
            self.s.turn(INTERVAL_MS)
        assert self.s.is_at_rest, f"no longer at rest:\n{self.s}"
        assert self.s.histories() == histories
