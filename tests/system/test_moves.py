"""A checkpoint is copied, moved and restored, and its groups do not change."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming.client import GroupMember
from streaming.client.transport import Transport
from tests.system.asking import Asker
from tests.system.conftest import Service
from tests.system.reading import Reader
from tests.system.waiting import HANG_S

pytestmark = [pytest.mark.long, pytest.mark.nightly]

Run = Callable[..., Service]


def test_copied_checkpoint_continues_where_the_original_stopped(run_service: Run, tmp_path: Path) -> None:
    """S146, I13, I21: a copy of a stopped coordinator's checkpoint keeps ids, generations and offsets; no rebalance."""
    service = run_service("moved")
    service.await_ready()
    settings = service.settings
    with (
        Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport,
        GroupMember(
            ["gate"],
            group_id="live",
            bootstrap_servers=settings.bootstrap_servers,
            topic_prefix=settings.topic_prefix,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=1_000,
        ) as member,
    ):
        member.wait_for_assignment(HANG_S)
        was = (member.member_id, member.generation)
        asker = Asker(transport, "by-hand")
        ana, generation = asker.alone()
        assert asker.commit(generation, ana, 5).error == "NONE"
        assert service.stop() == 0, service.log

        shutil.copytree(service.checkpoint, tmp_path / "elsewhere")
        shutil.rmtree(service.checkpoint)
        moved = run_service("moved", checkpoint=str(tmp_path / "elsewhere"))
        while not moved.ready_file.exists():
            assert moved.process.poll() is None, moved.log
            assert member.poll(0.2) == {"gate"}

        assert asker.ask(asker.syncing(generation, ana), HANG_S).assignment == b"mine"
        assert asker.fetch() == {("t", 0): 5}
        assert asker.commit(generation, ana, 6).error == "NONE"
        assert member.poll(0.2) == {"gate"}
        assert (member.member_id, member.generation) == was
        for group_id in ("live", "by-hand"):
            published = Reader(settings, group_id).everything()
            assert published.versions == list(range(1, len(published.versions) + 1)), (
                "nothing twice, nothing missing (I8)"
            )
            assert [e["cause"] for e in published.events if e["event"] == "rebalance_started"] == ["member_joined"]
