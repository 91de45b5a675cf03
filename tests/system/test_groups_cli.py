"""`coordinator groups` on a real broker: with live groups, and with topics whose coordinator is unavailable."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from coordinator.base.consumer_protocol import Subscription, write_assignment, write_subscription
from coordinator.base.hashing import shard_of
from coordinator.messages.group_records import Published
from coordinator.messages.requests import Protocol
from streaming.administration.resetting import NewOffset
from streaming.cli.lib.requests import Administration
from streaming.cli.lib.times import moment
from streaming.cli.main import main
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.kafka.topics import ensure
from streaming.query.coordinator import Coordinator
from streaming.wire.records import OutputTopics, to_row
from tests.streaming.views.golden_views import ANA, EVIL, HISTORY, NOON_MS, RECORDS, offset
from tests.system.asking import Asker
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long

TOPIC, PARTITIONS, RECORDS_EACH = "groups-cli", 3, 10


class Ran(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Settings], Run]:
    """Return a function that runs `coordinator groups ...` as a script does, on a coordinator's topics."""

    def on(settings: Settings) -> Run:
        def run(*typed: str, command: str = "groups") -> Ran:
            for name in ("bootstrap_servers", "topic_prefix"):
                monkeypatch.setenv(f"COORDINATOR_{name.upper()}", str(getattr(settings, name)))
            monkeypatch.setattr(sys, "argv", ["coordinator", command, *typed])
            capsys.readouterr()
            code = 0
            try:
                main()
            except SystemExit as ended:
                code = int(ended.code or 0)
            said = capsys.readouterr()
            return Ran(code, said.out, said.err)

        return run

    return on


@pytest.fixture
def run(coordinator: Coordinator, run_on: Callable[[Settings], Run]) -> Run:
    return run_on(coordinator.settings)


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    """Make a topic with ten records in each partition."""
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin:
        wanted = {"num_partitions": PARTITIONS, "replication_factor": 1}
        admin.create_topics({TOPIC: wanted}, wait_for_metadata=True)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers)) as producer:
        for number in range(PARTITIONS * RECORDS_EACH):
            producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS)
        producer.flush()
    return TOPIC


