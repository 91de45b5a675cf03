"""The clock of one machine steps by an hour: a broker's, the query's, a gateway's or the members' (design.md 7.6).

No member is expelled for it, no session lasts for the hour, and no offset expires early (stroom 5772).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest

from streaming.config.settings import Settings
from streaming.embedded import Broker
from tests.clients.kinds import LIBRDKAFKA, LIBRDKAFKA_848, Kind
from tests.clients.play import Play, Venue, playing
from tests.clients.worker import Worker
from tests.system.conftest import Service, start_service
from tests.system.stepping import SteppedClock, compile_library
from tests.system.waiting import wait_until
from tests.system.wire import connect
from tests.tiers import NIGHTLY

pytestmark = list(NIGHTLY)

HOUR_MS = 3_600_000
SESSION_MS = 15_000
OWN = Kind(
    "GroupConsumer",
    lambda: "",
    lambda config, _: [sys.executable, "-m", "tests.clients.with_group_consumer", json.dumps(config)],
)
KINDS = (LIBRDKAFKA, LIBRDKAFKA_848, OWN)
SESSIONS = 1.2
"""The sessions for which members are watched after a step. A wrong session of any length but an hour ends by then."""

TOLD = ("broker", "query")
"""The machines whose clocks the query's log compares."""


class Place(NamedTuple):
    """A broker, a query, a gateway and members, each with a clock of its own."""

    clocks: dict[str, SteppedClock]
    service: Service
    gateway: str
    settings: Settings
    folder: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("clocks")
    library = compile_library(folder)
    clocks = {name: SteppedClock(library, folder / name) for name in ("broker", "query", "gateway", "members")}
    with ExitStack() as stack:
        with clocks["broker"].of_new_processes():
            broker = stack.enter_context(Broker(folder / "kafka"))
        with clocks["query"].of_new_processes():
            service = start_service(
                folder,
                bootstrap_servers=broker.bootstrap_servers,
                topic_prefix="clocks",
                offsets_retention_minutes=30,
                group_initial_rebalance_delay_ms=100,
                group_consumer_session_timeout_ms=SESSION_MS,
            )
        stack.callback(lambda: service.process.poll() is None and service.kill())
        service.await_ready()
        ready = folder / "gateway-ready"
        command = [sys.executable, "-m", "streaming", "gateway", "--port", "0", "--ready-file", str(ready)]
        own = {
            "COORDINATOR_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "COORDINATOR_TOPIC_PREFIX": "clocks",
            "COORDINATOR_GROUP_CONSUMER_SESSION_TIMEOUT_MS": str(SESSION_MS),
        }
        with clocks["gateway"].of_new_processes():
            gateway = stack.enter_context(subprocess.Popen(command, env={**os.environ, **own}))
        stack.callback(gateway.kill)
        wait_until(ready.exists)
        with playing(Venue(broker.bootstrap_servers, "", folder), "kept") as maker:
            maker.topic(partitions=1)
        yield Place(clocks, service, str(json.loads(ready.read_text())["gateway"]), service.settings, folder)


class Pair:
    """Two members of one kind, which share a topic of four partitions."""

    def __init__(self, place: Place, play: Play, kind: Kind) -> None:
        self.play, self._place, self._kind = play, place, kind
        play.topic(partitions=4)
        self._members = [self.start(), self.start()]
        play.until_shared(play.name, *self._members)
        self._changes = self._changes_now()

    def start(self) -> Worker:
        own = {"bootstrap": self._place.settings.bootstrap_servers, "topic_prefix": "clocks"}
        with self._place.clocks["members"].of_new_processes():
            return self.play.start(
                self._kind, session_ms=SESSION_MS, heartbeat_ms=2_000, **(own if self._kind is OWN else {})
            )

    def read_on(self) -> None:
        """Produce a record for each partition, and wait until all are read and committed."""
        self.play.produce(self.play.name, 1)
        for member in self._members:
            self.play.until_read(member)
            self._commit(member)

    def _commit(self, member: Worker) -> None:
        """Make a member commit until it succeeds: a new epoch refuses it until the member's next heartbeat."""
        ends = dict(self.play.ends())

        def has_committed() -> bool:
            return all(member.committed.get(place) == ends[place[1]] for place in member.owned)

        while not has_committed():
            tries = len(member.events_of("committed", "error"))
            member.order("commit")
            self.play.until(lambda before=tries: len(member.events_of("committed", "error")) > before)

    def check(self) -> None:
        """Check that no member has lost or got a partition since the beginning."""
        assert self._changes_now() == self._changes, [*map(repr, self._members)]

    def lose_one(self) -> None:
        """Kill a member, wait until the other one has its partitions, and start another one."""
        self._members.pop().kill()
        self.play.until_shared(self.play.name, *self._members)
        self._members.append(self.start())
        self.play.until_shared(self.play.name, *self._members)
        self._changes = self._changes_now()

    def _changes_now(self) -> list[list[object]]:
        return [list(member.events_of("assigned", "revoked", "lost")) for member in self._members]


def offset_of_empty_group(gateway: str) -> int:
    with connect(gateway) as wire:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="kept", partition_indexes=[0])
        answer = wire.call(OffsetFetchRequest(version=7, group_id="empty", topics=[topic], require_stable=True))
        return int(answer.topics[0].partitions[0].committed_offset)


def commit_of_empty_group(gateway: str, offset: int) -> int:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
    )
    with connect(gateway) as wire:
        answer = wire.call(
            OffsetCommitRequest(
                version=8,
                group_id="empty",
                generation_id_or_member_epoch=-1,
                member_id="",
                group_instance_id=None,
                topics=[topic(name="kept", partitions=[partition])],
            )
        )
    return int(answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("who", ["query", "gateway", "members", "broker"])
def test_a_step_by_an_hour_expels_nobody_and_forgets_nothing(place: Place, who: str) -> None:
    """Offsets of a group without members are kept for 30 minutes here.

    The broker is the last: after a step back its controller creates no topic for a long time.
    """
    venue = Venue(str(place.settings.bootstrap_servers), place.gateway, place.folder)
    logged = len(place.service.log)
    with ExitStack() as stack:
        plays = [stack.enter_context(playing(venue, f"{who}-{number}")) for number in range(len(KINDS))]
        pairs = [Pair(place, play, kind) for play, kind in zip(plays, KINDS, strict=True)]
        wait_until(lambda: commit_of_empty_group(place.gateway, 7) == 0)
        for ahead_ms in (HOUR_MS, 0, -HOUR_MS, 0):
            place.clocks[who].step_to(ahead_ms)
            began_s = time.monotonic()
            while time.monotonic() - began_s < SESSIONS * SESSION_MS / 1_000:
                for pair in pairs:
                    pair.read_on()
            for pair in pairs:
                pair.check()
            assert offset_of_empty_group(place.gateway) == 7
            if ahead_ms:
                pairs[ahead_ms < 0].lose_one()
    if who in TOLD:
        log = place.service.log[logged:]
        assert "s ahead of this machine's: synchronize the clocks" in log
