"""The stores on which a checkpoint may be, and what Spark is given for each."""

import pytest

from streaming.config.settings import BadSettings, Settings
from streaming.errors import Exit
from streaming.query.spark import stores
from streaming.query.spark.checkpoint_files import NAME


@pytest.mark.parametrize("folder", ["checkpoints/default", "file:/c", "hdfs:///c", "hdfs://host:8020/c", "s3a://b/c"])
def test_a_store_that_excludes_a_second_driver_is_accepted(folder: str) -> None:
    assert stores.of(folder) in stores.STORES.values()


@pytest.mark.parametrize(
    "folder", ["gs://b/c", "abfs://b@a.example/c", "s3://b/c", "s3n://b/c", "wasb://b/c", "ftp://h/c"]
)
def test_another_store_is_refused_for_good(folder: str) -> None:
    with pytest.raises(stores.StoreRefused, match="two drivers could write one batch") as refused:
        stores.of(folder)
    assert refused.value.exit_code == Exit.NEEDS_A_PERSON
    assert ("use s3a:" in str(refused.value)) == folder.startswith("s3")


def test_only_a_checkpoint_on_s3_has_settings_and_jars() -> None:
    for folder in ("c", "file:/c", "hdfs:///c", "gs://b/c"):
        assert stores.spark_settings(Settings(checkpoint=folder, store_endpoint="http://a")) == {}
        assert stores.jars(Settings(checkpoint=folder)) == ()
    found = stores.spark_settings(Settings(checkpoint="s3a://b/c"))
    assert found == stores.S3_SETTINGS
    assert found[stores.FILE_MANAGER] == NAME


def test_a_server_with_an_endpoint_has_its_buckets_in_paths() -> None:
    settings = Settings(checkpoint="s3a://b/c", store_endpoint="https://store:9000", store_region="eu-north-1")
    found = stores.spark_settings(settings)
    assert {name.removeprefix("spark.hadoop.fs.s3a."): value for name, value in found.items()}.items() >= {
        "endpoint": "https://store:9000",
        "endpoint.region": "eu-north-1",
        "path.style.access": "true",
    }.items()


def test_an_endpoint_is_a_url() -> None:
    with pytest.raises(BadSettings, match="store_endpoint"):
        Settings.load(store_endpoint="store:9000")


def test_a_spark_without_conditional_writes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hadoop of pyspark 4.0 has none."""
    monkeypatch.setattr(stores, "IS_SPARK_4_0", True)
    with pytest.raises(stores.StoreRefused, match=r"install pyspark 4\.2"):
        stores.install(None, Settings.load(checkpoint="s3a://bucket/folder"))  # type: ignore[arg-type]
    stores.install(None, Settings.load(checkpoint="/folder"))  # type: ignore[arg-type]
