"""The address of a checkpoint's folder, where Hadoop's configuration names another default file system."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming.config.settings import Settings
from streaming.query.coordinator import Coordinator
from streaming.query.spark.failures import CAUSES, SparkRefused
from streaming.query.spark.stores import is_local, located, whole_address

pytestmark = pytest.mark.long

ELSEWHERE = "viewfs://site/"


def configuration(jvm: Any, folder: Path, default: str) -> Any:
    """Return Hadoop's configuration for a cluster of the name `site`, which needs no server."""
    found = jvm.org.apache.hadoop.conf.Configuration()
    found.set("fs.defaultFS", default)
    found.set("fs.viewfs.mounttable.site.link./coordinator", folder.as_uri())
    return found


@pytest.mark.parametrize(
    ("default", "folder", "whole"),
    [
        (ELSEWHERE, "viewfs:///coordinator/main", "viewfs://site/coordinator/main"),
        (ELSEWHERE, "viewfs://site/coordinator/main", "viewfs://site/coordinator/main"),
        (ELSEWHERE, "/coordinator/main", "viewfs://site/coordinator/main"),
        (ELSEWHERE, "file:///data/main", "file:/data/main"),
        ("file:///", "/data/main", "/data/main"),
        ("file:///", "checkpoints/main", "checkpoints/main"),
    ],
)
def test_address_is_completed_with_the_default_file_system(
    jvm: Any, tmp_path: Path, default: str, folder: str, whole: str
) -> None:
    hadoop = configuration(jvm, tmp_path, default)
    assert whole_address(jvm, hadoop, folder) == whole
    assert is_local(jvm, hadoop, folder) == (not whole.startswith("viewfs"))


@pytest.mark.parametrize("folder", ["hdfs:///coordinator/main", "none://store/coordinator"])
def test_folder_that_spark_cannot_use_is_refused(coordinator: Coordinator, folder: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    with pytest.raises(SparkRefused) as refused:
        located(spark, Settings(checkpoint=folder), CAUSES)
    assert "\n" not in str(refused.value)


def test_check_of_a_folder_writes_nothing(coordinator: Coordinator, tmp_path: Path) -> None:
    spark = SparkSession.builder.getOrCreate()
    wanted = Settings(checkpoint=str(tmp_path / "state"))
    assert located(spark, wanted, CAUSES) == wanted
    assert not (tmp_path / "state").exists()
