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

from coordinator.config import Config
from coordinator.group import NEVER_MS
from coordinator.hashing import shard_of
from coordinator.limits import ASSIGNMENTS_MAX
from coordinator.member import MemberState
from coordinator.member_config import MemberConfig
from coordinator.outputs import AnyAnswer, Reply
from coordinator.phases import Phase
from coordinator.requests import Received, Request, Unreadable, Wake
from tests.simulation.actors import OPERATORS, STRANGERS, TOOLS, Process, Stranger
from tests.simulation.clocks import DAY_MS, Clocks
from tests.simulation.faults import Swarm
from tests.simulation.judge import OLDER, Broken, Judge
from tests.simulation.script import Batch, Script
from tests.simulation.topic import GroupsTopic

PACES_MS = (20, 1_000, 2_000, 3_000)
"""The mean length of a turn after the time of its first event."""

NO_LATENESS_MS = 2**40
"""The value of `late_notice_ms` with which no deadline counts as noticed late."""

ASKED = {"a stranger asks": STRANGERS, "an operator asks": OPERATORS, "a tool commits": TOOLS}

BEGINS_MS = 20_000 * DAY_MS
"""The start time of simulations, long after 1970: clocks that go back stay above 0."""

CROWD, CROWD_RATE, CROWD_STEPS = ASSIGNMENTS_MAX, 0.001, 50_000
"""The members of the largest group, the share of simulations with such a group, and the steps until all have joined."""

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
        partitions, sizes = chance.choice((1, 1, 3)), self._sizes(chance)
        own = (f"group {n}" for n in count() if shard_of(f"group {n}", partitions) == 0)
        self.group_ids = tuple(islice(own, len(sizes)))
        self.script = Script(_config(chance, is_exact, self.group_ids[0], max(sizes)), is_exact, partitions)
        self.judge = Judge(self.script.config, self.script.written_ms, partitions)
        self.pace_ms = chance.choice(PACES_MS)
        self.steps = steps // 4 if self.pace_ms < 1_000 else steps  # batches of one or two requests are slow
        if self.is_crowded:
            self.pace_ms, self.steps = PACES_MS[-1], CROWD_STEPS
        self.stranger = Stranger(chance, (*self.group_ids, "nobody's"), self.judge.groups)
        self.processes: list[Process] = []
        self._started = 0
        self._inboxes: dict[str, list[Process]] = {}
        self._to_log: list[tuple[int, int, Request | Unreadable]] = []
        self._log: deque[Received] = deque()
        self._to_inbox: list[tuple[int, int, str, AnyAnswer]] = []
        self._sent = self._offset = 0
        self.clocks, self.topic = Clocks(chance), GroupsTopic()
        self._unavailable_until_ms = self._slow_until_ms = self._takes_max = 0
        self._restarts: list[tuple[int, MemberConfig]] = []
        for group_id, size in zip(self.group_ids, sizes, strict=True):
            for n in range(size):
                self._start(_member(chance, group_id, n))

    def _sizes(self, chance: Random) -> list[int]:
        """Return the number of members of each group: a few, or the largest number if the simulation is crowded."""
        if self.is_crowded:
            return [CROWD]
        return [chance.choice((1, 3, 6, 9)) for _ in range(chance.choice((1, 2, 4, 4)))]

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
        until_ms = self._last_deadline_ms() + PATIENCE_MS
        while (restless := self._restless()) is not None:
            if self.now_ms >= until_ms:
                raise Broken("ComesToRest", restless)
            self._turn(self.chance.choice((500, 1_000, 2_000)))

    def _turn(self, wait_ms: int) -> None:
        now_ms = self.now_ms = max(self.now_ms + 1, self._next_ms()) + wait_ms
        self._append()
        self.topic.go_on(now_ms)
        for request in self.topic.overdue(now_ms):
            self._write(now_ms, request)
        if self._alarm_ms() <= now_ms:
            self._wake()
        if self._unavailable_until_ms <= now_ms and (self._log or self.judge.deferred):
            self._batch()
        self._deliver()
        for process in self.processes:
            if process.due_ms <= now_ms:
                for request in process.turn(now_ms):
                    self._send(request)

    def _next_ms(self) -> int:
        """Return the time of the next event."""
        next_ms = min((process.due_ms for process in self.processes), default=NEVER_MS)
        for queue in (self._to_log, self._to_inbox):
            if queue:
                next_ms = min(next_ms, queue[0][0])
        return min(next_ms, self._alarm_ms(), self.now_ms + IDLE_MS)

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
        if "begins with a state of an older version" in faults:
            wrongs["codec"] = chance.choice(list(OLDER))
            wrongs["is_upgraded"] = (
                chance.random() < 0.5 and self.clocks.were_right
            )  # an older version loses the clocks
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
            listeners = self._inboxes.get(to, ())
            self.heard += bool(listeners)
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
            if self.processes:
                self._apply_fault_to(chance.choice(self.processes), fault)
        for fault in self.swarm.faults("turn of others"):
            kinds = ASKED.get(fault)
            self._send(self.stranger.ask(kinds) if kinds else self.stranger.no_request())
        for fault in self.swarm.faults("turn of the coordinator"):
            if fault == "is unavailable":
                self._unavailable_until_ms = now_ms + int(180_000 * chance.random() ** 2)
            elif fault == "reads slowly":
                self._slow_until_ms = now_ms + chance.randrange(SLOW_MS_MAX)
                self._takes_max = chance.randint(1, 8)
            else:
                self.clocks.befall(fault, now_ms)
        self._restart(now_ms)

    def _apply_fault_to(self, process: Process, fault: str) -> None:
        now_ms, chance, requests = self.now_ms, self.chance, list[Request]()
        match fault:
            case "sleeps":
                process.due_ms = process.asleep_until_ms = now_ms + int(60_000 * chance.random() ** 2)
            case "does not poll":
                process.idle_until_ms = now_ms + int(90_000 * chance.random() ** 2)
            case "is killed":
                self._kill(process)
                self._restarts.append((now_ms + int(30_000 * chance.random() ** 2), process.config))
            case "leaves":
                requests = process.leave(now_ms)
            case "subscribes anew":
                requests = process.subscribe(now_ms)
            case "is started twice":
                self._start(process.config)
            case "moves to another mailbox":
                self._move(process)
        for request in requests:
            self._send(request)

    def _restart(self, now_ms: int) -> None:
        for due in [r for r in self._restarts if r[0] <= now_ms]:
            self._restarts.remove(due)
            self._start(due[1])

    def _start(self, config: MemberConfig) -> None:
        process = Process(config, self._started, self.chance, self.swarm, self.now_ms)
        self._started += 1
        self.processes.append(process)
        self._inboxes.setdefault(config.reply_to, []).append(process)

    def _move(self, process: Process) -> None:
        """Change a process's mailbox; the process reads the earlier mailbox as well."""
        if process.inbox == process.config.reply_to:
            process.inbox = f"{process.config.reply_to}, moved by {process.number}"
            self._inboxes[process.inbox] = [process]

    def _kill(self, process: Process) -> None:
        self.processes.remove(process)
        for inbox in {process.config.reply_to: None, process.inbox: None}:
            self._inboxes[inbox].remove(process)

    # -- calm ----------------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        """Stop all faults: all requests that were sent arrive, and each configuration has one process."""
        self.swarm.calm()
        self.clocks.calm()
        self._unavailable_until_ms = self._slow_until_ms = 0
        self._restart(NEVER_MS)
        for process in list(self.processes):
            process.asleep_until_ms = process.idle_until_ms = process.due_ms = 0
            if sum(other.config == process.config for other in self.processes) > 1:
                self._kill(process)
        for process in self.processes:
            for request in process.make_up(self.now_ms):
                self._send(request)
        self._to_log = [(min(at_ms, self.now_ms), *rest) for at_ms, *rest in sorted(self._to_log)]
        self._to_inbox = [(min(at_ms, self.now_ms), *rest) for at_ms, *rest in sorted(self._to_inbox)]
        heapq.heapify(self._to_log)
        heapq.heapify(self._to_inbox)

    def _last_deadline_ms(self) -> int:
        """Return the latest of the deadlines that are set now, but for those of offsets, and of the groups' times.

        A group's time never goes back (I12). If a clock was ahead, the next wait of its groups starts at that time.
        """
        groups = [group.vitals for group in self.judge.groups.values()]
        waits = [s.deadline_ms for v in groups for s in (*v.sessions.values(), *v.pending.values())]
        waits += [at_ms for v in groups for at_ms in (v.joins_ms, v.syncs_ms, v.now_ms)]
        return max((at_ms for at_ms in waits if at_ms < NEVER_MS), default=self.now_ms)

    def _restless(self) -> str | None:
        """Return a message about a group or key that is not at rest; None if all are."""
        for group_id in self.group_ids:
            group = self.judge.groups.get(group_id)
            living = [p.member for p in self.processes if p.config.group_id == group_id and p.member.is_subscribed]
            if not living:
                if group and group.phase is not Phase.EMPTY:
                    return f"{group_id} has no living member and is {group.phase.value}"
                continue
            if group is None or group.phase is not Phase.STABLE:
                return f"{group_id} is {group and group.phase.value}"
            if set(group.members) != {m.member_id for m in living}:
                return f"{group_id} has members {list(group.members)}, alive are {[m.member_id for m in living]}"
            for member in living:
                if (member.state, member.generation_id) != (MemberState.STABLE, group.generation_id):
                    return f"{member.member_id} is {member.state.name} in generation {member.generation_id}"
        return self.topic.wrong()


