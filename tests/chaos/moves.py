"""Moves of all groups between two coordinators, and kill -9 of one process in the middle of each.

 kind | killed process | restarted by |
 --- | --- | --- |
 source | the coordinator that has the groups, with its Java process | the test, as a supervisor |
 target | the one that gets them | the test |
 gateway | one of two, with all of its connections | the test |

`coordinator move --all` begins, a process is killed up to a few seconds later, and the command is run again until all
groups are moved. When every member has been served since, the groups move back in the same way. Sessions last longer
than any restart, so no rebalance is expected.
"""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from coordinator.messages.group_records import OffsetRecord
from coordinator.messages.policy_events import SeatTaken
from coordinator.messages.requests import OffsetCommit, OffsetToCommit
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.errors import Exit
from streaming.kafka import topics
from streaming.verify import Report, verify
from tests.chaos.deployment import GROUP, TOPIC, Deployment
from tests.chaos.judge import Run
from tests.chaos.served import Served
from tests.system.asking import Asker
from tests.system.conftest import Service, start_service
from tests.system.reading import Reader
from tests.system.waiting import HANG_S, wait_until

PREFIXES = HOME, BESIDE = ("chaos", "beside")
SHARDS = {HOME: 4, BESIDE: 3}
IDLE_GROUPS = 60
"""Groups that have one committed offset and no members. They make a move longer."""

KINDS = {"source": 2, "target": 2, "gateway": 1}
MOMENT_S = 5.0
"""A process is killed at most this long after the start of the command, whose first request comes a second later."""


class TwoCoordinators(Deployment):
    """A deployment with a second coordinator beside the first one. The first one has all groups at the beginning."""

    def __init__(self, folder: Path, **wanted: Any) -> None:
        super().__init__(folder, **wanted)
        self._key = folder / "peers.key"
        self._key.write_text("of-both-coordinators-32-bytes-or-more")
        self.services: dict[str, Service] = {}

    def start_coordinator(self) -> None:
        """Start both coordinators, or the one that does not run."""
        for prefix in PREFIXES:
            topics.ensure(self._of(prefix))
        for prefix in PREFIXES:
            if prefix not in self.services or self.services[prefix].process.poll() is not None:
                self.start_one(prefix)
        for service in self.services.values():
            service.await_ready()

    def start_one(self, prefix: str) -> None:
        """Start one of the coordinators on its checkpoint."""
        self._started += 1
        (other,) = set(PREFIXES) - {prefix}
        driver = start_service(
            self._folder,
            self._started,
            group_initial_rebalance_delay_ms=300,
            peers=(other,),
            peer_key_file=str(self._key),
            slots="all" if prefix == HOME else "none",
            checkpoint=str(self._folder / prefix),
            **self._of(prefix).model_dump(include={"bootstrap_servers", "topic_prefix", "request_partitions"}),
        )
        self._drivers.append(driver)
        self.services[prefix] = driver
        self.service = self.services[HOME]

    def _of(self, prefix: str) -> Settings:
        return Settings(
            bootstrap_servers=self.bootstrap_servers,
            topic_prefix=prefix,
            replication_factor=1,
            request_partitions=SHARDS[prefix],
        )

    # -- idle groups ---------------------------------------------------------------------------------------------------

    def make_idle_groups(self) -> None:
        """Commit an offset for each idle group."""
        with Transport(self.settings.kafka_client_arguments(), HOME) as transport:
            for number in range(IDLE_GROUPS):
                offsets = (OffsetToCommit(TOPIC, 0, number),)
                request = OffsetCommit(request_id="", reply_to="", group_id=f"idle-{number}", offsets=offsets)
                assert transport.ask(request, HANG_S).error == "NONE"

    def idle_groups_lost(self) -> Iterator[str]:
        """Yield a sentence for each idle group whose offset is another one."""
        with Transport(self.settings.kafka_client_arguments(), HOME) as transport:
            for number in range(IDLE_GROUPS):
                found = Asker(transport, f"idle-{number}").fetch()
                if found != {(TOPIC, 0): number}:
                    yield f"idle-{number} has the offsets {found}"

    # -- reading -------------------------------------------------------------------------------------------------------

    def events(self) -> list[dict[str, Any]]:
        """Return the events of the group at both coordinators. Its versions grow over its moves."""
        found = [event for prefix in PREFIXES for event in Reader(self._of(prefix), GROUP).events()]
        return sorted(found, key=lambda event: int(event["version"]))

    def commits(self) -> Iterator[OffsetRecord]:
        """Yield the commits of members at both coordinators. An adoption publishes offsets again, without a member."""
        found = [each for prefix in PREFIXES for each in self.commits_of(self._of(prefix)) if each.member_id]
        yield from sorted(found, key=lambda each: each.version)

    def seats(self) -> Iterator[SeatTaken]:
        return (each for prefix in PREFIXES for each in self.seats_of(self._of(prefix)))

    def end_run(self) -> tuple[Run, list[Report]]:
        """End the run as every other one, and return what was found for both coordinators, and for the moves."""
        run, _ = super().end_run()
        assert self.services[BESIDE].stop() == Exit.DONE, self.services[BESIDE].log
        return run, [verify(self.settings, settling_ms=0, peers=(BESIDE,))]


