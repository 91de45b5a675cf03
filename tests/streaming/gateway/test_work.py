"""Tasks of a connection: what one holds up, and what becomes of its errors."""

import asyncio

from streaming.gateway.work import Work
from tests.streaming.gateway.parts import FlowBench, turn


async def nothing() -> None:
    pass


async def broken() -> None:
    raise ZeroDivisionError


def test_requests_wait_for_a_task_that_runs_alone():
    async def story() -> None:
        bench, done, then = FlowBench(), asyncio.Event(), list[str]()

        async def wait() -> None:
            await done.wait()

        Work(bench.flow).begin_alone(wait(), lambda: then.append("then"))
        await turn()
        assert (bench.owner.calls, bench.flow.is_paused, then) == (["stop"], True, [])
        done.set()
        await turn()
        assert (bench.owner.calls, bench.flow.is_paused, then) == (["stop", "take"], False, ["then"])

    asyncio.run(story())


def test_a_task_beside_the_requests_holds_up_none_of_them():
    async def story() -> None:
        bench = FlowBench()
        Work(bench.flow).begin(nothing())
        assert not bench.flow.is_paused
        await turn()
        assert (bench.owner.calls, bench.owner.errors) == ([], [])

    asyncio.run(story())


def test_nothing_follows_a_task_once_the_connection_is_closed():
    async def story() -> None:
        bench, then = FlowBench(), list[str]()
        Work(bench.flow).begin_alone(nothing(), lambda: then.append("then"))
        bench.transport.abort()
        await turn()
        assert (bench.owner.calls, then) == (["stop"], [])

    asyncio.run(story())


def test_an_error_of_a_task_fails_the_connection():
    async def story() -> None:
        bench = FlowBench()
        work = Work(bench.flow)
        work.begin(broken())
        work.begin_alone(nothing(), lambda: [][0])
        await turn()
        assert [type(error) for error in bench.owner.errors] == [ZeroDivisionError, IndexError]

    asyncio.run(story())


def test_cancelled_tasks_are_no_errors():
    async def story() -> None:
        bench, problems = FlowBench(), list[object]()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
        work = Work(bench.flow)
        work.begin(asyncio.Event().wait())  # type: ignore[arg-type]
        await turn()
        work.cancel()
        await turn()
        assert (bench.owner.errors, problems, len(asyncio.all_tasks())) == ([], [], 1)

    asyncio.run(story())
