"""The use of the machine by processes: processor time and memory by role, with a sample each second."""

import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

import psutil

JAVA = "java"
MEGABYTE = 2**20


class Usage:
    """Samples the processes of each role, with their children, in another thread. Use it in a `with` block.

    Args:
        roles: The id of each role's first process.
        weighed: The role whose memory is measured.

    Memory is PSS: memory that forked workers share is divided among them, so the sum counts it once.
    """

    def __init__(self, roles: Mapping[str, int], weighed: str) -> None:
        self._roles, self._weighed = roles, weighed
        self._cpu_s: dict[tuple[str, bool, int], float] = {}  # by role, whether the process is a JVM, and process id
        self._at_start: dict[tuple[str, bool, int], float] = {}
        self._started_s = self._ended_s = time.monotonic()
        self._machine_at_start_s = self._machine_busy_s = 0.0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="usage", daemon=True)
        self.memory_mb_max = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def begin(self) -> None:
        """Start the measured span of processor time."""
        self._sample_cpu()
        with self._lock:
            self._at_start, self._started_s = dict(self._cpu_s), time.monotonic()
            self._machine_at_start_s = _machine_busy_s()

    def end(self) -> None:
        """End the measured span of processor time."""
        self._sample_cpu()
        self._ended_s, self._machine_busy_s = time.monotonic(), _machine_busy_s() - self._machine_at_start_s

    def cpu_s(self, role: str, jvm_only: bool = False) -> float:
        """Return the processor time of a role between `begin` and `end`, in seconds."""
        return sum(
            cpu_s - self._at_start.get(process, 0.0)
            for process, cpu_s in self._cpu_s.items()
            if process[0] == role and (process[1] or not jvm_only)
        )

    def cpu_percent(self, role: str, jvm_only: bool = False) -> float:
        """Return the processor time of a role between `begin` and `end`, in per cent of one core."""
        return 100 * self.cpu_s(role, jvm_only) / (self._ended_s - self._started_s)

    def others_cpu_percent(self) -> float:
        """Return the processor time of all other processes and the kernel, in per cent of one core."""
        machine_percent = 100 * self._machine_busy_s / (self._ended_s - self._started_s)
        return max(0.0, machine_percent - sum(self.cpu_percent(role) for role in self._roles))

    def _watch(self) -> None:
        while not self._stop.wait(1.0):
            if self._ended_s <= self._started_s:
                self._sample_cpu()  # a process that ends keeps the value of its last sample
            self.memory_mb_max = max(self.memory_mb_max, self._memory_mb())

    def _sample_cpu(self) -> None:
        with self._lock:
            for role in self._roles:
                for process in self._tree(role):
                    try:
                        times = process.cpu_times()
                        key = (role, process.name() == JAVA, process.pid)
                    except psutil.Error:
                        continue
                    self._cpu_s[key] = times.user + times.system

    def _memory_mb(self) -> float:
        total = 0
        for process in self._tree(self._weighed):
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue
        return total / MEGABYTE

    def _tree(self, role: str) -> Iterator[psutil.Process]:
        try:
            first = psutil.Process(self._roles[role])
            yield first
            yield from first.children(recursive=True)
        except psutil.Error:
            return


def _machine_busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)
