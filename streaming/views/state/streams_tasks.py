"""The tasks of Kafka Streams' instances: in a streams group from its record, in a classic group from the user data of
assignments.

An assignment of a classic group names active tasks and standby tasks. Tasks that warm up on an instance, before they
become active there, are among the standby tasks; the format does not tell them apart. It has the time of the next
rebalance, which the leader schedules only while tasks warm up.

Source: Kafka Streams' AssignmentInfo, versions 1 to 11, and ConsumerProtocolUtils.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from coordinator.base.binary import Reader
from coordinator.base.consumer_protocol import read_assignment
from coordinator.messages.group_records import StreamsMember
from streaming.views.text import escape

VERSION_MAX = 11

_COMMON_VERSION_FROM, _SCHEDULE_FROM, _NAMED_FROM = 3, 7, 10
"""The versions from which an assignment has the common version, the next rebalance, and names of topologies."""

_NOT_SCHEDULED_MS = 2**63 - 1


class StreamsTasks(Struct, frozen=True):
    """The tasks of an instance of Kafka Streams, by the names that its own logs use, such as 0_3.

    Args:
        standby: Standby tasks; in a classic group, tasks that warm up as well.
        warmup: Tasks that warm up; only in a streams group.
        next_rebalance_ms: When the instance asks for the next rebalance, because some tasks warm up; 0 for at once,
            because other instances give up tasks for it; null for never.
    """

    active: list[str]
    standby: list[str]
    next_rebalance_ms: int | None = None
    warmup: list[str] = []


def tasks_of_member(member: StreamsMember) -> StreamsTasks:
    """Return the tasks of a member of a streams group."""
    tasks = member.assigned
    return StreamsTasks(_named(tasks.active), _named(tasks.standby), None, _named(tasks.warmup))


def tasks_in_words(member: StreamsMember) -> str:
    """Return the tasks of a member of a streams group, such as `tasks 0_0 1_0, standby 0_1`."""
    tasks = tasks_of_member(member)
    roles = (("tasks", tasks.active), ("standby", tasks.standby), ("warm-up", tasks.warmup))
    return ", ".join(f"{role} {escape(' '.join(names))}" for role, names in roles if names) or "no task"


def _named(tasks: Mapping[str, Iterable[int]]) -> list[str]:
    return [f"{subtopology}_{number}" for subtopology, numbers in sorted(tasks.items()) for number in sorted(numbers)]


def tasks_of(assignment: bytes) -> StreamsTasks | None:
    """Return the tasks of an assignment; None if its bytes cannot be read, and for a version after `VERSION_MAX`."""
    try:
        _, user_data = read_assignment(assignment)
        return _read(Reader(user_data))
    except ValueError:  # malformed, or a name that is not UTF-16
        return None


def _read(reader: Reader) -> StreamsTasks | None:
    version = reader.int32()
    if not 1 <= version <= VERSION_MAX:
        return None
    if version >= _COMMON_VERSION_FROM:
        reader.int32()
    active = [_task(reader, version) for _ in reader.elements(reader.int32(), 8)]
    standby = []
    for _ in reader.elements(reader.int32(), 12):
        standby.append(_task(reader, version))
        _skip_partitions(reader)
    tasks = StreamsTasks(_in_order(active), _in_order(standby))
    if version < _SCHEDULE_FROM:
        return tasks
    _skip_hosts(reader)
    reader.int32()  # the error
    at_ms = reader.int64()
    return StreamsTasks(tasks.active, tasks.standby, None if at_ms == _NOT_SCHEDULED_MS else at_ms)


Task = tuple[str, int, int]
"""A task: the name of its topology, the number of its subtopology, and its partition."""


def _task(reader: Reader, version: int) -> Task:
    subtopology, partition = reader.int32(), reader.int32()
    name = ""
    if version >= _NAMED_FROM:
        name = reader.read(2 * len(reader.elements(reader.int32(), 2))).decode("utf-16-be")
    return name, subtopology, partition


def _in_order(tasks: list[Task]) -> list[str]:
    """Return the names of tasks in order, each once. An active task is listed once for each of its partitions."""
    return [
        f"{name}__{subtopology}_{partition}" if name else f"{subtopology}_{partition}"
        for name, subtopology, partition in sorted(set(tasks))
    ]


def _skip_partitions(reader: Reader) -> None:
    for _ in reader.elements(reader.int32(), 6):
        reader.text()
        reader.int32()


def _skip_hosts(reader: Reader) -> None:
    """Skip the partitions of each instance's address, of active and of standby tasks, and the names of the topics."""
    for _ in reader.elements(reader.int32(), 6):
        reader.int32()
        reader.text()
    for _ in range(2):
        for _ in reader.elements(reader.int32(), 10):
            reader.text()
            reader.int32()
            for _ in reader.elements(reader.int32(), 8):
                reader.int32()
                reader.int32()
