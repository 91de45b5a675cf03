"""Consumer processes join, leave, are killed, paused or slow while they consume: no record is lost, few are repeated.

The checks run afterwards, on the workers' notes and on the coordinator's published records. A stint is the time in
which one worker owns one partition: from the call that assigned the partition to the call that revoked it, or to the
worker's death.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from coordinator.base.states import Phase
from coordinator.messages.group_records import GroupRecord, OffsetRecord
from streaming.config.settings import Settings
from streaming.query.coordinator import Coordinator
from streaming.wire.records import decode_group_record
from tests.system.reading import Reader
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long

PARTITIONS = 6
ALL = list(range(PARTITIONS))
STRATEGIES = {"eager": {}, "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"]}}
AHEAD = 1_000
"""Each partition has at least so many records that nobody has read, as long as faults go on."""
POLL_TIMEOUT = "consumer poll timeout has expired"


class Note(NamedTuple):
    """A line of a worker's notes: an event, its generation and member id, and all partitions `owned` at that time."""

    what: str
    value: Any
    generation: int
    member_id: str
    owned: list[int]


@dataclass
class Stint:
    """The time in which one worker owns one partition."""

    worker: str
    partition: int
    generation: int
    member_id: str
    offsets: list[int] = field(default_factory=list)
    end: str = "still owned"

    def committed_before(self, commits: Iterable[OffsetRecord]) -> int:
        """Return the committed offset when the stint began. Later commits of earlier generations are refused."""
        earlier = [c for c in commits if c.partition == self.partition and c.generation_id < self.generation]
        return earlier[-1].offset if earlier else 0


