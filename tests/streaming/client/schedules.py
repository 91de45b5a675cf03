"""Random faults for the simulation: a seed selects faults of messages, workers, topics and the coordinator."""

import random
from collections.abc import Collection

import pytest

from coordinator.base.config import Config
from coordinator.messages.requests import Request
from coordinator.messages.responses import AnyAnswer
from tests.streaming.client.simulation import COOPERATIVE, EAGER, Faults, Simulation, Worker

FAULT_TURNS = 40
WORKERS_MAX = 5
PARTITIONS_MAX = 7
STRATEGIES = (EAGER, ("sticky",), COOPERATIVE, COOPERATIVE, ("range", "cooperative-sticky"))
SETTINGS = {
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 1_500,
    "max_poll_interval_ms": 8_000,
    "request_timeout_ms": 2_000,
}
RANDOM_EVENTS = (
    "sleep", "sleep", "idle", "leave", "back", "subscribe", "start", "restart", "kill", "grow", "away", "away", "force",
)  # fmt: skip


class RandomFaults(Faults):
    """Every kind of fault, as often as this schedule's random numbers select it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._loses, self._repeats, self._delays, self._fails = (chance.choice((0, 0.05, 0.2)) for _ in range(4))

    def _is(self, probability: float) -> bool:
        return self._chance.random() < probability

    def repeated_after_ms(self, request: Request) -> int | None:
        """Return 0 for an immediate retry of the producer; requests of others may come in between, its own may not."""
        return 0 if self._is(self._repeats / 2) else None

    def is_refused(self, request: Request) -> bool:
        return self._is(self._fails / 4)

    def arrivals(self, answer: AnyAnswer) -> Collection[int]:
        if self._is(self._loses):
            return ()
        first_ms = self._chance.randrange(2_500) if self._is(self._delays) else 0
        return (first_ms, self._chance.randrange(2_500)) if self._is(self._repeats) else (first_ms,)

    def fails(self, what: str) -> bool:
        return self._is(self._fails / 2)

    def polls_first(self) -> bool:
        return self._is(0.1)


class Schedule:
    """The schedule of one seed: some workers, a time with faults, and then a time without."""

    def __init__(self, patch: pytest.MonkeyPatch, seed: int) -> None:
        self.chance = random.Random(seed)
        config = Config(group_initial_rebalance_delay_ms=self.chance.choice((0, 0, 1_000)))
        topics = {"t": self.chance.randint(1, 5), "u": self.chance.randint(0, 3)}
        self.strategies = self.chance.choice(STRATEGIES)
        self.s = Simulation(patch, topics, config, RandomFaults(self.chance))
        self.settings = dict(SETTINGS)
        self.s.batch_ms = self.chance.choice((0, 200, 1_000))
        for _ in range(self.chance.randint(1, 3)):
            self.start()

    def run(self) -> None:
        for _ in range(FAULT_TURNS):
            if self.chance.random() < 0.4:
                self.apply_random_event()
            self.s.turn(self.chance.choice((20, 100, 250, 600)))
        self.calm_down()
        self.s.settle()
        self.check_rest()
        assert not self.s.orphans, "a process has become two members, and no process acts for the first one"

    def start(self) -> Worker:
        instance = self.chance.choice((None, None, "i0", "i1"))
        if any(w.instance == instance for w in self.s.workers):
            instance = None
        return self.s.start(self.name(), self.topics(), self.strategies, instance, **SETTINGS)

    def name(self) -> str:
        return f"w{len(self.s.workers) + len(self.s.gone)}"

    def topics(self) -> tuple[str, ...]:
        return self.chance.choice((("t",), ("t",), ("t", "u"), ("u",)))

    def apply_random_event(self) -> None:
        """Apply one random event to one worker or to the coordinator."""
        worker = self.chance.choice(self.s.workers) if self.s.workers else self.start()
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
            case "subscribe" if worker.is_awake:
                worker.subscribe(*self.topics())
            case "start" if len(self.s.workers) < WORKERS_MAX:
                self.start()
            case "restart" if worker.instance and len(self.s.workers) < WORKERS_MAX:
                self.restart(worker)
            case "kill":
                self.s.kill(worker)
            case "grow":
                topic = self.chance.choice(("t", "u"))
                self.s.topics[topic] = min(self.s.topics[topic] + 1, PARTITIONS_MAX)
            case "away" if self.s.is_up:
                self.s.is_up = False
            case "away":
                self.s.come_back(with_its_state=self.chance.random() < 0.5)
            case "force" if worker.is_awake:
                worker.driver.request_rejoin("for the test")

    def restart(self, worker: Worker) -> None:
        """Start another process with a static member's instance id; the old one is dead, or does not know yet."""
        if self.chance.random() < 0.7:
            self.s.kill(worker)
        self.s.start(self.name(), worker.topics, self.strategies, worker.instance, **SETTINGS)

    def calm_down(self) -> None:
        self.s.faults = Faults()
        self.s.come_back()
        for worker in self.s.workers:
            worker.is_awake = worker.is_polling = True
        while self.s.is_late:
            self.s.turn()
        self.s.run(4_000)  # fenced workers learn it, and end
        if not any(w.driver.member.is_subscribed for w in self.s.workers):
            self.s.workers[0].come_back() if self.s.workers else self.start()
        if any(w.instance for w in self.s.workers):
            # a leader that returns to an unchanged assignment cannot know which topics have grown; see below
            self.s.settle(completely=False)
            self.s.topics = {topic: count + 1 for topic, count in self.s.topics.items()}

    def check_rest(self) -> None:
        """Check that a group at rest stays so: the generation does not change, and no listener is called."""
        generation_id, histories = self.s.generation_id, self.s.histories()
        for _ in range(4):
            self.s.turn(SETTINGS["heartbeat_interval_ms"])
        assert self.s.is_at_rest, f"no longer at rest:\n{self.s}"
        assert (self.s.generation_id, self.s.histories()) == (generation_id, histories)