class Consumers:
    """Members of one group that send raw requests in Kafka's own protocol."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self.generation_id = 0

    def joining(self, member_id: str, client_id: str, **fields: Any) -> Any:
        offered = (Protocol("roundrobin", write_subscription(Subscription((TOPIC,)))),) if client_id == "ana" else ()
        offered += (Protocol("range", write_subscription(Subscription((TOPIC,)))),)
        return self._asker.joining(member_id, client_id, protocol_type="consumer", protocols=offered, **fields)

    def come(self, client_id: str, **fields: Any) -> str:
        """Request a member id and return it."""
        answer = self._asker.ask(self.joining("", client_id, **fields))
        assert answer.error == "MEMBER_ID_REQUIRED", answer
        return str(answer.member_id)

    def gather(self, members: dict[str, str], plan: dict[str, list[int]], **fields: Any) -> None:
        """Make members, by id and client id, join and share the topic. The first of them begins the rebalance."""
        joins = {}
        for member_id, client_id in members.items():
            joins[member_id] = self._asker.begin(self.joining(member_id, client_id, **fields))
            if len(joins) < len(members):
                wait_until(lambda: self._asker.describe().state.value == "PreparingRebalance")
        joined: dict[str, Any] = {member_id: answer.result(HANG_S) for member_id, answer in joins.items()}
        assert {answer.error for answer in joined.values()} == {"NONE"}, joined
        (self.generation_id,) = {answer.generation_id for answer in joined.values()}
        leader = next(answer.leader for answer in joined.values())
        parts = {m: write_assignment({TOPIC: tuple(plan[m])} if plan[m] else {}) for m in members}
        syncs = [
            self._asker.begin(self._asker.syncing(self.generation_id, m, parts if m == leader else None))
            for m in members
        ]
        assert {sync.result(HANG_S).error for sync in syncs} == {"NONE"}


@pytest.fixture
def consumers(asker: Asker) -> Consumers:
    return Consumers(asker)


def until(run: Run, *typed: str, shows: Callable[[Any], object]) -> Any:
    """Run a command until its JSON output satisfies `shows`: a reply may come before the records do."""
    said: list[Any] = []

    def is_shown() -> object:
        ran = run(*typed, "-o", "json")
        said[:] = [ran.json if ran.code == 0 else ran]
        return ran.code == 0 and shows(said[0])

    wait_until(is_shown, account=lambda: said)
    return said[0]


def test_commands_show_the_history_of_a_group(run: Run, topic: str, asker: Asker, consumers: Consumers) -> None:
    """S01, S03, S04, S10, S11, S12, S129, S148, S151: commands show owners, joins, leaves and durations."""
    group_id = asker.group_id
    before_ms = time.time_ns() // 1_000_000 - 60_000
    ana = consumers.come("ana")
    consumers.gather({ana: "ana"}, {ana: [0, 1, 2]})
    bo = consumers.come("bo")
    consumers.gather({bo: "bo", ana: "ana"}, {ana: [0, 1, 2], bo: []})
    assert asker.commit(2, ana, 7, topic).partitions[0].error == "NONE"

    shown = until(run, "describe", group_id, shows=lambda d: d["summary"]["total_lag"] == 3)
    assert (shown["summary"]["generation_id"], shown["summary"]["protocol_name"]) == (2, "range"), "bo offers no other"
    assert {(row["partition"], row["member_id"]) for row in shown["offsets"]} == {(p, ana) for p in range(3)}
    assert [(m["member_id"], m["partitions"]) for m in shown["members"]] == [(ana, 3), (bo, 0)]
    table = run("describe", group_id)
    assert re.search(rf"^{re.escape(group_id)} {topic} +0 +7 +10 +3 +{ana} +/127.0.0.1 ana$", table.out, re.MULTILINE)
    assert re.search(rf"^{re.escape(group_id)} - .*{bo} +/127.0.0.1 bo$", table.out, re.MULTILINE)

    assert asker.leave(bo, "had enough").members[0].error == "NONE"
    consumers.gather({ana: "ana"}, {ana: [0, 1]})
    told = until(run, "timeline", group_id, shows=lambda t: [r["generation_id"] for r in t["rebalances"]] == [1, 2, 3]
                 and t["rebalances"][-1]["ended_ms"])  # fmt: skip
    assert [r["cause"] for r in told["rebalances"]] == ["member_joined", "member_joined", "member_left"]
    assert all(r["duration_ms"] == r["ended_ms"] - r["started_ms"] for r in told["rebalances"])
    lines = run("timeline", group_id).out.splitlines()
    rebalances = [line for line in lines if " rebalance " in line]
    assert len(rebalances) == 3
    assert '("had enough"); took ' in rebalances[2]
    assert run("timeline", group_id, "--limit", "2").out.splitlines()[1:] == lines[-2:]
    assert "bo" in run("why", group_id).out.splitlines()[1]
    assert len(run("why", group_id).out.splitlines()) == 3

    whose = run("owner", group_id, f"{topic}-0")
    assert f"{topic}-0 at " in whose.out
    assert f" {ana}, client ana at /127.0.0.1, from " in whose.out
    assert run("owner", group_id, f"{topic}-2").out.split(": ", 1)[1].startswith(f"nobody; before: {ana}")
    earlier = run("owner", group_id, f"{topic}-0", "--at", str(moment(before_ms)))
    assert earlier.out.split(": ", 1)[1].startswith(f"nobody; after: {ana}")
    assert run("owner", group_id, f"{topic}-9").code == 3
    assert run("list", group_id, "-o", "json").json[0]["rebalances_1h"] == 3


def test_rebalance_is_described_with_awaited_members(run: Run, topic: str, asker: Asker, consumers: Consumers) -> None:
    """S43, S47, S48: the group waits for a member until a deadline, and then for the leader's assignments."""
    ana = consumers.come("ana")
    consumers.gather({ana: "ana"}, {ana: [0, 1, 2]})
    bo = consumers.come("bo")
    bo_joins = asker.begin(consumers.joining(bo, "bo"))
    until(run, "describe", asker.group_id, shows=lambda d: d["summary"]["state"] == "PreparingRebalance")
    told = run("describe", asker.group_id)
    assert re.search(rf"^WAITS-FOR +{ana}$", told.out, re.MULTILINE)
    assert re.search(r"^UNTIL +20\d\d-", told.out, re.MULTILINE)
    assert asker.ask(consumers.joining(ana, "ana")).error == "NONE"
    bo_joins.result(HANG_S)
    until(run, "describe", asker.group_id, shows=lambda d: d["summary"]["state"] == "CompletingRebalance")
    assert re.search(rf"^WAITS-FOR .*{ana}", run("describe", asker.group_id).out, re.MULTILINE)


