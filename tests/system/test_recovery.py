"""The coordinator is stopped, killed and restarted, and its groups do not change."""

from collections.abc import Callable

from coordinator.heartbeats import Heartbeat
from streaming.client.transport import Transport
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

        assert again.stop() == 0, again.log
        planned = batches(again.checkpoint, "offsets")
        assert planned == batches(again.checkpoint, "commits"), "every planned batch is finished"

        third = run_service("recovery")
        third.await_ready()
        assert stable.heartbeat(generation, ana).error == "NONE"
        published = Reader(settings, "stable").everything()
        assert published.versions == list(range(1, len(published.versions) + 1)), "no gap, no repeat (I8)"


def _heartbeat(asker: Asker, generation_id: int, member_id: str) -> Heartbeat:
    return Heartbeat(
        request_id="", reply_to="", group_id=asker.group_id, generation_id=generation_id, member_id=member_id
    )
