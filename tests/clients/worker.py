"""A client in its own process, and its events so far."""

import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path

from streaming.embedded import die_with_parent
from tests.clients.kinds import Config, Event, Kind
from tests.system.waiting import HANG_S

Partition = tuple[str, int]


class Worker:
    """A client of one kind. It is killed when the thread that started it ends, so this thread must outlive it.

    Attributes:
        has_ended: Whether all its output was read, and it has closed that.

    Args:
        folder: The folder of the Go programs.
        log_file: The file for its stderr.
        changed: Notified of each event. The events change only while this condition is held.
    """

    def __init__(self, kind: Kind, config: Config, folder: Path, log_file: Path, changed: threading.Condition) -> None:
        self.kind = kind
        self.name = log_file.stem
        self.events: list[Event] = []
        self.owned: set[Partition] = set()
        self.read: defaultdict[Partition, list[int]] = defaultdict(list)
        self.committed: dict[Partition, int] = {}
        self.has_ended = False
        self._log_file = log_file
        self._changed = changed
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid()), *kind.command(config, folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __repr__(self) -> str:
        log = self._log_file.read_text(errors="replace").splitlines()[-15:]
        return "\n    ".join([f"{self.name} ({self._process.poll()}):", *map(str, self.events[-30:]), *log])

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                for event in self.kind.translate(line.strip()):
                    self._take(event)
                self._changed.notify_all()
        with self._changed:
            self.has_ended = True
            self._changed.notify_all()

    def _take(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case {"event": "assigned", "partitions": partitions}:
                self.owned |= {(topic, number) for topic, number in partitions}
            case {"event": "revoked" | "lost", "partitions": partitions}:
                self.owned -= {(topic, number) for topic, number in partitions}
            case {"event": "records", "partition": [topic, number], "offsets": offsets}:
                self.read[topic, number] += offsets
            case {"event": "committed", "offsets": offsets}:
                self.committed |= {(topic, number): offset for topic, number, offset in offsets}

    def events_of(self, *words: str) -> list[Event]:
        """Return the events so far that have one of these names."""
        return [event for event in self.events if event["event"] in words]

    @property
    def took_away(self) -> list[Event]:
        """The events by which partitions were taken from the member. Some clients begin with one about none."""
        return [event for event in self.events_of("revoked", "lost") if event["partitions"]]

    def order(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """Pause the process with SIGSTOP, without its knowledge."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process as its users end it, and wait for its end."""
        if self.kind.obeys:
            self.order("close")
        else:
            self._process.terminate()
        self._process.wait(HANG_S)
        self._listener.join()

    def kill(self) -> None:
        """Kill the process with SIGKILL, unless it has ended."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
