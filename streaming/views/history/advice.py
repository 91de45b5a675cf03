"""The assessment of each cause of a rebalance: whether it was avoidable, and if so, which setting to check.

`ADVICE` is the table of all protocols. In a group of the consumer protocol, `OF_CONSUMERS` has the rows that differ:
the coordinator has its timeouts, and no member waits for all others. `OF_CONNECT` and `OF_STREAMS` have the rows that
differ for the workers of Kafka Connect and for the instances of Kafka Streams.
"""

from collections.abc import Mapping
from typing import NamedTuple

from coordinator.base.states import GroupType
from streaming.views.state.causes import GroupKind


class Advice(NamedTuple):
    """The assessment of a cause.

    Args:
        is_avoidable: None if the events do not show it.
        setting: The setting to check; None if nothing is wrong.
        text: A sentence; `{took}` is the duration that belongs to the cause.
    """

    is_avoidable: bool | None
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
        "Avoidable: a static member that restarts causes a rebalance only if it offers other assignors, or comes back"
        " while the group is rebalancing. If it was not restarted, two processes have one group.instance.id."),
    "member_joined": Advice(False, None,
        "Unavoidable: a new member gets its assignment. If many members start together, the coordinator's"
        " group_initial_rebalance_delay_ms makes them join in one rebalance."),
    "member_left": Advice(False, None,
        "Unavoidable: the partitions of a member that left go to other members."),
    "metadata_changed": Advice(False, None,
        "Unavoidable: a member subscribes to other topics, offers other assignors, or has other data for its assignor"
        " than before."),
    "cooperative_round": Advice(False, None,
        "Unavoidable: in a further round of a cooperative rebalance, the partitions that a member gave up get new"
        " owners."),
    "requested": Advice(False, None,
        "Unavoidable: nothing that the coordinator can see has changed. The application of the member requested the"
        " rebalance."),
    "scheduled": Advice(False, None,
        "Unavoidable: Kafka Streams schedules a rebalance every probing.rebalance.interval.ms until its warm-up tasks"
        " have restored their state, and then moves the tasks."),
    "leader_rejoined": Advice(False, None,
        "Unavoidable: the leader computes new assignments, probably because a topic has more partitions now."),
    "partitions_added": Advice(False, None,
        "Unavoidable: a topic has partitions that nobody has. A new leader noticed them when it took the seat of the"
        " former one."),
    "protocol_upgraded": Advice(False, None,
        "Unavoidable: the group changed its protocol, because a member joined with the new one."),
    "protocol_downgraded": Advice(False, None,
        "Unavoidable: the group changed its protocol, because its last member of the new one is gone."),
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
    "assignors_tied": Advice(True, "group.remote.assignor",
        "Avoidable: set group.remote.assignor alike for all members, and restart those that have another one."),
    "racks_changed": Advice(False, None,
        "Unavoidable: Kafka rebalances when replicas move between racks, or brokers have another broker.rack, although"
        " its assignors do not use them."),
    "brokers_upgraded": Advice(False, None,
        "Unavoidable: each group of the consumer protocol rebalances once after the upgrade."),
}  # fmt: skip
"""The table of groups of the consumer protocol."""

OF_STREAMS_GROUPS = OF_CONSUMERS | {
    "member_changed": Advice(False, None,
        "Unavoidable: the process was started anew, or with other settings."),
    "topics_changed": Advice(False, None,
        "Unavoidable: a topic of the topology was created or deleted, or has more partitions now."),
    "topology_ready": Advice(False, None,
        "Unavoidable: the members get tasks when all topics of the topology are there."),
    "topology_not_ready": Advice(True, None,
        "Avoidable: somebody deleted a topic of the topology, or gave one more partitions than the topics have that"
        " belong to it. Nobody gets tasks until that is mended."),
    "configs_changed": Advice(False, None,
        "Unavoidable: somebody changed a setting of the group, and the tasks are planned anew."),
}  # fmt: skip
"""The table of streams groups (KIP-1071)."""

