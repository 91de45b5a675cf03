"""Spark's Java process is killed, as by a machine that lacks memory: the services end with a sentence, and continue."""

from pathlib import Path

import psutil
import pytest

from streaming.embedded import Broker
from streaming.errors import Exit
from tests.system.conftest import Service, start_service
from tests.system.test_observe_kills import start_observer
from tests.system.waiting import HANG_S

SERVICES = {
    "run": lambda servers, folder, number: start_service(
        folder, number, bootstrap_servers=servers, topic_prefix="java"
    ),
    "observe": lambda servers, folder, number: start_observer(servers, folder, "java-observed", number),
}


def java_of(service: Service) -> psutil.Process:
    family = psutil.Process(service.process.pid).children(recursive=True)
    return next(process for process in family if process.name() == "java")


@pytest.mark.parametrize("name", SERVICES)
def test_service_whose_java_process_is_killed_ends_with_a_sentence(broker: Broker, tmp_path: Path, name: str) -> None:
    first = SERVICES[name](broker.bootstrap_servers, tmp_path, 0)
    first.await_ready()
    java_of(first).kill()
    assert first.process.wait(HANG_S) == Exit.FAILED
    *_, last = first.log.splitlines()
    assert "Spark's Java process has ended" in last
    assert "streaming/query" not in first.log, "a thread of pyspark may write a traceback, and none of ours"
    second = SERVICES[name](broker.bootstrap_servers, tmp_path, 1)
    second.await_ready()
    assert second.stop() == Exit.DONE
