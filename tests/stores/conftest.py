"""The fixtures of the tests of stores: an S3 server, a proxy before it, and a Java process with its file system."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from streaming.config.settings import Settings
from streaming.embedded import S3, Broker, fetch
from streaming.query.spark import checkpoint_files, stores
from streaming.query.spark.spark_config import IS_SPARK_4_0
from tests.stores.objects import Objects, StoredService
from tests.stores.proxy import Proxy
from tests.stores.server import CREDENTIALS, Server
from tests.system.conftest import Service
from tests.system.conftest import run_service as run_service
from tests.system.replaying import claim
from tests.system.test_replay import Run


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    if IS_SPARK_4_0:
        pytest.skip("A checkpoint on S3 needs pyspark 4.2, and is refused before")
    with Server() as server:
        yield server


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the keys of the store into the environment of all processes that a test starts."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def java(server: Server) -> Iterator[Any]:
    """A Java process with the file system and the compiled classes, but without Spark: it starts in a second."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        class_path = ":".join(map(str, fetch(S3)))
        gateway: Any = launch_gateway(SparkConf(loadDefaults=False).set("spark.driver.extraClassPath", class_path))
    yield gateway.jvm
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


@pytest.fixture
def spark(java: Any, proxy: Proxy) -> Any:
    """The part of a Spark session that the modules about files use, with the store behind the proxy."""
    configuration = java.org.apache.hadoop.conf.Configuration()
    settings = {
        **stores.S3_SETTINGS,
        "spark.hadoop.fs.s3a.endpoint": proxy.url,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.impl.disable.cache": "true",  # each test has a proxy of its own
        "spark.hadoop.fs.s3a.retry.limit": "1",
        "spark.hadoop.fs.s3a.retry.throttle.limit": "1",
        "spark.hadoop.fs.s3a.attempts.maximum": "2",
    }
    for name, value in settings.items():
        configuration.set(name.removeprefix("spark.hadoop."), value)
    context = SimpleNamespace(hadoopConfiguration=lambda: configuration)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=java, _jsc=context, master="local"))
    checkpoint_files.install(spark)  # type: ignore[arg-type]
    return spark


@pytest.fixture
def settings(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    """Return the settings of the services, with the folder that has a copy of their checkpoint."""
    return Settings.load(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=re.sub(r"\W+", "-", request.node.name)[:100].strip("-"),
        replication_factor=1,
        request_partitions=4,
        checkpoint=str(tmp_path / "copy"),
        group_initial_rebalance_delay_ms=0,
    )


@pytest.fixture
def objects(server: Server, settings: Settings) -> Objects:
    """Return the checkpoint of the services, which has a known secret."""
    claim(settings)
    objects = Objects(server, settings.topic_prefix, Path(settings.checkpoint))
    objects.upload()
    return objects


@pytest.fixture
def run(settings: Settings, objects: Objects, proxy: Proxy, run_service: Callable[..., Service]) -> Run:
    def run(**more: object) -> Service:
        store = {"checkpoint": objects.address, "store_endpoint": proxy.url, "store_region": "us-east-1"}
        service = run_service(settings.topic_prefix, group_initial_rebalance_delay_ms=0, **store, **more)
        return StoredService.of(service, objects)

    return run
