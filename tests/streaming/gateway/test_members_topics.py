"""The topics of the members on one connection: which are asked for, followed and told to their groups."""

import asyncio

import pytest
from kafka.protocol.consumer.group import JoinGroupRequest, LeaveGroupRequest

from coordinator.base.consumer_protocol import Subscription, write_subscription
from coordinator.base.errors import ErrorCode
from coordinator.messages.requests import CheckAccess
from coordinator.messages.responses import (
    CheckAccessAnswer,
    GroupTopicsAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    LeftMember,
)
from streaming.gateway.members import members as module
from streaming.gateway.members.member_state import MEMBERS_MAX
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.members_bench import ALL, Bench, T, run
from tests.streaming.gateway.parts import fact_of

# -- topics ------------------------------------------------------------------------------------------------------------


def test_a_subscription_waits_for_the_facts_about_its_topics():
    async def scenario(bench: Bench) -> None:
        bench.beat(0, subscribed_topic_names=["t", "nowhere"], topic_partitions=[])
        assert bench.asking.requests == []
        await bench.idle()
        [sent] = bench.asking.requests
        assert sent.topics == (T, fact_of("nowhere", None))
        bench.answer(1)
        bench.beat(0, subscribed_topic_names=["t"], topic_partitions=[])
        assert bench.asking.requests[1].topics == (T,)
        assert bench.shared.described == [["t", "nowhere"]]

    run(scenario)


def test_a_pattern_waits_for_the_names_and_the_facts():
    async def scenario(bench: Bench) -> None:
        bench.beat(0, subscribed_topic_regex="t.*", topic_partitions=[])
        bench.shared.cluster.topics = {"t": 3, "t2": 1, "u": 1}
        await bench.idle()
        [sent] = bench.asking.requests
        assert (sent.regex_topics, sent.topics) == (("t", "t2"), (T, fact_of("t2", 1)))
        assert bench.shared.cluster.refreshed == 1

    run(scenario)


def test_a_heartbeat_without_a_subscription_waits_for_nothing():
    async def scenario(bench: Bench) -> None:
        bench.beat()
        bench.answer()
        assert bench.shared.described == []

    run(scenario)


def test_the_topics_of_a_member_are_followed_until_it_leaves():
    async def scenario(bench: Bench) -> None:
        await bench.join()
        bench.shared.cluster.topics["t"] = 4
        await bench.shared.topic_updates.update()
        [told] = bench.group_topics
        assert (told.group_id, told.topics, told.principal) == ("g", (fact_of("t", 4),), "User:CN=ana")
        bench.heartbeats.release()
        bench.beat(-1)
        bench.answer(-1)
        bench.shared.cluster.topics["t"] = 5
        await bench.shared.topic_updates.update()
        assert len(bench.group_topics) == 1

    run(scenario)


def test_a_heartbeat_may_change_a_part_of_the_subscription():
    async def scenario(bench: Bench) -> None:
        await bench.join()
        bench.heartbeats.release()
        bench.beat(1, subscribed_topic_regex="u.*")
        await bench.idle()
        bench.answer(2)
        bench.shared.cluster.topics |= {"t": 4, "u": 1}
        await bench.shared.topic_updates.update()
        [told] = bench.group_topics
        assert {fact.topic for fact in told.topics} == {"t", "u"}
        assert [resolved.topics for resolved in told.regexes] == [("u",)]

    run(scenario)


