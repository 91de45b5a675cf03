"""The watch on the log while the query runs: the records that were handled have to stay in the request topic.

An unclean leader election, or a broker that lost power, cuts off the end of a log. If other records reach the offset at
which the query goes on before it looks again, Spark notices nothing. So a thread compares the last record of each batch
with the log:

    every `LOOK_EVERY_S`        the newest one of each shard that has moved since the last comparison
    with a new leader epoch     all of them since the last comparison: the log may have been cut off and have grown
                                again between two of these batches

The end of a batch, and the time of its last record, come with the batch's figures. A difference is noted in the
checkpoint, ends the query and prevents every later start; see `replaced`. The loss of records that no batch has handled
cannot be noticed, and harms no group.

The times of new records also tell of the clocks: that of the broker that wrote them, and this machine's. No member is
expelled and no offset expires because of a wrong clock (design.md 7.6), so nothing else shows it. The wake-up reads
records as they come. One that is dated later than now was certainly dated by another clock. One that comes while the
wake-up has waited for a while is new, and its time is a few milliseconds old if the clocks agree.
"""

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import SparkSession

from streaming.config.settings import Settings
from streaming.kafka.lookup import Found, Lookup
from streaming.moments import unix_ms
from streaming.query.checkpoint.replaced import Note, RequestsReplaced, replaced, write_note
from streaming.query.operator.continuity import LastRecord
from streaming.query.watchers.progress import Tallies
from streaming.watcher import Watcher
from streaming.wire.records import Tally

log = logging.getLogger(__name__)

CLIENT_ID = "coordinator-log-watch"

LOOK_EVERY_S = 5.0
"""The time between two comparisons: about the longest time that the query continues on a replaced log."""

LOOK_WAIT_S = 2.0
"""The longest wait for records. The next comparison includes a partition that did not answer."""

KEPT_MAX = 128
"""The number of batches of a shard whose ends wait for a comparison: more than run in `LOOK_EVERY_S`. Beyond it, as
while a broker does not answer, every second one is dropped."""


class LogWatch(Watcher):
    """A thread that compares handled records with the log. `refusal` is the reason why the query must end, else None.

    Args:
        tallies: The figures of the query, with the last record of each shard.
    """

    def __init__(self, settings: Settings, tallies: Tallies) -> None:
        super().__init__("the check of handled requests", end_wait_s=0)
        self._settings = settings
        self.refusal: RequestsReplaced | None = None
        self._comparison = Comparison()
        tallies.follow(self._comparison.handle)
        self._spark: SparkSession | None = None

    def begin_at(self, last_records: Mapping[int, Found]) -> None:
        """Begin with the records that the log has at the start of the query."""
        self._comparison.begin_at(last_records)

    def start_on(self, spark: SparkSession, settings: Settings) -> None:
        """Start the thread.

        Args:
            settings: The settings with the whole address of the checkpoint.
        """
        self._spark, self._settings = spark, settings
        self.start()

    def _watch(self) -> None:
        with Lookup(self._settings, self._settings.requests_topic, CLIENT_ID) as lookup:
            while not self._closing.wait(LOOK_EVERY_S) and self.refusal is None:
                if (found := self._comparison.compare(lookup)) is not None:
                    self._refuse(found)

    def _refuse(self, found: Note) -> None:
        """Note the difference, and end the query. The note comes first, since the process ends soon after."""
        assert self._spark is not None
        try:
            write_note(self._spark, self._settings, found)
        finally:
            self.refusal = replaced(self._settings, found.partition, found.offset)


