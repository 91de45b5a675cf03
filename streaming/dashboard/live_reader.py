"""The reading of the output topics for the dashboard: their records, and the end offsets of groups' partitions.

If brokers do not answer, the dashboard still shows its data and reports the outage. It continues when they answer. It
does the same after an error in its own code: the log has the error, and reading is retried.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from streaming.config.settings import Settings
from streaming.dashboard.live import LiveViews, Phase, Status
from streaming.errors import BrokerUnreachable, NoCoordinator
from streaming.kafka.share_offsets import ShareOffsetReader
from streaming.progress import Work, logged
from streaming.views.api.view_reader import ViewReader
from streaming.views.state.lag import EndOffsets

log = logging.getLogger(__name__)

POLL_S = 0.05
"""The time for which records are gathered. librdkafka returns them after that time."""

GAPS_EVERY_S = 5.0
AGAIN_AFTER_S = 2.0
LEAVES_WITHIN_S = 5.0

PAUSES_S = {Phase.CATCHING_UP: 0.5, Phase.LIVE: 5.0, Phase.AWAY: AGAIN_AFTER_S}
"""The time for which end offsets are valid. During catching up, groups appear whose ends are still unknown."""


class LiveReader:
    """Two threads that run inside a `with` block.

    Args:
        tell: Called once with a sentence when the brokers stop answering, or when reading fails; and every 10 s while
            the existing records are read.
    """

    def __init__(self, settings: Settings, live: LiveViews, tell: Callable[[str], None]) -> None:
        self._settings, self._live, self._tell = settings, live, tell
        self._stopping = threading.Event()
        self._is_reading = False
        self._threads = [
            threading.Thread(target=self._read, name="page-reading", daemon=True),
            threading.Thread(target=self._ask_for_ends, name="page-lag", daemon=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(LEAVES_WITHIN_S)  # a thread that waits for unavailable brokers ends with the process

    # -- records -------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        while not self._stopping.is_set():
            with (
                self._log_exceptions("records"),
                ViewReader(self._settings, self._live.views, lock=self._live.lock) as reading,
            ):
                self._live.set_status(Status(Phase.CATCHING_UP))
                with logged(Work("Reading the topics for the page", "records"), self._tell) as work:

                    def report(read: int, of: int, work: Work = work) -> None:
                        work.report(read, of)
                        self._live.set_status(Status(Phase.CATCHING_UP, read, of))

                    reading.catch_up(report)
                self._live.set_status(Status(Phase.LIVE))
                self._is_reading = True
                self._follow(reading)
            self._is_reading = False
            self._stopping.wait(AGAIN_AFTER_S)

    def _follow(self, reading: ViewReader) -> None:
        polls = 0
        while not self._stopping.is_set():
            for record in reading.poll(POLL_S):
                self._live.publish(record)
            polls += 1
            if polls % round(GAPS_EVERY_S / POLL_S) == 0:
                reading.look_for_gaps()

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _ask_for_ends(self) -> None:
        ends: EndOffsets | None = None
        positions = ShareOffsetReader(self._settings)
        ours = self._settings.groups_topic, 0  # so that unavailable brokers are noticed even without groups
        while not self._stopping.is_set():
            with self._log_exceptions("lag"):
                ends = ends or EndOffsets(self._settings)
                bounds = ends.bounds({**self._live.wanted_ends(), ours: None})
                self._live.publish_lag_changes(bounds, positions.of(self._live.share_groups()))
                self._are_back()
            self._stopping.wait(PAUSES_S[self._live.status.phase])
        positions.close()

    # -- unavailable brokers -------------------------------------------------------------------------------------------

    @contextmanager
    def _log_exceptions(self, what: str) -> Iterator[None]:
        """Report unavailable brokers and errors in our own code. Neither ends the thread."""
        try:
            yield
        except (BrokerUnreachable, NoCoordinator) as error:
            self._are_away(str(error))
        except Exception as error:
            why = f"The dashboard cannot read {what} and tries again. Its log has the error ({type(error).__name__})."
            if self._live.status.why != why:
                log.exception("%s", why)
            self._are_away(why)

    def _are_away(self, why: str) -> None:
        if self._live.status.phase is not Phase.AWAY:
            self._tell(why)
        self._live.set_status(Status(Phase.AWAY, why=why))

    def _are_back(self) -> None:
        if self._is_reading and self._live.status.phase is Phase.AWAY:
            self._live.set_status(Status(Phase.LIVE))
