"""A simulation of some groups, their members, and the log and mailboxes to the coordinator. One seed drives it.

In each turn time passes. Then requests that have arrived are appended to the log, a batch may read the log, responses
arrive, and every process sends the requests that are due. After a number of steps all faults stop. Then every group
must become Stable with every living process as a member (I11).

A step is a request that a batch has handled, or a response that a process has received. Requests of killed attempts,
requests of audits, and deadlines that fire are not counted.
"""

import heapq
from collections import deque
from itertools import count, islice
from random import Random
from typing import Any

from coordinator.base.hashing import shard_of
from coordinator.base.limits import NEVER_MS
from coordinator.messages.requests import Received, Request, Unreadable, Wake
from coordinator.messages.responses import AnyAnswer, Reply
from coordinator.state.consumer_group import ConsumerGroup
from tests.simulation import rest
from tests.simulation.actors import FOLLOWERS, OPERATORS, STRANGERS, TOOLS, Stranger
from tests.simulation.clocks import DAY_MS, Clocks
from tests.simulation.cluster import Cluster
from tests.simulation.consumers import Consumer
from tests.simulation.faults import Swarm
from tests.simulation.judge import Broken, Judge
from tests.simulation.policies import Legislator
from tests.simulation.processes import AnyProcess, Processes
from tests.simulation.producers import Producers
from tests.simulation.script import Batch, Script
from tests.simulation.topic import GroupsTopic
from tests.simulation.worlds import (
    BOTH_WAYS,
    CROWD_RATE,
    CROWD_STEPS,
    Members,
    draw_config,
    draw_member,
    draw_members,
    draw_sizes,
)

PACES_MS = (20, 1_000, 2_000, 3_000)
"""The mean length of a turn after the time of its first event."""

ASKED = {"a stranger asks": STRANGERS, "an operator asks": OPERATORS, "a tool commits": TOOLS}

BEGINS_MS = 20_000 * DAY_MS
"""The start time of simulations, long after 1970: clocks that go back stay above 0."""

SLOW_MS_MAX = 300_000
"""The longest time for which reading is slow."""

SLOW_BATCH_MS_MAX = 5_000
"""The longest time that a batch takes while reading is slow."""

PAUSE_MS_MAX = 120_000
"""The longest time for which a writer is paused before it writes its batch again."""

IDLE_MS = 5_000
"""The longest turn without an event."""

PATIENCE_MS = 600_000
"""The longest time until all groups are at rest, once all deadlines from before the calm period are over."""


