"""The actions and the output of `coordinator-consumer-groups`, equal to kafka-consumer-groups.sh cell by cell.

The blanks are equal too: the widths of columns are those of Kafka's printf formats. Errors are printed to standard
output, as Kafka's tool does.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC
from typing import Any

from confluent_kafka import KafkaException

from coordinator.phases import Phase
from streaming.administration.resetting import exported, read_topics
from streaming.cli.asking import NONE, NOT_FOUND, Administration, BrokerLog, message
from streaming.cli.output import MISSING, to_cell
from streaming.cli.properties import settings_in
from streaming.cli.resets import ResetOptions, commit, planned
from streaming.cli.showing import ends_of, folded
from streaming.cli.times import read_ago, read_time
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, Exit, NotFound, RequestRefused
from streaming.kafka.clients import ANSWER_WAIT_S, admin
from streaming.moments import unix_ms
from streaming.views import answers
from streaming.views.rows import OffsetRow
from streaming.views.words import escape

_EXCEPTIONS = {
    "GROUP_ID_NOT_FOUND": "GroupIdNotFoundException",
    "NON_EMPTY_GROUP": "GroupNotEmptyException",
    "GROUP_SUBSCRIBED_TO_TOPIC": "GroupSubscribedToTopicException",
    "GROUP_AUTHORIZATION_FAILED": "GroupAuthorizationException",
    "TOPIC_AUTHORIZATION_FAILED": "TopicAuthorizationException",
    "UNKNOWN_TOPIC_OR_PARTITION": "UnknownTopicOrPartitionException",
    "INVALID_GROUP_ID": "InvalidGroupIdException",
}
"""The exceptions of Kafka's client, by error. Kafka's tool prints them, and scripts search its output for them."""

_OF_PARTITIONS = {"GROUP_SUBSCRIBED_TO_TOPIC", "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PARTITION"}


def run(asked: Namespace) -> int:
    """Run the requested action, and return the exit code."""
    given = settings_in(asked.command_config) if asked.command_config else {}
    flags = {"bootstrap_servers": asked.bootstrap_server, "topic_prefix": asked.topic_prefix}
    settings = Settings.load(**{**given, **{name: value for name, value in flags.items() if value}})
    return int(_RUN[asked.action](settings, asked))


def _say(text: str = "") -> None:
    print(text)  # noqa: T201


def _warn(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201


def _error(text: str) -> None:
    _say(f"\nError: {text}")


def _raised(error: str) -> str:
    return f"org.apache.kafka.common.errors.{_EXCEPTIONS.get(error, 'ApiException')}: {message(error)}"


def _failed(error: str) -> int:
    _error(f"Executing consumer group command failed due to {error}")
    return Exit.FAILED


def _widths(least: Sequence[int], rows: Iterable[Sequence[str]]) -> list[int]:
    """Return the widths of columns: the widest cell, and at least the given width; 0 for a column without padding."""
    return [
        max(width, *map(len, column)) if width else 0
        for width, column in zip(least, zip(*rows, strict=True), strict=True)
    ]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))


# -- list --------------------------------------------------------------------------------------------------------------

_CONSUMERS = ("", "consumer")
"""The protocol types of the groups that this tool lists."""


def _is_of_consumers(group: Any) -> bool:
    return ((group.record.protocol_type if group.record else None) or "") in _CONSUMERS


def _list(settings: Settings, asked: Namespace) -> int:
    states, types = _chosen_states(asked.state), _chosen_types(asked.type)
    if states is None or types is None:
        return Exit.USAGE
    groups = [group for group in folded(settings, events=False).present() if _is_of_consumers(group)]
    if asked.state is None and asked.type is None:
        for group in groups:
            _say(escape(group.group_id))
        return Exit.DONE
    listed = [
        group for group in groups if (not states or group.state.value in states) and (not types or "classic" in types)
    ]
    head = ["GROUP", *(["TYPE"] if asked.type is not None else []), *(["STATE"] if asked.state is not None else [])]
    rows = [
        [
            escape(group.group_id),
            *(["Classic"] if asked.type is not None else []),
            *([group.state.value] if asked.state is not None else []),
        ]
        for group in listed
    ]
    widths = [max([15, *(len(row[0]) for row in rows)]) + 10, *[20] * (len(head) - 1)]
    for row in [head, *rows]:
        _say(_line(row, widths))
    return Exit.DONE


_STATES = ("Stable", "Dead", "PreparingRebalance", "CompletingRebalance", "Empty", "Assigning", "Reconciling")
_TYPES = ("Classic", "Consumer")


def _chosen_states(text: str | None) -> set[str] | None:
    known = {state.lower(): state for state in _STATES}
    return _chosen(text, known, f"Invalid state list '{text}'. Valid states are: {', '.join(_STATES)}")


def _chosen_types(text: str | None) -> set[str] | None:
    known = {kind.lower(): kind.lower() for kind in _TYPES}
    return _chosen(text, known, f"Invalid types list '{text}'. Valid types are: {', '.join(_TYPES)}")


def _chosen(text: str | None, known: dict[str, str], problem: str) -> set[str] | None:
    """Parse a list of names, ignoring case. Print a warning and return None if a name is unknown."""
    names = [name.strip().lower() for name in text.split(",")] if text else []
    if any(name not in known for name in names):
        _warn(problem)
        return None
    return {known[name] for name in names}


# -- describe ----------------------------------------------------------------------------------------------------------


def _describe(settings: Settings, asked: Namespace) -> int:
    views = folded(settings, None if asked.all_groups else asked.group, events=False)
    if asked.all_groups:
        groups = [group for group in views.present() if _is_of_consumers(group)]
    else:
        wanted = sorted(set(asked.group))
        if missing := [g for g in wanted if g not in views.groups or not views.groups[g].is_there]:
            _failed(f"org.apache.kafka.common.errors.GroupIdNotFoundException: Group {escape(missing[0])} not found.")
            return Exit.NOT_FOUND
        groups = [views.groups[group_id] for group_id in wanted]
    describing = (
        _describe_members if asked.members else _describe_states if asked.state is not None else _describe_offsets
    )
    describing(settings, groups, asked.verbose)
    return Exit.DONE


def _say_state(group: Any) -> None:
    """Print to standard error why a description is incomplete."""
    if group.state is Phase.EMPTY:
        _warn(f"\nConsumer group '{escape(group.group_id)}' has no active members.")
    elif group.state in (Phase.PREPARING, Phase.COMPLETING):
        _warn(f"\nWarning: Consumer group '{escape(group.group_id)}' is rebalancing.")


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


def _describe_offsets(settings: Settings, groups: Sequence[Any], is_verbose: bool) -> None:
    ends = ends_of(settings, groups)
    for group in groups:
        _say_state(group)
        owning = sorted(answers.members(group), key=lambda member: -member.partitions)
        order = {member.member_id: number for number, member in enumerate(owning)}
        found = answers.offsets(group, ends)
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
            _under_a_blank_line(head, rows, least)


def _lag(row: OffsetRow) -> int | None:
    """Return a group's lag as Kafka's tool does: below 0 if the group has committed beyond the end."""
    if row.committed_offset is None or row.end_offset is None:
        return None
    return row.end_offset - row.committed_offset


def _under_a_blank_line(head: Sequence[str], rows: Sequence[Sequence[object]], least: Sequence[int]) -> None:
    cells = [list(head), *([to_cell(value) for value in row] for row in rows)]
    widths = _widths(least, cells)
    for line in cells:
        print(f"\n{_line(line, widths)}", end="")  # noqa: T201
    _say()


_MEMBERS = ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
_MEMBERS_LEAST = (15, 15, 17, 15, 15, 15)
_VERBOSE = ("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT")
_VERBOSE_LEAST = (15, 20, 15, 20)


def _describe_members(_: Settings, groups: Sequence[Any], is_verbose: bool) -> None:
    for group in groups:
        _say_state(group)
        found = answers.members(group)
        rows = [
            [
                *(to_cell(group.group_id), to_cell(m.member_id), escape(m.group_instance_id or "")),
                *(to_cell(m.client_host), to_cell(m.client_id), str(m.partitions)),
                *([MISSING, _assignment(m.assigned), MISSING, MISSING] if is_verbose else []),
            ]
            for m in found
        ]
        head = [*_MEMBERS, *(_VERBOSE if is_verbose else ())]
        widths = _widths([*_MEMBERS_LEAST, *(_VERBOSE_LEAST if is_verbose else ())], [head, *rows])
        has_instances = any(m.group_instance_id for m in found)
        _say()
        for cells in [head, *rows]:
            shown = [n for n in range(len(head)) if has_instances or n != _MEMBERS.index("GROUP-INSTANCE-ID")]
            _say(_line([cells[n] for n in shown], [widths[n] for n in shown]) + ("" if is_verbose else " "))


def _assignment(assigned: dict[str, list[int]] | None) -> str:
    owned = sorted((topic, each) for topic, each in (assigned or {}).items() if each)
    return ";".join(f"{escape(topic)}:{','.join(map(str, sorted(each)))}" for topic, each in owned) or MISSING


_STATE = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE")
_STATE_LEAST = (15, 25, 20, 20)


def _describe_states(settings: Settings, groups: Sequence[Any], is_verbose: bool) -> None:
    brokers = _leaders(settings)
    epochs = ("GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH") if is_verbose else ()
    for group in groups:
        _say_state(group)
        strategy = (group.record.protocol_name if group.record else None) or None
        row = [
            *(group.group_id, brokers.get(group.shard), strategy, group.state.value),
            *(None for _ in epochs),
            len(group.members),
        ]
        least = [*_STATE_LEAST, *((15, 25) if is_verbose else ()), 0]
        _under_a_blank_line([*_STATE, *epochs, "#MEMBERS"], [row], least)


def _leaders(settings: Settings) -> dict[int, str]:
    """Return the broker that leads each shard's partition. In Kafka, the leader of a group's partition is its
    coordinator."""
    try:
        known = admin(settings, "coordinator-cli").list_topics(timeout=ANSWER_WAIT_S)
    except KafkaException as error:
        raise BrokerUnreachable.at(settings.bootstrap_servers, error) from error
    topic = known.topics.get(settings.groups_topic)
    found = {shard: known.brokers.get(each.leader) for shard, each in (topic.partitions if topic else {}).items()}
    return {shard: f"{broker.host}:{broker.port}  ({broker.id})" for shard, broker in found.items() if broker}


# -- delete ------------------------------------------------------------------------------------------------------------


def _delete(settings: Settings, asked: Namespace) -> int:
    group_ids = list(dict.fromkeys(asked.group or ()))
    if asked.all_groups:
        group_ids = [g.group_id for g in folded(settings, events=False).present() if _is_of_consumers(g)]
    with Administration(settings, asked.timeout / 1_000) as administration:
        ended = {group_id: administration.delete(group_id) for group_id in group_ids}
    failed = {group_id: error for group_id, error in ended.items() if error != NONE}
    deleted = ", ".join(f"'{escape(group_id)}'" for group_id in ended if group_id not in failed)
    if not failed:
        _say(f"Deletion of requested consumer groups ({deleted}) was successful.")
        return Exit.DONE
    _error("Deletion of some consumer groups failed:")
    for group_id, error in failed.items():
        _say(f"* Group '{escape(group_id)}' could not be deleted due to: {_raised(error)}")
    if deleted:
        _say(f"\nThese consumer groups were deleted successfully: {deleted}")
    return Exit.NOT_FOUND if NOT_FOUND.issuperset(failed.values()) else Exit.FAILED


def _delete_offsets(settings: Settings, asked: Namespace) -> int:
    (group_id,) = asked.group
    log = BrokerLog(settings)
    names = {topic for topic in asked.topic if ":" not in topic}
    missing = names - log.partitions(names).keys()
    places = read_topics([topic for topic in asked.topic if topic not in missing], log.partitions)
    with Administration(settings, asked.timeout / 1_000) as administration:
        error, ended = administration.delete_offsets(group_id, places) if places else (NONE, {})
    wrong = [each for each in ended.values() if each != NONE] + ["UNKNOWN_TOPIC_OR_PARTITION"] * len(missing)
    if error != NONE:
        _error(message(error))
    elif _OF_PARTITIONS.intersection(ended.values()):
        _error("Encountered some partition-level error, see the follow-up details.")
    else:
        _say(f"Request succeeded for deleting offsets from group {escape(group_id)}.")
    rows = [[topic, partition, _status(each)] for (topic, partition), each in ended.items()]
    rows += [[topic, None, _status("UNKNOWN_TOPIC_OR_PARTITION")] for topic in missing]
    rows.sort(key=lambda row: f"{row[0]}{row[1]}")
    _under_a_blank_line(("TOPIC", "PARTITION", "STATUS".ljust(15)), rows, (15, 10, 0))
    if error in NOT_FOUND:
        return Exit.NOT_FOUND
    return Exit.FAILED if error != NONE or wrong else Exit.DONE


def _status(error: str) -> str:
    return ("Successful" if error == "NONE" else f"Error: {_raised(error)}").ljust(15)


# -- reset -------------------------------------------------------------------------------------------------------------


def _reset_offsets(settings: Settings, asked: Namespace) -> int:
    if not (asked.dry_run or asked.execute):
        _warn("WARN: No action will be performed as the --execute option is missing.")
    views = folded(settings, None if asked.all_groups else asked.group, events=False)
    group_ids = sorted(set(asked.group or (g.group_id for g in views.present() if _is_of_consumers(g))))
    resets: dict[str, Any] = {}
    code = Exit.DONE
    for group_id in group_ids:
        try:
            reset = planned(settings, group_id, views.groups.get(group_id), _reset_asked(asked))
            if asked.execute:
                commit(settings, group_id, reset.offsets)
        except RequestRefused as error:
            _error(str(error))
            resets[group_id], code = {}, Exit.FAILED
            continue
        except NotFound as error:
            _failed(str(error))
            return Exit.NOT_FOUND
        for note in reset.notes:
            _warn(f"WARN {note}")
        resets[group_id] = reset.offsets
    if asked.export:
        several = len(asked.group or ()) != 1
        _say("".join(exported(offsets, group_id if several else None) for group_id, offsets in resets.items()))
    else:
        rows = [
            [group_id, topic, partition, new.offset]
            for group_id, offsets in resets.items()
            for (topic, partition), new in sorted(offsets.items())
        ]
        _under_a_blank_line(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, (15, 15, 10, 0))
    return code


def _reset_asked(asked: Namespace) -> ResetOptions:
    value = getattr(asked, asked.scenario)
    if asked.scenario == "to_datetime":
        value = read_time(value, unix_ms(), UTC)
    elif asked.scenario == "by_duration":
        value = read_ago(value, unix_ms())
    return ResetOptions(asked.scenario.replace("_", "-"), value, tuple(asked.topic) if asked.topic else None)


_RUN: dict[str, Callable[[Settings, Namespace], int]] = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "reset_offsets": _reset_offsets,
    "delete_offsets": _delete_offsets,
}
