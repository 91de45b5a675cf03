"""The exit codes of processes: 1 if a restart may succeed, 78 if a restart would fail again or do harm."""

import importlib
import os
import pkgutil
import subprocess
import sys

import pytest

import streaming
from streaming.config.settings import Settings
from streaming.errors import Exit, UserError
from streaming.query.coordinator import QueryFailed
from streaming.query.spark.failures import CAUSES, because
from tests.system.waiting import HANG_S

# Messages of Spark after failures (abridged), and the exit code for each.
ACCOUNTS = {
    "Job aborted. Caused by: org.apache.spark.SparkException: ExecutorLostFailure (executor 1 exited)": Exit.FAILED,
    "Python worker exited unexpectedly (crashed)": Exit.FAILED,
    "Caused by: org.apache.kafka.common.errors.TimeoutException: Timeout of 30000ms expired": Exit.FAILED,
    "java.io.IOException: No space left on device": Exit.FAILED,
    "java.lang.IllegalStateException: nobody has seen this before": Exit.FAILED,
    "coordinator.base.errors.CorruptState: a bit is wrong": Exit.NEEDS_A_PERSON,
    "JsonParseException: Illegal unquoted character ((CTRL-CHAR, code 0))": Exit.NEEDS_A_PERSON,
    "org.apache.hadoop.fs.ChecksumException: s3a://b/c/query/offsets/3 fails its checksum": Exit.NEEDS_A_PERSON,
    "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS]": Exit.NEEDS_A_PERSON,
    "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log": Exit.NEEDS_A_PERSON,
    "Partition r-0's offset was changed, some data may have been lost": Exit.NEEDS_A_PERSON,
    "Partition r-0 offset was changed from 9 to 7. This could be either 1)": Exit.NEEDS_A_PERSON,
    "streaming.query.operator.continuity.LogReplaced: partition 0, offset 8: 5 in place of 4": Exit.NEEDS_A_PERSON,
    "org.apache.kafka.common.errors.SaslAuthenticationException: failed": Exit.NEEDS_A_PERSON,
    "org.apache.kafka.common.errors.TopicAuthorizationException: r": Exit.NEEDS_A_PERSON,
    "TOPIC_AUTHORIZATION_FAILED": Exit.NEEDS_A_PERSON,
    "java.nio.file.AccessDeniedException: Permission denied": Exit.NEEDS_A_PERSON,
    "NotADirectoryError: [Errno 20] Not a directory: '/c/query/commits/1'": Exit.NEEDS_A_PERSON,
    "org.apache.kafka.common.errors.RecordTooLargeException": Exit.NEEDS_A_PERSON,
    "[INTERNAL_ERROR] DirectByteBufferOutputStream cannot grow beyond 2GB limit": Exit.NEEDS_A_PERSON,
}


@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_failure_of_the_query_has_the_exit_code_of_its_cause(account: str) -> None:
    error = because(account, Settings(), QueryFailed)
    assert isinstance(error, QueryFailed)
    assert error.exit_code == ACCOUNTS[account]
    assert QueryFailed.exit_code == Exit.FAILED  # the class is unchanged by one failure


def test_an_unknown_failure_is_reported_by_its_first_cause() -> None:
    """The first cause is the Python error, if one exists. Spark's message begins with the line above its traceback."""
    python = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/a/durable.py", line 60, in _sync_file
    os.fsync(descriptor)
OSError: [Errno 5] Input/output error

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:700)
"""
    java = "java.lang.Exception: outer\n\tat a.b\nCaused by: java.lang.IllegalStateException: inner\n\tat c.d\n"
    messages = {str(because(account, Settings(), QueryFailed)) for account in (python, java, "alone\nand more")}
    assert messages == {
        "The query failed: OSError: [Errno 5] Input/output error",
        "The query failed: java.lang.IllegalStateException: inner",
        "The query failed: alone",
    }


def test_damage_and_a_second_coordinator_need_a_person() -> None:
    """A supervisor must not restart on a damaged checkpoint, nor while another coordinator runs."""
    for _, exit_code, sentence in CAUSES:
        if "damaged" in sentence or "Another coordinator" in sentence or "gone from {requests}" in sentence:
            assert exit_code is Exit.NEEDS_A_PERSON, sentence
        if "the coordinator continues" in sentence:
            assert exit_code is Exit.FAILED, sentence


def test_every_error_has_an_exit_code() -> None:
    """A supervised process has two exit codes for failures. Commands that look something up have two more."""
    for module in pkgutil.walk_packages(streaming.__path__, "streaming."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kinds = {kind.__name__: kind.exit_code for kind in family(UserError)}
    of_commands = {name for name, code in kinds.items() if code not in (Exit.FAILED, Exit.NEEDS_A_PERSON)}
    assert {kinds[name] for name in of_commands} <= {Exit.USAGE, Exit.NOT_FOUND}
    assert "NotFound" in of_commands
    for name in ("BadSettings", "JavaMissing", "TopicMismatch", "CheckpointMismatch", "PlaintextRefused"):
        assert kinds[name] is Exit.NEEDS_A_PERSON, name
    for name in ("BrokerUnreachable", "NoCoordinator", "PortTaken", "TopicRefused"):
        assert kinds[name] is Exit.FAILED, name


def family(kind: type[UserError]) -> set[type[UserError]]:
    return {kind}.union(*map(family, kind.__subclasses__()))


ALLOW_PLAINTEXT = {"COORDINATOR_GATEWAY_ALLOW_PLAINTEXT": "true"}


@pytest.mark.parametrize(
    ("words", "environment", "code"),
    [
        (["run"], {"COORDINATOR_BOOTSTRAP_SERVERS": "nobody"}, Exit.NEEDS_A_PERSON),
        (["run"], {"COORDINATOR_NO_SUCH": "1"}, Exit.NEEDS_A_PERSON),
        (["run"], {"COORDINATOR_CONFIG": "no/such/file.toml"}, Exit.NEEDS_A_PERSON),
        (["run"], {"PATH": "", "JAVA_HOME": "/none"}, Exit.NEEDS_A_PERSON),
        (["gateway", "--host", "0.0.0.0"], {"COORDINATOR_BOOTSTRAP_SERVERS": "127.0.0.1:1"}, Exit.NEEDS_A_PERSON),
        (["gateway", "--host", "0.0.0.0", "-b", "127.0.0.1:1"], ALLOW_PLAINTEXT, Exit.NEEDS_A_PERSON),
        (["gateway", "--host", "::", "-b", "127.0.0.1:1"], ALLOW_PLAINTEXT, Exit.NEEDS_A_PERSON),
        (["topics", "-b", "127.0.0.1:1"], {}, Exit.FAILED),
        (["run", "--no-such-flag"], {}, Exit.USAGE),
        (["tables", "moves"], {}, Exit.DONE),
        (["size", "--groups", "10", "--members", "3"], {"COORDINATOR_BOOTSTRAP_SERVERS": "127.0.0.1:1"}, Exit.DONE),
        (["size", "--groups", "10", "--members", "3", "--costs", "no/such/file"], {}, Exit.NEEDS_A_PERSON),
    ],
)
def test_the_process_exits_with_the_code(words: list[str], environment: dict[str, str], code: Exit) -> None:
    """The real command fails before it needs brokers or Spark."""
    done = subprocess.run(
        [sys.executable, "-m", "streaming", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    if code not in (Exit.DONE, Exit.USAGE):
        assert done.stderr.startswith("coordinator: "), done.stderr
        assert len(done.stderr.splitlines()) == 1