def test_why_explains_a_crash(run: Run, topic: str, asker: Asker, consumers: Consumers) -> None:
    """S05, S09, S14: `why` shows that the rebalance is avoidable, the silent member, and the timeout to look at."""
    ana = consumers.come("ana", session_timeout_ms=6_000)
    consumers.gather({ana: "ana"}, {ana: [0, 1, 2]}, session_timeout_ms=6_000)
    said = until(run, "why", asker.group_id, shows=lambda w: w["cause"] == "session_expired")
    assert (said["is_avoidable"], said["setting"], said["member_id"]) == (True, "session.timeout.ms", ana)
    what, who, advice = run("why", asker.group_id).out.splitlines()
    assert asker.group_id in what
    assert "was silent for" in who
    assert "check session.timeout.ms" in advice
    empty = run("describe", asker.group_id)
    assert empty.code == 0
    assert f"Consumer group '{asker.group_id}' has no active members." in empty.err


def test_operator_can_rebalance_and_expel(run: Run, topic: str, asker: Asker, consumers: Consumers) -> None:
    """An operator can expel members and start a rebalance, but cannot change the offsets of a group with members."""
    group_id = asker.group_id
    ana = consumers.come("ana")
    consumers.gather({ana: "ana"}, {ana: [0, 1, 2]})
    assert asker.commit(1, ana, 5, topic).partitions[0].error == "NONE"
    until(run, "offsets", group_id, shows=lambda rows: rows[0]["committed_offset"] == 5)

    refused = run("reset-offsets", group_id, "--all-topics", "--to-earliest", "--execute")
    assert refused.code == 1
    why = f"Assignments can only be reset if the group '{group_id}' is inactive, but the current state is Stable."
    assert why in refused.err
    assert run("delete", group_id, "--yes").code == 1
    assert run("delete-offsets", group_id, "--topic", topic, "--yes").code == 1

    moved = run("rebalance", group_id, "--reason", "to see")
    assert (moved.code, moved.out) == (0, f"{group_id} is PreparingRebalance, generation 1.\n")
    consumers.gather({ana: "ana"}, {ana: [0]})
    told = until(run, "why", group_id, shows=lambda w: w["cause"] == "operator")
    assert told["reason"] == "to see"
    assert told["client_id"] == "coordinator-cli"

    until(run, "describe", group_id, shows=lambda d: d["summary"]["state"] == "Stable")
    assert run("expel", group_id, ana).code == 2, "without --yes"
    assert run("expel", group_id, "nobody", "--yes").code == 3
    short = re.sub(r"-([0-9a-f]{4})[0-9a-f]{4}-.*", r"-\1", ana)
    gone = run("expel", group_id, short, "--reason", "stuck", "--yes")
    assert (gone.code, gone.out) == (0, f"{ana} was removed from {group_id}.\n")
    assert asker.heartbeat(2, ana).error == "UNKNOWN_MEMBER_ID"


def test_offsets_are_reset_restored_and_deleted(run: Run, topic: str, asker: Asker) -> None:
    """A dry run changes nothing. An offset out of range is moved to the bounds. --as-of restores old offsets."""
    group_id = asker.group_id

    def committed(offset_now: int) -> dict[str, Any]:
        rows = until(run, "offsets", group_id, shows=lambda rows: rows[0]["committed_offset"] == offset_now)
        return dict(rows[0])

    assert asker.commit(-1, "", 3, topic, metadata="three").partitions[0].error == "NONE"
    three = committed(3)
    assert asker.commit(-1, "", 8, topic).partitions[0].error == "NONE"
    eight = committed(8)

    dry = run("reset-offsets", group_id, "--topic", f"{topic}:0,1", "--to-offset", "99")
    assert dry.code == 0
    assert [line.split() for line in dry.out.splitlines()[1:]] == [[group_id, topic, p, "10"] for p in ("0", "1")]
    assert "New offset (99) is higher than latest offset" in dry.err
    assert "Nothing was changed" in dry.err
    assert asker.fetch() == {(topic, 0): 8}

    plan = run("reset-offsets", group_id, "--all-topics", "--shift-by", "-2", "--export", "--execute")
    assert (plan.code, plan.out) == (0, f"{topic},0,6\n")
    assert asker.fetch() == {(topic, 0): 6}
    committed(6)

    restored = run("reset-offsets", group_id, "--all-topics", "--as-of", str(three["commit_timestamp_ms"]), "--execute")
    assert restored.code == 0, restored.err
    assert asker.fetch() == {(topic, 0): 3}
    assert committed(3)["metadata"] == "three"
    later = ["--as-of", str(eight["commit_timestamp_ms"]), "--topic", f"{topic}:0"]
    assert run("reset-offsets", group_id, *later).out.split()[-1] == "8"
    earlier = run("reset-offsets", group_id, "--as-of", str(three["commit_timestamp_ms"] - 1), "--all-topics")
    assert len(earlier.out.splitlines()) == 1
    assert f"{topic}-0 is omitted: it had no committed offset then." in earlier.err

    assert run("reset-offsets", group_id, "--topic", "nowhere", "--to-latest").code == 3
    assert run("reset-offsets", group_id, "--topic", f"{topic}:1", "--shift-by", "1").code == 2
    assert run("delete-offsets", group_id, "--topic", f"{topic}:1", "--yes").code == 3
    gone = run("delete-offsets", group_id, "--topic", topic, "--yes")
    assert gone.code == 0, gone.err
    assert gone.out.splitlines()[1].split() == [topic, "0", "deleted"]
    assert asker.fetch() == {}