class Hand:
    """A worker process, the commands to it, and its notes."""

    def __init__(self, name: str, folder: Path, config: dict[str, Any]) -> None:
        self.name, self._notes_file = name, folder / name
        self._notes_file.touch()
        config = {**config, "client_id": name, "notes": str(self._notes_file)}
        command = [sys.executable, "-m", "tests.system.consuming_worker", json.dumps(config)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)
        self._read_to, self._notes = 0, list[Note]()

    def tell(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(what.encode() + b"\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def leave(self) -> None:
        self.tell("leave")
        assert self.process.wait(HANG_S) == 0

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()

    @property
    def notes(self) -> list[Note]:
        """All complete notes until now. A kill may have cut off the last line."""
        with self._notes_file.open("rb") as file:
            file.seek(self._read_to)
            lines, _, _ = file.read().rpartition(b"\n")
        if lines:
            self._read_to += len(lines) + 1
            self._notes += [Note(*json.loads(line)) for line in lines.split(b"\n")]
        return self._notes

    def stints(self) -> Iterator[Stint]:
        """Yield the worker's stints with the offsets that it read."""
        now: dict[int, Stint] = {}
        for note in self.notes:
            match note.what:
                case "assigned":
                    assert not now.keys() & set(note.value), "an owned partition is assigned again"
                    now |= {p: Stint(self.name, p, note.generation, note.member_id) for p in note.value}
                    assert sorted(now) == note.owned
                case "read":
                    partition, offsets = note.value
                    now[partition].offsets += offsets  # KeyError: read without being owned
                case "revoked" | "lost" as end:
                    for partition in note.value:
                        now[partition].end = end
                        yield now.pop(partition)
        yield from now.values()

    def owned_and_read(self) -> list[int]:
        """Return the owned partitions if the worker has read since its last assignment, else nothing."""
        whats = [note.what for note in self.notes]
        latest = max((i for i, what in enumerate(whats) if what in ("assigned", "revoked", "lost")), default=0)
        is_reading = "read" in whats[latest:] and whats[latest] == "assigned"
        return self.notes[latest].owned if is_reading else []

    def is_stalled(self) -> bool:
        return bool(self.notes) and self.notes[-1].what == "stalled"


class Run:
    """A topic, a group, and the workers that consume it."""

    def __init__(self, settings: Settings, group_id: str, folder: Path, **config: Any) -> None:
        self.topic = self.group_id = group_id
        self.reader = Reader(settings, group_id)
        self._settings, self._folder, self._stack = settings, folder, ExitStack()
        self.hands: list[Hand] = []
        self.count = 0
        self._config = {
            "bootstrap_servers": settings.bootstrap_servers, "topic_prefix": settings.topic_prefix, "topic": self.topic,
            "group_id": group_id, "auto_offset_reset": "earliest", "session_timeout_ms": 3_000,
            "heartbeat_interval_ms": 500, "max_poll_interval_ms": 5_000, **config,
        }  # fmt: skip
        with KafkaAdminClient(bootstrap_servers=settings.bootstrap_servers) as admin:
            wanted = {"num_partitions": PARTITIONS, "replication_factor": 1}
            admin.create_topics({self.topic: wanted}, wait_for_metadata=True)

    def start(self, name: str) -> Hand:
        hand = Hand(name, self._folder, self._config)
        self._stack.callback(hand.close)
        self.hands.append(hand)
        return hand

    def feed(self) -> None:
        """Append records if a partition has few that nobody has read: a worker without records shows no progress."""
        read_to = dict.fromkeys(ALL, 0)
        for stint in self.stints():
            if stint.offsets:
                read_to[stint.partition] = max(read_to[stint.partition], stint.offsets[-1] + 1)
        if any(end - read_to[partition] < AHEAD for partition, end in self.ends().items()):
            self._produce(2 * AHEAD * PARTITIONS)

    def _produce(self, count: int) -> None:
        """Append records whose values hold their own partition and offset."""
        producer = KafkaProducer(
            bootstrap_servers=self._settings.bootstrap_servers, linger_ms=50, batch_size=2**16, acks="all"
        )
        first, self.count = self.count, self.count + count
        for number in range(first, self.count):
            offset, partition = divmod(number, PARTITIONS)
            producer.send(self.topic, b"%d:%d" % (partition, offset), partition=partition)
        producer.close()

    def until(self, is_so: Callable[[], object]) -> None:
        wait_until(is_so, account=lambda: {hand.name: hand.notes[-3:] for hand in self.hands})

    def until_shared_by(self, *hands: Hand) -> None:
        """Wait until these workers own all partitions and each has read since its last assignment."""

        def is_shared() -> bool:
            self.feed()
            shares = [hand.owned_and_read() for hand in hands]
            return all(shares) and sorted(itertools.chain(*shares)) == ALL

        self.until(is_shared)

    def finish(self) -> None:
        """Make the remaining workers consume the rest and leave."""
        here = [hand for hand in self.hands if hand.process.poll() is None]
        for hand in here:
            hand.tell("hurry")
        self.until(lambda: self.read() >= self.count and len(self.processed()) == self.count)
        self.until(lambda: {c.partition: c.offset for c in self.commits()} == self.ends())
        for hand in here:
            hand.leave()

    def close(self) -> None:
        self._stack.close()

    # -- results -------------------------------------------------------------------------------------------------------

    def ends(self) -> dict[int, int]:
        return {p: len(range(p, self.count, PARTITIONS)) for p in ALL}

    def stints(self) -> list[Stint]:
        return [stint for hand in self.hands for stint in hand.stints()]

    def read(self) -> int:
        """Count the records that were read, with repeats."""
        return sum(len(stint.offsets) for stint in self.stints())

    def processed(self) -> "Counter[tuple[int, int]]":
        """Return how often each record was processed, by partition and offset."""
        return Counter((s.partition, offset) for s in self.stints() for offset in s.offsets)

    def published(self) -> list[GroupRecord | OffsetRecord]:
        decoded = (decode_group_record(r.key, r.value) for r in self.reader.records(self._settings.groups_topic))
        return [record for key, record in decoded if key[1] == self.group_id and record is not None]

    def commits(self) -> list[OffsetRecord]:
        """Return the members' commits. An offset that is bound to its topic's id is published again by nobody."""
        offsets = [record for record in self.published() if isinstance(record, OffsetRecord)]
        return [offset for offset in offsets if offset.generation_id != -1]

    def expired(self) -> list[dict[str, Any]]:
        """Return the events of members that the coordinator expelled."""
        return [e for e in self.reader.events() if e["event"] == "member_expired"]

    def overdue(self) -> list[dict[str, Any]]:
        """Return the events of members that left because they had not polled in time."""
        left = [e for e in self.reader.events() if e["event"] == "member_left"]
        return [e for e in left if e["reason"] == POLL_TIMEOUT]


@pytest.fixture
def run(coordinator: Coordinator, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Run]]:
    with ExitStack() as stack:

        def make(**config: Any) -> Run:
            run = Run(coordinator.settings, request.node.name.replace("[", "-").strip("]"), tmp_path, **config)
            stack.callback(run.close)
            return run

        yield make


# -- the promises ------------------------------------------------------------------------------------------------------


def check_nothing_is_lost(run: Run) -> None:
    """Check that every record was processed and every partition is committed to its end."""
    expected = {(p, offset) for p, end in run.ends().items() for offset in range(end)}
    assert set(run.processed()) == expected


def check_stints_go_on_from_what_is_committed(run: Run) -> None:
    """Check that each stint begins at the offset committed at its start and has no gap (S13, S139).

    So a record is processed twice only if it was not committed when the next owner got the partition. At-least-once
    allows this.
    """
    commits = run.commits()
    for stint in run.stints():
        start = stint.committed_before(commits)
        assert stint.offsets == list(range(start, start + len(stint.offsets))), (start, stint)


def check_nothing_given_up_comes_twice(run: Run) -> None:
    """Check that a member, unless expelled, commits before it gives up a partition; the next owner continues there."""
    commits, dead = run.commits(), {e["member_id"] for e in (*run.expired(), *run.overdue())}
    by_partition = defaultdict(list)
    for stint in sorted(run.stints(), key=lambda s: s.generation):
        by_partition[stint.partition].append(stint)
    for stints in by_partition.values():
        for stint, following in itertools.pairwise(stints):
            if stint.offsets and stint.end == "revoked" and stint.member_id not in dead:
                assert following.committed_before(commits) == stint.offsets[-1] + 1, (stint, following)


def check_commits_do_not_run_ahead(run: Run) -> None:
    """Check that each member committed only records that it had processed."""
    commits, reach = run.commits(), defaultdict[tuple[str, int], int](int)
    for stint in run.stints():
        end = stint.committed_before(commits) + len(stint.offsets)
        mine = stint.member_id, stint.partition
        reach[mine] = max(reach[mine], end)
    for commit in commits:
        assert commit.offset <= reach[commit.member_id, commit.partition], commit


def check_one_owner(run: Run) -> None:
    """Check that no partition has two owners in one generation, in the notes and on the groups topic (I1)."""
    assigned = [n for hand in run.hands for n in hand.notes if n.what == "assigned" and n.generation >= 0]
    notes = {(n.generation, n.member_id): n.owned for n in assigned}
    published = {
        (record.generation_id, member.member_id): (member.assigned or {}).get(run.topic, [])
        for record in run.published()
        if isinstance(record, GroupRecord) and record.state is Phase.STABLE
        for member in record.members
    }
    for owned in (notes, published):
        owners = Counter((generation, p) for (generation, _), partitions in owned.items() for p in partitions)
        assert set(owners.values()) == {1}, owned
    assert notes == {who: owned for who, owned in published.items() if who in notes}, "each member owned its assignment"


def check_all(run: Run) -> None:
    check_nothing_is_lost(run)
    check_stints_go_on_from_what_is_committed(run)
    check_nothing_given_up_comes_twice(run)
    check_commits_do_not_run_ahead(run)
    check_one_owner(run)


def names(events: Iterable[dict[str, Any]]) -> set[str]:
    return {event["client_id"] for event in events}


# -- the runs ----------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_record_is_lost_with_all_faults_together(run: Callable[..., Run], strategy: str) -> None:
    """S05, S06, S13, S127, S138, S139, S141, S142, W21: workers commit each batch by hand after they processed it.

    One worker joins, one leaves, one is killed and one is paused for longer than its session. One takes longer than
    max_poll_interval_ms to process a batch, and one takes longer than that in its listener.
    """
    r = run(enable_auto_commit=False, **STRATEGIES[strategy])
    ana, bo, cy = (r.start(name) for name in ("ana", "bo", "cy"))
    r.until_shared_by(ana, bo, cy)
    di = r.start("di")
    r.until_shared_by(ana, bo, cy, di)
    bo.leave()
    r.until_shared_by(ana, cy, di)
    cy.signal(signal.SIGKILL)
    r.until_shared_by(ana, di)

    di.signal(signal.SIGSTOP)
    r.until_shared_by(ana)
    di.signal(signal.SIGCONT)
    r.until_shared_by(ana, di)

    ana.tell("stall")
    r.until(ana.is_stalled)
    r.until_shared_by(di)
    ana.tell("go on")
    r.until_shared_by(ana, di)

    ed = r.start("ed")
    r.until_shared_by(ana, di, ed)
    ed.tell("stall listener")
    fay = r.start("fay")
    r.until(ed.is_stalled)
    r.until_shared_by(ana, di, fay)
    ed.tell("go on")
    r.until_shared_by(ana, di, ed, fay)

    r.finish()
    check_all(r)
    assert {"cy", "di"} <= names(r.expired())
    assert "ana" in names(r.overdue())
    assert "ed" in names(r.overdue() + r.expired()), "its poll interval and its session end at about the same time"
    assert any(note.what == "refused" for note in ana.notes), "its commit came too late"
    assert max(r.processed().values()) > 1, "records without a commit are processed again"


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_auto_commit_loses_no_record(run: Callable[..., Run], strategy: str) -> None:
    """S05, S06, S13, S138, S139: workers commit every second, before a rebalance and on close."""
    r = run(enable_auto_commit=True, auto_commit_interval_ms=1_000, **STRATEGIES[strategy])
    ana, bo = r.start("ana"), r.start("bo")
    r.until_shared_by(ana, bo)
    cy = r.start("cy")
    r.until_shared_by(ana, bo, cy)
    bo.leave()
    r.until_shared_by(ana, cy)
    cy.signal(signal.SIGKILL)
    r.until_shared_by(ana)
    di = r.start("di")
    r.until_shared_by(ana, di)
    di.signal(signal.SIGSTOP)
    r.until_shared_by(ana)
    di.signal(signal.SIGCONT)
    r.until_shared_by(ana, di)
    r.finish()
    check_all(r)
    assert {"cy", "di"} <= names(r.expired())
