"""A thread that notices when embedded brokers end by themselves, and starts one of several again."""

import threading
from collections.abc import Callable, Collection

from streaming.embedded.broker import Broker
from streaming.errors import UserError
from streaming.watcher import Watcher

LOOK_EVERY_S = 0.5

AGAIN_AFTER_S = 30.0
"""The pause before a broker of several is started again: by then one has seen what its loss does."""


class BrokerWatch(Watcher):
    """The watch.

    Args:
        tell: Called with a sentence for each broker that has ended or runs again.
        none_is_left: Called once, when the last one has ended.
    """

    def __init__(
        self, brokers: Collection[Broker], tell: Callable[[str], None], none_is_left: Callable[[], None]
    ) -> None:
        super().__init__("the watch on the brokers")
        self._brokers, self._tell, self._none_is_left = brokers, tell, none_is_left
        self._ended = set[Broker]()

    @property
    def is_any_left(self) -> bool:
        """Whether a broker still runs."""
        return any(broker.running for broker in self._brokers)

    @property
    def has_majority(self) -> bool:
        """Whether most brokers run. Without them no record is written, and no broker stops in good order."""
        return sum(broker.running for broker in self._brokers) > len(self._brokers) / 2

    def _watch(self) -> None:
        while not self._closing.wait(LOOK_EVERY_S):
            for broker in self._brokers:
                if broker.has_failed and broker not in self._ended:
                    self._ended.add(broker)
                    self._report_end(broker)
            if not self.is_any_left:
                self._none_is_left()
                return

    def _report_end(self, broker: Broker) -> None:
        again = ""
        if len(self._brokers) > 1:
            again = f" It is started again in {AGAIN_AFTER_S:.0f} s."
            threading.Thread(target=self._bring_back, args=(broker,), name="broker start", daemon=True).start()
        self._tell(f"The broker at {broker.bootstrap_servers} has ended.{again} Its log is {broker.log_file}.")

    def _bring_back(self, broker: Broker) -> None:
        """Start a broker again. One that cannot start yet, as too few others run, is tried again after the pause."""
        while not self._closing.wait(AGAIN_AFTER_S) and self.is_any_left:
            try:
                broker.start()
            except UserError as error:
                if not self._closing.is_set():
                    self._tell(f"The broker at {broker.bootstrap_servers} does not start: {error}")
            else:
                self._ended.discard(broker)
                self._tell(f"The broker at {broker.bootstrap_servers} runs again.")
                return