def test_records_that_were_deleted_before_they_were_read_are_no_lag(run: Run, broker: Broker, asker: Asker) -> None:
    """Retention does the same as this deletion."""
    topic, group_id = "deleted-records", asker.group_id
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin:
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers)) as producer:
        last = [producer.send(topic, b"record", partition=0) for _ in range(RECORDS_EACH)][-1].get(HANG_S)
    assert asker.commit(-1, "", 4, topic).partitions[0].error == "NONE"
    (read,) = until(run, "offsets", group_id, shows=lambda rows: rows and rows[0]["committed_offset"] == 4)
    assert (read["lag"], read["gone_unread"]) == (RECORDS_EACH - 4, 0)
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin:
        admin.delete_records({TopicPartition(topic, 0): last.offset + 1})
    (row,) = run("offsets", group_id, "-o", "json").json
    assert (row["lag"], row["gone_unread"]) == (0, RECORDS_EACH - 4)
    (group,) = run("list", group_id, "-o", "json").json
    assert (group["total_lag"], group["total_gone_unread"]) == (0, RECORDS_EACH - 4)
    assert "below the log's start: 6 records gone unread" in run("describe", group_id).out


def test_description_has_the_members_that_a_rebalance_waits_for(run: Run, asker: Asker) -> None:
    """S43, S47: the command asks the coordinator, because only the coordinator knows which members have joined."""
    ana, _ = asker.alone()
    coming = asker.begin(asker.joining(asker.new_id("bo"), "bo"))
    until(run, "describe", asker.group_id, shows=lambda told: told["summary"]["state"] == "PreparingRebalance")
    assert run("describe", asker.group_id, "-o", "json").json["awaited"] == [ana]
    shown = run("describe", asker.group_id).out
    assert re.search(rf"^WAITS-FOR +{ana}$", shown, re.MULTILINE)
    assert re.search(r"^UNTIL +\d{4}-", shown, re.MULTILINE)
    asker.ask(asker.joining(ana))
    assert coming.result(HANG_S).error == "NONE"


@pytest.fixture
def hostile(coordinator: Coordinator) -> Iterator[str]:
    with Administration(coordinator.settings) as administration:
        assert administration.commit(EVIL, {("t", 0): NewOffset(1, metadata=EVIL)}) == {("t", 0): "NONE"}
        yield EVIL
        administration.delete(EVIL)


def test_group_with_a_hostile_id_is_shown_escaped(run: Run, hostile: str) -> None:
    """The group is found by its id, shown escaped, and deleted."""
    until(run, "offsets", hostile, shows=lambda rows: rows[0]["metadata"] == hostile)
    for command in (["list"], ["list", "-o", "wide"], ["describe", hostile], ["offsets", hostile, "-o", "wide"]):
        ran = run(*command)
        assert ran.code == 0
        assert r"=1+1\x1b]0;x\x07\r\n\u202e<b>[red]" in ran.out
        assert not {c for c in ran.out + ran.err if not c.isprintable()} - {"\n"}
    assert "'=1+1" in run("list", "-o", "csv").out
    assert run("delete", re.escape(hostile), "--regex", "--yes").code == 0
    until_gone = run("delete", hostile, "--yes")
    assert (until_gone.code, "does not exist" in until_gone.err) == (3, True)


