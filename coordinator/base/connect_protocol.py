"""The bytes that Kafka Connect's workers exchange through the coordinator: a worker's state and its assignment.

They name connectors and tasks instead of partitions. From version 1 on, a worker's state has the work that it does, and
its assignment has only the change: the work that comes, the work that it must give up, and the delay after which the
workers join again because another worker is gone.

Source: Kafka's ConnectProtocol (version 0) and IncrementalCooperativeConnectProtocol (versions 1 and 2; KIP-415).
"""

import msgspec

from coordinator.base.binary import NULL, Malformed, Reader

CONNECT = "connect"
"""The protocol type of groups of Kafka Connect's workers."""

_ITSELF = -1
"""The number that stands for the connector itself among the numbers of its tasks."""


class Work(msgspec.Struct, frozen=True):
    """Connectors and tasks.

    Args:
        tasks: By connector, the numbers of its tasks.
    """

    connectors: tuple[str, ...] = ()
    tasks: dict[str, list[int]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether it has neither a connector nor a task."""
        return not self.connectors and not self.tasks

    def changed(self, gone: "Work", new: "Work") -> "Work":
        """Return this work without some that is given up, and with some that comes, in order."""
        connectors = (set(self.connectors) - set(gone.connectors)) | set(new.connectors)
        tasks: dict[str, list[int]] = {}
        for connector in sorted(self.tasks.keys() | new.tasks.keys()):
            stay = set(self.tasks.get(connector, ())) - set(gone.tasks.get(connector, ()))
            if numbers := stay | set(new.tasks.get(connector, ())):
                tasks[connector] = sorted(numbers)
        return Work(tuple(sorted(connectors)), tasks)


class WorkerAssignment(msgspec.Struct, frozen=True):
    """The assignment of one worker.

    Args:
        version: 0 if `assigned` is all work; otherwise it is the work that comes.
        config_offset: The offset in the configuration topic that the assignment is for; -1 without one.
        revoked: What the worker must give up. Then it joins again. From version 1.
        delay_ms: The time after which the workers join again, because work of a worker that is gone waits for its
            return; 0 for none. From version 1.
    """

    version: int = 0
    config_offset: int = -1
    assigned: Work = Work()
    revoked: Work = Work()
    delay_ms: int = 0


def read_worker_assignment(data: bytes) -> WorkerAssignment | None:
    """Return a worker's assignment; None if its bytes cannot be read. No bytes are an assignment without work.

    A newer version is read as the newest known one, as Kafka does, because versions only add fields at the end.
    """
    if not data:
        return WorkerAssignment()
    reader = Reader(data)
    try:
        version = reader.int16()
        if version < 0:
            return None
        reader.int16()  # the error, which the worker's own log has
        reader.nullable_text()  # the leader
        reader.nullable_text()  # the leader's address
        config_offset, assigned = reader.int64(), _work(reader)
        revoked = _work(reader) if version >= 1 and not reader.is_at_end else Work()
        delay_ms = reader.int32() if version >= 1 and not reader.is_at_end else 0
    except Malformed:
        return None
    return WorkerAssignment(version, config_offset, assigned, revoked, delay_ms)


def has_to_give_up_work(assignment: bytes) -> bool:
    """Return whether a worker must give up connectors or tasks and join again, so that other workers get them."""
    read = read_worker_assignment(assignment)
    return read is not None and not read.revoked.is_empty


def work_of(metadata: bytes, assignment: bytes) -> Work | None:
    """Return all work of a worker; None if its bytes cannot be read.

    Args:
        metadata: Its state when it joined, which has the work that it did then.
        assignment: Its assignment since.
    """
    read = read_worker_assignment(assignment)
    if read is None:
        return None
    before = _work_before(metadata) if read.version >= 1 else Work()
    return None if before is None else before.changed(read.revoked, read.assigned)


def _work_before(metadata: bytes) -> Work | None:
    """Return the work that a worker did when it joined; None if its bytes cannot be read."""
    reader = Reader(metadata)
    try:
        version = reader.int16()
        reader.text()  # the worker's address
        reader.int64()  # the offset in the configuration topic
        did = reader.nullable_data() if version >= 1 and not reader.is_at_end else None
    except Malformed:
        return None
    read = read_worker_assignment(did or b"")
    return None if read is None else read.assigned


def _work(reader: Reader) -> Work:
    """Read an array of connectors, each with the numbers of its tasks. It may be null."""
    connectors: list[str] = []
    tasks: dict[str, list[int]] = {}
    count = reader.int32()
    for _ in reader.elements(0 if count == NULL else count, 6):
        connector, numbers = reader.text(), reader.int32s()
        if _ITSELF in numbers:
            connectors.append(connector)
        if of_tasks := [number for number in numbers if number != _ITSELF]:
            tasks.setdefault(connector, []).extend(of_tasks)
    return Work(tuple(connectors), tasks)
