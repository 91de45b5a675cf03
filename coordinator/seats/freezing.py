"""In a freeze that holds rebalances, a partition without an owner does not wait until its end."""

from coordinator.config import Config
from coordinator.group import Group
from coordinator.seating import unowned_max_ms
from coordinator.seats.offers import arm, rounded


def unowned_until_ms(group: Group, now_ms: int, config: Config) -> int:
    """Return the time at which a present member adopts the partitions of a vacancy that begins now."""
    return arm(group, rounded(group.vitals.wait(now_ms, unowned_max_ms(config))))
