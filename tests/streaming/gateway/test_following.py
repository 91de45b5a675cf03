"""Groups are told about changes of the topics that their members subscribe to, and nothing else."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.messages.consumer_requests import GroupTopics, ResolvedPattern
from coordinator.messages.responses import AnyAnswer, Ask, GroupTopicsAnswer
from streaming.gateway.members import topic_updates as module
from streaming.gateway.members.topic_updates import Follower, TopicUpdates
from streaming.kafka.patterns import matching
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.parts import FakeShared
from tests.streaming.gateway.wiring import FakeAsker


class Bench:
    """A gateway whose groups follow its topics."""

    def __init__(self) -> None:
        self.shared = FakeShared()
        self.topics: dict[str, int] = self.shared.cluster.topics
        self.following: TopicUpdates = self.shared.topic_updates
        self.sent: list[GroupTopics] = []
        self.answer = GroupTopicsAnswer(request_id="1")
        self.unanswered: list[Callable[[AnyAnswer], object]] = []
        self.answers = True
        self.secret: str | None = ""

    def subscribe(
        self, group_id: str, member_id: str, names: tuple[str, ...] = (), pattern: str = "", hidden: str = ""
    ) -> Follower:
        """Subscribe a member."""
        follower = Follower(
            group_id,
            member_id,
            FakeAsker(),
            self._send,
            lambda topic: topic != hidden,
            self._describable,
            names,
            pattern,
        )
        self.following.subscribe(follower, matching(pattern, set(self.topics) - {hidden}).topics if pattern else None)
        return follower

    async def settle(self) -> None:
        """Confirm the facts of now."""
        await self.following.update()
        self.sent.clear()

    def _send(self, request: GroupTopics, then: Callable[[AnyAnswer], object]) -> None:
        self.sent.append(request)
        if self.answers:
            then(self.answer)
        else:
            self.unanswered.append(then)

    async def _describable(self, topics: tuple[str, ...]) -> tuple[str, ...] | None:
        return None if self.secret is None else tuple(topic for topic in topics if topic != self.secret)

    def told(self) -> list[tuple[str, dict[str, int], list[ResolvedPattern]]]:
        """Return what was sent: for each request the group, the partitions of each topic, and the patterns."""
        sent = [(r.group_id, {f.topic: f.partitions for f in r.topics}, list(r.regexes)) for r in self.sent]
        self.sent.clear()
        return sent


def run(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Bench())

    asyncio.run(main())


def test_a_group_is_told_what_has_changed():
    async def scenario(bench: Bench) -> None:
        bench.subscribe("g", "ana", ("t", "later"))
        bench.subscribe("h", "bo", ("t",))
        await bench.following.update()
        assert bench.told() == [("g", {"t": 3, "later": 0}, []), ("h", {"t": 3}, [])]
        await bench.following.update()
        assert bench.told() == []
        bench.topics |= {"t": 5, "later": 1, "other": 1}
        await bench.following.update()
        assert bench.told() == [("g", {"t": 5, "later": 1}, []), ("h", {"t": 5}, [])]
        await bench.following.update()
        assert bench.told() == []
        del bench.topics["t"]
        await bench.following.update()
        assert bench.told() == [("g", {"t": 0}, []), ("h", {"t": 0}, [])]

    run(scenario)


def test_all_groups_are_looked_up_at_once():
    async def scenario(bench: Bench) -> None:
        for number in range(100):
            bench.subscribe(f"g{number}", "ana", ("t", f"u{number % 3}"))
        await bench.following.update()
        assert [sorted(names) for names in bench.shared.described] == [["t", "u0", "u1", "u2"]]

    run(scenario)


def test_a_group_without_a_member_here_is_not_followed():
    async def scenario(bench: Bench) -> None:
        ana, bo = bench.subscribe("g", "ana", ("t",)), bench.subscribe("g", "bo", ("t",))
        bench.following.remove(ana)
        bench.topics["t"] = 4
        await bench.following.update()
        assert bench.told() == [("g", {"t": 4}, [])]
        bench.following.remove(bo)
        bench.following.remove(bo)
        bench.topics["t"] = 5
        await bench.following.update()
        assert bench.told() == []
        assert len(bench.shared.described) == 1

    run(scenario)


def test_a_member_on_a_new_connection_is_not_dropped_with_the_old_one():
    async def scenario(bench: Bench) -> None:
        old = bench.subscribe("g", "ana", ("t",))
        bench.subscribe("g", "ana", ("t",))
        bench.following.remove(old)
        bench.topics["t"] = 4
        await bench.following.update()
        assert bench.told() == [("g", {"t": 4}, [])]

    run(scenario)


def test_a_pattern_that_matches_another_topic_is_told():
    async def scenario(bench: Bench) -> None:
        bench.subscribe("g", "ana", pattern="t.*", hidden="t3")
        bench.subscribe("g", "bo", pattern="t.*", hidden="t3")
        await bench.following.update()
        assert bench.told() == [("g", {"t": 3}, [])]
        bench.topics |= {"t2": 2, "t3": 3, "u": 1}
        await bench.following.update()
        assert bench.told() == [("g", {"t2": 2}, [ResolvedPattern("t.*", ("t", "t2"), "ana")])]
        await bench.following.update()
        assert bench.told() == []

    run(scenario)


def test_the_coordinators_question_is_answered():
    async def scenario(bench: Bench) -> None:
        bench.topics |= {"t1": 1, "t2": 2}
        ana = bench.subscribe("g", "ana", ("t",), "t[0-9]")
        await bench.following.answer(ana, Ask(("t", "nowhere"), ("t[0-9]",)))
        facts = {"t": 3, "nowhere": 0, "t1": 1, "t2": 2}
        assert bench.told() == [("g", facts, [ResolvedPattern("t[0-9]", ("t1", "t2"), "ana")])]
        bench.following.remove(ana)
        await bench.following.answer(ana, Ask(("t",)))
        assert bench.told() == []

    run(scenario)


def test_a_fact_without_a_confirmation_is_sent_again(monkeypatch: pytest.MonkeyPatch):
    """A refused request is repeated at the next look; one without an answer when it counts as lost."""

    async def scenario(bench: Bench) -> None:
        bench.subscribe("g", "ana", ("t",))
        bench.answer = GroupTopicsAnswer(request_id="1", **ended(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        for _ in range(2):
            await bench.following.update()
            assert bench.told() == [("g", {"t": 3}, [])]
        bench.answers = False
        await bench.following.update()
        assert bench.told() == [("g", {"t": 3}, [])]
        await bench.following.update()
        assert bench.told() == []
        now_s = time.monotonic() + module.ANSWER_WAIT_S
        monkeypatch.setattr(module.time, "monotonic", lambda: now_s)
        await bench.following.update()
        assert bench.told() == [("g", {"t": 3}, [])]
        bench.unanswered[-1](GroupTopicsAnswer(request_id="1"))
        await bench.following.update()
        assert bench.told() == []

    run(scenario)


def test_many_facts_and_patterns_are_sent_in_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "NAMES_AT_ONCE", 4)

    async def scenario(bench: Bench) -> None:
        bench.topics |= {f"a{number}": 1 for number in range(9)}
        bench.subscribe("g", "ana", tuple(f"a{number}" for number in range(9)), "b.*")
        bench.subscribe("g", "bo", (), "c.*")
        bench.topics |= {"b": 1, "c1": 1, "c2": 1, "c3": 1, "c4": 1}
        await bench.following.update()
        told = bench.told()
        assert [len(facts) for _, facts, _ in told] == [4, 4, 4, 2]
        patterns = [[each.regex for each in patterns] for _, _, patterns in told]
        assert sorted(patterns) == [[], [], ["b.*"], ["c.*"]]
        await bench.following.update()
        assert bench.told() == []

    run(scenario)


def test_facts_about_topics_that_nobody_subscribes_to_are_forgotten():
    async def scenario(bench: Bench) -> None:
        bench.subscribe("g", "ana", ("t",))
        await bench.settle()
        for number in range(10):
            bench.subscribe("g", "ana", (f"a{number}",), f"a{number}")
            await bench.settle()
        group = bench.following._groups["g"]
        assert (list(group.confirmed), list(group.matched)) == (["a9"], ["a9"])

    run(scenario)


def test_a_group_of_another_kind_is_no_longer_followed():
    """Its last member of the consumer protocol has left: the next JoinGroup shows whether facts are of use again."""

    async def scenario(bench: Bench) -> None:
        bench.subscribe("g", "ana", ("t",))
        bench.answer = GroupTopicsAnswer(request_id="1", **ended(ErrorCode.GROUP_ID_NOT_FOUND))
        await bench.settle()
        assert not bench.following.has("g")

    run(scenario)


def test_a_pattern_matches_only_topics_that_the_client_may_describe():
    """The rules of the coordinator apply as they do to the topics of a pattern in a heartbeat."""

    async def scenario(bench: Bench) -> None:
        ana = bench.subscribe("g", "ana", pattern="t.*")
        await bench.settle()
        bench.topics |= {"t-secret": 1, "t2": 1}
        bench.secret = None
        await bench.following.update()
        assert bench.told() == [], "the rights are not known"
        bench.secret = "t-secret"
        await bench.following.update()
        [(_, _, [resolved])] = bench.told()
        assert resolved.topics == ("t", "t2")
        await bench.following.update()
        assert bench.told() == []
        await bench.following.answer(ana, Ask(regexes=("t.*",)))
        [(_, _, [resolved])] = bench.told()
        assert resolved.topics == ("t", "t2")

    run(scenario)


def test_looks_go_on_after_a_failure(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    async def scenario(bench: Bench) -> None:
        looks = 0

        async def look() -> None:
            nonlocal looks
            looks += 1
            if looks == 1:
                raise ZeroDivisionError

        monkeypatch.setattr(bench.following, "update", look)
        keeping = asyncio.create_task(bench.following.run(0.001))
        while looks < 3:
            await asyncio.sleep(0)
        keeping.cancel()
        assert "the next try is in 0.001 s" in caplog.text

    run(scenario)
