"""The lease on a real broker: one holder at a time, and a holder that was silent notices its loss."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.errors import Exit
from streaming.kafka import topics
from streaming.query.coordinator import Coordinator
from streaming.query.lease import PATIENCE_S, Kind, Lease
from streaming.query.operator.ownership import objections
from streaming.query.spark.spark_config import CHECKPOINTING
from tests.system.waiting import HANG_S, wait_until

Make = Callable[[], Lease]


@pytest.fixture
def make(broker: Broker, group_id: str) -> Iterator[Make]:
    """Return a function that starts a lease's thread, of a coordinator that no other test uses."""
    settings = Settings(
        bootstrap_servers=broker.bootstrap_servers, topic_prefix=group_id, replication_factor=1, stand_by=True
    )
    topics.ensure_all(settings, topics.lease_layout(settings))
    made: list[Lease] = []

    def make() -> Lease:
        made.append(Lease(settings))
        made[-1].start()
        return made[-1]

    yield make
    for lease in made:
        lease.close()


def test_one_of_three_drivers_holds_the_lease_and_a_release_passes_it_on(make: Make) -> None:
    leases = [make() for _ in range(3)]
    for lease in leases:
        lease.claim_when_free()
    for passed_on in range(3):
        wait_until(lambda: any(lease.held.is_set() for lease in leases))
        [holder] = [lease for lease in leases if lease.held.is_set()]
        for other in leases:
            wait_until(lambda: other.holder is not None and other.holder.driver == holder.driver)  # noqa: B023
        assert [lease for lease in leases if lease.held.is_set()] == [holder], f"one holder, {passed_on} passed on"
        leases.remove(holder)
        holder.close()
        assert holder.refusal is None


def test_driver_that_may_not_claim_leaves_the_lease_to_another(make: Make) -> None:
    first, second = make(), make()
    second.claim_when_free()
    assert second.held.wait(HANG_S)
    assert not first.held.is_set()


def test_holder_that_was_silent_notices_its_loss_and_another_start_is_allowed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspended holder appends no renewal for the patience of the others. Afterwards it reads their claim."""
    silent, next_one = make(), make()
    silent.claim_when_free()
    assert silent.held.wait(HANG_S)
    monkeypatch.setattr(silent, "_renew_when_due", lambda: None)
    next_one.claim_when_free()
    assert next_one.held.wait(HANG_S)
    wait_until(lambda: silent.refusal is not None)
    assert silent.refusal is not None
    assert silent.refusal.exit_code == Exit.FAILED
    assert str(silent.refusal).endswith("start this one again, and it stands by.")
    silent.close()
    assert next_one.refusal is None
    assert not next_one._closing.wait(2 * PATIENCE_S), "what the former holder writes does not count"
    assert next_one.refusal is None


def test_holder_that_reads_its_loss_when_a_renewal_is_due_ends_alone(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that wakes may read the next driver's claim and send its renewal in one pass: of its own old term."""
    silent, next_one = make(), make()
    silent.claim_when_free()
    assert silent.held.wait(HANG_S)
    renewals: list[int] = []

    def renew_late() -> None:
        if silent.refusal is not None:
            renewals.append((late := silent._record(Kind.RENEWAL)).term)
            silent._send(late)

    monkeypatch.setattr(silent, "_renew_when_due", renew_late)
    next_one.claim_when_free()
    assert next_one.held.wait(HANG_S)
    wait_until(lambda: renewals)
    assert next_one.holder is not None
    assert renewals[0] < next_one.holder.term
    assert not next_one._closing.wait(2 * PATIENCE_S), "what the former holder writes does not count"
    assert next_one.refusal is None


# -- the plan of a batch -----------------------------------------------------------------------------------------------

TRIES = 300


def test_one_of_two_drivers_that_plan_a_batch_in_the_same_instant_goes_on(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    """On a local disk Spark lets both write `offsets/N`, and the second file replaces the first. The first one ends."""
    spark = SparkSession.getActiveSession()
    assert spark is not None
    jvm: Any = spark.sparkContext._jvm
    manager = f"{CHECKPOINTING}.FileSystemBasedCheckpointFileManager"
    folder = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "query" / "offsets"))
    (tmp_path / "query" / "offsets").mkdir(parents=True)
    constructor = jvm.java.lang.Class.forName(manager).getConstructors()[0]
    arguments = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 2)  # type: ignore[union-attr]
    arguments[0], arguments[1] = folder, spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    writers = [constructor.newInstance(arguments) for _ in range(2)]
    barrier, both = Barrier(2), 0

    def write(number: int, batch: int, written: list[int]) -> None:
        plan = b'v1\n{"batchTimestampMs":%d}\n{}' % number
        barrier.wait(HANG_S)
        stream = writers[number].createAtomic(jvm.org.apache.hadoop.fs.Path(folder, str(batch)), False)
        stream.write(plan)
        try:
            stream.close()
        except Py4JJavaError:  # FileAlreadyExistsException: the other one was first
            return
        written.append(number)

    for batch in range(TRIES):
        written: list[int] = []
        threads = [Thread(target=write, args=(number, batch, written)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
        both += len(written) == 2
        going_on = [number for number in written if not list(objections(tmp_path, batch, number, None))]
        assert len(going_on) == 1, f"batch {batch}: {written} succeeded, and {going_on} go on"
    print(f"both succeeded in {both} of {TRIES} tries")
