"""Of the coordinators that share the groups, one owns the slots that have never moved."""

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.errors import Exit
from streaming.kafka import topics
from streaming.kafka.founding import FoundedElsewhere, ensure
from tests.system.conftest import Service


@pytest.fixture
def settings(broker: Broker, group_id: str) -> Settings:
    """Return settings with a directory that has no records."""
    found = Settings(
        bootstrap_servers=broker.bootstrap_servers, topic_prefix="first", replication_factor=1, directory=group_id
    )
    topics.ensure_all(found, topics.directory_layout(found))
    return found


def written(settings: Settings, *keys: bytes) -> None:
    writer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    for key in keys:
        writer.produce(settings.directory_topic, key=key, value=b"{}")
    assert writer.flush(60) == 0


def test_the_first_one_is_the_founder_at_each_start(settings: Settings) -> None:
    second = settings.model_copy(update={"topic_prefix": "second"})
    ensure(settings)
    for _ in range(2):
        with pytest.raises(FoundedElsewhere, match="names first as the coordinator with slots = all"):
            ensure(second)
    ensure(settings)


def test_the_order_of_the_log_decides_between_two_at_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have read an empty directory, and both write."""
    from streaming.kafka import founding

    write = founding._write

    def late(mine: Settings) -> None:
        written(mine, b'["founder","quicker"]')
        write(mine)

    monkeypatch.setattr(founding, "_write", late)
    with pytest.raises(FoundedElsewhere, match="names quicker as"):
        ensure(settings)
    ensure(settings.model_copy(update={"topic_prefix": "quicker"}))


def test_other_records_are_passed_over(settings: Settings) -> None:
    written(settings, b"", b"?", b"[1,2]", b'["founder"]', b'["slot","x"]', b'{"founder":"x"}', b'["founder","x","y"]')
    ensure(settings)
    ensure(settings)


@pytest.mark.long
def test_a_second_coordinator_with_all_slots_is_refused(run_service: Callable[..., Service], group_id: str) -> None:
    first = run_service("founds", directory="of-both")
    first.await_ready()
    assert first.stop() == Exit.DONE
    second = run_service("founds-too", directory="of-both")
    assert second.process.wait(600) == Exit.NEEDS_A_PERSON
    assert "of-both.directory names founds as the coordinator with slots = all" in second.log
