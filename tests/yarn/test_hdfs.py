"""HDFS under a checkpoint: what the NameNode's `create` and `rename` give, with the manager that Spark has for it."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from streaming.client.transport import Transport
from streaming.query.spark.stores import STORES
from tests.stores.racing import EXISTS, RACES, Files, race, sparks_own
from tests.system.asking import Asker
from tests.system.conftest import Service
from tests.system.conftest import run_service as run_service
from tests.tiers import NIGHTLY
from tests.yarn.hadoop import Hadoop

pytestmark = list(NIGHTLY)


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    with Hadoop(tmp_path_factory.mktemp("hdfs"), ("namenode", "datanode")) as hadoop:
        yield hadoop


@pytest.fixture(scope="module")
def spark(hdfs: Hadoop) -> Iterator[Any]:
    """The part of a Spark session that `Files` uses."""
    gateway: Any = launch_gateway(SparkConf(loadDefaults=False))
    configuration = gateway.jvm.org.apache.hadoop.conf.Configuration()
    context = SimpleNamespace(hadoopConfiguration=lambda: configuration)
    yield SimpleNamespace(sparkContext=SimpleNamespace(_jvm=gateway.jvm, _jsc=context, master="local"))
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


@pytest.fixture
def drivers(hdfs: Hadoop, spark: Any, request: pytest.FixtureRequest) -> list[Files]:
    """Two drivers on one checkpoint, whose folders Spark makes at its start."""
    assert STORES["hdfs"].settings == {}, "Spark's own manager writes it"
    folder = f"{hdfs.hdfs}/{request.node.name}"
    found = [Files(spark, folder, sparks_own) for _ in range(2)]
    for name in ("offsets", "state/0/0"):
        found[0].manager.mkdirs(spark.sparkContext._jvm.org.apache.hadoop.fs.Path(folder, name))
    return found


def test_one_of_two_drivers_that_plan_a_batch_in_the_same_instant_goes_on(drivers: list[Files]) -> None:
    assert race(drivers, RACES) == {"one": RACES}


def test_a_plan_that_comes_late_is_refused(drivers: list[Files]) -> None:
    late, next_one = drivers
    finish = late.begin("offsets/0", b"late")
    assert next_one.write("offsets/0", b"next") == ""
    assert finish() == EXISTS
    assert late.read("offsets/0") == b"next"


def test_a_repeated_batch_replaces_its_state(drivers: list[Files]) -> None:
    assert drivers[0].write("state/0/0/1.delta", b"old", replaces=True) == ""
    assert drivers[1].write("state/0/0/1.delta", b"new", replaces=True) == ""
    assert drivers[0].read("state/0/0/1.delta") == b"new"


def test_create_excludes_another_writer_and_shows_a_file_before_its_content(hdfs: Hadoop, spark: Any) -> None:
    """So Spark writes another file and renames it: a driver that dies in between leaves no empty plan."""
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(f"{hdfs.hdfs}/created")
    files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    first = files.create(path, False)
    first.write(b"content")
    assert files.getFileStatus(path).getLen() == 0
    with pytest.raises(Py4JJavaError, match=r"FileAlreadyExistsException|AlreadyBeingCreatedException"):
        files.create(path, False)
    first.close()
    assert files.getFileStatus(path).getLen() == len(b"content")


def test_coordinator_on_this_machine_continues_from_a_checkpoint_on_hdfs(
    hdfs: Hadoop, run_service: Callable[..., Service]
) -> None:
    """The address has host and port, and no configuration of Hadoop is there."""
    checkpoint = f"{hdfs.hdfs}/coordinator/main"
    service = run_service("on-hdfs", checkpoint=checkpoint)
    service.await_ready()
    with Transport(service.settings.kafka_client_arguments(), service.settings.topic_prefix) as transport:
        asker = Asker(transport, "orders")
        member_id, generation = asker.alone()
        asker.commit(generation, member_id, 5)
        assert service.stop() == 0, service.log
        assert hdfs.names("/coordinator/main/query/offsets") == hdfs.names("/coordinator/main/query/commits")
        service = run_service("on-hdfs", checkpoint=checkpoint)
        service.await_ready()
        assert asker.heartbeat(generation, member_id).error == "NONE"
        assert asker.fetch() == {("t", 0): 5}
    assert service.stop() == 0, service.log
