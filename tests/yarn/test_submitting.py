"""The coordinator on YARN with a checkpoint on HDFS, in both modes, as deploy/yarn submits it."""

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.client.transport import Transport
from tests.cluster.standalone import WORKER_DAEMON
from tests.system.asking import Asker
from tests.system.conftest import Service
from tests.system.waiting import HANG_S, wait_until
from tests.tiers import NIGHTLY
from tests.yarn.hadoop import Hadoop

pytestmark = list(NIGHTLY)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_member_commits_to_a_coordinator_on_yarn(
    submit: Callable[[str, str], Service],
    hadoop: Hadoop,
    checkpoint_exists: Callable[[str], bool],
    last_batch: Callable[[str, str], int],
    mode: str,
) -> None:
    """The package comes from a zip file, and the checkpoint names a host or none. `coordinator stop` ends no batch
    halfway."""
    service = submit(mode, f"yarn-{mode}")
    service.await_ready()
    (application,) = hadoop.applications("RUNNING")
    assert application["applicationType"] == "SPARK"
    assert application["runningContainers"] >= 2, "the executor is a container beside the application master"
    assert checkpoint_exists(f"/coordinator/yarn-{mode}")
    assert hadoop.processes(WORKER_DAEMON), "the daemon of Python workers imports the operator once for all of them"
    settings = service.settings
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        asker = Asker(transport, "orders")
        member_id, generation = asker.alone()
        asker.commit(generation, member_id, 5)
        assert asker.fetch() == {("t", 0): 5}
    where = ["-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix]
    stopped = CliRunner().invoke(app, ["stop", "--timeout", "120", *where])
    assert stopped.exit_code == 0, stopped.output
    wait_until(lambda: service.process.poll() is not None, HANG_S, account=lambda: service.log[-2_000:])
    assert service.process.returncode == 0, service.log[-2_000:]
    assert last_batch(f"/coordinator/yarn-{mode}", "offsets") == last_batch(f"/coordinator/yarn-{mode}", "commits")
    (ended,) = [each for each in hadoop.applications("FINISHED") if each["id"] == application["id"]]
    assert ended["finalStatus"] == "SUCCEEDED"
