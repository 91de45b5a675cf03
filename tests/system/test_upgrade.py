"""A newer version continues where an earlier one stopped, and the groups do not change."""

from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator import codec
from coordinator.heartbeats import Heartbeat
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.query.inspection import examine
from tests.system.asking import Asker
from tests.system.conftest import Service
from tests.system.earlier import adopt, unpack
from tests.system.reading import Reader
from tests.system.waiting import HANG_S

PREFIX = "earlier"
pytestmark = [pytest.mark.long, pytest.mark.usefixtures("coordinator")]  # it has a Spark session, which all share


def test_checkpoint_of_an_earlier_codec_is_continued_with_its_members(
    broker: Broker, run_service: Callable[..., Service], tmp_path: Path
) -> None:
    """S147, I13, I21: requests wait meanwhile; ids, generations, offsets, versions and a parked join are kept."""
    kept = unpack(tmp_path / "state")
    settings = Settings.load(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=PREFIX,
        replication_factor=1,
        request_partitions=4,
        checkpoint=str(tmp_path / "state"),
    )
    adopt(settings)
    assert {shard.codec_version for shard in examine(settings).shards} == {3}
    waiting = kept.pop("waiting")
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        askers = {group_id: Asker(transport, group_id) for group_id in kept}
        beats = {
            group_id: asker.begin(
                Heartbeat(
                    request_id="",
                    reply_to="",
                    group_id=group_id,
                    generation_id=kept[group_id]["generation_id"],
                    member_id=kept[group_id]["member_id"],
                ),
                HANG_S,
            )
            for group_id, asker in askers.items()
        }
        service = run_service(PREFIX, checkpoint_may_be_outdated=True)  # its old requests are replaced by newer ones
        service.await_ready()
        for group_id, was in kept.items():
            asker = askers[group_id]
            assert beats[group_id].result(HANG_S).error == "NONE"
            assert asker.fetch() == {("t", 0): was["offset"]}
            assert asker.commit(was["generation_id"], was["member_id"], was["offset"] + 1).error == "NONE"
            assert Reader(settings, group_id).everything().versions == [was["version"] + 1], "one commit and no event"
        asker = Asker(transport, "waiting")
        joined = asker.ask(asker.joining(waiting["member_id"]))
        assert (joined.error, joined.generation_id) == ("NONE", waiting["generation_id"] + 1)
        assert {m.member_id for m in asker.describe().members} == {waiting["member_id"], waiting["second"]}
    assert service.stop() == 0, service.log
    assert {shard.codec_version for shard in examine(settings).shards} == {codec.VERSION_WITHOUT_MOVES}