# -- without a coordinator ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def left_behind(broker: Broker) -> Settings:
    """Make the topics of a coordinator that does not run, with the records of `golden_views`."""
    settings = Settings.load(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix="left-behind",
        replication_factor=1,
        request_partitions=3,
    )
    ensure(settings, lambda _: None)
    topics = OutputTopics(settings.replies_topic, settings.groups_topic, settings.events_topic, settings.requests_topic)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers)) as producer:
        published = [Published(r.group_id, _key(r), r, r.version) for r in RECORDS]
        for output in (*HISTORY, *published):
            row = to_row(output, topics, shard_of(str(output.group_id), 3))
            producer.send(row.topic, row.value, key=row.key, partition=row.partition)
        producer.flush()
    return settings


def _key(record: Any) -> Any:
    if hasattr(record, "members"):
        return "group", record.group_id
    return "offset", record.group_id, record.topic, record.partition


def test_commands_that_read_need_no_coordinator(run_on: Callable[[Settings], Run], left_behind: Settings) -> None:
    run = run_on(left_behind)
    assert {each["group_id"] for each in run("list", "-o", "json").json} == {EVIL, "idle", "moving", "orders"}
    listed = run("list")
    told = [line for line in listed.err.splitlines() if "beyond the end of a log" not in line]
    assert told == [], "no request asks for an invalid topic name: it would time out"
    lines = listed.out.splitlines()
    assert [line.split()[2] for line in lines[2:]] == ["Empty", "PreparingRebalance", "Stable"]
    assert run("describe", "orders", "-o", "json").json["why"]["cause"] == "session_expired"
    assert ANA in run("owner", "orders", "t-2").out
    assert [m["member_id"] for m in run("members", "moving", "-o", "json").json] == [ANA]
    assert run("offsets", "idle|orders", "-r", "-o", "json").json.keys() == {"idle", "orders"}
    idle = run("offsets", "idle", "-o", "json").json
    assert [row["end_offset"] for row in idle if row["topic"] == "gone"] == [None], "there is no such topic"
    assert "The lag is unknown" not in run("offsets", "idle").err, "a missing topic is no failure"
    assert run("members", "nobody").code == run("describe", "orders", "nobody").code == run("why", "nobody").code == 3
    assert "is rebalancing" in run("describe", "moving").err


def test_missing_topics_are_reported(run_on: Callable[[Settings], Run], left_behind: Settings) -> None:
    ran = run_on(left_behind.model_copy(update={"topic_prefix": "nowhere"}))("list")
    assert (ran.code, ran.out) == (1, "")
    assert "There is no topic nowhere.groups" in ran.err


def test_uncertain_offset_is_refused(
    broker: Broker, transport: Transport, run_on: Callable[[Settings], Run], left_behind: Settings, topic: str
) -> None:
    """A gap in the partition's offsets, here from a transaction, may have been a commit."""
    settings, group_id = left_behind, "restored"
    topics = OutputTopics(settings.replies_topic, settings.groups_topic, settings.events_topic, settings.requests_topic)
    shard = shard_of(group_id, 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "leaves-a-hole"})
    producer.init_transactions()
    for version, at_ms in enumerate((NOON_MS, NOON_MS + 50_000), 1):
        record = offset(group_id, version, 0, version, topic=topic, commit_timestamp_ms=at_ms, member_id="")
        row = to_row(Published(group_id, _key(record), record, version), topics, shard)
        producer.begin_transaction()
        producer.produce(row.topic, row.value, row.key, partition=shard, timestamp=at_ms)
        producer.commit_transaction()

    run = run_on(settings)
    as_of = ["reset-offsets", group_id, "--topic", f"{topic}:0", "--as-of"]
    refused = run(*as_of, str(NOON_MS + 10_000))
    assert (refused.code, refused.out) == (1, "")
    assert f"are not certain, because {settings.groups_topic} has been compacted. They are certain from" in refused.err
    assert str(moment(NOON_MS + 50_000)) in refused.err
    assert run(*as_of, str(NOON_MS + 10_000), "--uncertain").out.split()[-1] == "1"
    assert run(*as_of, str(NOON_MS + 50_000)).out.split()[-1] == "2"