OF_SHARE_GROUPS = OF_CONSUMERS | {
    "share_state_ready": Advice(False, None,
        "Unavoidable: Kafka gives partitions to members when their share state is there, one group epoch later."),
}  # fmt: skip
"""The table of share groups (KIP-932)."""

OF_CONNECT = ADVICE | {
    "join_overdue": Advice(True, "rebalance.timeout.ms",
        "Avoidable: check rebalance.timeout.ms of the workers, the time that all wait for a worker. It must be longer"
        " than the stop of its slowest task."),
    "sync_overdue": Advice(True, "rebalance.timeout.ms",
        "Avoidable: a worker joined and did not request its assignment. Check its rebalance.timeout.ms."),
    "restarted": Advice(False, "scheduled.rebalance.max.delay.ms",
        "Unavoidable: the worker joined again within {took}. Within scheduled.rebalance.max.delay.ms it gets its"
        " connectors and tasks back."),
    "member_joined": Advice(False, None,
        "Unavoidable: a new worker gets connectors and tasks."),
    "member_left": Advice(False, None,
        "Unavoidable: the connectors and tasks of a worker that left go to other workers, after"
        " scheduled.rebalance.max.delay.ms at the latest."),
    "metadata_changed": Advice(False, None,
        "Unavoidable: workers join again when a connector is created or deleted, when the number of its tasks changes,"
        " and scheduled.rebalance.max.delay.ms after a worker was gone."),
    "cooperative_round": Advice(False, None,
        "Unavoidable: in a further round, the connectors and tasks that a worker gave up are given to other workers."),
    "leader_rejoined": Advice(False, None,
        "Unavoidable: the leader joins again to distribute connectors and tasks anew."),
}  # fmt: skip
"""The table of groups of Kafka Connect's workers."""

OF_STREAMS = ADVICE | {
    "session_expired": Advice(None, None,
        "Not known: an instance of Kafka Streams does not leave its group when it is closed, so its session expires. If"
        " somebody stopped it, nothing is wrong. If it still runs, check session.timeout.ms ({took})."),
}  # fmt: skip
"""The table of groups of Kafka Streams' instances."""

UNKNOWN = Advice(False, None, "Its cause is no longer in the events topic.")

LAST_LEFT = Advice(False, None,
    "Unavoidable: the last member left. Nobody owns the partitions until a member joins.")  # fmt: skip

LAST_WORKER_LEFT = Advice(False, None,
    "Unavoidable: the last worker left. Connectors and tasks do not run until a worker joins.")  # fmt: skip

STATIC_GONE = Advice(None, None,
    "Not known: a member with a group.instance.id does not leave when it is closed. If somebody stopped it, nothing is"
    " wrong. If it was restarted, session.timeout.ms ({took}) must be longer than a restart.")  # fmt: skip

STATIC_GONE_OF_CONSUMERS = Advice(None, None,
    "Not known: a member with a group.instance.id that is closed may come back for group.consumer.session.timeout.ms of"
    " the brokers. If somebody stopped it, nothing is wrong. If it was restarted, this must be longer than a restart."
)  # fmt: skip

RESTARTED = Advice(True, "group.instance.id",
    "Avoidable: with a group.instance.id, and a session.timeout.ms that is longer than a restart, the group does not"
    " rebalance.")  # fmt: skip
"""The advice about a restart in a group of Kafka's coordinator, which does not record how long it took."""

GONE = Advice(None, None,
    "Not known: if it still runs, look at session.timeout.ms and max.poll.interval.ms; if somebody stopped it, nothing"
    " is wrong.")  # fmt: skip

GONE_OF_CONSUMERS = Advice(None, None,
    "Not known: if it still runs, look at group.consumer.session.timeout.ms of the brokers and max.poll.interval.ms; if"
    " somebody stopped it, nothing is wrong.")  # fmt: skip

