"""Tools that read many groups at once, while groups come and go (public reports, kcl 77 and kminion 335)."""

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.protocol.admin.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest

from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.gateway import Gateway
from tests.clients import go_programs, scrapers
from tests.clients.scrapers import Scrape, Tool
from tests.differential.conftest import coordinator_behind
from tests.system.waiting import HANG_S
from tests.system.wire import connect

pytestmark = pytest.mark.long

GROUPS = 500
TOOLS = 5
ROUNDS = 3
RETRIABLE = {14, 15, 16}
"""The coordinator loads, is not available, or is another one."""

GROUP_ID_NOT_FOUND = 69

STILL, COMING = 400, 100
ONE_BY_ONE = 20
"""The groups that Kafka's own tool and librdkafka read. They send a request for each group, and a gateway has few such
requests of a connection in the coordinator at a time (`LARGE_IN_FLIGHT_MAX`): five groups take a batch, or one."""

KAFKAS_OWN, LIBRDKAFKAS = "Kafka's own", "librdkafka"
GONE = ("GroupIdNotFound", "GROUP_ID_NOT_FOUND", "group id does not exist", "not found")
"""What tools say of a group that has vanished since they listed it."""


def commit(group_id: str) -> Any:
    """Return a commit whose offset is the number at the end of the group's id."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=number_of(group_id), committed_leader_epoch=-1, committed_metadata=""
    )
    return OffsetCommitRequest(
        version=8, group_id=group_id, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
        topics=[topic(name="scraped", partitions=[partition])],
    )  # fmt: skip


def number_of(group_id: str) -> int:
    return int(group_id.rpartition("-")[2])


def scrape(address: str, seed: int) -> tuple[set[str], set[int]]:
    """Read all groups as a tool does; return each mix-up of groups, and all error codes."""
    mixed, codes = set[str](), set[int]()
    names = [f"scraped-{n}" for n in range(GROUPS)]
    random.Random(seed).shuffle(names)
    of = OffsetFetchRequest.OffsetFetchRequestGroup
    with connect(address, f"tool {seed}") as wire:
        for _ in range(ROUNDS):
            codes.add(wire.call(ListGroupsRequest(version=4, states_filter=[])).error_code)
            described = wire.call(DescribeGroupsRequest(version=6, groups=names, include_authorized_operations=False))
            codes |= {g.error_code for g in described.groups}
            if sorted(g.group_id for g in described.groups) != sorted(names):
                mixed.add("described")
            groups = [of(group_id=name, topics=None) for name in names]
            fetched = wire.call(OffsetFetchRequest(version=8, groups=groups, require_stable=False))
            if [g.group_id for g in fetched.groups] != names:
                mixed.add("the order of groups")
            for group in fetched.groups:
                codes.add(group.error_code)
                offsets = [p.committed_offset for t in group.topics for p in t.partitions]
                if offsets not in ([], [number_of(group.group_id)]):
                    mixed.add(f"{group.group_id}: {offsets}")
    return mixed, codes


def churn(address: str, group_ids: list[str], over: threading.Event) -> int:
    """Delete groups and create them anew, and return how many times a group vanished."""
    chosen, times = random.Random(0), 0
    with connect(address, "churn") as wire:
        while not over.is_set():
            some = chosen.sample(group_ids, 10)
            wire.call(DeleteGroupsRequest(version=2, groups_names=some))
            wire.send(*map(commit, some))
            for _ in some:
                wire.read()
            times += len(some)
    return times


@contextmanager
def churning(address: str, group_ids: list[str]) -> Iterator[None]:
    """Create and delete groups until the end of the block."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        changes = pool.submit(churn, address, group_ids, over)
        try:
            yield
        finally:
            over.set()
    assert changes.result() > 0


