"""Many members of the consumer protocol (KIP-848) that join one new group at the same time, over plain sockets.

The members run in one process with one event loop, and read no records. Each sends the heartbeats of a client: the next
one an interval after the last one was sent, or at once if an assignment must be acknowledged. The time is measured from
the first join to the moment at which each partition has one owner and every member has acknowledged its assignment. The
groups of our coordinator, through a gateway, and of Kafka's own follow one another on the same broker.
"""

import argparse
import asyncio
import tempfile
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from kafka import KafkaAdminClient

from streaming.config.settings import Settings
from streaming.gateway.protocol.definitions import ConsumerGroupHeartbeatRequest
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.figures import Figures

PARTITIONS_EACH = 10
TOPICS = 10
REBALANCE_MS = 300_000
REST_WAIT_S = 300.0
RETRY_S = 0.5
RETRIABLE = {14, 15, 16}  # the coordinator is loading, not available, or elsewhere

Owned = dict[UUID, list[int]]


def measure(options: argparse.Namespace) -> Figures:
    """Make all members join together, at each coordinator; return the seconds until the group is Stable."""
    members = options.next_members
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-next-storm-", ignore_cleanup_errors=True) as name,
    ):
        folder, kafka = Path(name), broker.bootstrap_servers
        settings = Settings.load(bootstrap_servers=kafka, checkpoint=f"{name}/checkpoint")
        topics = [f"storm-{number}" for number in range(TOPICS)]
        say(f"Creating {members * PARTITIONS_EACH} partitions.")
        with KafkaAdminClient(bootstrap_servers=kafka, request_timeout_ms=300_000) as admin:
            wanted = {"num_partitions": members * PARTITIONS_EACH // TOPICS}
            for topic in topics:
                admin.create_topics({topic: wanted}, wait_for_metadata=True)
        say("Starting the coordinator and a gateway.")
        with bench.coordinator(settings, folder), bench.gateway(kafka, folder / "gateway") as (_, servers):
            found = {"next_storm_members": float(members)}
            for whose, at in (("ours", servers), ("kafka", kafka)):
                found[f"next_storm_{whose}_s"] = asyncio.run(_Storm(at, topics, members).run())
                say(f"{members} members of {whose}: Stable after {found[f'next_storm_{whose}_s']:.2f} s.")
    return found


class _Storm:
    """A group and all its members."""

    def __init__(self, servers: str, topics: list[str], members: int) -> None:
        self.topics = topics
        self._servers, self._size = servers, members
        self._stable = asyncio.Event()
        self.members: list[_Member] = []

    async def run(self) -> float:
        """Return the seconds from the first join until the group is Stable."""
        host, port = self._servers.rsplit(":", 1)
        for number in range(self._size):
            reader, writer = await asyncio.open_connection(host, int(port))
            self.members.append(_Member(self, number, reader, writer))
        began_s = time.monotonic()
        tasks = [asyncio.create_task(member.run()) for member in self.members]
        stable = asyncio.create_task(self._stable.wait())
        done, _ = await asyncio.wait({*tasks, stable}, timeout=REST_WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        took_s = time.monotonic() - began_s
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in self.members:
            member.writer.close()
        for failed in done - {stable}:
            failed.result()
        if not done:
            raise BenchFailed(f"the group was not stable within {REST_WAIT_S:.0f} s")
        return took_s

    def changed(self) -> None:
        """Check whether each partition has an owner, after a change of a member."""
        if any(member.owes_acknowledgement for member in self.members):
            return
        owned = [(topic, n) for member in self.members for topic, ns in member.owned.items() for n in ns]
        if len(owned) == self._size * PARTITIONS_EACH:
            if len(set(owned)) != len(owned):
                raise BenchFailed("a partition has two owners")
            self._stable.set()


class _Member:
    """A member with its own connection."""

    def __init__(self, storm: _Storm, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._storm, self._reader, self.writer = storm, reader, writer
        self._member_id = urlsafe_b64encode(uuid5(NAMESPACE_OID, str(number)).bytes).rstrip(b"=").decode()
        self._epoch = 0
        self._interval_s = 0.0
        self.owned: Owned = {}
        self.owes_acknowledgement = True

    async def run(self) -> None:
        """Send heartbeats until the task is cancelled."""
        while True:
            sent_s = time.monotonic()
            owed, self.owes_acknowledgement = self.owes_acknowledgement, False
            response = await self._call(self._request(owed))
            if response.error_code in RETRIABLE:
                self.owes_acknowledgement = owed
                await asyncio.sleep(RETRY_S)
                continue
            if response.error_code:
                raise BenchFailed(f"a member was refused: {response}")
            self._epoch, self._interval_s = response.member_epoch, response.heartbeat_interval_ms / 1_000
            if response.assignment is not None:
                self.owned = {each.topic_id: each.partitions for each in response.assignment.topic_partitions}
                self.owes_acknowledgement = True
            elif owed:
                self._storm.changed()
            if not self.owes_acknowledgement:
                await asyncio.sleep(max(0.0, sent_s + self._interval_s - time.monotonic()))

    def _request(self, owed: bool) -> Any:
        group = {"version": 1, "group_id": "next-storm", "member_id": self._member_id, "member_epoch": self._epoch}
        if self._epoch == 0:
            return ConsumerGroupHeartbeatRequest(
                **group,
                rebalance_timeout_ms=REBALANCE_MS,
                subscribed_topic_names=self._storm.topics,
                topic_partitions=[],
            )
        kind = ConsumerGroupHeartbeatRequest.TopicPartitions
        owned = [kind(topic_id=topic, partitions=numbers) for topic, numbers in self.owned.items()]
        return ConsumerGroupHeartbeatRequest(**group, topic_partitions=owned if owed else None)

    async def _call(self, message: Any) -> Any:
        message.with_header(correlation_id=1, client_id="storm")
        self.writer.write(message.encode(header=True, framed=True))
        size = int.from_bytes(await self._reader.readexactly(4))
        return message.header.get_response_class().decode(await self._reader.readexactly(size), header=True)


if __name__ == "__main__":
    bench.main(measure)