@pytest.mark.parametrize(
    "error",
    ["COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "TOPIC_AUTHORIZATION_FAILED"],
)
def test_a_member_is_followed_through_errors_that_pass(error: str):
    """librdkafka's next heartbeat is a plain one, so its subscription would not come again."""

    async def scenario(bench: Bench) -> None:
        await bench.join()
        bench.heartbeats.release()
        bench.beat(1)
        bench.answer(0, **ended(ErrorCode[error]))
        bench.shared.cluster.topics["t"] = 4
        await bench.shared.topic_updates.update()
        [told] = bench.group_topics
        assert told.topics == (fact_of("t", 4),)

    run(scenario)


@pytest.mark.parametrize("end", ["error", "closed"])
def test_a_member_that_is_gone_is_not_followed(end: str):
    async def scenario(bench: Bench) -> None:
        await bench.join()
        bench.heartbeats.release()
        if end == "error":
            bench.beat(1)
            bench.answer(**ended(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            bench.members.close()
        bench.shared.cluster.topics["t"] = 4
        await bench.shared.topic_updates.update()
        assert bench.group_topics == []

    run(scenario)


@pytest.mark.parametrize(("allowed", "told"), [((True, False), [("t",)]), (None, [])])
def test_a_changed_pattern_is_limited_by_the_rules(
    monkeypatch: pytest.MonkeyPatch, allowed: tuple[bool, ...] | None, told: list[tuple[str, ...]]
):
    """Without an answer about the rights nothing is told."""
    monkeypatch.setattr(module, "RIGHTS_WAIT_S", 0.05)

    async def scenario(bench: Bench) -> None:
        bench.members._has_rules = True
        await bench.join(names=(), subscribed_topic_regex="t.*")
        bench.shared.cluster.topics["t-secret"] = 1
        looking = asyncio.create_task(bench.shared.topic_updates.update())
        while not isinstance(bench.asking.requests[-1], CheckAccess):
            await asyncio.sleep(0)
        assert [action.name for action in bench.asking.requests[-1].actions] == ["t", "t-secret"]
        if allowed is not None:
            bench.asking.answer(CheckAccessAnswer, allowed=allowed)
        await looking
        assert [each.topics for request in bench.group_topics for each in request.regexes] == told

    run(scenario)


# -- classic members ---------------------------------------------------------------------------------------------------


def classic_join(*topics: str, member_id: str = "c") -> JoinGroupRequest:
    metadata = write_subscription(Subscription(topics))
    return JoinGroupRequest(
        version=4,
        group_id="g",
        session_timeout_ms=9_000,
        rebalance_timeout_ms=9_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def test_the_topics_of_a_classic_member_are_followed_in_a_group_of_the_consumer_protocol():
    """Such a group has no leader, and the coordinator plans for the classic members too."""

    async def scenario(bench: Bench) -> None:
        bench.shared.cluster.topics["u"] = 2
        bench.ask(classic_join("u", "x" * 250))
        bench.asking.answer(JoinGroupAnswer, member_id="c", generation_id=3)
        await bench.idle()
        [told] = bench.group_topics
        assert told.topics == (fact_of("u", 2),)
        bench.asking.answer(GroupTopicsAnswer)
        bench.ask(classic_join("u"))
        assert bench.asking.requests[-1].topics == (fact_of("u", 2),)
        bench.asking.answer(JoinGroupAnswer, member_id="c", generation_id=4)
        await bench.idle()
        bench.asking.answer(GroupTopicsAnswer)
        bench.shared.cluster.topics["u"] = 5
        await bench.shared.topic_updates.update()
        assert bench.group_topics[-1].topics == (fact_of("u", 5),)

    run(scenario)


@pytest.mark.parametrize("how", ["left", "classic again"])
def test_a_classic_member_is_followed_until_it_leaves_or_its_group_is_classic(how: str):
    async def scenario(bench: Bench) -> None:
        bench.ask(classic_join("t"))
        bench.asking.answer(JoinGroupAnswer, member_id="c", generation_id=3)
        await bench.idle()
        bench.asking.answer(GroupTopicsAnswer)
        assert bench.shared.topic_updates.has("g")
        if how == "left":
            bench.ask(LeaveGroupRequest(version=0, group_id="g", member_id="c"))
            bench.asking.answer(LeaveGroupAnswer, members=(LeftMember("c", None, **ended(ErrorCode.NONE)),))
        else:
            bench.ask(classic_join("t"))
            bench.asking.answer(JoinGroupAnswer, member_id="c", generation_id=4, leader="c")
        assert not bench.shared.topic_updates.has("g")

    run(scenario)


def test_a_classic_group_costs_no_facts():
    async def scenario(bench: Bench) -> None:
        bench.ask(classic_join("t"))
        bench.asking.answer(JoinGroupAnswer, member_id="c", generation_id=3, leader="c")
        assert (bench.asking.requests[-1].topics, bench.work._tasks, bench.shared.described) == ((), set(), [])

    run(scenario)


# -- the number of members ---------------------------------------------------------------------------------------------


def test_the_followed_members_of_a_connection_are_bounded():
    async def scenario(bench: Bench) -> None:
        for number in range(MEMBERS_MAX + 1):
            bench.beat(0, f"m{number}", subscribed_topic_names=[f"t{number}"], topic_partitions=[])
            await bench.idle()
            bench.answer(1, member_id=f"m{number}", assignment=ALL)
        await bench.shared.topic_updates.update()
        assert {fact.topic for fact in bench.group_topics[0].topics} == {f"t{n}" for n in range(1, MEMBERS_MAX + 1)}

    run(scenario)
