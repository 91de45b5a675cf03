"""10,000 groups of 10 move to another coordinator while their members send heartbeats.

The members send as those of one gateway do, with its own sender but without connections: heartbeats at common ticks, in
records of many. A request that a coordinator refuses follows its group. Both coordinators run on one machine and one
broker. The second one has the default number of shards, and so has the first one without `--moved-shards`.
"""

import argparse
import asyncio
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import JoinGroup, Request
from coordinator.messages.responses import AnyAnswer, JoinGroupAnswer
from streaming.config.settings import Settings
from streaming.gateway.coordinator.routing import Coordinators
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.crowd import check_no_errors
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.members import Member
from tests.benchmarks.moving import HERE, THERE, Wait, events, moved, pair, pauses

SESSION_TIMEOUT_MS = 45_000  # Kafka's default
HEARTBEAT_INTERVAL_S = 5  # the default of the consumer protocol
JOIN_AT_ONCE = 2_000  # groups
WARM_UP_S = 30
SHARDS = Settings.model_fields["request_partitions"].default
ANSWERS_WITHIN_S = 60


@dataclass
class Connected(Member):
    """A member with a mailbox of the gateway."""

    mailbox: str = ""

    @property
    def inbox(self) -> str:
        return self.mailbox


class Crowd:
    """All members, behind one sender.

    Attributes:
        codes: The number of answers to heartbeats with each error code.
        waits: The times of the heartbeats of each group and of their answers, since it was last cleared.
    """

    def __init__(self, coordinators: Coordinators, groups: int, each: int) -> None:
        self._coordinators, self._each = coordinators, each
        mailbox = coordinators.open_inbox()
        names = (f"orders-{group:05}" for group in range(groups))
        self._members = [Connected(name, number, mailbox=mailbox) for name in names for number in range(each)]
        self._settled: list[Connected] = []
        self.codes = Counter[int]()
        self.unanswered = 0
        self.waits: defaultdict[str, list[Wait]] = defaultdict(list)

    async def settle(self) -> None:
        """Make all members join and sync. Those that have a group send heartbeats while the others join."""
        at_once = JOIN_AT_ONCE * self._each
        for first in range(0, len(self._members), at_once):
            members = self._members[first : first + at_once]
            joined = await self._ask([self._join(member) for member in members])
            for member, answer in zip(members, joined, strict=True):
                assert isinstance(answer, JoinGroupAnswer), f"the response to a join is {answer}"
                member.take(answer)
            await self._ask([member.sync_group(self._coordinators.request_id()) for member in members])
            self._settled += members

    def _join(self, member: Member) -> Request:
        joining = member.join_group(self._coordinators.request_id())
        assert isinstance(joining, JoinGroup), "a join is a JoinGroup request"
        return replace(joining, session_timeout_ms=SESSION_TIMEOUT_MS)

    async def _ask(self, requests: Sequence[Request]) -> list[AnyAnswer]:
        answers = await asyncio.gather(*map(self._sent, requests))
        check_no_errors(answers)
        return answers

    def _sent(self, request: Request) -> asyncio.Future[AnyAnswer]:
        answered = asyncio.get_running_loop().create_future()
        self._coordinators.send(request, lambda answer, _: answered.set_result(answer))
        return answered

    async def run(self, stopping: asyncio.Event) -> None:
        """Send heartbeats until `stopping` is set."""
        began_s = time.monotonic()
        for second in count(1):
            for member in self._settled[second % HEARTBEAT_INTERVAL_S :: HEARTBEAT_INTERVAL_S]:
                self._beat(member)
            await asyncio.sleep(max(0.0, began_s + second - time.monotonic()))
            if stopping.is_set():
                return

    async def all_answered(self) -> None:
        """Wait until each heartbeat has its answer.

        Raises:
            BenchFailed: One has none.
        """
        until_s = time.monotonic() + ANSWERS_WITHIN_S
        while self.unanswered:
            if time.monotonic() > until_s:
                raise BenchFailed(f"{self.unanswered} heartbeats are unanswered after {ANSWERS_WITHIN_S} s")
            await asyncio.sleep(0.1)

    async def all_served(self) -> None:
        """Send a heartbeat of each member, and wait until each is answered."""
        await self.all_answered()
        for member in self._members:
            self._beat(member)
        await self.all_answered()

    def _beat(self, member: Member) -> None:
        heartbeat = member.heartbeat(self._coordinators.request_id())
        assert isinstance(heartbeat, Heartbeat), "a heartbeat is a Heartbeat request"
        self.unanswered += 1
        self._coordinators.batchers.add(heartbeat, partial(self._heard, member.group_id, time.time()))

    def _heard(self, group_id: str, sent_s: float, answer: AnyAnswer, _: int) -> None:
        self.unanswered -= 1
        self.codes[answer.code] += 1
        self.waits[group_id].append(Wait(sent_s, time.time()))


def measure(options: argparse.Namespace) -> Figures:
    """Move all groups, and count the members that were expelled, the rebalances and the errors."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-moving-", ignore_cleanup_errors=True) as name,
        pair(broker.bootstrap_servers, Path(name), options.moved_shards or SHARDS, SHARDS) as sides,
    ):
        return asyncio.run(_moves(sides[HERE], sides[THERE], options))


async def _moves(here: Settings, there: Settings, options: argparse.Namespace) -> Figures:
    groups, each = options.groups, options.members
    coordinators = Coordinators(here, asyncio.get_running_loop())
    try:
        crowd, stopping = Crowd(coordinators, groups, each), asyncio.Event()
        say(f"{groups:,} groups of {each} join.")
        running = asyncio.create_task(crowd.run(stopping))
        await crowd.settle()
        await asyncio.sleep(WARM_UP_S)
        before, began_s = events(here) + events(there), time.time()
        crowd.waits.clear()
        say("All groups move.")
        await moved(here, THERE, "--in-transit", str(options.in_transit))
        took_s = time.time() - began_s
        say(f"All groups have moved in {took_s:.1f} s.")
        stopping.set()
        await running
        await crowd.all_served()
    finally:
        coordinators.close()
    since = events(here) + events(there)
    since.subtract(before)
    if refused := +Counter({code: n for code, n in crowd.codes.items() if code}):
        raise BenchFailed(f"heartbeats had errors, by their codes: {dict(refused)}")
    pauses_s = sorted(pauses(crowd.waits, here, there, began_s))
    return {
        "move_10000_s": took_s,
        "move_10000_expelled": since["member_expired"],
        "move_10000_rebalances": since["rebalance_started"],
        "move_10000_pause_p50_s": percentile(pauses_s, 50),
        "move_10000_pause_p99_s": percentile(pauses_s, 99),
        "move_10000_wait_max_s": max(wait.answered_s - wait.sent_s for waits in crowd.waits.values() for wait in waits),
        "move_10000_heartbeats_per_s": groups * each / HEARTBEAT_INTERVAL_S,
    }


if __name__ == "__main__":
    bench.main(measure)
