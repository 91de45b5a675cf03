"""Requests that the coordinator serves: the requests to the coordinator, and the client's responses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from kafka.protocol.admin.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
)

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NAME_CHARS_MAX
from coordinator.base.states import Phase
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.responses import (
    CommittedPartition,
    DescribeGroupAnswer,
    HeartbeatAnswer,
    JoinGroupAnswer,
    ListedGroup,
    ListGroupsAnswer,
    OffsetCommitAnswer,
)
from streaming.gateway.protocol.limits import IN_FLIGHT_MAX
from streaming.gateway.protocol.topic_ids import id_text
from streaming.gateway.security.authenticate import Identity
from streaming.gateway.server.serving import ListenerMetadata
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.parts import FakeShared, turn
from tests.streaming.gateway.serving_bench import ServingBench

SESSION_MS = 30_000


class Bench(ServingBench):
    """The serving part of one connection, with a classic member."""

    def join(self, member_id: str = "m") -> None:
        """Make the client a member of a group, so that its heartbeats can be held."""
        self.ask(JOIN)
        self.asking.answer(JoinGroupAnswer, member_id=member_id, generation_id=1)
        assert self.read_response(JoinGroupResponse, 4).member_id == member_id


JOIN = JoinGroupRequest(
    version=4,
    group_id="g",
    session_timeout_ms=SESSION_MS,
    rebalance_timeout_ms=9_000,
    member_id="m",
    protocol_type="consumer",
    protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
)


def heartbeat(member_id: str = "m") -> HeartbeatRequest:
    return HeartbeatRequest(version=3, group_id="g", generation_id=1, member_id=member_id, group_instance_id=None)


def commit(topic: str | UUID, version: int = 6) -> OffsetCommitRequest:
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = kind.OffsetCommitRequestPartition(
        partition_index=2, committed_offset=7, committed_leader_epoch=-1, committed_metadata=None
    )
    named: dict[str, Any] = {"topic_id": topic} if isinstance(topic, UUID) else {"name": topic}
    return OffsetCommitRequest(
        version=version,
        group_id="g",
        generation_id_or_member_epoch=1,
        member_id="m",
        topics=[kind(**named, partitions=[partition])],
    )


def run(scenario: Callable[[Bench], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        bench = Bench(**settings)
        await scenario(bench)
        bench.close()
        assert bench.owner.errors == []

    asyncio.run(main())


def test_a_request_is_sent_to_the_coordinator_and_its_answer_to_the_client():
    async def scenario(bench: Bench) -> None:
        bench.ask(heartbeat())
        ((request, shard),) = bench.asking.sent
        assert request == Heartbeat(
            request_id=request.request_id,
            reply_to="inbox-1",
            client_id="ana",
            client_host="/10.0.0.7",
            principal="User:CN=ana",
            group_id="g",
            generation_id=1,
            member_id="m",
        )
        assert (shard, bench.flow.questions) == (None, {request.request_id})
        bench.asking.answer(HeartbeatAnswer, error="ILLEGAL_GENERATION", code=22)
        assert bench.read_response(HeartbeatResponse, 3).error_code == 22
        assert bench.flow.questions == set()
        assert bench.count("request_seconds_count", api="Heartbeat") == 1

    run(scenario)


def test_requests_are_sent_at_once_and_answered_in_order():
    """A join that waits for other members delays the responses behind it, but not the requests."""

    async def scenario(bench: Bench) -> None:
        bench.ask(JOIN)
        bench.ask(heartbeat("other"))
        bench.asking.answer(HeartbeatAnswer)
        bench.run_soon()
        assert bench.transport.written == b""
        bench.asking.answer(JoinGroupAnswer, index=0, member_id="m")
        bench.run_soon()
        assert len(bench.transport.frames()) == 2

    run(scenario)


def test_a_request_is_answered_when_all_its_coordinator_requests_are():
    async def scenario(bench: Bench) -> None:
        bench.ask(DescribeGroupsRequest(version=4, groups=["g1", "g2"], include_authorized_operations=False))
        assert [request.group_id for request in bench.asking.requests] == ["g1", "g2"]
        bench.asking.answer(DescribeGroupAnswer, index=1, size=70, group_id="g2")
        assert (len(bench.flow.questions), bench.flow.send_buffer.held_bytes) == (2, 70)
        bench.asking.answer(DescribeGroupAnswer, index=0, size=30, group_id="g1")
        bench.run_soon()
        (frame,) = bench.transport.frames()
        response = DescribeGroupsResponse.decode(frame, version=4, header=True)
        assert [group.group_id for group in response.groups] == ["g1", "g2"]
        assert (len(bench.flow.questions), bench.flow.send_buffer.held_bytes) == (0, 0)

    run(scenario)


def test_many_coordinator_requests_pause_reading():
    async def scenario(bench: Bench) -> None:
        groups = [f"g{number}" for number in range(IN_FLIGHT_MAX)]
        bench.ask(DescribeGroupsRequest(version=4, groups=groups, include_authorized_operations=False))
        assert bench.flow.is_paused

    run(scenario)


def test_each_port_lists_its_own_groups_of_all_shards():
    async def scenario(bench: Bench) -> None:
        bench.ask(ListGroupsRequest(version=4, states_filter=[]))
        assert [shard for _, shard in bench.asking.sent] == [0, 1, 2, 3]
        for index in range(bench.asking.shards):
            groups = tuple(ListedGroup(f"{name}{index}", "consumer", Phase.EMPTY, "classic") for name in "gx")
            bench.asking.answer(ListGroupsAnswer, index=index, groups=groups)
        listed = bench.read_response(ListGroupsResponse, 4).groups
        assert [group.group_id for group in listed] == ["g0", "g1", "g2", "g3"]

    run(scenario)


def test_unknown_topics_are_looked_up_before_a_commit_is_sent():
    """Later requests wait, so that offsets are committed in the order of the requests."""

    async def scenario(bench: Bench) -> None:
        bench.shared.cluster.topics["new"] = 3
        bench.shared.may_describe.clear()
        bench.ask(commit("new"))
        await turn()
        assert (bench.asking.sent, bench.owner.calls, bench.flow.is_paused) == ([], ["stop"], True)
        bench.shared.may_describe.set()
        while bench.flow.is_paused:
            await asyncio.sleep(0)
        assert len(bench.asking.sent) == 1
        assert bench.shared.described == [["new"]]
        bench.asking.answer(OffsetCommitAnswer)
        bench.run_soon()
        assert len(bench.transport.frames()) == 1

    run(scenario)


def test_absence_is_never_taken_from_an_earlier_answer():
    """R7: another client has committed for the topic a moment before it was made. The brokers are asked again."""

    async def scenario(bench: Bench) -> None:
        async def committed(version: int, topic: str | UUID) -> int:
            bench.ask(commit(topic, version))
            while bench.flow.is_paused:
                await asyncio.sleep(0)
            if bench.asking.waiting:
                bench.asking.answer(
                    OffsetCommitAnswer, partitions=(CommittedPartition("", 2, **ended(ErrorCode.NONE)),)
                )
            ((partition,),) = (t.partitions for t in bench.read_response(OffsetCommitResponse, version).topics)
            return int(partition.error_code)

        new_id = UUID(bytes=b"new".ljust(16, b"."))
        assert [await committed(6, "new"), await committed(10, new_id)] == [3, 100]
        bench.shared.cluster.topics["new"] = 3
        assert [await committed(10, new_id), await committed(6, "new")] == [0, 0]

    run(scenario)


def test_a_partition_is_not_refused_while_the_brokers_do_not_answer():
    """Nothing proves then that it does not exist, so the error is one that clients retry."""
    shared = FakeShared()
    view = ListenerMetadata(shared, 1, Identity(()))
    assert view.missing_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number
    shared.topics.are_brokers_silent = True
    assert view.missing_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.number


def test_unknown_topic_ids_are_looked_up_before_a_commit_is_sent():
    """KIP-848: a commit of version 10 names topics by their ids."""

    async def scenario(bench: Bench) -> None:
        bench.shared.cluster.topics["new"] = 3
        new_id = UUID(bytes=b"new".ljust(16, b"."))
        bench.ask(commit(new_id, version=10))
        assert (bench.asking.sent, bench.flow.is_paused) == ([], True)
        while not bench.asking.sent:
            await asyncio.sleep(0)
        assert (bench.shared.described, bench.shared.cluster.refreshed) == ([[id_text(new_id.bytes)]], 0)
        ((request, _),) = bench.asking.sent
        assert [(o.topic, o.topic_id) for o in request.offsets] == [("new", id_text(new_id.bytes))]
        bench.asking.answer(OffsetCommitAnswer, partitions=(CommittedPartition("new", 2, **ended(ErrorCode.NONE)),))
        bench.ask(commit(new_id, version=10))
        assert len(bench.asking.sent) == 2, "the id is known"

    run(scenario)


def test_an_answer_without_a_valid_response_fails_the_client():
    async def scenario(bench: Bench) -> None:
        bench.ask(commit("t"))
        bench.asking.answer(OffsetCommitAnswer, partitions=None)
        assert (len(bench.owner.errors), len(bench.flow.questions)) == (1, 0)
        bench.owner.errors.clear()

    run(scenario)


# -- the client's identity ---------------------------------------------------------------------------------------------


def test_a_connection_has_one_inbox_that_closes_with_it():
    async def scenario(bench: Bench) -> None:
        assert bench.asking.inboxes == {}, "a connection has no inbox before its first coordinator request"
        bench.ask(heartbeat())
        bench.ask(heartbeat())
        assert len({request.reply_to for request in bench.asking.requests}) == len(bench.asking.inboxes) == 1
        assert len({request.request_id for request in bench.asking.requests}) == 2
        bench.questions.close()
        assert (bench.asking.inboxes, bench.asking.waiting) == ({}, 0)

    run(scenario)


def test_a_long_client_id_is_cut():
    async def scenario(bench: Bench) -> None:
        bench.identity.client_id = "x" * (NAME_CHARS_MAX + 1)
        assert bench.questions.fields()["client_id"] == "x" * NAME_CHARS_MAX

    run(scenario)


def test_a_port_coordinates_its_own_groups_and_the_bootstrap_port_all_groups():
    shared = FakeShared()
    assert [ListenerMetadata(shared, 1, Identity(())).coordinates(group_id) for group_id in ("g", "x")] == [True, False]
    assert [ListenerMetadata(shared, None, Identity(())).coordinates(group_id) for group_id in ("g", "x")] == [
        True,
        True,
    ]
    view = ListenerMetadata(shared, 1, Identity(()))
    assert (len(view.shard_addresses), view.has_rules, view.partitions_of("t"), view.partitions_of("u")) == (
        4,
        False,
        3,
        None,
    )
    shared.settings.access = "rules"
    assert view.has_rules
