"""Kafka's four assignors, as pure functions of the members, their owned partitions and the cluster's topics.

range               each topic's partitions in blocks, so that equal numbers of several topics stay together
roundrobin          one partition after the other, in a circle
sticky              evenly, and with as few changes of partition owners as that allows
cooperative-sticky  the same, and no member is given a partition that another member has not revoked yet
"""

from coordinator.assignors.assignor import Assignor, Cluster, Plan, RebalanceProtocol, Subscriber, by_topic
from coordinator.assignors.cooperative_sticky import CooperativeSticky
from coordinator.assignors.range import Range
from coordinator.assignors.roundrobin import RoundRobin
from coordinator.assignors.sticky import Sticky

ASSIGNORS: dict[str, type[Assignor]] = {each.name: each for each in (Range, RoundRobin, Sticky, CooperativeSticky)}

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "Cluster",
    "CooperativeSticky",
    "Plan",
    "Range",
    "RebalanceProtocol",
    "RoundRobin",
    "Sticky",
    "Subscriber",
    "by_topic",
]
