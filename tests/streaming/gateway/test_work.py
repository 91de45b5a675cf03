"""Tasks of a connection: the requests that wait for a task, and the handling of its errors."""

import asyncio

from streaming.gateway.connection.tasks import Work
from streaming.gateway.protocol.limits import IN_FLIGHT_MAX
from tests.streaming.gateway.parts import FlowBench, turn


async def nothing() -> None:
    pass


async def broken() -> None:
    raise ZeroDivisionError


def test_requests_wait_for_a_task_that_runs_alone():
    async def scenario() -> None:
        bench, done, then = FlowBench(), asyncio.Event(), list[str]()

        async def wait() -> None:
            await done.wait()

        Work(bench.flow).begin_alone(wait(), lambda _: then.append("then"))
        await turn()
        assert (bench.owner.calls, bench.flow.is_paused, then) == (["stop"], True, [])
        done.set()
        await turn()
        assert (bench.owner.calls, bench.flow.is_paused, then) == (["stop", "take"], False, ["then"])

    asyncio.run(scenario())


def test_no_requests_are_read_after_a_task_that_brings_too_many_questions():
    async def scenario() -> None:
        bench = FlowBench()
        too_many = map(str, range(IN_FLIGHT_MAX))
        Work(bench.flow).begin_alone(nothing(), lambda _: bench.flow.questions.update(too_many))
        await turn()
        assert (bench.owner.calls, bench.flow.is_paused) == (["stop"], True)

    asyncio.run(scenario())


def test_a_parallel_task_delays_no_requests():
    async def scenario() -> None:
        bench = FlowBench()
        Work(bench.flow).begin(nothing())
        assert not bench.flow.is_paused
        await turn()
        assert (bench.owner.calls, bench.owner.errors) == ([], [])

    asyncio.run(scenario())


def test_a_task_has_no_effect_after_the_connection_is_closed():
    async def scenario() -> None:
        bench, then = FlowBench(), list[str]()
        Work(bench.flow).begin_alone(nothing(), lambda _: then.append("then"))
        bench.transport.abort()
        await turn()
        assert (bench.owner.calls, then) == (["stop"], [])

    asyncio.run(scenario())


def test_an_error_of_a_task_fails_the_connection():
    async def scenario() -> None:
        bench = FlowBench()
        work = Work(bench.flow)
        work.begin(broken())
        work.begin_alone(nothing(), lambda _: [][0])
        await turn()
        assert [type(error) for error in bench.owner.errors] == [ZeroDivisionError, IndexError]

    asyncio.run(scenario())


def test_cancelled_tasks_are_no_errors():
    async def scenario() -> None:
        bench, problems = FlowBench(), list[object]()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
        work = Work(bench.flow)
        work.begin(asyncio.Event().wait())  # type: ignore[arg-type]
        await turn()
        work.cancel()
        await turn()
        assert (bench.owner.errors, problems, len(asyncio.all_tasks())) == ([], [], 1)

    asyncio.run(scenario())
