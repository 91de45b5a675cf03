"""The bell on a real broker and a real query."""

from typing import Any

from streaming.query import bell, bell_clock
from streaming.query.coordinator import Coordinator
from tests.system.asking import Asker
from tests.system.waiting import wait_until

NEVER_S = 3_600.0


def test_a_record_alone_makes_the_query_look(asker: Asker, monkeypatch) -> None:
    """The query that never looks by itself answers request after request, a heartbeat too: their records ring."""
    monkeypatch.setattr(bell, "LOOK_EVERY_S", NEVER_S)
    member_id, generation_id = asker.alone()
    for _ in range(3):
        assert asker.heartbeat(generation_id, member_id).code == 0
        assert asker.describe().code == 0


def test_a_query_at_rest_waits_for_the_bell_alone(coordinator: Coordinator, jvm: Any) -> None:
    """Its thread is not woken by the passing of time."""
    assert coordinator._query is not None
    executor = coordinator._query._jsq.streamingQuery().triggerExecutor()
    assert executor.clock().getClass().getName() == bell_clock.NAME

    def is_waiting() -> bool:
        threads = jvm.java.lang.Thread.getAllStackTraces().keySet()
        return {t.getState().name() for t in threads if t.getName().startswith("stream execution")} == {"WAITING"}

    wait_until(is_waiting)
