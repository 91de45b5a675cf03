"""The checkpoint's file system starts no program for its files."""

import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming.query.spark.local_files import NAME
from tests.system.waiting import HANG_S


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


ELSEWHERE = """
from streaming.config.settings import Settings
from streaming.query.spark.session import open_session
spark = open_session(Settings(checkpoint="hdfs://namenode:8020/coordinator"))
jvm, hadoop = spark.sparkContext._jvm, spark._jsc.hadoopConfiguration()
print(jvm.org.apache.hadoop.fs.FileSystem.getLocal(hadoop).getUri().toString())
"""


@pytest.mark.long
def test_other_file_systems_find_the_checked_one_for_their_buffers():
    """S3A writes its buffers with `FileSystem.getLocal`, which fails for a file system of another class."""
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, timeout=HANG_S)
    assert done.stdout == "file:///\n", done.stderr
