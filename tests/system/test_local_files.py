"""The checkpoint's file system starts no program for its files."""

import stat
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming.query.local_files import NAME


@pytest.fixture
def files(jvm: Any) -> Any:
    """The file system that Spark uses for paths on this machine."""
    settings = SparkSession.builder.getOrCreate()._jsc.hadoopConfiguration()
    return jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), settings)


def test_spark_uses_the_file_system_that_starts_no_program(files: Any):
    assert files.getClass().getName() == NAME


def test_new_files_have_the_permissions_that_hadoop_gives_them(jvm: Any, files: Any, tmp_path: Path):
    """Hadoop's default umask is 022. Java has names for nine bits, and the others are dropped."""
    file = tmp_path / "file"
    path = jvm.org.apache.hadoop.fs.Path(str(file))
    files.create(path, True).close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    files.setPermission(path, jvm.org.apache.hadoop.fs.permission.FsPermission("1600"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_does_not_exist_has_no_permissions_to_set(jvm: Any, files: Any, tmp_path: Path):
    path = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "none"))
    with pytest.raises(Exception, match="NoSuchFileException"):
        files.setPermission(path, jvm.org.apache.hadoop.fs.permission.FsPermission("600"))
