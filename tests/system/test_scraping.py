"""Tools that read many groups at once, while groups come and go (public reports, kcl 77 and kminion 335)."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.protocol.admin.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest

from streaming.embedded import Broker
from streaming.gateway import Gateway
from tests.differential.conftest import coordinator_behind
from tests.system.wire import connect

pytestmark = pytest.mark.long

GROUPS = 500
TOOLS = 5
ROUNDS = 3
RETRIABLE = {14, 15, 16}
"""The coordinator loads, is not available, or is another one."""

GROUP_ID_NOT_FOUND = 69


def commit(number: int) -> Any:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=number, committed_leader_epoch=-1, committed_metadata=""
    )
    return OffsetCommitRequest(
        version=8, group_id=f"scraped-{number}", generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
        topics=[topic(name="scraped", partitions=[partition])],
    )  # fmt: skip


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
                if offsets not in ([], [int(group.group_id.split("-")[1])]):
                    mixed.add(f"{group.group_id}: {offsets}")
    return mixed, codes


def churn(address: str, over: threading.Event) -> None:
    """Delete groups and create them anew."""
    chosen = random.Random(0)
    with connect(address, "churn") as wire:
        while not over.is_set():
            some = chosen.sample(range(GROUPS), 10)
            wire.call(DeleteGroupsRequest(version=2, groups_names=[f"scraped-{n}" for n in some]))
            wire.send(*map(commit, some))
            for _ in some:
                wire.read()


@pytest.mark.parametrize("side", ["gateway", "broker"])
def test_tools_at_once_read_each_groups_own_offsets(broker: Broker, gateway: Gateway, side: str) -> None:
    """No offset of another group, and no error that a tool could not retry."""
    host, port = coordinator_behind((gateway if side == "gateway" else broker).bootstrap_servers)
    address = f"{host}:{port}"
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        if "scraped" not in admin.list_topics():
            admin.create_topics({"scraped": {"num_partitions": 1}}, wait_for_metadata=True)
    create(address)
    over = threading.Event()
    with ThreadPoolExecutor(TOOLS + 1) as pool:
        churning = pool.submit(churn, address, over)
        scrapes = [pool.submit(scrape, address, seed) for seed in range(TOOLS)]
        try:
            found = [each.result() for each in scrapes]
        finally:
            over.set()
        churning.result()
    assert [mixed for mixed, _ in found] == [set()] * TOOLS
    assert set.union(*(codes for _, codes in found)) <= {0, GROUP_ID_NOT_FOUND} | RETRIABLE


def create(address: str) -> None:
    with connect(address) as wire:
        for start in range(0, GROUPS, 25):
            wire.send(*(commit(n) for n in range(start, start + 25)))
            answers = [wire.read() for _ in range(25)]
            assert {p.error_code for a in answers for t in a.topics for p in t.partitions} == {0}
