"""A freeze that holds rebalances: it is reported once, and a partition without an owner does not wait until its end."""

from collections.abc import Iterator

from coordinator.config import Config
from coordinator.events import event
from coordinator.group import Group
from coordinator.outputs import FreezeBegun
from coordinator.seating import frozen_until_ms
from coordinator.seats.offers import arm, rounded


def begin_freeze(group: Group, now_ms: int, config: Config) -> Iterator[FreezeBegun]:
    """Report that a freeze holds a rebalance of the group, if this freeze has not been reported yet."""
    until_ms = frozen_until_ms(config, now_ms)
    if until_ms is not None and group.seats.frozen_until_ms != until_ms:
        group.seats.frozen_until_ms = arm(group, until_ms)
        yield event(FreezeBegun, group, now_ms, until_ms=until_ms)


def end_freeze(group: Group, now_ms: int, config: Config) -> None:
    """Remove the freeze that was reported, if none is in force under other policies. The group's record follows."""
    if group.seats.frozen_until_ms and frozen_until_ms(config, now_ms) is None:
        group.seats.frozen_until_ms = 0
        group.are_seats_news = True


def unowned_until_ms(group: Group, now_ms: int, config: Config) -> int:
    """Return the time at which a present member adopts the partitions of a vacancy that begins now."""
    return arm(group, rounded(group.vitals.wait(now_ms, unowned_max_ms(config))))


def unowned_max_ms(config: Config) -> int:
    """Return how long a partition may be without an owner in the freeze that is in force."""
    assert config.policy is not None, "a freeze is in force"
    assert config.policy.freeze is not None, "a freeze is in force"
    return config.policy.freeze.unowned_max_ms
