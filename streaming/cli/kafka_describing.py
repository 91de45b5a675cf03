"""The descriptions of groups that `coordinator-consumer-groups` prints, equal to kafka-consumer-groups.sh cell by cell.

Source: Kafka 4.4.0, ConsumerGroupCommand: printOffsets, printMembers, printStates; they are the same in 4.3.1.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from confluent_kafka import KafkaException

from coordinator.hashing import kafka_partition_of
from coordinator.phases import GroupType
from streaming.cli.kafka_printing import in_line, say, under_a_blank_line, warn, widths_of
from streaming.cli.output import MISSING, to_cell
from streaming.cli.showing import ends_of, incomplete
from streaming.config.settings import Settings
from streaming.kafka.brokers import unreachable
from streaming.kafka.clients import admin, metadata
from streaming.views import answers
from streaming.views.fields import known
from streaming.views.rows import MemberRow, OffsetRow
from streaming.views.text import escape


def _say_state(group: Any) -> None:
    """Print to standard error, under a blank line, why a description is incomplete."""
    for sentence in incomplete(group):
        warn(f"\n{sentence}")


_OFFSETS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
_OFFSETS_LEAST = (15, 15, 10, 15, 15, 15, 15, 15, 0)


def describe_offsets(settings: Settings, groups: Sequence[Any], is_verbose: bool) -> None:
    """Print the partitions of each group: offsets, lag and owner."""
    ends = ends_of(settings, groups)
    for group in groups:
        _say_state(group)
        owning = sorted(answers.members(group), key=lambda member: -member.partitions)
        order = {member.member_id: number for number, member in enumerate(owning)}
        found = [row for row in answers.offsets(group, ends) if row.member_id or row.committed_offset is not None]
        found.sort(key=lambda row: order.get(row.member_id, len(order)) if row.member_id else len(order))
        rows = [
            [
                *(group.group_id, row.topic, row.partition, *([row.leader_epoch] if is_verbose else [])),
                *(row.committed_offset, row.end_offset, _lag(row), row.member_id, row.client_host, row.client_id),
            ]
            for row in found
        ]
        if rows:
            epoch = 3 if is_verbose else len(_OFFSETS)
            head = [*_OFFSETS[:epoch], *(["LEADER-EPOCH"] if is_verbose else []), *_OFFSETS[epoch:]]
            least = [*_OFFSETS_LEAST[:epoch], *([15] if is_verbose else []), *_OFFSETS_LEAST[epoch:]]
            under_a_blank_line(head, rows, least)


def _lag(row: OffsetRow) -> int | None:
    """Return a group's lag as Kafka's tool does: below 0 if the group has committed beyond the end."""
    if row.committed_offset is None or row.end_offset is None:
        return None
    return row.end_offset - row.committed_offset


_MEMBERS = ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
_MEMBERS_LEAST = (15, 15, 17, 15, 15, 15)
_VERBOSE = ("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT")
_VERBOSE_LEAST = (15, 20, 15, 20)
_UPGRADED = ("UPGRADED",)
_UPGRADED_LEAST = (0,)


def describe_members(_: Settings, groups: Sequence[Any], is_verbose: bool) -> None:
    """Print the members of each group, verbosely with their assignments and epochs.

    A group with members of both protocols has the column UPGRADED.
    """
    for group in groups:
        _say_state(group)
        found = answers.members(group)
        is_mixed = is_verbose and {m.protocol for m in found} >= {GroupType.CLASSIC.value, GroupType.CONSUMER.value}
        rows = [
            [
                *(to_cell(group.group_id), to_cell(m.member_id), escape(m.group_instance_id or "")),
                *(to_cell(m.client_host), to_cell(m.client_id), str(m.partitions)),
                *(_epochs(group, m) if is_verbose else ()),
                *([str(m.protocol != GroupType.CLASSIC.value).lower()] if is_mixed else []),
            ]
            for m in found
        ]
        head = [*_MEMBERS, *(_VERBOSE if is_verbose else ()), *(_UPGRADED if is_mixed else ())]
        least = [*_MEMBERS_LEAST, *(_VERBOSE_LEAST if is_verbose else ()), *(_UPGRADED_LEAST if is_mixed else ())]
        widths = widths_of(least, [head, *rows])
        has_instances = any(m.group_instance_id for m in found)
        say()
        for cells in [head, *rows]:
            shown = [n for n in range(len(head)) if has_instances or n != _MEMBERS.index("GROUP-INSTANCE-ID")]
            say(in_line([cells[n] for n in shown], [widths[n] for n in shown]) + ("" if is_verbose else " "))


def _epochs(group: Any, member: MemberRow) -> tuple[str, str, str, str]:
    """Return a member's epoch and assignment, and the target epoch, which is the group's, and assignment.

    Kafka's coordinator describes the partitions that a member has to give up as assigned ones.
    """
    target_epoch = known(group.record.assignment_epoch) if group.record else None
    current, target = _assignment(member.assigned, member.revoking), _assignment(member.target)
    return to_cell(member.member_epoch), current, to_cell(target_epoch), target


def _assignment(*assigned: dict[str, list[int]] | None) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, numbers in chain.from_iterable((each or {}).items() for each in assigned):
        by_topic.setdefault(topic, []).extend(numbers)
    owned = sorted(f"{escape(topic)}:{','.join(map(str, sorted(each)))}" for topic, each in by_topic.items() if each)
    return ";".join(owned) or MISSING


OFFSETS_TOPIC = "__consumer_offsets"
"""The topic with the records of Kafka's own coordinator."""

