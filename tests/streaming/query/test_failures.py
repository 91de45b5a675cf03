"""The causes of failures, found in the reports of Spark and Hadoop: one true sentence and the right exit code each."""

import pytest

from streaming.config.settings import Settings
from streaming.errors import Exit, StoreUnavailable, UserError
from streaming.observe.failures import CAUSES as OBSERVER_CAUSES
from streaming.query.spark.failures import (
    CAUSES,
    CONCURRENT,
    SparkRefused,
    account_of,
    because,
    in_full,
    innermost,
    is_of_the_store,
)

SETTINGS = Settings(checkpoint="hdfs://namenode:8020/main", bootstrap_servers="kafka:9092")

FRAMES = """
	at org.apache.hadoop.ipc.Server$RpcCall.run(Server.java:1213)
	at java.base/java.security.AccessController.doPrivileged(AccessController.java:712)
	at java.base/javax.security.auth.Subject.doAs(Subject.java:439)
	... 12 more
"""
"""The frames of nearly every stack of Hadoop."""

WORKER = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times: org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "/usr/lib/python3.11/runpy.py", line 198, in _run_module_as_main
      return _run_code(code, main_globals, None,
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    File "/data/pyspark.zip/pyspark/daemon.py", line 122, in manager
  {error}
  
PYTHONPATH was:
  /data/pyspark.zip:/data/coordinator.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon's stdout.
"""  # noqa: W293  (Spark's own indentation of an empty line)


def error_of(report: str) -> UserError:
    return because(account_of(Exception(report)), SETTINGS, SparkRefused)


CASES = {
    # a report: what it says, the exit code, and the words of the sentence
    "an error of Hadoop with frames": (
        f"java.io.IOException: Unexpected block id{FRAMES}",
        Exit.FAILED,
        "The query failed: java.io.IOException: ",
    ),
    "a state of another codec": (
        "coordinator.base.errors.CorruptState: state of codec version 7; this code reads 8",
        Exit.NEEDS_A_PERSON,
        "The checkpoint hdfs://namenode:8020/main has states of codec 7, and this version reads codec 8: start it with",
    ),
    "a damaged state": (
        "coordinator.base.errors.CorruptState: a shard's state fails its checksum: the checkpoint is damaged",
        Exit.NEEDS_A_PERSON,
        "is damaged (a shard's state fails its checksum: the checkpoint is damaged): restore it from a back-up",
    ),
    "a missing right": (
        'org.apache.hadoop.security.AccessControlException: Permission denied: user=ana, access=WRITE, inode="/"',
        Exit.NEEDS_A_PERSON,
        "give the coordinator's user this right",
    ),
    "safe mode": (
        f"RemoteException(org.apache.hadoop.hdfs.server.namenode.SafeModeException): Cannot create file/main{FRAMES}",
        Exit.FAILED,
        "is in safe mode; see its log",
    ),
    "two drivers, by the condition": (
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.",
        Exit.NEEDS_A_PERSON,
        "Another coordinator runs",
    ),
    "two drivers, by the other sentence": (
        "Multiple streaming queries are concurrently using hdfs://namenode:8020/main/query/offsets.",
        Exit.NEEDS_A_PERSON,
        "Another coordinator runs",
    ),
    "two drivers, by the class": (
        "Caused by: org.apache.spark.SparkConcurrentModificationException: x",
        Exit.NEEDS_A_PERSON,
        "Another coord",
    ),
    "two drivers that both begin": (
        "[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] The checkpoint location x should be empty on batch 0. SQLSTATE",
        Exit.NEEDS_A_PERSON,
        "another coordinator has begun on it",
    ),
    "more partitions": (
        "[INVALID_ARRAY_INDEX] The index 4 is out of bounds. The array has 4 elements. SQLSTATE: 22003",
        Exit.NEEDS_A_PERSON,
        'has more partitions than the groups are divided among: see "Topics that were altered"',
    ),
    "a missing package": (
        (
            'pyspark.errors.PythonException: Traceback (most recent call last):\n  File "x"\n'
            "ModuleNotFoundError: No module named 'coordinator'\n"
        ),
        Exit.NEEDS_A_PERSON,
        "cannot import all packages (No module named 'coordinator')",
    ),
    "another Python": (
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in driver: 3.11, PySpark",
        Exit.NEEDS_A_PERSON,
        "have another version (3.10 than that in driver: 3.11)",
    ),
    "no Python": (
        'java.io.IOException: Cannot run program "./environment/bin/python": error=13, Permission denied',
        Exit.NEEDS_A_PERSON,
        'cannot start Python workers with "./environment/bin/python"',
    ),
    "a worker that does not start": (
        WORKER.format(error="OSError: AF_UNIX path too long"),
        Exit.FAILED,
        "Python workers do not start (OSError: AF_UNIX path too long): check PYSPARK_PYTHON",
    ),
    "a worker without its package": (
        WORKER.format(error="ModuleNotFoundError: No module named 'streaming'"),
        Exit.NEEDS_A_PERSON,
        "cannot import all packages (No module named 'streaming')",
    ),
    "a daemon of workers without its package": (
        WORKER.format(
            error="/usr/bin/python3: Error while finding module specification for"
            " 'streaming.query.operator.worker_daemon' (ModuleNotFoundError: No module named 'streaming')"
        ),
        Exit.NEEDS_A_PERSON,
        "cannot import all packages (No module named 'streaming'): ship them",
    ),
    "a worker whose report has no end": (
        WORKER.format(error="").partition("  Traceback")[0] + "/usr/bin/env: cannot execute",
        Exit.FAILED,
        "Python workers do not start (/usr/bin/env: cannot execute): check PYSPARK_PYTHON",
    ),
    "a worker without its main module": (
        WORKER.format(error="/usr/bin/python3.11: No module named streaming"),
        Exit.NEEDS_A_PERSON,
        "cannot import all packages (No module named streaming): ship them",
    ),
    "a worker that says nothing": (
        (
            "org.apache.spark.SparkException: EOFException occurred while reading the port number from"
            " pyspark.daemon's stdout."
        ),
        Exit.FAILED,
        "Python workers do not start (EOFException occurred while reading the port number from pyspark.daemon's",
    ),
    "a reason in the next line": (
        (
            "Job aborted due to stage failure: Task 0 failed 4 times: org.apache.spark.SparkException: \n\n  The"
            " cause:\n  it is late\n  and more"
        ),
        Exit.FAILED,
        "failed 4 times: org.apache.spark.SparkException: The cause: it is late",
    ),
    "a cause in the next line": (
        "Job aborted.\nCaused by: org.apache.spark.SparkException: \nNo module named x\nPYTHONPATH was:",
        Exit.FAILED,
        "The query failed: org.apache.spark.SparkException: No module named x",
    ),
    "no NameNode": (
        "java.io.IOException: Incomplete HDFS URI, no host: hdfs:///main",
        Exit.NEEDS_A_PERSON,
        "names no NameNode",
    ),
    "no jars": (
        (
            "An error occurred while calling o118.getFileSystem.\n: java.lang.RuntimeException:"
            " java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
        ),
        Exit.NEEDS_A_PERSON,
        "has no jars for the file system of hdfs://namenode:8020/main (org.apache.hadoop.fs.s3a.S3A",
    ),
    "some jars": (
        "java.lang.NoClassDefFoundError: software/amazon/awssdk/core/exception/SdkException",
        Exit.NEEDS_A_PERSON,
        "has no jars for the file system",
    ),
    "no file system": (
        'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "gs"',
        Exit.NEEDS_A_PERSON,
        'has no jars for the file system of hdfs://namenode:8020/main (No FileSystem for scheme "gs)',
    ),
    "a wrong secret": (
        (
            "java.nio.file.AccessDeniedException: s3a://b/main: getFileStatus on s3a://b/main: S3Exception: The request"
            " signature we calculated does not match (Service: S3, Status Code: 403):SignatureDoesNotMatch"
        ),
        Exit.NEEDS_A_PERSON,
        "refuses the credentials (SignatureDoesNotMatch)",
    ),
    "403": (
        "java.nio.file.AccessDeniedException: s3a://b/main: S3Exception: (Service: S3, Status Code: 403)",
        Exit.NEEDS_A_PERSON,
        "give the coordinator's user this right",
    ),
    "404": (
        "org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://b/main': The specified bucket does not exist",
        Exit.NEEDS_A_PERSON,
        "has no bucket",
    ),
    "a wrong endpoint": (
        (
            "org.apache.hadoop.fs.s3a.AWSClientIOException: SdkClientException: Unable"
            " to execute HTTP request: Connection refused"
        ),
        Exit.FAILED,
        "does not answer (Unable to execute HTTP request)",
    ),
    "no NameNode there": (
        "java.net.ConnectException: Call From a/127.0.0.1 to b:8020 failed on connection exception: Connection refused",
        Exit.FAILED,
        "does not answer (Call From a/127.0.0.1 to b:8020 failed on connection exception)",
    ),
    "a time-out of a store": (
        (
            "[CANNOT_WRITE_STATE_STORE] java.net.SocketTimeoutException: Call From a/10.0.0.1 to b:8020 failed"
            " on socket timeout exception: 60000 millis"
        ),
        Exit.FAILED,
        "does not answer (Call From",
    ),
    "a NameNode that ends in a call": (
        "java.io.EOFException: End of File Exception between local host is: a/127.0.0.1; destination host is: b:8020",
        Exit.FAILED,
        "does not answer (End of File Exception",
    ),
    "no DataNode to write to": (
        "RemoteException(IOException): File /main/1 could only be written to 0 of the 1 minReplication nodes.",
        Exit.FAILED,
        "does not answer (could only be written to 0)",
    ),
    "no DataNode to read from": (
        "org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: BP-1 file=/main/identity.json",
        Exit.FAILED,
        "does not answer (Could not obtain block)",
    ),
    "503": (
        "[CANNOT_WRITE_STATE_STORE] x Caused by: org.apache.hadoop.fs.s3a.AWSServiceThrottledException: (Status 503)",
        Exit.FAILED,
        "does not answer (AWSServiceThrottledException)",
    ),
    "a plan that came late": (
        "java.io.IOException: an earlier request of this driver came late: s3a://b/main/query/offsets/7",
        Exit.FAILED,
        "does not answer (an earlier request of this driver came late)",
    ),
    "a time-out of brokers": (
        "org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired",
        Exit.FAILED,
        "No Kafka broker answers at kafka:9092",
    ),
    "another time-out": (
        "java.util.concurrent.TimeoutException: Futures timed out after [300 seconds]",
        Exit.FAILED,
        "The query failed: java.util.concurrent.TimeoutException: Futures timed out",
    ),
    "an error of Java": (
        "An error occurred while calling o118.create.\n: java.lang.ClassCastException: class A cannot be\n\tat x(Z)",
        Exit.FAILED,
        "The query failed: java.lang.ClassCastException: class A cannot be",
    ),
}


@pytest.mark.parametrize(("report", "exit_code", "words"), CASES.values(), ids=CASES)
def test_cause_is_named_in_one_sentence(report: str, exit_code: Exit, words: str) -> None:
    error = error_of(report)
    assert words in str(error)
    assert error.exit_code == exit_code
    assert "\n" not in str(error)


WAITED_FOR = {
    *("safe mode", "a wrong endpoint", "no NameNode there", "a time-out of a store", "a NameNode that ends in a call"),
    *("no DataNode to write to", "no DataNode to read from", "503", "a plan that came late"),
}


@pytest.mark.parametrize("case", CASES)
def test_only_a_store_that_does_not_answer_is_waited_for(case: str) -> None:
    assert isinstance(error_of(CASES[case][0]), StoreUnavailable) == (case in WAITED_FOR)


@pytest.mark.parametrize("causes", [CAUSES, OBSERVER_CAUSES], ids=["coordinator", "observer"])
def test_two_drivers_end_with_an_exit_code_after_which_no_supervisor_starts_them(causes: list[tuple[str, Exit, str]]):
    found = [(code, sentence) for pattern, code, sentence in causes if pattern == CONCURRENT]
    assert found
    assert {code for code, _ in found} == {Exit.NEEDS_A_PERSON}


def test_file_system_that_does_not_answer_is_no_damage_of_its_files() -> None:
    """`coordinator checkpoint verify` would advise to restore a back-up."""
    assert is_of_the_store(CASES["no NameNode there"][0])
    assert is_of_the_store(CASES["a wrong secret"][0])
    assert not is_of_the_store("java.io.FileNotFoundException: File /main/query/state/0/0/7.delta does not exist")


class Captured(Exception):
    """Spark's report, as pyspark keeps it: the text has the message of the cause, but neither its class nor more."""

    def __init__(self, text: str, cause: Exception | None = None) -> None:
        super().__init__(text)
        self._cause, self._stackTrace = cause, "\tat java.base/java.lang.Thread.run(Thread.java:840)"


def test_causes_behind_the_text_count() -> None:
    cause = Captured("org.apache.spark.SparkException: [CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.")
    report = Captured("[STREAM_FAILED] Query terminated with exception: x", Captured("java.io.IOException: x", cause))
    error = because(account_of(report), SETTINGS, SparkRefused)
    assert str(error).startswith("Another coordinator runs on the checkpoint")


def test_report_in_full_has_the_stacks_of_all_causes() -> None:
    assert in_full(Captured("outer", Captured("inner"))).splitlines() == [
        "outer",
        "\tat java.base/java.lang.Thread.run(Thread.java:840)",
        "Caused by: inner",
        "\tat java.base/java.lang.Thread.run(Thread.java:840)",
    ]


def test_last_line_of_an_indented_traceback_is_the_error() -> None:
    assert innermost(WORKER.format(error="OSError: AF_UNIX path too long")) == "OSError: AF_UNIX path too long"
    plain = 'PythonException: Traceback (most recent call last):\n  File "x"\nValueError: no\n\nmore'
    assert innermost(plain) == "ValueError: no"
