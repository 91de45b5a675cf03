"""What the times of new records tell of the clocks: that of the broker that wrote them, and this machine's.

No member is expelled and no offset expires because of a wrong clock (design.md 7.6), so nothing else shows it. The
wake-up reads records as they come. One that is dated later than now was certainly dated by another clock. One that
comes while the wake-up has waited for a while is new, and its time is a few milliseconds old if the clocks agree.
"""

import logging

from streaming.moments import unix_ms

log = logging.getLogger(__name__)

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