class Moving:
    """Moves all groups to and fro, kills a process in each move, and counts."""

    def __init__(self, deployment: TwoCoordinators, chance: random.Random, report: Callable[[str], None]) -> None:
        self._deployment, self._chance, self._report = deployment, chance, report
        self._served = Served(deployment.histories)
        self._at = HOME
        self.done: Counter[str] = Counter()
        self.longest_s: dict[str, float] = {}

    def run(self, times: int, until_s: float) -> None:
        """Move until `times` processes are killed or until a time of the monotonic clock, and then home."""
        while self.done.total() < times and time.monotonic() < until_s:
            self.move_and_kill(self._chance.choices([*KINDS], [*KINDS.values()])[0])
        if self._at != HOME:
            self._finish(*self._sides())
            self._at = HOME

    def move_and_kill(self, kind: str) -> None:
        """Move all groups, kill a process meanwhile, and wait until every member has been served after that."""
        source, target = self._sides()
        began_s = time.monotonic()
        self._report(f"move {self.done.total() + 1}, from {source} to {target}: {kind}")
        command = self._begin(source, target)
        self._deployment.producing.join(self._chance.uniform(0, MOMENT_S))
        if kind == "gateway":
            gateway = self._chance.choice(self._deployment.gateways)
            gateway.kill()
            gateway.start_again()
            gateway.await_ready()
        else:
            self._deployment.services[source if kind == "source" else target].kill()
            self._deployment.start_coordinator()
        command.wait(HANG_S)
        self._finish(source, target)
        self._served.wait(self._check, self._account)
        self._at = target
        self.done[kind] += 1
        self.longest_s[kind] = max(self.longest_s.get(kind, 0.0), round(time.monotonic() - began_s, 1))

    def _sides(self) -> tuple[str, str]:
        (other,) = set(PREFIXES) - {self._at}
        return self._at, other

    def _begin(self, source: str, target: str) -> "subprocess.Popen[bytes]":
        where = ("-b", self._deployment.broker.bootstrap_servers, "--topic-prefix", source, "-o", "json")
        command = [sys.executable, "-m", "streaming", "move", "--to", target, "--all", "--yes", *where]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _finish(self, source: str, target: str) -> None:
        """Run the command until it has moved everything."""
        wait_until(lambda: self._begin(source, target).wait(HANG_S) == Exit.DONE, account=self._account)

    def _check(self) -> None:
        for service in self._deployment.services.values():
            assert service.process.poll() is None, service.log

    def _account(self) -> str:
        return "; ".join(service.log[-500:] for service in self._deployment.services.values())
