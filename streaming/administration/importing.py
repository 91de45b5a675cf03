"""The import of an exported file: the requests of each group, and what their responses mean.

A group is imported by one request for each part of its state. Several groups are in work at a time, because each
response takes a batch. The result of each group is reported in the order of the file.

The records of imported groups on the topics of the old coordinator end as a move ends them at its source. The group and
offset records of a compacted topic are kept for ever. The tombstones continue the versions of the exported state, so
readers see no gap.

Source: moving.md 7.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from threading import Lock
from typing import Any, NamedTuple

from confluent_kafka import KafkaException

from coordinator.base import limits
from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import shard_of
from coordinator.base.limits import MOVE_NUMBER_MAX
from coordinator.messages.group_records import GroupKey, OffsetKey, Published
from coordinator.messages.move_requests import CheckAdoption, ImportGroup
from coordinator.messages.requests import DeleteGroup
from coordinator.moves import transfer
from coordinator.moves.imports import ADOPTED_BEFORE, KEPT
from streaming.administration.parallel import each_in_order
from streaming.config.settings import Settings
from streaming.errors import NoCoordinator, RequestRefused
from streaming.kafka.brokers import unreachable
from streaming.kafka.clients import admin, metadata, producer
from streaming.views.text import escape
from streaming.wire.export_file import Head, Line
from streaming.wire.records import OutputTopics, to_row

PARALLEL_MAX = 64
"""The groups in work."""

PAUSES_S = (0.2, 1, 2, 4, 8, 16)
"""The pauses before a request is sent again that the coordinator is too busy to handle."""

NONE = ErrorCode.NONE.name
BUSY = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name
LIVES_HERE = "lives_here"

Ask = Callable[[Any], Any]
"""Sends one request to the coordinator, and returns its response. Several threads call it at a time."""


class Status(StrEnum):
    """The result for one group."""

    IMPORTED = "imported"
    THERE_ALREADY = "there already"
    REFUSED = "refused"
    WOULD_BE_IMPORTED = "would be imported"


class Result(NamedTuple):
    """The result for one group.

    Args:
        reason: The reason of a refusal, in one word, such as `lives_here`; "" without one.
        why: A sentence about it.
    """

    group_id: str
    status: Status
    reason: str = ""
    why: str = ""


class Choice(NamedTuple):
    """The choices of the operator.

    Args:
        is_older: The file is not the newest state of the groups.
        replaces: A group of the same name that is Empty is deleted first.
        drops_open_transactions: Offsets of open transactions are not imported.
        token_floor: No later fencing token is below it.
    """

    is_older: bool = False
    replaces: bool = False
    drops_open_transactions: bool = False
    token_floor: int = 0


class Importer:
    """The import of the groups of one file.

    Args:
        head: The first line of the file.
        pause: Waits for some seconds.
    """

    def __init__(self, ask: Ask, head: Head, choice: Choice, pause: Callable[[float], object] = time.sleep) -> None:
        self._ask_once, self._head, self._choice, self._pause = ask, head, choice, pause
        self._token_floor = min(max(head.highest_token + 1, choice.token_floor), MOVE_NUMBER_MAX)
        self._one_in_parts = Lock()  # a shard keeps the parts of few groups at a time

    def import_all(self, lines: Iterable[Line]) -> Iterator[Result]:
        """Import groups, and yield the result of each.

        Raises:
            RequestRefused: The sender may not import groups.
            UserError: A response did not come in time. The groups before it are imported.
        """
        return each_in_order(self._import, lines, PARALLEL_MAX)

    def check_all(self, lines: Iterable[Line]) -> Iterator[Result]:
        """Yield for each group whether it would be imported. Nothing is changed.

        Raises:
            RequestRefused, UserError: As `import_all`.
        """
        return each_in_order(self._check, lines, PARALLEL_MAX)

    def _ask(self, request: Any) -> Any:
        """Send a request, and again while the coordinator is too busy, and return the response.

        Raises:
            RequestRefused: The response is about the request itself: no right, or a coordinator of an older version.
        """
        answer = self._ask_once(request)
        for pause_s in PAUSES_S:
            if answer.error != BUSY:
                break
            self._pause(pause_s)
            answer = self._ask_once(request)
        if answer.error != NONE and isinstance(request, ImportGroup | CheckAdoption) and not _result_of(answer):
            why = answer.error_message or answer.error
            raise RequestRefused(f"The coordinator did not import {escape(request.group_id)} ({answer.error}: {why}).")
        return answer

    # -- one group -----------------------------------------------------------------------------------------------------

    def _import(self, line: Line) -> Result:
        answer = self._send(line)
        if answer.result == LIVES_HERE and self._choice.replaces:
            deleted = self._ask(DeleteGroup(request_id="", reply_to="", group_id=line.group_id)).error
            if deleted not in (NONE, ErrorCode.GROUP_ID_NOT_FOUND.name):
                why = "a group of that name lives at the target, and has members"
                return Result(line.group_id, Status.REFUSED, LIVES_HERE, why)
            answer = self._send(line)
        if answer.error != NONE:
            return Result(line.group_id, Status.REFUSED, answer.result, answer.error_message)
        status = Status.THERE_ALREADY if answer.result == ADOPTED_BEFORE else Status.IMPORTED
        return Result(line.group_id, status)

    def _send(self, line: Line) -> Any:
        """Send all parts of a group, and return the response with the result."""
        if transfer.parts_of(line.state) == 1:
            return self._ask(self._part(line, 1))
        with self._one_in_parts:
            for part in range(1, transfer.parts_of(line.state) + 1):
                answer = self._ask(self._part(line, part))
                if answer.error != NONE or answer.result != KEPT:
                    break
            return answer

    def _part(self, line: Line, part: int) -> ImportGroup:
        return ImportGroup(
            request_id="",
            reply_to="",
            group_id=line.group_id,
            move_id=line.move_id,
            number=line.number,
            source=self._head.prefix,
            token_floor=self._token_floor,
            is_older=self._choice.is_older,
            replaces=self._choice.replaces,
            drops_open_transactions=self._choice.drops_open_transactions,
            part=part,
            parts=transfer.parts_of(line.state),
            codec=line.codec,
            bytes=line.bytes,
            crc=line.crc,
            state=transfer.part_of(line.state, part),
        )

    def _check(self, line: Line) -> Result:
        carried = line.carried
        group = transfer.group_of(carried) if isinstance(carried, transfer.Living) else None
        if group is not None and group.pending_commits and not self._choice.drops_open_transactions:
            return Result(line.group_id, Status.REFUSED, "unsound", "the group has open transactions")
        members = len(group.members) if group is not None else 0
        who = {"request_id": "", "reply_to": "", "group_id": line.group_id}
        answer = self._ask(CheckAdoption(**who, codec=line.codec, bytes=line.bytes, members=members, home=False))
        if answer.reason is None:
            return Result(line.group_id, Status.WOULD_BE_IMPORTED)
        return Result(line.group_id, Status.REFUSED, answer.reason, answer.why or "")


def _result_of(answer: Any) -> str:
    """Return the result of an import; "" for a response without one."""
    return str(getattr(answer, "result", ""))


# -- the records at the old coordinator --------------------------------------------------------------------------------


CLIENT_ID = "coordinator-cli"
QUEUE = "queue.buffering.max.messages"


def tombstones(line: Line) -> Iterator[Published]:
    """Yield the tombstones of a group: of its offsets, then of itself. A removed group has them already."""
    carried = line.carried
    if isinstance(carried, transfer.Living):
        group = transfer.group_of(carried)
        keys: list[GroupKey | OffsetKey] = [("offset", line.group_id, t, p) for t, p, _ in group.all_offsets()]
        for key in [*keys, ("group", line.group_id)]:
            yield Published(line.group_id, key, None, group.next_version(), group.hot_state.now_ms)


def retire(settings: Settings, lines: Iterable[Line], advance: Callable[[], None] = lambda: None) -> None:
    """Write the tombstones of groups to the topic of a coordinator that will not run again.

    Args:
        settings: Those with the prefix of that coordinator.
        advance: Called after each group.

    Raises:
        NoCoordinator: The topic does not exist.
        BrokerUnreachable: The brokers did not accept all tombstones.
    """
    topic, servers = settings.groups_topic, settings.bootstrap_servers
    try:
        found = metadata(admin(settings, CLIENT_ID)).topics.get(topic)
        if found is None:
            raise NoCoordinator.without(topic, servers)
        topics = OutputTopics(settings.replies_topic, topic, settings.events_topic, settings.requests_topic)
        refused: list[object] = []
        writer = producer(settings, CLIENT_ID, {"enable.idempotence": True, QUEUE: limits.OFFSETS_PER_GROUP_MAX + 1})
        for line in lines:
            for tombstone in tombstones(line):
                shard = shard_of(line.group_id, len(found.partitions))
                row = to_row(tombstone, topics, shard)
                writer.produce(
                    topic,
                    key=row.key,
                    value=None,
                    partition=shard,
                    headers=[*(row.headers or ())],
                    on_delivery=lambda error, record: refused.append(error) if error is not None else None,
                )
            writer.flush()
            advance()
    except KafkaException as error:
        raise unreachable(settings, error.args[0].str()) from error
    if refused:
        raise unreachable(settings, refused[0], [topic])
