"""A program of Kafka Streams: it counts words, with `processing.guarantee=exactly_once_v2`.

Its own jar is fetched by its test only, beside the jars of the broker. RocksDB is not needed: the stores are in memory.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from streaming.embedded import BROKER, die_with_parent, fetch, find_java
from streaming.embedded.jars import Bundle
from tests.clients.java import OPTIONS
from tests.tools import needed

HERE = Path(__file__).parent
STREAMS = Bundle("streams", "Kafka Streams", HERE)
COMPILE_WAIT_S, STOP_WAIT_S = 300.0, 120.0
CLASSIC = {"consumer.session.timeout.ms": "6000"}
STREAMS_PROTOCOL = {"group.protocol": "streams"}


class WordCounts:
    """Instances of one application.

    Args:
        folder: The folder of the program and the logs.
        arguments: The address of the brokers, the application's id, the topic of the lines and that of the counts.
        settings: Further settings of Kafka Streams.
    """

    def __init__(self, folder: Path, *arguments: str, settings: Mapping[str, str] = CLASSIC) -> None:
        self._folder, self._arguments, self._settings = folder, arguments, settings
        self._jars = os.pathsep.join(map(str, (folder, *fetch(BROKER), *fetch(STREAMS))))
        subprocess.run(
            [needed("javac"), "-proc:none", "-cp", self._jars, "-d", str(folder), str(HERE / "WordCount.java")],
            check=True,
            timeout=COMPILE_WAIT_S,
        )

    def start(self, number: int, **settings: str) -> subprocess.Popen[bytes]:
        """Start an instance, which restores its counts from the brokers. It is killed when our thread ends.

        Args:
            settings: Settings of this instance, with underscores in place of dots.
        """
        program = [str(find_java()), *OPTIONS, "-cp", self._jars, "WordCount", *self._arguments]
        own = {name.replace("_", "."): value for name, value in settings.items()}
        with self._log(number).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid()), *program,
                 str(self._folder / f"state-{number}"),
                 *(f"{name}={value}" for name, value in {**self._settings, **own}.items())],
                stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    @contextmanager
    def running(self, number: int, **settings: str) -> Iterator[None]:
        """Return a context manager in which an instance runs. It is stopped in order at the end."""
        with self.start(number, **settings) as process:
            try:
                yield
                process.terminate()
                process.wait(STOP_WAIT_S)
            finally:
                process.kill()

    def _log(self, number: int) -> Path:
        return self._folder / f"word-count-{number}.log"

    def log(self, number: int) -> str:
        return self._log(number).read_text(errors="replace")

    def runs(self, number: int) -> bool:
        """Return whether an instance has tasks, or waits for some, and nothing to restore."""
        states = [line for line in self.log(number).splitlines() if line.startswith("state ")]
        return states[-1:] == ["state RUNNING"]
