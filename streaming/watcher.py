"""The base of the threads that watch something beside the main work of a process.

A thread that fails begins again, since the process needs it and nobody watches it.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

log = logging.getLogger(__name__)

RETRY_WAIT_S = 1.0
"""The pause before failed work begins again."""

END_WAIT_S = 5.0
"""How long a stop waits for a thread. One that waits for silent brokers ends with the process."""


class Watcher(ABC):
    """A daemon thread, from `start` to `close` or inside a `with` block.

    Args:
        what: The work, as the beginning of a sentence: "the alarm".
        interrupt: Called by `close`, to end a wait of the work that does not look at `_closing`.
        end_wait_s: How long `close` waits for the end of the work; 0 if it may end with the process.
    """

    def __init__(self, what: str, interrupt: Callable[[], None] = lambda: None, end_wait_s: float = END_WAIT_S) -> None:
        self._what, self._interrupt, self._end_wait_s = what, interrupt, end_wait_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=what, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._closing.set()
        self._interrupt()
        if self._thread.is_alive():
            self._thread.join(self._end_wait_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _watch(self) -> None:
        """Run the work until `_closing` is set, or until nothing is left to do."""

    def _run(self) -> None:
        """Run the work to its end. After any error it begins anew. An error that is repeated is logged once."""
        logged = ""
        while not self._closing.is_set():
            try:
                return self._watch()
            except Exception as error:
                if str(error) != logged:
                    logged = str(error)
                    log.warning("%s failed, and begins again: %s", self._what, error)
                    log.debug("the failure in full", exc_info=error)
                self._closing.wait(RETRY_WAIT_S)
        return None
