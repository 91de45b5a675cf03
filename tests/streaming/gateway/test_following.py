"""Groups are told about changes of the topics that their members subscribe to, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from coordinator.consumer_requests import GroupTopics, ResolvedPattern
from coordinator.outputs import Ask
from streaming.gateway.following import Follower, Following
from tests.streaming.gateway.parts import FakeShared, fact_of
from tests.streaming.gateway.wiring import FakeAsker


class Bench:
    """A gateway whose groups follow its topics."""

    def __init__(self) -> None:
        self.shared = FakeShared()
        self.topics: dict[str, int] = self.shared.cluster.topics
        self.following: Following = self.shared.following
        self.sent: list[GroupTopics] = []

    def subscribe(
        self, group_id: str, member_id: str, names: tuple[str, ...] = (), pattern: str = "", hidden: str = ""
    ) -> Follower:
        """Subscribe a member whose heartbeat had the facts of now."""
        matched = None
        if pattern:
            matched = self.shared.topics.matching(pattern, lambda topic: topic != hidden).topics
        follower = Follower(
            group_id, member_id, FakeAsker(), self.sent.append, lambda topic: topic != hidden, names, pattern
        )
        told = [fact_of(name, self.topics.get(name)) for name in (*names, *(matched or ()))]
        self.following.subscribe(follower, told, matched)
        return follower

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
        await bench.following.look()
        assert bench.told() == []
        bench.topics |= {"t": 5, "later": 1, "other": 1}
        await bench.following.look()
        assert bench.told() == [("g", {"t": 5, "later": 1}, []), ("h", {"t": 5}, [])]
        await bench.following.look()
        assert bench.told() == []
        del bench.topics["t"]
        await bench.following.look()
        assert bench.told() == [("g", {"t": 0}, []), ("h", {"t": 0}, [])]

    run(scenario)


def test_all_groups_are_looked_up_at_once():
    async def scenario(bench: Bench) -> None:
        for number in range(100):
            bench.subscribe(f"g{number}", "ana", ("t", f"u{number % 3}"))
        await bench.following.look()
        assert [sorted(names) for names in bench.shared.described] == [["t", "u0", "u1", "u2"]]

    run(scenario)


def test_a_group_without_a_member_here_is_not_followed():
    async def scenario(bench: Bench) -> None:
        ana, bo = bench.subscribe("g", "ana", ("t",)), bench.subscribe("g", "bo", ("t",))
        bench.following.drop(ana)
        bench.topics["t"] = 4
        await bench.following.look()
        assert bench.told() == [("g", {"t": 4}, [])]
        bench.following.drop(bo)
        bench.following.drop(bo)
        bench.topics["t"] = 5
        await bench.following.look()
        assert bench.told() == []
        assert len(bench.shared.described) == 1

    run(scenario)


def test_a_member_on_a_new_connection_is_not_dropped_with_the_old_one():
    async def scenario(bench: Bench) -> None:
        old = bench.subscribe("g", "ana", ("t",))
        bench.subscribe("g", "ana", ("t",))
        bench.following.drop(old)
        bench.topics["t"] = 4
        await bench.following.look()
        assert bench.told() == [("g", {"t": 4}, [])]

    run(scenario)


def test_a_pattern_that_matches_another_topic_is_told():
    async def scenario(bench: Bench) -> None:
        bench.subscribe("g", "ana", pattern="t.*", hidden="t3")
        bench.subscribe("g", "bo", pattern="t.*", hidden="t3")
        await bench.following.look()
        assert bench.told() == []
        bench.topics |= {"t2": 2, "t3": 3, "u": 1}
        await bench.following.look()
        assert bench.told() == [("g", {"t2": 2}, [ResolvedPattern("t.*", ("t", "t2"), "ana")])]
        await bench.following.look()
        assert bench.told() == []

    run(scenario)


def test_the_coordinators_question_is_answered():
    async def scenario(bench: Bench) -> None:
        bench.topics |= {"t1": 1, "t2": 2}
        ana = bench.subscribe("g", "ana", ("t",), "t[0-9]")
        await bench.following.answer(ana, Ask(("t", "nowhere"), ("t[0-9]",)))
        facts = {"t": 3, "nowhere": 0, "t1": 1, "t2": 2}
        assert bench.told() == [("g", facts, [ResolvedPattern("t[0-9]", ("t1", "t2"), "ana")])]
        bench.following.drop(ana)
        await bench.following.answer(ana, Ask(("t",)))
        assert bench.told() == []

    run(scenario)


def test_looks_go_on_after_a_failure(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    async def scenario(bench: Bench) -> None:
        looks = 0

        async def look() -> None:
            nonlocal looks
            looks += 1
            if looks == 1:
                raise ZeroDivisionError

        monkeypatch.setattr(bench.following, "look", look)
        keeping = asyncio.create_task(bench.following.keep(0.001))
        while looks < 3:
            await asyncio.sleep(0)
        keeping.cancel()
        assert "the next try is in 0.001 s" in caplog.text

    run(scenario)
