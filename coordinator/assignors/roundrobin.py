"""`roundrobin`: members form a circle, and each partition goes to the next member that subscribes to its topic.

Source: Kafka's RoundRobinAssignor.
"""

from collections.abc import Iterable

from coordinator.assignors.assignor import Assignor, Cluster, Plan, Subscriber, in_order


class RoundRobin(Assignor):
    """All partitions of all topics in one circle; even if all members subscribe to the same topics."""

    name = "roundrobin"

    def assign(self, cluster: Cluster, subscribers: Iterable[Subscriber]) -> Plan:
        circle = [(s.member_id, frozenset(s.subscription.topics)) for s in in_order(subscribers)]
        plan: Plan = {member_id: {} for member_id, _ in circle}
        at = 0
        for topic in sorted(cluster.partitions.keys() & frozenset().union(*(topics for _, topics in circle))):
            for number in range(cluster.partitions[topic]):
                while topic not in circle[at % len(circle)][1]:
                    at += 1
                plan[circle[at % len(circle)][0]].setdefault(topic, []).append(number)
                at += 1
        return plan