_STATE = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE")
_STATE_LEAST = (15, 25, 20, 20)


def describe_states(settings: Settings, groups: Sequence[Any], is_verbose: bool) -> None:
    """Print the state of each group, verbosely with its epochs."""
    brokers = _coordinators(settings, groups)
    epochs = ("GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH") if is_verbose else ()
    for group in groups:
        _say_state(group)
        strategy = (group.record.protocol_name if group.record else None) or None
        row = [
            *(group.group_id, brokers.get(group.group_id), strategy, group.state.value),
            *(_epochs_of(group) if is_verbose else ()),
            len(group.members),
        ]
        least = [*_STATE_LEAST, *((15, 25) if is_verbose else ()), 0]
        under_a_blank_line([*_STATE, *epochs, "#MEMBERS"], [row], least)


def _epochs_of(group: Any) -> tuple[int | None, int | None]:
    """Return the group epoch and the assignment epoch, which only groups of the consumer protocol have."""
    if group.record is None or group.type is not GroupType.CONSUMER:
        return None, None
    return group.record.generation_id, known(group.record.assignment_epoch)


def _coordinators(settings: Settings, groups: Sequence[Any]) -> dict[str, str]:
    """Return the coordinator of each group: in Kafka, the broker that leads the partition with the group's records.

    The records of a group of this coordinator are in its own topic, those of Kafka's groups in `__consumer_offsets`.
    """
    try:
        known = metadata(admin(settings, "coordinator-cli"))
    except KafkaException as error:
        raise unreachable(settings, error.args[0].str()) from error
    return {group.group_id: name for group in groups if (name := _coordinator(settings, known, group)) is not None}


def _coordinator(settings: Settings, known: Any, group: Any) -> str | None:
    topic = known.topics.get(settings.groups_topic if group.kept_by is None else OFFSETS_TOPIC)
    if topic is None or not topic.partitions:
        return None
    number = group.shard if group.kept_by is None else kafka_partition_of(group.group_id, len(topic.partitions))
    partition = topic.partitions.get(number)
    broker = known.brokers.get(partition.leader) if partition is not None else None
    return f"{broker.host}:{broker.port}  ({broker.id})" if broker is not None else None
