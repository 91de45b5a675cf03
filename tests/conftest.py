"""The fixtures that all tests share: one broker and one Spark session for the whole run, started on first use."""

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.gateway import Gateway
from streaming.query.coordinator import Coordinator
from tests.differential.theirs import RULES
from tests.tools import MISSING

# Most processes of Spark and of brokers in the tests run for seconds or a few minutes. Java's optimizing compiler takes
# a third of their processor time, and they end before this time pays off.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
os.environ.setdefault("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:TieredStopAtLevel=1")

# No random tests, and none that fails because the machine is slow.
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """A file of tests runs in one worker, and so do all files that share three brokers: one such cluster is enough."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "tests/cluster3" if file.startswith("tests/cluster3/") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write at the end of a run which programs the machine does not have, and how to install them."""
    skipped = terminalreporter.stats.get("skipped", ())
    tests_without = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, tests in sorted(tests_without.items()):
        if reason.startswith(MISSING):
            terminalreporter.write_line(f"Tests that did not run: {tests}. {reason}")


PATIENCE = {"broker.session.timeout.ms": "600000", "offsets.retention.check.interval.ms": "86400000"}
"""Settings of the shared broker, so that no test depends on how long a run takes.

On a busy machine the broker's controller takes a broker for dead that was only slow. No test kills this one. Every ten
minutes its own coordinator would remove the empty groups without offsets.
"""


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real broker. `tests.differential` compares our coordinator with the broker's own."""
    with Broker(tmp_path_factory.mktemp("broker"), properties=RULES | PATIENCE) as broker:
        yield broker


@pytest.fixture(scope="session")
def coordinator(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    """The real query on that broker, with waits short enough for tests."""
    settings = Settings.load(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix="shared",
        replication_factor=1,
        checkpoint=str(tmp_path_factory.mktemp("checkpoint")),
        group_initial_rebalance_delay_ms=300,
        group_min_session_timeout_ms=1_000,
    )
    coordinator = Coordinator(settings)
    coordinator.start()
    yield coordinator
    coordinator.stop()


@pytest.fixture(scope="session")
def gateway(coordinator: Coordinator) -> Iterator[Gateway]:
    """A gateway to that coordinator, for unmodified clients."""
    with Gateway(coordinator.settings.model_copy(update={"gateway_port": 0})) as gateway:
        yield gateway
