"""The columns and lines of partitions and members: `coordinator groups describe`, `offsets` and `members`."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from streaming.cli.lib.output import Column
from streaming.views import GroupView
from streaming.views.api import answers
from streaming.views.api.rows import MemberRow, OffsetRow
from streaming.views.state.lag import Ends
from streaming.views.text import by_topic


class PartitionLine(NamedTuple):
    """A partition of a group, or a member without partitions, which has no row."""

    group_id: str
    row: OffsetRow | None
    idle: MemberRow | None = None


def _of_partition(name: str) -> Any:
    return lambda line: getattr(line.row, name, None)


def _of_member(name: str) -> Any:
    return lambda line: getattr(line.idle or line.row, name, None)


PARTITIONS = (
    Column("GROUP", lambda line: line.group_id, is_chosen=True),
    Column("TOPIC", _of_partition("topic"), is_chosen=True),
    Column("PARTITION", _of_partition("partition"), is_number=True),
    Column("CURRENT-OFFSET", _of_partition("committed_offset"), is_number=True),
    Column("LOG-END-OFFSET", _of_partition("end_offset"), is_number=True),
    Column("LAG", _of_partition("lag"), is_number=True),
    Column("GONE-UNREAD", lambda line: (line.row and line.row.gone_unread) or None, is_number=True, is_optional=True),
    Column("CONSUMER-ID", _of_member("member_id"), is_chosen=True),
    Column("HOST", _of_member("client_host"), is_chosen=True),
    Column("CLIENT-ID", _of_member("client_id"), is_chosen=True),
    Column("INSTANCE-ID", _of_member("group_instance_id"), is_chosen=True, is_optional=True),
    Column("NEXT-CONSUMER-ID", _of_partition("next_member_id"), is_chosen=True, is_optional=True),
    Column("LEADER-EPOCH", _of_partition("leader_epoch"), is_number=True, is_wide=True),
    Column("COMMITTED-AT", _of_partition("commit_timestamp_ms"), is_wide=True, is_time=True),
    Column("COMMITTED-BY", _of_partition("committed_by"), is_chosen=True, is_wide=True),
    Column("COMMIT-GENERATION", _of_partition("commit_generation_id"), is_number=True, is_wide=True),
    Column("EXPIRES-AT", _of_partition("expire_timestamp_ms"), is_wide=True, is_time=True),
    Column("METADATA", _of_partition("metadata"), is_chosen=True, is_wide=True),
    Column("CONNECTORS", lambda line: line.idle and connectors(line.idle), is_chosen=True, is_optional=True),
    Column("TASKS", lambda line: line.idle and tasks(line.idle), is_chosen=True, is_optional=True),
)


OFFSETS = tuple(
    column._replace(is_wide=False, is_optional=True) if column.header in ("COMMITTED-AT", "METADATA") else column
    for column in PARTITIONS
)
"""The columns of `offsets`. They show the times of commits, to find a partition whose offset does not advance."""


def partition_lines(group: GroupView, ends: Ends) -> list[PartitionLine]:
    """Return a line for each owned or committed partition, then a line for each member without partitions."""
    lines = [PartitionLine(group.group_id, row) for row in answers.offsets(group, ends)]
    return lines + [PartitionLine(group.group_id, None, m) for m in answers.members(group) if not m.partitions]


def assignment(assigned: dict[str, list[int]] | None) -> str | None:
    """Return partitions as text: `orders 0-2 5, payments 1`; None if there are none."""
    return by_topic(assigned or {}) or None


def subscription(row: MemberRow) -> str | None:
    """Return a member's subscription as text: its topics, and its pattern between slashes; None in a classic group."""
    if row.subscribed_topics is None:
        return None
    return ", ".join([*row.subscribed_topics, *([f"/{row.regex}/"] if row.regex else [])]) or None


def connectors(row: MemberRow) -> str | None:
    """Return the connectors of a worker of Kafka Connect as text; None for none, and for other members."""
    return ", ".join(row.work.connectors) or None if row.work is not None else None


def tasks(row: MemberRow) -> str | None:
    """Return the tasks of a worker of Kafka Connect, or the active tasks of an instance of Kafka Streams, as text."""
    if row.work is not None:
        return by_topic(row.work.tasks) or None
    return ", ".join(row.streams.active) or None if row.streams is not None else None


def standby_tasks(row: MemberRow) -> str | None:
    """Return the standby and warm-up tasks of an instance of Kafka Streams as text."""
    return ", ".join([*row.streams.standby, *row.streams.warmup]) or None if row.streams is not None else None


class MemberLine(NamedTuple):
    """A member of a group."""

    group_id: str
    row: MemberRow


MEMBERS = (
    Column("GROUP", lambda line: line.group_id, is_chosen=True),
    Column("CONSUMER-ID", lambda line: line.row.member_id, is_chosen=True),
    Column("GROUP-INSTANCE-ID", lambda line: line.row.group_instance_id, is_chosen=True, is_optional=True),
    Column("HOST", lambda line: line.row.client_host, is_chosen=True),
    Column("CLIENT-ID", lambda line: line.row.client_id, is_chosen=True),
    Column("#PARTITIONS", lambda line: line.row.partitions, is_number=True),
    Column("ASSIGNMENT", lambda line: assignment(line.row.assigned), is_chosen=True),
    Column("REVOKING", lambda line: assignment(line.row.revoking), is_chosen=True, is_optional=True),
    Column("TARGET", lambda line: assignment(line.row.target), is_chosen=True, is_optional=True),
    Column("STANDING", lambda line: line.row.standing, is_optional=True),
    Column("EPOCH", lambda line: line.row.member_epoch, is_number=True, is_optional=True),
    Column("STATE", lambda line: line.row.state, is_optional=True),
    Column("SUBSCRIBED", lambda line: subscription(line.row), is_chosen=True, is_optional=True),
    Column("PROTOCOL", lambda line: line.row.protocol, is_wide=True),
    Column("RACK", lambda line: line.row.rack_id, is_chosen=True, is_wide=True),
    Column("LEADER", lambda line: "yes" if line.row.is_leader else "no", is_wide=True),
    Column("SESSION-TIMEOUT-MS", lambda line: line.row.session_timeout_ms, is_number=True, is_wide=True),
    Column("REBALANCE-TIMEOUT-MS", lambda line: line.row.rebalance_timeout_ms, is_number=True, is_wide=True),
    Column("CONNECTORS", lambda line: connectors(line.row), is_chosen=True, is_optional=True),
    Column("TASKS", lambda line: tasks(line.row), is_chosen=True, is_optional=True),
    Column("STANDBY-TASKS", lambda line: standby_tasks(line.row), is_chosen=True, is_optional=True),
    Column("PROCESS", lambda line: line.row.process_id, is_chosen=True, is_wide=True, is_optional=True),
)


def member_lines(groups: Iterable[GroupView]) -> list[MemberLine]:
    """Return a line for each member."""
    return [MemberLine(group.group_id, row) for group in groups for row in answers.members(group)]
