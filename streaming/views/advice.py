"""The assessment of each cause of a rebalance: whether it was avoidable, and if so, which setting to check.

`ADVICE` is the table of both protocols. In a group of the consumer protocol, `OF_CONSUMERS` has the rows that differ:
the coordinator has its timeouts, and no member waits for all others.
"""

from typing import NamedTuple


class Advice(NamedTuple):
    """The assessment of a cause.

    Args:
        setting: The setting to check; None if nothing is wrong.
        text: A sentence; `{took}` is the duration that belongs to the cause.
    """

    is_avoidable: bool
    setting: str | None
    text: str


ADVICE = {
    # cause                         avoidable  setting              advice
    "session_expired": Advice(True, "session.timeout.ms",
        "Avoidable, unless the process died: check session.timeout.ms ({took}), which must be longer than the longest"
        " pause of the process, and heartbeat.interval.ms, which must be a third of it at most."),
    "poll_overdue": Advice(True, "max.poll.interval.ms",
        "Avoidable: check max.poll.interval.ms, which must be longer than the processing of the slowest batch, or make"
        " batches smaller by max.poll.records."),
    "join_overdue": Advice(True, "max.poll.interval.ms",
        "Avoidable: check max.poll.interval.ms, the time that all wait for a member that does not poll. It must be"
        " longer than the processing of the slowest batch, or make batches smaller by max.poll.records."),
    "sync_overdue": Advice(True, "max.poll.interval.ms",
        "Avoidable: a member joined and did not request its assignment. Check how long the leader computes the"
        " assignments, and max.poll.interval.ms."),
    "restarted": Advice(True, "group.instance.id",
        "Avoidable: the client joined again within {took}. With a group.instance.id, and a session.timeout.ms that is"
        " longer than a restart, the group does not rebalance."),
    "static_member_replaced": Advice(True, "group.instance.id",
        "Avoidable: a static member joined again with another protocol or while the group was rebalancing. Two"
        " processes with one group.instance.id fence each other."),
    "member_joined": Advice(False, None,
        "Unavoidable: a new member gets its assignment. If many members start together, the coordinator's"
        " group_initial_rebalance_delay_ms makes them join in one rebalance."),
    "member_left": Advice(False, None,
        "Unavoidable: the partitions of a member that left go to other members."),
    "metadata_changed": Advice(False, None,
        "Unavoidable: a member subscribes to other topics, or offers other assignors, than before."),
    "leader_rejoined": Advice(False, None,
        "Unavoidable: the leader computes new assignments, probably because a topic has more partitions now."),
    "partitions_added": Advice(False, None,
        "Unavoidable: a topic has partitions that nobody has. A new leader noticed them when it took the seat of the"
        " former one."),
    "group_converted": Advice(False, None,
        "Unavoidable: the group changed its protocol, because its last member of the other protocol is gone."),
    "operator": Advice(False, None,
        "Unavoidable: an operator requested it."),
}  # fmt: skip

OF_CONSUMERS = ADVICE | {
    "session_expired": Advice(True, "group_consumer_session_timeout_ms",
        "Avoidable, unless the process died: check group_consumer_session_timeout_ms of the coordinator ({took}), which"
        " must be longer than the longest pause of the process."),
    "revocation_overdue": Advice(True, "max.poll.interval.ms",
        "Avoidable: check max.poll.interval.ms, the time that a member has to give up partitions. It must be longer"
        " than the processing of the slowest batch, or make batches smaller by max.poll.records."),
    "join_overdue": Advice(True, "max.poll.interval.ms",
        "Avoidable: a member of the classic protocol was told to join again. Check max.poll.interval.ms, the time that"
        " it has for that."),
    "sync_overdue": Advice(True, "max.poll.interval.ms",
        "Avoidable: a member of the classic protocol joined and did not request its assignment. Check its"
        " max.poll.interval.ms."),
    "restarted": Advice(True, "group.instance.id",
        "Avoidable: the client joined again within {took}. With a group.instance.id, a client that is back within"
        " group_consumer_session_timeout_ms of the coordinator gets the same partitions without a rebalance."),
    "member_joined": Advice(False, None,
        "Unavoidable: a new member gets its assignment. If many members start together,"
        " group_consumer_assignment_interval_ms of the coordinator bounds the number of plans."),
    "subscription_changed": Advice(False, None,
        "Unavoidable: a member subscribes to other topics than before."),
    "topics_changed": Advice(False, None,
        "Unavoidable: a subscribed topic was created or deleted, or has more partitions now."),
    "regex_resolved": Advice(False, None,
        "Unavoidable: the pattern of a member matches other topics than before."),
    "assignor_changed": Advice(True, "group.remote.assignor",
        "Avoidable: check group.remote.assignor, which must be the same for all members. Most of them ask for another"
        " assignor now."),
}  # fmt: skip
"""The table of groups of the consumer protocol."""

UNKNOWN = Advice(False, None, "Its cause is no longer in the events topic.")

DID = {
    "session_expired": "was silent for {took} and was dropped",
    "poll_overdue": "left because its application did not poll in time",
    "join_overdue": "did not join again, and all members waited {took} for it",
    "sync_overdue": "did not request its assignment, and all members waited {took} for it",
    "restarted": "left and joined again after {took}",
    "static_member_replaced": "replaced another process with its instance id",
    "member_joined": "joined",
    "member_left": "left",
    "metadata_changed": "rejoined with another subscription",
    "leader_rejoined": "is the leader, and rejoined",
    "partitions_added": "took the leader's seat, and assigned partitions that nobody had",
}
"""What a member did to cause a rebalance."""

DID_OF_CONSUMERS = DID | {
    "join_overdue": "did not join again, and the next owners of its partitions waited {took} for it",
    "sync_overdue": "did not request its assignment for {took}",
    "revocation_overdue": "did not give up partitions, and their next owners waited {took} for it",
    "subscription_changed": "changed its subscription",
    "topics_changed": "reported a change of the subscribed topics",
    "regex_resolved": "reported that the pattern matches other topics",
    "assignor_changed": "asked for another assignor",
}
"""What a member of a group of the consumer protocol did."""
