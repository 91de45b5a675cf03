"""The server assignors of the consumer group protocol (KIP-848), as pure functions of a group.

uniform  evenly, with few changes of owners
range    each topic's partitions in blocks, in the order of the members; owners are not taken into account

The coordinator runs them; the members of a consumer group compute nothing.
"""

from coordinator.assignors.server import range as by_range
from coordinator.assignors.server import uniform
from coordinator.assignors.server.spec import GroupSpec, MemberSpec, ServerAssignor, Target, Targets

SERVER_ASSIGNORS: dict[str, ServerAssignor] = {"uniform": uniform.assign, "range": by_range.assign}
"""The first one is the default."""

__all__ = ["SERVER_ASSIGNORS", "GroupSpec", "MemberSpec", "ServerAssignor", "Target", "Targets"]
