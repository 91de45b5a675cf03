"""Too few replicas in sync: the query says so, lives on, and serves again when the brokers are back."""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coordinator.messages.requests import DescribeGroup
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, NoAnswer, UserError
from streaming.kafka import topics
from streaming.query.coordinator import Coordinator
from tests.cluster3.brokers import IDS, ThreeBrokers
from tests.system.asking import Asker
from tests.system.waiting import HANG_S, wait_until
from tests.tiers import NIGHTLY

pytestmark = list(NIGHTLY)


class Service:
    """The query, in a thread that waits as `coordinator run` does."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.failure: UserError | None = None
        self._thread = threading.Thread(target=self._wait, name="waiting")

    def _wait(self) -> None:
        try:
            self.coordinator.wait()
        except UserError as error:
            self.failure = error

    def __enter__(self) -> "Service":
        self.coordinator.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.coordinator.ask_to_stop()
        self._thread.join()
        self.coordinator.stop()

    def has_ended(self) -> bool:
        return not self._thread.is_alive()


@pytest.fixture
def service(three: ThreeBrokers, tmp_path: Path) -> Iterator[Service]:
    settings = Settings(
        bootstrap_servers=three.bootstrap_servers,
        topic_prefix="too-few",
        request_partitions=2,
        reply_partitions=2,
        shuffle_partitions=1,
        broker_wait_ms=10_000,
        checkpoint=str(tmp_path / "checkpoint"),
    )
    topics.ensure(settings)
    with Service(Coordinator(settings)) as service:
        yield service


def test_query_waits_for_replicas_and_serves_again(
    three: ThreeBrokers, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests can be written with two of three replicas, responses only with all three. No batch can end."""
    settings = service.coordinator.settings
    caplog.set_level(logging.WARNING, "streaming.query.watchers.outages")
    three.configure(settings.replies_topic, {"min.insync.replicas": "3"})
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        asker = Asker(transport, "g")
        member, _ = asker.alone(session_timeout_ms=1_800_000)
        three.kill(2)

        def is_answered() -> bool:
            try:
                described = asker.ask(DescribeGroup(request_id="", reply_to="", group_id="g"), within_s=2)
            except (NoAnswer, BrokerUnreachable):
                return False
            assert [m.member_id for m in described.members] == [member]
            return True

        sentence = (
            "The brokers refuse to write too-few.replies: too few replicas are in sync (min.insync.replicas); broker 2"
            " does not answer; 1 and 3 do: start what is down."
        )
        logged = lambda: caplog.messages.count(f"{sentence} The query begins again.")  # noqa: E731
        wait_until(lambda: not is_answered() and logged() >= 2, account=lambda: caplog.messages)
        (reason,) = service.coordinator.not_ready_reasons()
        assert reason.endswith(f" s ago: {sentence}")
        assert not service.has_ended()
        three.start(2)
        wait_until(lambda: service.has_ended() or is_answered(), account=lambda: service.failure)
        wait_until(lambda: service.coordinator.not_ready_reasons() == [])
        batches = service.coordinator.tallies.batches
        wait_until(lambda: is_answered() and service.coordinator.tallies.batches > batches + 3)
        assert not service.has_ended()


def test_query_ends_if_no_broker_answers(three: ThreeBrokers, service: Service) -> None:
    settings = service.coordinator.settings
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        Asker(transport, "g").describe()
        for number in IDS:
            three.kill(number)
        wait_until(service.has_ended, HANG_S)
        with ThreadPoolExecutor() as pool:  # one alone has no majority, and would not become ready
            list(pool.map(three.start, IDS))
    assert str(service.failure).startswith(f"No Kafka broker answers at {settings.bootstrap_servers}")
