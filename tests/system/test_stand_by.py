"""A driver that stands by takes over under live members, and one that was suspended ends by itself."""

import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from streaming.client.transport import Transport
from streaming.errors import Exit
from streaming.verify import verify
from tests.chaos.runs import takeovers
from tests.chaos.takeovers import STANDING
from tests.ports import free_port
from tests.system.asking import Asker
from tests.system.conftest import Service
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long

Run = Callable[..., Service]
TAKEOVERS = {"suspended": 1, "killed": 1}
SEED = 9  # whose take-overs are these


@pytest.mark.nightly
def test_no_commit_is_lost_and_no_group_rebalances_while_drivers_take_over(tmp_path: Path) -> None:
    """I13, I21: with two drivers that stand by, the active one is suspended, then killed; `verify` finds nothing."""
    outcome = takeovers(tmp_path, random.Random(SEED), len(TAKEOVERS), len(TAKEOVERS) * HANG_S, print)
    print(outcome.figures)
    assert outcome.wrong == []
    assert outcome.figures["takeovers"] == TAKEOVERS
    assert outcome.figures["commits acknowledged"] > 0


def active_and_standing(run_service: Run, topic_prefix: str) -> tuple[Service, Service]:
    """Start a driver that holds the lease, and one that stands by."""
    active = run_service(topic_prefix, stand_by=True)
    active.await_ready()
    other = run_service(topic_prefix, stand_by=True)
    wait_until(lambda: STANDING in other.log, account=lambda: other.log)
    return active, other


def test_health_has_the_role_and_a_stopped_driver_passes_the_lease_on(run_service: Run) -> None:
    ports = free_port(), free_port()

    def role(port: int) -> tuple[int, str]:
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz") as response:
                return response.status, json.load(response)["role"]
        except HTTPError as error:  # before the first answer of the brokers to the driver in its new role
            return error.code, ""

    active = run_service("handover", stand_by=True, health_port=ports[0])
    active.await_ready()
    other = run_service("handover", stand_by=True, health_port=ports[1])
    wait_until(lambda: STANDING in other.log, account=lambda: other.log)
    assert [role(port) for port in ports] == [(200, "active"), (200, "stand by")]
    assert not other.ready_file.exists()
    settings = active.settings
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        asker = Asker(transport, "g")
        ana, generation = asker.alone()
        assert active.stop() == Exit.DONE
        other.await_ready()
        wait_until(lambda: role(ports[1]) == (200, "active"), account=lambda: other.log)
        assert asker.heartbeat(generation, ana).error == "NONE"


@pytest.mark.nightly
def test_driver_that_stands_by_ends_at_once(run_service: Run) -> None:
    active, other = active_and_standing(run_service, "ends")
    assert other.stop() == Exit.DONE
    assert active.process.poll() is None


@pytest.mark.nightly
def test_driver_whose_python_process_alone_is_suspended_writes_nothing_that_counts(run_service: Run) -> None:
    """Java of the former holder runs on without its lease. Its next batch is refused before it has any output."""
    former, other = active_and_standing(run_service, "half")
    settings = former.settings
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        asker = Asker(transport, "g")
        ana, generation = asker.alone()
        os.kill(former.process.pid, signal.SIGSTOP)
        try:
            other.await_ready()
            assert asker.commit(generation, ana, 5).error == "NONE"
            assert asker.heartbeat(generation, ana).error == "NONE"
        finally:
            os.kill(former.process.pid, signal.SIGCONT)
        assert former.process.wait(HANG_S) == Exit.FAILED, former.log
        assert "and it stands by" in former.log.splitlines()[-1]
        assert asker.fetch() == {("t", 0): 5}
        assert other.process.poll() is None, other.log
    report = verify(settings, settling_ms=0)
    assert not report.findings, str(report)
