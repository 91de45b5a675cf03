"""The checkpoint's file system starts no program for its files."""

import stat
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming.query.coordinator import Coordinator
from streaming.query.local_files import NAME


@pytest.fixture
def files(coordinator: Coordinator) -> Any:
    """The file system that Spark uses for paths on this machine."""
    spark = SparkSession.builder.getOrCreate()
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), spark._jsc.hadoopConfiguration())


def at(path: Path) -> Any:
    jvm: Any = SparkSession.builder.getOrCreate()._jvm
    return jvm.org.apache.hadoop.fs.Path(str(path))


def test_spark_uses_the_file_system_that_starts_no_program(files: Any):
    assert files.getClass().getName() == NAME


def test_new_files_and_folders_have_the_permissions_that_hadoop_gives_them(files: Any, tmp_path: Path):
    """Hadoop's default umask is 022. Java has names for nine bits, and the others are dropped."""
    files.create(at(tmp_path / "file"), True).close()
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
    jvm: Any = SparkSession.builder.getOrCreate()._jvm
    files.setPermission(at(tmp_path / "file"), jvm.org.apache.hadoop.fs.permission.FsPermission("1600"))
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_a_file_that_does_not_exist_has_no_permissions_to_set(files: Any, tmp_path: Path):
    jvm: Any = SparkSession.builder.getOrCreate()._jvm
    with pytest.raises(Exception, match="NoSuchFileException"):
        files.setPermission(at(tmp_path / "none"), jvm.org.apache.hadoop.fs.permission.FsPermission("600"))
