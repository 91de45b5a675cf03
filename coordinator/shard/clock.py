"""The times of a shard's step, derived from the log and from the driver's clock, each within bounds.

    time of a request        its record's append time, between `earliest_ms` and `latest_ms`
    deadlines fire up to     the time of the last record that was read, minus the slack
    lateness counts from     the batch's time, in terms of the log's clock

The brokers' clock may be wrong. The time of a record is at most the batch's time plus the slack. If the times of a log
go back, the batch's time is used instead. The driver's clock may be wrong. A wake record carries the time of the
driver's clock, so its difference from the brokers' clock is known and is subtracted. If the driver's clock goes back,
the shard's time grows by the time that has passed between batches.
"""

from collections.abc import Sequence
from typing import NamedTuple

from coordinator.base.limits import AWAY_MS_MAX, CLOCK_STANDS_STILL_MS_MAX, TIME_MS_MIN
from coordinator.messages.requests import Received, Wake
from coordinator.state.codec import Clock


class Times(NamedTuple):
    """The times of one step.

    Args:
        now_ms: The time at which the step runs.
        floor_ms: No request of this step, or of a later one, has an earlier time. It never decreases. The times of a
            log may go back by the slack at each of two places: between two steps, and within one.
        earliest_ms: A record with an earlier time was written by a clock that went back; its time becomes `earliest_ms`
            plus the slack. `earliest_ms` grows with the records of the step.
        latest_ms: The upper bound of the time of a request.
        horizon_ms: Deadlines up to this time fire, in groups whose requests are all handled.
        horizon_now_ms: The horizon if the log had been read to its end.
    """

    now_ms: int
    floor_ms: int
    earliest_ms: int
    latest_ms: int
    horizon_ms: int
    horizon_now_ms: int


def advance(clock: Clock, log: Sequence[Received], batch_ms: int, slack_ms: int) -> tuple[Clock, Times]:
    """Return the clock to store for the next step, and the times of this step.

    Args:
        log: The records of the step, in the order of their offsets.
        batch_ms: The time for which the engine planned the batch.
        slack_ms: How far clocks may differ.
    """
    ahead_ms = clock.ahead_ms
    for received in log:
        if type(received.request) is Wake and received.request.sent_ms is not None:
            ahead_ms = max(received.request.sent_ms - received.at_ms, 0)
    latest = next((received for received in reversed(log) if not received.was_deferred), None)
    gone_back = latest is not None and latest.at_ms < clock.read_ms - slack_ms
    driver_ms = batch_ms if gone_back else batch_ms - ahead_ms
    base_ms = driver_ms
    if clock.read_ms:
        passed_ms = min(max(batch_ms - (clock.batch_ms or batch_ms), 0), CLOCK_STANDS_STILL_MS_MAX)
        base_ms = max(driver_ms, clock.read_ms + passed_ms - slack_ms)
    read_ms = clock.read_ms
    if gone_back:
        read_ms = max(read_ms, base_ms)
    elif latest is not None:
        read_ms = max(read_ms, min(latest.at_ms, base_ms + slack_ms))
    times = Times(
        now_ms=min(driver_ms, read_ms + AWAY_MS_MAX),
        floor_ms=max(clock.read_ms - 2 * slack_ms, 0),
        earliest_ms=(base_ms if gone_back else clock.read_ms or TIME_MS_MIN) - slack_ms,
        latest_ms=base_ms + slack_ms,
        horizon_ms=read_ms - slack_ms,
        horizon_now_ms=base_ms - slack_ms,
    )
    return Clock(batch_ms, read_ms, ahead_ms, clock.last_ms if latest is None else latest.at_ms), times
