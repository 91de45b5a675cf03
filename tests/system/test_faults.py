"""Faults while the query runs: the broker stops, an output topic is deleted, the disk of the checkpoint is full.

The query waits and continues, or it ends with a sentence that says what to do. The next start continues where it ended.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from streaming.client import GroupMember
from streaming.client.transport import Transport
from streaming.embedded import Broker
from streaming.errors import Exit
from tests.system.asking import Asker
from tests.system.conftest import Service
from tests.system.reading import Reader
from tests.system.replaying import last_words
from tests.system.waiting import HANG_S

pytestmark = pytest.mark.long

Run = Callable[..., Service]

SESSION_MS = 15_000
"""Long enough that clients reach a restarted broker within it, also on a busy machine."""

DISK_BYTES = 2**21


# -- the broker --------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_groups_are_unchanged_after_a_long_broker_failure(run_service: Run, tmp_path: Path) -> None:
    """I13, I21: the broker is down for longer than the members' sessions, and no member is expelled."""
    with Broker(tmp_path / "broker") as broker, ExitStack() as stack:
        service = run_service("away", bootstrap_servers=broker.bootstrap_servers)
        service.await_ready()
        settings = service.settings
        member = stack.enter_context(
            GroupMember(
                ["gate"],
                group_id="jobs",
                bootstrap_servers=settings.bootstrap_servers,
                topic_prefix=settings.topic_prefix,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=1_000,
            )
        )
        member.wait_for_assignment(HANG_S)
        was = (member.member_id, member.generation)
        transport = stack.enter_context(Transport(settings.kafka_client_arguments(), settings.topic_prefix))
        asker = Asker(transport, "stable")
        ana, generation = asker.alone()
        assert asker.commit(generation, ana, 5).error == "NONE"

        assert asker.ask(asker.joining(ana), HANG_S).generation_id == generation + 1

        broker.kill()
        away_until = time.monotonic() + (SESSION_MS + settings.clock_slack_ms + settings.late_notice_ms) / 1_000
        while time.monotonic() < away_until:
            assert member.poll(0.1) == {"gate"}
        broker.start()
        assert asker.ask(asker.syncing(generation + 1, ana, {ana: b"mine"}), HANG_S).error == "NONE"
        assert asker.fetch() == {("t", 0): 5}
        back_until = time.monotonic() + SESSION_MS / 1_000 + 3
        while time.monotonic() < back_until:
            assert member.poll(0.1) == {"gate"}
        assert (member.member_id, member.generation) == was
        assert [e["event"] for e in Reader(settings, "jobs").events() if e["event"] == "member_expired"] == []
        assert service.process.poll() is None, service.log


# -- an output topic ---------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_deleted_output_topic_ends_the_query(run_service: Run) -> None:
    """No client gets a response about an unpublished change, and the next start refuses the new topic."""
    service = run_service("vanishing", broker_wait_ms=31_000)
    service.await_ready()
    settings = service.settings
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        asker = Asker(transport, "g")
        asker.alone()
        with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
            admin.delete_topics([settings.groups_topic])
        asked = asker.begin(asker.joining(client_id="bo", require_known_member_id=False))
        told = last_words(service)
        assert told.endswith(
            f"The brokers have no topic {settings.groups_topic}: start the coordinator again, which creates it."
        )
        assert not asked.done()
    told = last_words(run_service("vanishing"), Exit.NEEDS_A_PERSON)
    assert f"topic {settings.groups_topic} is not the one it was made with" in told


# -- the disk ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a separate file system of two megabytes, and yield its folder."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no right to mount: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Fill a disk, and return the file that takes its room."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            for _ in range(DISK_BYTES):
                file.write(b"x" * 512)
        except OSError:
            return ballast
    raise AssertionError("the disk is not full")


@pytest.mark.nightly
def test_full_disk_ends_the_query_until_there_is_room(run_service: Run, small_disk: Path) -> None:
    """Nothing is lost: requests wait, and the effects of earlier responses stay."""
    run = partial(run_service, "disk", checkpoint=str(small_disk / "state"))
    service = run()
    service.await_ready()
    settings = service.settings
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        asker = Asker(transport, "g")
        ana, generation = asker.alone()
        ballast = fill(small_disk)
        asked = asker.begin(asker.joining(ana), within_s=HANG_S)
        told = last_words(service)
        assert f"{small_disk}/state" in told
        assert "free some space" in told
        ballast.unlink()
        service = run()
        service.await_ready()
        assert asked.result(HANG_S).generation_id == generation + 1  # type: ignore[union-attr]
    versions = sorted(set(Reader(settings, "g").everything().versions))
    assert versions == list(range(1, len(versions) + 1)), "no version is missing (I8)"
