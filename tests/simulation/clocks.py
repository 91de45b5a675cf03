"""Wrong clocks: the driver's clock gives the time of batches, the brokers' clock gives the time of records."""

from random import Random

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

AHEAD_MS_MAX = 8 * DAY_MS
"""The most that a broker's clock is ahead: longer than the default retention of committed offsets."""

BACK_MS_MAX = HOUR_MS
ASTRAY_MS_MAX = 30_000
"""The longest time for which a clock is wrong, unless it stays wrong."""


class Clocks:
    """The times that the clocks of a simulation show."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self._driver_until_ms = self._driver_by_ms = 0
        self._log_until_ms = self._log_by_ms = 0
        self._log_for_good_ms = 0
        self._next_by_ms = 0

    def befall(self, fault: str, now_ms: int) -> None:
        """Make a clock wrong."""
        match fault:
            case "clock jumps":
                self._driver_until_ms = now_ms + self.chance.randrange(ASTRAY_MS_MAX)
                self._driver_by_ms = int(HOUR_MS * self.chance.random() ** 3) * self.chance.choice((-1, 1))
            case "log's clock goes back":
                self._log_until_ms = now_ms + self.chance.randrange(ASTRAY_MS_MAX)
                self._log_by_ms = -self._back_ms()
            case "log's clock goes ahead":
                self._log_until_ms = now_ms + self.chance.randrange(ASTRAY_MS_MAX)
                self._log_by_ms = self._ahead_ms()
            case "log's clock jumps for good":
                self._log_for_good_ms = self.chance.choice((self._ahead_ms, lambda: -self._back_ms()))()
            case "a record is dated otherwise":
                self._next_by_ms = self.chance.choice((self._ahead_ms, lambda: -self._back_ms()))()

    def _ahead_ms(self) -> int:
        return int(AHEAD_MS_MAX * self.chance.random() ** 6)

    def _back_ms(self) -> int:
        return int(BACK_MS_MAX * self.chance.random() ** 3)

    def calm(self) -> None:
        """Stop all further jumps; a clock that has jumped for good stays wrong."""
        self._driver_until_ms = self._log_until_ms = self._next_by_ms = 0

    def driver_ms(self, now_ms: int) -> int:
        """Return the time of the driver's clock."""
        return now_ms + (self._driver_by_ms if self._driver_until_ms > now_ms else 0)

    def log_ms(self, at_ms: int, now_ms: int) -> int:
        """Return the time that the log gives to a record that is appended at `at_ms`."""
        by_ms, self._next_by_ms = self._next_by_ms, 0
        if self._log_until_ms > now_ms:
            by_ms += self._log_by_ms
        return at_ms + by_ms + self._log_for_good_ms
