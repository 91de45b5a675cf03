"""The coordinator is stopped, killed and restarted, and its groups do not change."""

from collections import Counter
from collections.abc import Callable

from coordinator.messages.heartbeats import Heartbeat
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from tests.system.asking import Asker
from tests.system.conftest import Service, batches
from tests.system.reading import Reader
from tests.system.waiting import HANG_S, wait_until

Run = Callable[..., Service]


def test_killed_coordinator_keeps_its_groups_and_a_stopped_one_repeats_nothing(run_service: Run) -> None:
    """S146, S147, W27 steps 1 to 3, I13, I21: ids, generations, offsets and parked joins stay, without a rebalance."""
    service = run_service("recovery")
    service.await_ready()
    settings = service.settings
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        stable, joining = Asker(transport, "stable"), Asker(transport, "joining")
        ana, generation = stable.alone()
        assert stable.commit(generation, ana, 5).error == "NONE"
        first, first_generation = joining.alone()
        second = joining.begin(joining.joining(joining.new_id("bo"), "bo"))
        wait_until(lambda: joining.describe().state.value == "PreparingRebalance")

        service.kill()
        beat_while_away = stable.begin(_heartbeat(stable, generation, ana))
        again = run_service("recovery")
        again.await_ready()

        assert beat_while_away.result(HANG_S).error == "NONE", "requests wait in the topic and are processed"
        described = stable.describe()
        assert (described.state.value, described.generation_id) == ("Stable", generation)
        assert [m.member_id for m in described.members] == [ana]
        assert stable.fetch() == {("t", 0): 5}
        assert joining.describe().state.value == "PreparingRebalance", "the join is still parked"
        assert not second.done()
        rejoined = joining.ask(joining.joining(first))
        assert (rejoined.error, rejoined.generation_id) == ("NONE", first_generation + 1)
        assert second.result(HANG_S).generation_id == first_generation + 1  # type: ignore[union-attr]
        causes = [e["cause"] for e in Reader(settings, "stable").events() if e["event"] == "rebalance_started"]
        assert causes == ["member_joined"], "only the first rebalance"
        stop_and_start(again, run_service, lambda: stable.heartbeat(generation, ana).error)


def stop_and_start(service: Service, run_service: Run, beat: Callable[[], str]) -> None:
    """Stop a coordinator and start it again, and check that this has published nothing twice."""
    assert service.stop() == 0, service.log
    planned = batches(service.checkpoint, "offsets")
    assert planned == batches(service.checkpoint, "commits"), "every planned batch is finished"
    before = published(service.settings)
    assert set(before) == set(range(1, max(before) + 1)), "no gap; what was killed may come twice"
    run_service("recovery").await_ready()
    assert beat() == "NONE"
    new = published(service.settings) - before
    assert list(new.elements()) == list(range(max(before) + 1, max(before) + 1 + len(new))), "no repeat (I8)"


def published(settings: Settings) -> Counter[int]:
    """Return how often each version of the group `stable` was published."""
    return Counter(Reader(settings, "stable").everything().versions)


def _heartbeat(asker: Asker, generation_id: int, member_id: str) -> Heartbeat:
    return Heartbeat(
        request_id="", reply_to="", group_id=asker.group_id, generation_id=generation_id, member_id=member_id
    )
