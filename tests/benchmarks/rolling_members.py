"""Groups of many members in one process for each client: their start, their end, and the messages of their callbacks.

The processes are `rolling_librdkafka`, and the JVM of `RollingMembers.java`. Both have a thread for each member. Their
messages are lines of JSON, with the time of the machine's clock:

    {"what": "started", "member": "m", "at_s": 1.5}        just before the consumer is made
    {"what": "assigned", ..., "partitions": [0, 1], "generation": 4}
    {"what": "revoked", ..., "partitions": [0, 1]}         or "lost"
    {"what": "read", ..., "runs": [[0, 10, 12]]}           of partition 0, the records 10 and 11
    {"what": "closing", ...}, {"what": "closed", ...}      just before and just after the consumer is closed
    {"what": "flushed", ...}                               all records that were read until the command are written
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streaming.embedded import BROKER, fetch, find_java
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchFailed

STARTED, CLOSING, CLOSED = "started", "closing", "closed"
ASSIGNED, REVOKED, LOST = "assigned", "revoked", "lost"
READ, FLUSHED = "read", "flushed"

WAIT_S = 120.0
COMPILE_WAIT_S = 300.0
HEAP = ("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

Message = dict[str, Any]


class Members:
    """The members of one process, and their messages.

    Args:
        command: The command line of the process.
        log_file: The file for its stderr.

    Attributes:
        messages: All messages so far. It grows only while `changed` is held.
    """

    def __init__(self, command: Sequence[str], log_file: Path) -> None:
        self.messages: list[Message] = []
        self.changed = threading.Condition()
        self._owned: defaultdict[str, set[int]] = defaultdict(set)
        self._times_s: dict[tuple[str, str], float] = {}  # of the last message of each kind of each member
        self._flushed = 0
        self._log_file = log_file
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=bench.ROOT
            )
        threading.Thread(target=self._listen, name="messages", daemon=True).start()

    def start(self, member: str, group_id: str, servers: str, topic: str) -> float:
        """Start a member; return the time just before its start."""
        return self._await(f"start {member} {group_id} {servers} {topic}", STARTED, member)

    def close(self, member: str) -> float:
        """Close a member, and wait until it is closed; return the time just before the close."""
        self._await(f"close {member}", CLOSED, member)
        return self._times_s[CLOSING, member]

    def flush(self) -> None:
        """Wait for the messages about all records that were read until now."""
        before = self._flushed
        self._tell("flush")
        self._until(lambda: self._flushed > before, "written which records were read")

    def until_owned(self, members: Sequence[str], partitions: int) -> None:
        """Wait until each of these members owns partitions, and each partition has one owner."""

        def is_owned() -> bool:
            owned = [self._owned[member] for member in members]
            return all(owned) and sum(map(len, owned)) == len(set().union(*owned)) == partitions

        self._until(is_owned, "assigned all partitions")

    def end(self) -> None:
        """End the process, and wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self.changed:
                self._take(json.loads(line))
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def _take(self, message: Message) -> None:
        self.messages.append(message)
        self._times_s[message["what"], message["member"]] = message["at_s"]
        self._flushed += message["what"] == FLUSHED
        owned = self._owned[message["member"]]
        if message["what"] == ASSIGNED:
            owned.update(message["partitions"])
        elif message["what"] in (REVOKED, LOST):
            owned.difference_update(message["partitions"])
        elif message["what"] == CLOSING:
            owned.clear()

    def _await(self, command: str, what: str, member: str) -> float:
        self._tell(command)
        self._until(lambda: (what, member) in self._times_s, f"{what} {member}")
        return self._times_s[what, member]

    def _tell(self, command: str) -> None:
        assert self._process.stdin is not None
        with self.changed:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()

    def _until(self, is_true: Callable[[], object], what: str) -> None:
        until_s = time.monotonic() + WAIT_S
        with self.changed:
            while not is_true():
                if self._process.poll() is not None or not self.changed.wait(until_s - time.monotonic()):
                    last = " / ".join(self._log_file.read_text(errors="replace").splitlines()[-5:])
                    raise BenchFailed(f"the members' process has not {what} within {WAIT_S:.0f} s: {last}")


@contextmanager
def librdkafka(folder: Path) -> Iterator[Members]:
    """Run the process of librdkafka's members."""
    yield from _running([sys.executable, "-m", "tests.benchmarks.rolling_librdkafka"], folder / "librdkafka.log")


@contextmanager
def java(folder: Path) -> Iterator[Members]:
    """Compile and run the JVM of Java's members.

    Raises:
        NotMeasurable: The machine does not have a Java compiler.
    """
    jars = os.pathsep.join(map(str, (folder, *fetch(BROKER))))
    source = Path(__file__).with_name("RollingMembers.java")
    subprocess.run(
        [bench.program("javac"), "-proc:none", "-cp", jars, "-d", str(folder), str(source)],
        check=True,
        timeout=COMPILE_WAIT_S,
    )
    yield from _running([str(find_java()), *HEAP, "-cp", jars, "RollingMembers"], folder / "java.log")


def _running(command: Sequence[str], log_file: Path) -> Iterator[Members]:
    members = Members(command, log_file)
    try:
        yield members
    finally:
        members.end()
