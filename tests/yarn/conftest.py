"""HDFS and YARN, started once for a run, and the coordinator that is submitted to them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streaming.embedded import Broker
from tests.cluster.standalone import bare_python, wheel
from tests.system.conftest import LOG_LINES, Service
from tests.yarn.hadoop import Hadoop
from tests.yarn.submitting import Submitting


@pytest.fixture(scope="session")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    with Hadoop(tmp_path_factory.mktemp("hadoop")) as hadoop:
        yield hadoop


@pytest.fixture(scope="session")
def submitting(tmp_path_factory: pytest.TempPathFactory, hadoop: Hadoop) -> Submitting:
    folder = tmp_path_factory.mktemp("submitting")
    (folder / "dist").mkdir()
    return Submitting(hadoop, folder, wheel(folder / "dist"), bare_python(folder / "python"))


@pytest.fixture
def submit(broker: Broker, hadoop: Hadoop, submitting: Submitting) -> Iterator[Callable[[str, str], Service]]:
    """Return a function that submits the coordinator in a mode, with topics of a prefix.

    The ends of all logs are printed, so that pytest shows them with a test that fails.
    """
    started: list[Service] = []

    def run(mode: str, topic_prefix: str) -> Service:
        started.append(submitting.submit(mode, topic_prefix, broker.bootstrap_servers))
        return started[-1]

    yield run
    for application in hadoop.applications("ACCEPTED", "RUNNING"):
        hadoop.kill(application["id"])
    for service in started:
        print(f"-- {service.log_file.name}", *service.log.splitlines()[-LOG_LINES:], sep="\n")
        if service.process.poll() is None:
            service.kill()
    print(hadoop.account())


@pytest.fixture
def checkpoint_exists(hadoop: Hadoop) -> Callable[[str], bool]:
    """Return a function that says whether HDFS has a checkpoint at a path."""
    return lambda path: hadoop.exists(str(Path(path) / "identity.json"))


@pytest.fixture
def last_batch(hadoop: Hadoop) -> Callable[[str, str], int]:
    """Return a function that returns the last batch of a checkpoint with a plan (`offsets`) or a commit (`commits`)."""
    return lambda path, kind: max(int(name) for name in hadoop.names(f"{path}/query/{kind}") if name.isdigit())
