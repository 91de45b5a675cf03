"""The actions and the output of `coordinator-consumer-groups`, equal to kafka-consumer-groups.sh cell by cell.

The blanks are equal too: the widths of columns are those of Kafka's printf formats. Errors are printed to standard
output, as Kafka's tool does.
"""

from argparse import Namespace
from collections.abc import Callable
from datetime import UTC
from typing import Any

from streaming.administration.resetting import exported, read_topics
from streaming.cli.asking import NONE, NOT_FOUND, Administration, BrokerLog, message
from streaming.cli.kafka_describing import describe_members, describe_offsets, describe_states
from streaming.cli.kafka_printing import in_line, say, under_a_blank_line, warn
from streaming.cli.properties import settings_in
from streaming.cli.resets import ResetOptions, commit, planned
from streaming.cli.showing import folded
from streaming.cli.times import read_ago, read_time
from streaming.config.settings import Settings
from streaming.errors import Exit, NotFound, RequestRefused
from streaming.moments import unix_ms
from streaming.views.text import escape

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


def _error(text: str) -> None:
    say(f"\nError: {text}")


def _raised(error: str) -> str:
    return f"org.apache.kafka.common.errors.{_EXCEPTIONS.get(error, 'ApiException')}: {message(error)}"


def _failed(error: str) -> int:
    _error(f"Executing consumer group command failed due to {error}")
    return Exit.FAILED


# -- list --------------------------------------------------------------------------------------------------------------

_CONSUMERS = ("", "consumer")
"""The protocol types of the groups that this tool lists."""


def _is_of_consumers(group: Any) -> bool:
    return ((group.record.protocol_type if group.record else None) or "") in _CONSUMERS


def _of_another_type(group: Any) -> str:
    """Return the error about a group whose members are no consumers, such as workers of Kafka Connect.

    Kafka's tool exits with 0 after it, and so does this one.
    """
    of_type = f"GroupId {escape(group.group_id)} is not a consumer group ({escape(group.record.protocol_type)})."
    return f"java.lang.IllegalArgumentException: {of_type}"


def _list(settings: Settings, asked: Namespace) -> int:
    states, types = _chosen_states(asked.state), _chosen_types(asked.type)
    if states is None or types is None:
        return Exit.USAGE
    groups = [group for group in folded(settings, events=False).present() if _is_of_consumers(group)]
    if asked.state is None and asked.type is None:
        for group in groups:
            say(escape(group.group_id))
        return Exit.DONE
    listed = [
        group
        for group in groups
        if (not states or group.state.value in states) and (not types or group.type.value in types)
    ]
    head = ["GROUP", *(["TYPE"] if asked.type is not None else []), *(["STATE"] if asked.state is not None else [])]
    rows = [
        [
            escape(group.group_id),
            *([group.type.value.capitalize()] if asked.type is not None else []),
            *([group.state.value] if asked.state is not None else []),
        ]
        for group in listed
    ]
    widths = [max([15, *(len(row[0]) for row in rows)]) + 10, *[20] * (len(head) - 1)]
    for row in [head, *rows]:
        say(in_line(row, widths))
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
        warn(problem)
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
        if (other := next((group for group in groups if not _is_of_consumers(group)), None)) is not None:
            _failed(_of_another_type(other))
            return Exit.DONE
    describing = describe_members if asked.members else describe_states if asked.state is not None else describe_offsets
    describing(settings, groups, asked.verbose)
    return Exit.DONE


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
        say(f"Deletion of requested consumer groups ({deleted}) was successful.")
        return Exit.DONE
    _error("Deletion of some consumer groups failed:")
    for group_id, error in failed.items():
        say(f"* Group '{escape(group_id)}' could not be deleted due to: {_raised(error)}")
    if deleted:
        say(f"\nThese consumer groups were deleted successfully: {deleted}")
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
        say(f"Request succeeded for deleting offsets from group {escape(group_id)}.")
    rows = [[topic, partition, _status(each)] for (topic, partition), each in ended.items()]
    rows += [[topic, None, _status("UNKNOWN_TOPIC_OR_PARTITION")] for topic in missing]
    rows.sort(key=lambda row: f"{row[0]}{row[1]}")
    under_a_blank_line(("TOPIC", "PARTITION", "STATUS".ljust(15)), rows, (15, 10, 0))
    if error in NOT_FOUND:
        return Exit.NOT_FOUND
    return Exit.FAILED if error != NONE or wrong else Exit.DONE


def _status(error: str) -> str:
    return ("Successful" if error == "NONE" else f"Error: {_raised(error)}").ljust(15)


# -- reset -------------------------------------------------------------------------------------------------------------


def _reset_offsets(settings: Settings, asked: Namespace) -> int:
    if not (asked.dry_run or asked.execute):
        warn("WARN: No action will be performed as the --execute option is missing.")
    views = folded(settings, None if asked.all_groups else asked.group, events=False)
    group_ids = sorted(set(asked.group or (g.group_id for g in views.present() if _is_of_consumers(g))))
    resets: dict[str, Any] = {}
    code = Exit.DONE
    known = (views.groups[group_id] for group_id in group_ids if group_id in views.groups)
    if (other := next((group for group in known if not _is_of_consumers(group)), None)) is not None:
        _failed(f"java.util.concurrent.ExecutionException: {_of_another_type(other)}")
        return Exit.DONE
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
            warn(f"WARN {note}")
        resets[group_id] = reset.offsets
    if asked.export:
        several = len(asked.group or ()) != 1
        say("".join(exported(offsets, group_id if several else None) for group_id, offsets in resets.items()))
    else:
        rows = [
            [group_id, topic, partition, new.offset]
            for group_id, offsets in resets.items()
            for (topic, partition), new in sorted(offsets.items())
        ]
        under_a_blank_line(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, (15, 15, 10, 0))
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
