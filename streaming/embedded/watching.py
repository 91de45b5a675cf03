"""A thread that notices when embedded brokers end by themselves."""

import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self

from streaming.embedded.broker import Broker

LOOK_EVERY_S = 0.5


class BrokerWatch:
    """The watch, inside a `with` block.

    Args:
        tell: Called with a sentence for each broker that has ended.
        none_is_left: Called once, when the last one has ended.
    """

    def __init__(
        self, brokers: Collection[Broker], tell: Callable[[str], None], none_is_left: Callable[[], None]
    ) -> None:
        self._brokers, self._tell, self._none_is_left = brokers, tell, none_is_left
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="broker watch", daemon=True)

    @property
    def is_any_left(self) -> bool:
        """Whether a broker still runs."""
        return any(broker.running for broker in self._brokers)

    @property
    def has_majority(self) -> bool:
        """Whether most brokers run. Without them no record is written, and no broker stops in good order."""
        return sum(broker.running for broker in self._brokers) > len(self._brokers) / 2

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join()

    def _watch(self) -> None:
        told: set[Broker] = set()
        while not self._closing.wait(LOOK_EVERY_S):
            for broker in self._brokers:
                if broker.has_failed and broker not in told:
                    told.add(broker)
                    self._tell(f"The broker at {broker.bootstrap_servers} has ended. Its log is {broker.log_file}.")
            if not self.is_any_left:
                self._none_is_left()
                return