class Simulation:
    """Everything but the coordinator, and a judge that runs the coordinator.

    Args:
        name: The seed.
        steps: The number of steps before the calm period.
        is_crowded: One group of the largest size; drawn at random if None.
    """

    def __init__(self, name: str, steps: int, *, is_crowded: bool | None = None) -> None:
        self.chance = chance = Random(name)
        self.is_crowded = chance.random() < CROWD_RATE if is_crowded is None else is_crowded
        self.name, self.heard, self.now_ms = name, 0, BEGINS_MS
        is_exact = chance.random() < 0.3
        self.swarm = Swarm(chance, is_exact=is_exact)
        partitions, sizes = chance.choice((1, 1, 3)), draw_sizes(chance, is_crowded=self.is_crowded)
        own = (f"group {n}" for n in count() if shard_of(f"group {n}", partitions) == 0)
        self.group_ids = tuple(islice(own, len(sizes)))
        lone = next(own)
        self.script = Script(draw_config(chance, is_exact, self.group_ids[0], max(sizes)), is_exact, partitions)
        self.judge = Judge(self.script.config, self.script.written_ms, partitions)
        self.pace_ms = chance.choice(PACES_MS)
        self.steps = steps // 4 if self.pace_ms < 1_000 else steps  # batches of one or two requests are slow
        if self.is_crowded:
            self.pace_ms, self.steps = PACES_MS[-1], CROWD_STEPS
        self.stranger = Stranger(chance, (*self.group_ids, "nobody's"), self.judge.groups)
        self.cluster = Cluster(chance)
        self.rounds = rest.Rounds(self.script.config.group_consumer_heartbeat_interval_ms)
        protocols = draw_members(chance, is_crowded=self.is_crowded, groups=len(sizes))
        self.protocols = dict(zip(self.group_ids, protocols, strict=True))
        self.processes = Processes(chance, self.protocols, self.cluster, self.swarm)
        self._to_log: list[tuple[int, int, Request | Unreadable]] = []
        self._log: deque[Received] = deque()
        self._to_inbox: list[tuple[int, int, str, AnyAnswer]] = []
        self._sent = self._offset = 0
        self.clocks, self.topic = Clocks(chance), GroupsTopic()
        self._unavailable_until_ms = self._slow_until_ms = self._takes_max = 0
        living = self.processes.of_group
        self.legislator = Legislator(name, self.group_ids)
        for request in self.legislator.begin(self.now_ms):
            self._send_surely(request)
        self.producers = Producers(name, self.group_ids, lone, living, is_exact=is_exact, now_ms=self.now_ms)
        for group_id, size in zip(self.group_ids, sizes, strict=True):
            for n in range(size):
                self.processes.start(draw_member(chance, group_id, n), self.now_ms)

    # -- running -------------------------------------------------------------------------------------------------------

    @property
    def done(self) -> int:
        """The number of steps so far."""
        return self.judge.requests + self.heard

    def run(self) -> None:
        """Run until all groups are at rest.

        Raises:
            Broken: at the first broken promise.
        """
        while self.done < self.steps:
            self._turn(int(self.chance.expovariate(1 / self.pace_ms)))
            self._apply_faults()
        self._calm()
        until_ms = rest.last_deadline_ms(self.judge.groups.values(), self.now_ms) + PATIENCE_MS
        while (restless := self._restless()) is not None:
            if self.now_ms >= until_ms:
                raise Broken("ComesToRest", restless)
            self._turn(self.chance.choice((500, 1_000, 2_000)))
            if (late := self.rounds.overdue(self.judge.groups, self.processes.subscribed(), self.now_ms)) is not None:
                raise Broken("StableInThreeRounds", late)

    def _turn(self, wait_ms: int) -> None:
        now_ms = self.now_ms = max(self.now_ms + 1, self._next_ms()) + wait_ms
        self._append()
        self.topic.go_on(now_ms)
        for request in self.topic.overdue(now_ms):
            self._write(now_ms, request)
        if self.producers.due_ms <= now_ms:
            self._transact()
        if self._alarm_ms() <= now_ms:
            self._wake()
        if self._unavailable_until_ms <= now_ms and (self._log or self.judge.deferred):
            self._batch()
        self._deliver()
        for process in self.processes.running:
            if process.due_ms <= now_ms:
                for request in process.turn(now_ms):
                    self._send(request)

    def _next_ms(self) -> int:
        """Return the time of the next event."""
        next_ms = min((process.due_ms for process in self.processes.running), default=NEVER_MS)
        for queue in (self._to_log, self._to_inbox):
            if queue:
                next_ms = min(next_ms, queue[0][0])
        return min(next_ms, self._alarm_ms(), self.producers.due_ms, self.now_ms + IDLE_MS)

    def _alarm_ms(self) -> int:
        """Return the time at which the engine calls a shard without requests."""
        if self.judge.deferred:
            return self.now_ms
        deadline_ms = self.judge.next_deadline_ms
        return NEVER_MS if deadline_ms is None else deadline_ms + self.script.config.clock_slack_ms

    # -- requests ------------------------------------------------------------------------------------------------------

    def _send(self, request: Request | Unreadable) -> None:
        chance, hurried = self.chance, self.now_ms + int(self.chance.random() * 50)
        arrivals = [hurried]
        for fault in self.swarm.faults("request"):
            if fault == "lost":
                arrivals = []
            elif fault == "late":
                arrivals = [at_ms + chance.randrange(20_000) for at_ms in arrivals]
            elif fault == "repeated":
                arrivals += [hurried + int(60_000 * chance.random() ** 4) for _ in range(chance.choice((1, 1, 3)))]
            else:
                arrivals.append(hurried + chance.randrange(600_000))
        for at_ms in arrivals:
            self._sent += 1
            heapq.heappush(self._to_log, (at_ms, self._sent, request))

    def _send_surely(self, request: Request) -> None:
        """Send a request that arrives once, and at once."""
        self._sent += 1
        heapq.heappush(self._to_log, (self.now_ms, self._sent, request))

    def _transact(self) -> None:
        """Send the commits of producers, and append the reports of the driver to the log."""
        for request in self.producers.turn(self.now_ms):
            self._send(request)
        unread = [*self.judge.deferred, *self._log]
        handled = unread[0].offset if unread else self._offset
        kept, reporting = self.judge.kept, self.producers.reporting
        for written, report in reporting.turn(self.now_ms, handled, (kept.settled.topic_id, kept.settled.before)):
            if (wrong := self.producers.brokers.why_wrong(written)) is not None:
                raise Broken("ReportsAreTrue", wrong)
            if report is not None:
                reporting.driver.sent(report, self._offset)
            self._write(self.now_ms, written)

    def _append(self) -> None:
        """Append the requests that have arrived to the log, at the log's own time."""
        while self._to_log and self._to_log[0][0] <= self.now_ms:
            at_ms, _, request = heapq.heappop(self._to_log)
            self._write(at_ms, request)

    def _write(self, at_ms: int, request: Request | Unreadable | Wake) -> None:
        shown_ms = self.clocks.log_ms(at_ms, self.now_ms)
        if shown_ms != at_ms:
            self.script.written_ms[self._offset] = at_ms
        self._log.append(Received(self._offset, shown_ms, request))
        self._offset += 1

    def _wake(self) -> None:
        """Append a wake record, with the time of the driver's clock."""
        if self._unavailable_until_ms <= self.now_ms:
            self._write(self.now_ms, Wake(self.clocks.driver_ms(self.now_ms)))

    # -- batches -------------------------------------------------------------------------------------------------------

    def _batch(self) -> None:
        faults = self.swarm.faults("batch")
        takes = len(self._log)
        if takes > 1 and "is left short" in faults:
            takes = self.chance.randrange(takes)
        if self._slow_until_ms > self.now_ms:
            takes = min(takes, self._takes_max)
            self._unavailable_until_ms = self.now_ms + self.chance.randrange(SLOW_BATCH_MS_MAX)
        records = [self._log.popleft() for _ in range(takes)]
        driver_ms = self.clocks.driver_ms(self.now_ms)
        true_ms = None if driver_ms == self.now_ms else self.now_ms
        batch = Batch(driver_ms, **self._wrongs(faults), true_ms=true_ms)
        self.script.happenings += [*records, batch]
        outputs = self.judge.take(records, batch)
        self.rounds.note(outputs, self.now_ms)
        if (untrue := self.producers.why_untrue(outputs)) is not None:
            raise Broken("TransactionsAreTrue", untrue)
        for output in outputs:
            if type(output) is Reply:
                self._answer(output)
        written = self.topic.write(outputs, self.now_ms)
        if "is written again late" in faults:
            self.topic.pause(written, self.now_ms + self.chance.randrange(PAUSE_MS_MAX))

    def _wrongs(self, faults: list[str]) -> dict[str, Any]:
        chance, wrongs = self.chance, dict[str, Any]()
        if "is killed" in faults:
            attempts = range(chance.choice((1, 1, 1, 3)))
            wrongs["killed"] = tuple(chance.choice((0, 1_000, chance.randrange(1_000))) for _ in attempts)
        if "begins with a damaged state" in faults:
            wrongs["damaged"] = chance.randrange(1_000)
        return wrongs

    def _answer(self, reply: Reply) -> None:
        arrivals = [self.now_ms]
        for fault in self.swarm.faults("reply"):
            if fault == "lost":
                arrivals = []
            elif fault == "late":
                arrivals = [at_ms + self.chance.randrange(20_000) for at_ms in arrivals]
            else:
                arrivals.append(self.now_ms + int(60_000 * self.chance.random() ** 4))
        for at_ms in arrivals:
            self._sent += 1
            heapq.heappush(self._to_inbox, (at_ms, self._sent, reply.to, reply.answer))

    def _deliver(self) -> None:
        asleep = []
        while self._to_inbox and self._to_inbox[0][0] <= self.now_ms:
            _, _, to, answer = arrival = heapq.heappop(self._to_inbox)
            listeners = self.processes.readers(to)
            self.heard += bool(listeners) or self.producers.hear(to, answer, self.now_ms)
            for process in listeners:
                if process.asleep_until_ms > self.now_ms:
                    asleep.append((process.asleep_until_ms, *arrival[1:]))
                    continue
                for request in process.hear(answer, self.now_ms):
                    self._send(request)
        for arrival in asleep:
            heapq.heappush(self._to_inbox, arrival)

    # -- faults --------------------------------------------------------------------------------------------------------

    def _apply_faults(self) -> None:
        chance, now_ms = self.chance, self.now_ms
        for fault in self.swarm.faults("turn of the members"):
            if self.processes.running:
                self._apply_fault_to(chance.choice(self.processes.running), fault)
        for request in self.legislator.turn(now_ms):
            self._send_surely(request)
        for fault in self.swarm.faults("turn of others"):
            if fault == "a topic changes":
                self.cluster.change(self.now_ms)
                self._tell_topics()
            else:
                self._ask(fault)
        for fault in self.swarm.faults("turn of the coordinator"):
            if fault == "is unavailable":
                self._unavailable_until_ms = now_ms + int(180_000 * chance.random() ** 2)
            elif fault == "reads slowly":
                self._slow_until_ms = now_ms + chance.randrange(SLOW_MS_MAX)
                self._takes_max = chance.randint(1, 8)
            else:
                self.clocks.befall(fault, now_ms)
        self.processes.restart(now_ms, now_ms)

    def _ask(self, fault: str) -> None:
        """Send a request that is no member's."""
        others = [group_id for group_id, kind in self.protocols.items() if kind is not Members.CLASSIC]
        if fault == "a record is no request":
            self._send(self.stranger.no_request())
        elif fault != "a stranger follows":
            self._send(self.stranger.ask(ASKED[fault]))
        elif others:
            self._send(self.stranger.ask(FOLLOWERS, others))

    def _tell_topics(self) -> None:
        """Send what gateways know of topics, and of the patterns of their members."""
        for group_id, protocols in self.protocols.items():
            if protocols is not Members.CLASSIC:
                self._send(self.cluster.told(group_id, self.now_ms))
        for process in self.processes.running:
            if isinstance(process, Consumer) and process.regex and process.is_subscribed:
                resolver = process.member_id, process.regex
                self._send(self.cluster.told(process.config.group_id, self.now_ms, (), resolver))

    def _apply_fault_to(self, process: AnyProcess, fault: str) -> None:
        now_ms, chance, requests = self.now_ms, self.chance, list[Request]()
        match fault:
            case "sleeps":
                process.due_ms = process.asleep_until_ms = now_ms + int(60_000 * chance.random() ** 2)
            case "does not poll":
                process.idle_until_ms = now_ms + int(90_000 * chance.random() ** 2)
            case "is killed":
                self.processes.kill(process)
                self.processes.start_later(process.config, now_ms + int(30_000 * chance.random() ** 2))
            case "leaves":
                requests = process.leave(now_ms)
            case "subscribes anew":
                requests = process.subscribe(now_ms)
            case "is started twice":
                self.processes.start(process.config, now_ms)
            case "moves to another mailbox":
                self.processes.move(process)
        for request in requests:
            self._send(request)

    # -- calm ----------------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        """Stop all faults: all requests that were sent arrive, and each configuration has one process."""
        self.rounds.begin(self.group_ids, self.now_ms)
        self.swarm.calm()
        self.clocks.calm()
        self.cluster.calm()
        self.producers.calm()
        self._unavailable_until_ms = self._slow_until_ms = 0
        self.processes.restart(NEVER_MS, self.now_ms)
        for process in self.processes.running:
            process.asleep_until_ms = process.idle_until_ms = process.due_ms = 0
        self.processes.kill_doubles()
        self._keep_apart()
        for process in self.processes.running:
            for request in process.make_up(self.now_ms):
                self._send(request)
        self._tell_topics()
        for request in self.legislator.calm(self.now_ms):
            self._send_surely(request)
        self._to_log = [(min(at_ms, self.now_ms), *rest) for at_ms, *rest in sorted(self._to_log)]
        self._to_inbox = [(min(at_ms, self.now_ms), *rest) for at_ms, *rest in sorted(self._to_inbox)]
        heapq.heapify(self._to_log)
        heapq.heapify(self._to_inbox)

    def _restless(self) -> str | None:
        """Return a message about a group or key that is not at rest; None if all are."""
        restless = rest.restless(self.judge.groups, self.processes.subscribed()) or self.topic.wrong()
        return restless or self.producers.wrong(self.judge.kept.pending)

    def _keep_apart(self) -> None:
        """Stop the processes that may not be in their group, because no conversion of it is allowed."""
        policy = self.script.config.group_consumer_migration_policy
        for process in [p for p in self.processes.running if policy not in (BOTH_WAYS, "upgrade")]:
            group = self.judge.groups.get(process.config.group_id)
            if isinstance(process, Consumer) != isinstance(group, ConsumerGroup):
                self.processes.kill(process)