def _config(chance: Random, is_exact: bool, group_id: str, size: int) -> Config:
    return Config(
        group_initial_rebalance_delay_ms=chance.choice((0, 0, 1_000, 3_000)),
        group_max_size=chance.choice((12, 1_000)) if size < 12 else size + 10,
        group_new_member_join_timeout_ms=chance.choice((15_000, 60_000)),
        offsets_retention_ms=chance.choice((30_000, 300_000)),
        offset_metadata_max_bytes=4,
        offsets_retention_by_group_ms=chance.choice(({}, {group_id: 120_000})),
        empty_group_retention_ms=chance.choice((10_000, 100_000)),
        late_notice_ms=NO_LATENESS_MS if is_exact else 5_000,
    )


def _member(chance: Random, group_id: str, number: int) -> MemberConfig:
    return MemberConfig(
        group_id=group_id,
        reply_to=f"{group_id}'s {number}" if chance.random() < 0.8 else "everybody's inbox",
        client_id=f"{group_id}.{number}",
        client_host=f"/host{number}",
        group_instance_id=f"i{number}" if chance.random() < 0.3 else None,
        session_timeout_ms=chance.choice((6_000, 10_000, 30_000)),
        heartbeat_interval_ms=chance.choice((500, 1_000, 2_000)),
        max_poll_interval_ms=chance.choice((5_000, 20_000, 60_000)),
        request_timeout_ms=chance.choice((2_000, 10_000)),
    )