class Comparison:
    """The last records of batches, by shard, that were not compared with the log yet.

    The newest record that was compared stays: the log may be cut off before it later. One thread compares, and any
    thread may add records.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[int, list[LastRecord]] = {}
        self._moved: set[int] = set()
        self._epochs: dict[int, int | None] = {}

    def begin_at(self, last_records: Mapping[int, Found]) -> None:
        """Begin with records of the log, which count as compared up to their leader epochs."""
        self._epochs = {shard: record.epoch for shard, record in last_records.items()}
        self._add((shard, LastRecord(record.offset, record.at_ms)) for shard, record in last_records.items())

    def handle(self, tallies: Sequence[Tally]) -> None:
        """Add the last records of a batch."""
        self._add((tally.shard, LastRecord(*tally.last)) for tally in tallies if tally.last is not None)

    @property
    def waiting(self) -> dict[int, LastRecord]:
        """The newest record of each shard that has moved since its last comparison."""
        with self._lock:
            return {shard: self._ends[shard][-1] for shard in self._moved}

    def compare(self, lookup: Lookup) -> Note | None:
        """Compare the records with the log. Return the first difference; None without one.

        A shard whose broker does not answer is left for the next comparison.
        """
        if not (newest := self.waiting):
            return None
        found = {s: record for s, record in _records(lookup, newest).items() if record is not None}
        if (different := difference(newest, found)) is not None:
            return different
        earlier = {s: self._before(s, newest[s]) for s in found if found[s].epoch != self._epochs.get(s)}
        while wanted := {shard: ends.pop() for shard, ends in earlier.items() if ends}:
            answers = _records(lookup, wanted)
            if (different := difference(wanted, answers)) is not None:
                return different
            for shard in wanted.keys() - answers.keys():
                del earlier[shard], found[shard]
        for shard, record in found.items():
            self._epochs[shard] = record.epoch
            self._remove_before(shard, newest[shard])
        return None

    def _add(self, records: Iterable[tuple[int, LastRecord]]) -> None:
        with self._lock:
            for shard, record in records:
                ends = self._ends.setdefault(shard, [])
                if ends and record.offset <= ends[-1].offset:
                    continue
                ends.append(record)
                self._moved.add(shard)
                if len(ends) > KEPT_MAX:
                    del ends[1:-1:2]

    def _before(self, shard: int, record: LastRecord) -> list[LastRecord]:
        with self._lock:
            return [end for end in self._ends[shard] if end.offset < record.offset]

    def _remove_before(self, shard: int, record: LastRecord) -> None:
        with self._lock:
            ends = self._ends[shard] = [end for end in self._ends[shard] if end.offset >= record.offset]
            if len(ends) == 1:
                self._moved.discard(shard)


def difference(handled: Mapping[int, LastRecord], found: Mapping[int, Found | None]) -> Note | None:
    """Return the first handled record whose offset another record has in the log; None without one.

    An offset without a record shows nothing: the log begins after it, or does not reach to it, which Spark reports.
    """
    for shard, record in found.items():
        offset, at_ms = handled[shard]
        if record is not None and record.offset == offset and record.at_ms != at_ms:
            return Note(shard, offset, at_ms, record.at_ms)
    return None


def _records(lookup: Lookup, wanted: Mapping[int, LastRecord]) -> dict[int, Found | None]:
    return lookup.records({shard: record.offset for shard, record in wanted.items()}, LOOK_WAIT_S)


# -- clocks ------------------------------------------------------------------------------------------------------------


NEW_AFTER_S = 1.0
"""The wait after which a record is new: those that were there before come within that time."""

LATE_MS = 10_000
"""The time that a new record may take, in addition to the difference that clocks may have."""


class ClockWatch:
    """The differences of clocks that were logged.

    Args:
        slack_ms: The setting `clock_slack_ms`.
    """

    def __init__(self, topic: str, slack_ms: int) -> None:
        self._topic, self._slack_ms = topic, slack_ms
        self._wrong: dict[int, str] = {}
        self._suspected: set[int] = set()

    def heard(self, partition: int, at_ms: int, waited_s: float) -> None:
        """Log that the clocks differ, once for each partition until they agree again.

        Args:
            at_ms: The time at which the broker appended a record, by its clock.
            waited_s: How long the wake-up had waited when the record came.
        """
        ahead_ms = at_ms - unix_ms()
        if ahead_ms > self._slack_ms:
            self._record(partition, "ahead of", ahead_ms)
        elif waited_s >= NEW_AFTER_S and -ahead_ms > self._slack_ms + LATE_MS:
            if partition in self._suspected:  # the first one may have been there while no broker answered
                self._record(partition, "behind", -ahead_ms)
            self._suspected.add(partition)
        elif waited_s >= NEW_AFTER_S:
            self._suspected.discard(partition)
            self._record(partition, "", 0)

    def _record(self, partition: int, how: str, differ_ms: int) -> None:
        if how == self._wrong.get(partition, ""):
            return
        self._wrong[partition] = how
        place = f"the broker that leads partition {partition} of {self._topic}"
        if how:
            log.warning(
                "the clock of %s is %d s %s this machine's: synchronize the clocks (clock_slack_ms allows %d ms)",
                place, round(differ_ms / 1_000), how, self._slack_ms,
            )  # fmt: skip
        else:
            log.info("the clock of %s agrees with this machine's again", place)
