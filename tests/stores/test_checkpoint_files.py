"""The files of a checkpoint on an object store: written whole, by one of two writers, and with every error thrown."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from streaming.config.settings import Settings
from streaming.errors import CheckpointMismatch
from streaming.query.checkpoint import checkpoint
from streaming.query.spark import stores
from streaming.query.spark.checkpoint_files import DRIVER, Damaged
from tests.stores.proxy import Proxy, Request, every
from tests.stores.racing import EXISTS, RACES, Files, race
from tests.stores.server import BUCKET
from tests.system.waiting import HANG_S

pytestmark = pytest.mark.long


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> str:
    return f"s3a://{BUCKET}/{request.node.name}"


@pytest.fixture
def files(spark: Any, folder: str) -> Files:
    return Files(spark, folder)


def test_a_plan_is_one_request_with_a_condition_and_is_never_replaced(
    spark: Any, folder: str, files: Files, proxy: Proxy
) -> None:
    assert files.write("offsets/0", b"first") == ""
    assert [(request.kind, request.is_conditional) for request in proxy.seen] == [("PUT", True)]
    other = Files(spark, folder)
    assert other.write("offsets/0", b"second") == EXISTS
    assert other.write("offsets/0", b"first") == EXISTS, "equal bytes of another writer are another plan"
    assert files.read("offsets/0") == b"first"


def test_a_plan_of_the_same_driver_that_came_late_is_no_other_drivers(files: Files) -> None:
    """The query has failed at the store, begins again in its process, and reads the plan then."""
    assert files.write("offsets/0", b"late") == ""
    assert files.write("offsets/0", b"next") == "java.io.IOException"
    assert files.read("offsets/0") == b"late"


def test_a_repeated_batch_replaces_its_state(files: Files, proxy: Proxy) -> None:
    assert files.write("state/0/0/1.delta", b"old", replaces=True) == ""
    assert files.write("state/0/0/1.delta", b"new", replaces=True) == ""
    assert proxy.counts() == {"PUT": 2}
    assert files.read("state/0/0/1.delta") == b"new"


def test_a_request_that_the_store_took_and_that_is_repeated_is_no_other_writers(files: Files, proxy: Proxy) -> None:
    """The answer is lost, and Hadoop repeats the request, which the store refuses then."""
    proxy.lost = once()
    assert files.write("offsets/0", b"first") == ""
    assert proxy.counts() == {"PUT": 2, "HEAD": 1}
    assert files.read("offsets/0") == b"first"


@pytest.mark.parametrize("replaces", [True, False])
def test_an_error_of_a_write_is_thrown(files: Files, proxy: Proxy, *, replaces: bool) -> None:
    proxy.refused = lambda request: request.kind == "PUT"
    assert files.write("commits/0", b"first", replaces=replaces) not in ("", EXISTS)
    proxy.refused = lambda request: False
    assert not files.exists("commits/0")
    assert files.write("commits/0", b"first", replaces=replaces) == ""


@pytest.mark.parametrize("replaces", [True, False])
def test_a_write_that_is_given_up_leaves_nothing(files: Files, proxy: Proxy, *, replaces: bool) -> None:
    files.abandon("offsets/0", replaces=replaces)
    assert proxy.seen == []
    assert not files.exists("offsets/0")


def test_a_purge_is_one_request(files: Files, proxy: Proxy) -> None:
    files.write("offsets/0", b"first")
    before = len(proxy.seen)
    files.delete("offsets/0")
    files.delete("offsets/0")
    assert proxy.counts(before) == {"DELETE": 2}
    assert not files.exists("offsets/0")


def test_one_of_two_drivers_that_plan_a_batch_in_the_same_instant_goes_on(
    spark: Any, folder: str, proxy: Proxy
) -> None:
    """Both have looked for the plan, and their requests are on the way together."""
    proxy.delay_s = 0.02
    assert race([Files(spark, folder), Files(spark, folder)], RACES) == {"one": RACES}


def test_the_plan_of_a_driver_that_was_held_back_does_not_replace_its_successors(
    spark: Any, folder: str, proxy: Proxy
) -> None:
    late, next_one = Files(spark, folder), Files(spark, folder)
    has_come = proxy.hold(lambda request: request.kind == "PUT")
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(late.write("offsets/0", b"late")))
    thread.start()
    assert has_come.wait(HANG_S)
    assert next_one.write("offsets/0", b"next") == ""
    proxy.release()
    thread.join(HANG_S)
    assert results == [EXISTS]
    assert next_one.read("offsets/0") == b"next"


NOTES = ("offsets/7", "commits/7", "metadata")


@pytest.mark.parametrize("note", NOTES)
def test_a_changed_digit_of_a_note_is_no_note(files: Files, spark: Any, folder: str, proxy: Proxy, note: str) -> None:
    """The proxy changes what the store returns. Spark itself reads such a plan, and takes requests twice or never."""
    files.write(note, b'v1\n{"batchTimestampMs":17}')
    assert files.read(note) == b'v1\n{"batchTimestampMs":17}'
    proxy.changed = (b":17}", b":19}")
    with pytest.raises(Py4JJavaError, match=r"ChecksumException: .* fails its checksum"):
        files.read(note)
    with pytest.raises(Damaged, match="it fails its checksum"):
        checkpoint.read_file(spark, f"{folder}/{note}")


def test_a_note_without_a_checksum_is_read(files: Files, spark: Any, folder: str, proxy: Proxy) -> None:
    """As one that was copied to the store from another one."""
    files.write("offsets/7", b"copied", replaces=True)
    assert files.read("offsets/7") == b"copied"
    assert checkpoint.read_file(spark, f"{folder}/offsets/7") == b"copied"


# -- the start ---------------------------------------------------------------------------------------------------------


def test_a_start_writes_a_probe_twice_and_leaves_nothing(spark: Any, folder: str, proxy: Proxy, files: Files) -> None:
    stores.check(spark, Settings(checkpoint=folder))
    assert [request.is_conditional for request in proxy.seen if request.kind == "PUT"] == [True, True]
    assert [request.key for request in proxy.seen if request.kind == "DELETE"] == [proxy.seen[0].key]
    assert not files.manager.exists(spark.sparkContext._jvm.org.apache.hadoop.fs.Path(folder))


def test_a_server_that_ignores_conditions_is_refused(spark: Any, folder: str, proxy: Proxy) -> None:
    proxy.unconditional = every
    with pytest.raises(stores.StoreRefused, match="ignores If-None-Match"):
        stores.check(spark, Settings(checkpoint=folder))


def test_one_of_two_starts_on_an_empty_checkpoint_writes_its_identity(spark: Any, folder: str, proxy: Proxy) -> None:
    checkpoint.write_file(spark, f"{folder}/identity.json", b"{}")
    spark.sparkContext._jsc.hadoopConfiguration().set(DRIVER, "another")
    with pytest.raises(CheckpointMismatch, match="is another coordinator starting"):
        checkpoint.write_file(spark, f"{folder}/identity.json", b"{}")
    assert checkpoint.read_file(spark, f"{folder}/identity.json") == b"{}"
    assert "COPY" not in proxy.counts()


def test_the_same_on_this_machine_where_a_rename_would_replace_the_file(spark: Any, tmp_path: Path) -> None:
    checkpoint.write_file(spark, f"{tmp_path}/identity.json", b"{}")
    with pytest.raises(CheckpointMismatch, match="is another coordinator starting"):
        checkpoint.write_file(spark, f"{tmp_path}/identity.json", b"[]")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"identity.json": b"{}"}
    assert (tmp_path / "identity.json").stat().st_mode & 0o777 == 0o600


def once() -> Callable[[Request], bool]:
    """Return a rule for the first request with a condition."""
    left = [True]
    return lambda request: request.is_conditional and bool(left and left.pop())