@pytest.fixture(params=["gateway", "broker"])
def side(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def servers(broker: Broker, gateway: Gateway, side: str) -> str:
    """Return the bootstrap servers of one side, with a topic for commits."""
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        if "scraped" not in admin.list_topics():
            admin.create_topics({"scraped": {"num_partitions": 1}}, wait_for_metadata=True)
    return gateway.bootstrap_servers if side == "gateway" else broker.bootstrap_servers


def coordinator_at(servers: str) -> str:
    host, port = coordinator_behind(servers)
    return f"{host}:{port}"


def create(address: str, group_ids: list[str]) -> None:
    with connect(address) as wire:
        for start in range(0, len(group_ids), 25):
            some = group_ids[start : start + 25]
            wire.send(*map(commit, some))
            answers = [wire.read() for _ in some]
            assert {p.error_code for a in answers for t in a.topics for p in t.partitions} == {0}


def test_tools_at_once_read_each_groups_own_offsets(servers: str) -> None:
    """No offset of another group, and no error that a tool could not retry."""
    address, group_ids = coordinator_at(servers), [f"scraped-{n}" for n in range(GROUPS)]
    create(address, group_ids)
    with ThreadPoolExecutor(TOOLS) as pool, churning(address, group_ids):
        found = list(pool.map(partial(scrape, address), range(TOOLS)))
    assert [mixed for mixed, _ in found] == [set()] * TOOLS
    assert set.union(*(codes for _, codes in found)) <= {0, GROUP_ID_NOT_FOUND} | RETRIABLE


@pytest.mark.nightly
def test_five_tools_at_once_read_the_groups_that_stand_still(
    servers: str, gateway: Gateway, side: str, tmp_path: Path
) -> None:
    """Each tool has all groups that stand still, with their own offsets, while other groups vanish and appear."""
    go_programs.build(tmp_path)
    address = coordinator_at(servers)
    still, coming = ([f"{name}-{n}" for n in range(many)] for name, many in (("still", STILL), ("coming", COMING)))
    create(address, still + coming)
    tools: dict[str, Tool] = {
        KAFKAS_OWN: partial(scrapers.with_kafkas_tool, still[:ONE_BY_ONE]),
        "franz-go": partial(scrapers.with_go, "franz", tmp_path),
        "sarama": partial(scrapers.with_go, "sarama", tmp_path),
        "kafka-python": scrapers.with_kafka_python,
        LIBRDKAFKAS: partial(scrapers.with_librdkafka, still[:ONE_BY_ONE]),
    }
    with ThreadPoolExecutor(len(tools)) as pool, churning(address, coming):
        running = {name: pool.submit(tool, servers) for name, tool in tools.items()}
        found = {name: each.result() for name, each in running.items()}
    for name, rounds in found.items():
        assert len(rounds) == scrapers.ROUNDS
        for each in rounds:
            assert_whole(name, each, still, coming, still[:ONE_BY_ONE] if name in (KAFKAS_OWN, LIBRDKAFKAS) else still)
    if side == "gateway":
        assert_same_as_own_tool(gateway.settings, still, found["franz-go"][-1])


def assert_whole(tool: str, found: Scrape, still: list[str], coming: list[str], fetched: list[str]) -> None:
    """Check the groups that stand still, and that the others have their own offset or none.

    Args:
        fetched: The groups that stand still that the tool has described, and whose offsets it has fetched.
    """
    assert set(still) <= set(found.listed), tool
    assert {found.states[group_id].upper() for group_id in fetched} == {"EMPTY"}, tool
    own = {group_id: {"scraped/0": number_of(group_id)} for group_id in still + coming}
    assert {each: found.offsets.get(each) for each in fetched} == {each: own[each] for each in fetched}, tool
    assert all(found.offsets.get(each, own[each]) == own[each] for each in coming), tool
    wrong = {each: error for each, error in found.errors.items() if each in own and not any(g in error for g in GONE)}
    assert (set(found.errors) & set(still), wrong) == (set(), {}), tool


def assert_same_as_own_tool(settings: Settings, still: list[str], found: Scrape) -> None:
    """Check that `coordinator groups` shows the same groups, with the same states and offsets."""
    of = "--regex", "still-.*", "-o", "json", "-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix
    listed, offsets = (
        json.loads(subprocess.check_output([sys.executable, "-m", "streaming", "groups", *it, *of], timeout=HANG_S))
        for it in (["list"], ["offsets"])
    )
    assert {each["group_id"]: each["state"] for each in listed} == {each: found.states[each] for each in still}
    shown = {
        group_id: {f"{row['topic']}/{row['partition']}": row["committed_offset"] for row in rows}
        for group_id, rows in offsets.items()
    }
    assert shown == {each: found.offsets[each] for each in still}
