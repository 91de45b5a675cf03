"""The wake-up on a real broker and a real query."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from streaming.query.coordinator import Coordinator
from streaming.query.spark import janino
from streaming.query.watchers import trigger_wakeup
from tests.system.asking import Asker
from tests.system.waiting import HANG_S, wait_until

NEVER_S = 3_600.0


def test_a_record_alone_makes_the_query_look(asker: Asker, monkeypatch) -> None:
    """The query that never looks by itself answers request after request, a heartbeat too: their records ring."""
    monkeypatch.setattr(trigger_wakeup, "LOOK_EVERY_S", NEVER_S)
    member_id, generation_id = asker.alone()
    for _ in range(3):
        assert asker.heartbeat(generation_id, member_id).code == 0
        assert asker.describe().code == 0


def test_a_query_at_rest_waits_for_the_bell_alone(coordinator: Coordinator, jvm: Any) -> None:
    """Its thread is not woken by the passing of time."""
    assert coordinator._query is not None
    executor = coordinator._query._jsq.streamingQuery().triggerExecutor()
    assert executor.clock().getClass().getName() == trigger_wakeup.NAME

    def is_waiting() -> bool:
        threads = jvm.java.lang.Thread.getAllStackTraces().keySet()
        return {t.getState().name() for t in threads if t.getName().startswith("stream execution")} == {"WAITING"}

    wait_until(is_waiting)


def test_an_interruption_of_the_wait_is_passed_on(jvm: Any) -> None:
    """A stop interrupts the query's thread. Were the interruption only noted, Spark's thread could lose it."""
    clock = janino.loader_of(jvm, trigger_wakeup.SOURCE).loadClass(trigger_wakeup.NAME).newInstance()

    def waiting() -> list[Any]:
        stacks = jvm.java.lang.Thread.getAllStackTraces()
        frames = {thread: " ".join(map(str, stacks[thread])) for thread in stacks}
        return [thread for thread, text in frames.items() if "py4j." in text and "BellClock.waitTillTime" in text]

    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(clock.waitTillTime, 1)
        try:
            wait_until(lambda: waiting() != [])
            waiting()[0].interrupt()
            with pytest.raises(Py4JJavaError, match="InterruptedException"):
                called.result(HANG_S)
        finally:
            clock.setTime(1)
