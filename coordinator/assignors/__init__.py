"""Kafka's four ways to share out partitions, as pure functions of who is there, what they own and what there is.

range               each topic's partitions in blocks, so that equal numbers of several topics stay together
roundrobin          one partition after the other, in a circle
sticky              evenly, and with as few partitions changing owners as that allows
cooperative-sticky  the same, and nobody is given what another has not given up yet
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
