"""The observer on a standalone cluster, started with spark-submit as in docs/cluster.md."""

from pathlib import Path

import pytest

from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.observe.source import have_source_made
from tests.cluster.standalone import Cluster, bare_python, submit, wheel
from tests.system.kafka_groups import kafka_group
from tests.system.reading import Reader
from tests.system.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.nightly]


def test_observer_runs_with_spark_submit(broker: Broker, tmp_path: Path) -> None:
    """Both executors have only the wheel: the observer's operator is in it."""
    settings = Settings(
        bootstrap_servers=broker.bootstrap_servers,
        replication_factor=1,
        observe_prefix="submitted",
        observe_checkpoint=str(tmp_path / "state"),
        observe_every_ms=100,
    )
    have_source_made(settings)
    (tmp_path / "dist").mkdir()
    code, python = wheel(tmp_path / "dist"), bare_python(tmp_path / "python")
    with Cluster(tmp_path) as cluster, kafka_group(broker.bootstrap_servers, "by-a-cluster") as group:
        service = submit(tmp_path, 0, settings, cluster.url, code, python, command="observe")
        try:
            service.await_ready()
            group.join("ana").await_owned(0, 1, 2, 3)
            reader = Reader(settings.observing(), group.group_id)
            wait_until(lambda: any(each["members"] for each in reader.everything().groups))
            assert cluster.at_work(), "an executor must run the operator"
        finally:
            service.kill()