GONE_AGAIN = Advice(True, "session.timeout.ms",
    "Avoidable: the same client is gone again and again. If it runs on, look at session.timeout.ms and"
    " max.poll.interval.ms; if it is started anew each time, look for the reason.")  # fmt: skip

NOTHING_RECORDED = Advice(None, None,
    "Not known: look at the log of the group's coordinator, which may say why it raised the group epoch.")  # fmt: skip

NOTHING_DIFFERS = Advice(None, None,
    "Not known: a member or an application may have requested it, or a member joined and was gone between two"
    " records.")  # fmt: skip

GAP = Advice(None, None, "Not known: what happened meanwhile cannot be told.")

TOPICS_NOTICED = Advice(False, None,
    "Unavoidable: a subscribed topic was created or deleted, or has more partitions now, and the leader computes new"
    " assignments.")  # fmt: skip

DID = {
    "session_expired": "was silent for {took} and was dropped",
    "poll_overdue": "left because its application did not poll in time",
    "join_overdue": "did not join again, and all members waited {took} for it",
    "sync_overdue": "did not request its assignment, and all members waited {took} for it",
    "restarted": "left and joined again after {took}",
    "static_member_replaced": "joined in place of another process with its instance id",
    "member_joined": "joined",
    "member_left": "left",
    "metadata_changed": "joined again with other metadata",
    "cooperative_round": "gave up partitions and joined again",
    "requested": "joined again",
    "scheduled": "joined again",
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

DID_OF_CONNECT = DID | {
    "join_overdue": "did not join again, and all workers waited {took} for it",
    "sync_overdue": "did not request its assignment, and all workers waited {took} for it",
    "metadata_changed": "joined again for a change of connectors or tasks",
    "leader_rejoined": "is the leader, and joined again",
    "cooperative_round": "gave up connectors or tasks and joined again",
}
"""What a worker of Kafka Connect did."""

DID_NOT_COME_BACK = "did not come back within its session of {took}"
"""What a static member did whose session expired."""

_OF_KINDS = {GroupKind.CONSUMERS: ADVICE, GroupKind.CONNECT: OF_CONNECT, GroupKind.STREAMS: OF_STREAMS}


_OF_TYPES: Mapping[GroupType, Mapping[str, Advice]] = {
    GroupType.CONSUMER: OF_CONSUMERS,
    GroupType.STREAMS: OF_STREAMS_GROUPS,
    GroupType.SHARE: OF_SHARE_GROUPS,
}


def advice_for(cause: str, kind: GroupKind, of_group: GroupType) -> Advice:
    """Return the row of a cause. A converted group may have begun to rebalance for a cause of its other protocol."""
    table = _OF_TYPES.get(of_group) or _OF_KINDS[kind]
    return table.get(cause) or OF_CONSUMERS.get(cause, UNKNOWN)


_OF_BROKERS = {
    "the coordinator's group_initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms of the brokers",
    "group_consumer_assignment_interval_ms of the coordinator": "group.consumer.assignment.interval.ms of the brokers",
    "group_consumer_session_timeout_ms of the coordinator": "group.consumer.session.timeout.ms of the brokers",
}
"""The settings of this coordinator, and those of Kafka's brokers for the groups that they keep."""


def for_brokers(advice: Advice, of_group: GroupType) -> Advice:
    """Return an assessment with the settings of Kafka's brokers instead of those of this coordinator."""
    text = advice.text
    for ours, theirs in _OF_BROKERS.items():
        text = text.replace(ours, theirs)
    return advice._replace(text=text.replace("group.consumer.", f"group.{of_group.value}."))


def did_by(kind: GroupKind, of_group: GroupType) -> Mapping[str, str]:
    """Return the texts about what a member of a group did to cause a rebalance."""
    if of_group.has_epochs:
        return DID_OF_CONSUMERS
    return DID_OF_CONNECT if kind is GroupKind.CONNECT else DID
