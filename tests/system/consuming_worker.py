"""A consumer in its own process that records all its actions and reads one command a line from stdin.

    python -m tests.system.consuming_worker '{"notes": "FILE", "topic": "t", "group_id": "g", ...}'

    hurry            consume as fast as possible from now on
    stall            after the next records are read and before they are committed, stop until "go on"
    stall listener   stop in the listener's next call, until "go on"
    leave            close the consumer and end

Each note is a JSON line. It is written at once and without a buffer, so that kill -9 loses no note. Records are noted
before they are committed: in this worker, to note a record is to process it.
"""

import json
import os
import queue
import sys
import threading
from typing import Any

from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.errors import CommitFailedError, RebalanceInProgressError

from streaming.client import GroupConsumer

UNHURRIED_S = 0.05
UNHURRIED_RECORDS = 25
HURRIED_RECORDS = 3_000
POLL_MS = 50

Partitions = set[TopicPartition]


class Worker(ConsumerRebalanceListener):  # type: ignore[misc]
    """One consumer, its notes, and the commands that it has received."""

    def __init__(self, consumer: GroupConsumer, notes: str, *, is_manual: bool) -> None:
        self._consumer, self._is_manual = consumer, is_manual
        self._notes = open(notes, "ab", buffering=0)  # noqa: SIM115  kept for life
        self._commands: queue.Queue[str] = queue.Queue()
        self._is_hurried = self._is_leaving = self._owes_commit = False
        self._stalls = ""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._commands.put(line.strip())
        os._exit(1)  # the parent process has ended

    # -- working -------------------------------------------------------------------------------------------------------

    def work(self) -> None:
        while not self._is_leaving:
            self._obey()
            records_max = HURRIED_RECORDS if self._is_hurried else UNHURRIED_RECORDS
            for partition, records in self._consumer.poll(POLL_MS, max_records=records_max).items():
                assert all(r.value == b"%d:%d" % (r.partition, r.offset) for r in records), "wrong record value"
                self._note("read", [partition.partition, [r.offset for r in records]])
                self._owes_commit = self._is_manual
                self._stall_if_commanded("stall")
            self._commit()

    def _obey(self) -> None:
        try:
            match self._commands.get(timeout=None if self._is_hurried else UNHURRIED_S, block=not self._is_hurried):
                case "hurry":
                    self._is_hurried = True
                case "leave":
                    self._is_leaving = True
                case "stall" | "stall listener" as where:
                    self._stalls = where
        except queue.Empty:
            pass

    def _stall_if_commanded(self, here: str) -> None:
        if self._stalls == here:
            self._stalls = ""
            self._note("stalled", None)
            assert self._commands.get() == "go on"

    def _commit(self) -> bool:
        """Commit the records that were read. A commit that a rebalance refuses is sent again later."""
        if self._owes_commit:
            try:
                self._consumer.commit()
            except RebalanceInProgressError:
                return False
            except CommitFailedError:
                self._note("refused", None)
            self._owes_commit = False
        return True

    # -- the listener --------------------------------------------------------------------------------------------------

    def on_partitions_revoked(self, revoked: Partitions) -> None:
        self._stall_if_commanded("stall listener")
        self._commit()
        self._note("revoked", _numbers(revoked))

    def on_partitions_assigned(self, assigned: Partitions) -> None:
        self._note("assigned", _numbers(assigned))
        self._stall_if_commanded("stall listener")

    def on_partitions_lost(self, lost: Partitions) -> None:
        self._owes_commit = False
        self._note("lost", _numbers(lost))

    # -- notes ---------------------------------------------------------------------------------------------------------

    def _note(self, what: str, value: object) -> None:
        owned = _numbers(self._consumer.assignment())
        note = [what, value, self._consumer.generation, self._consumer.member_id, owned]
        self._notes.write(json.dumps(note).encode() + b"\n")


def _numbers(partitions: Partitions) -> list[int]:
    return sorted(partition.partition for partition in partitions)


def main() -> None:
    config: dict[str, Any] = json.loads(sys.argv[1])
    topic, notes = config.pop("topic"), config.pop("notes")
    with GroupConsumer(**config) as consumer:
        worker = Worker(consumer, notes, is_manual=not config["enable_auto_commit"])
        consumer.subscribe([topic], listener=worker)
        worker.work()


if __name__ == "__main__":
    main()
