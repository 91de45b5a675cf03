"""`coordinator-consumer-groups`: the flags, the columns and the messages of kafka-consumer-groups.sh.

It serves scripts and users of that tool. Reading needs no coordinator, and writing needs no gateway. The exit codes
differ: Kafka's tool exits with 0 after most errors, this one with a code of `streaming.errors.Exit`.

Source: Kafka 4.3.1 and 4.4.0, ConsumerGroupCommand and ConsumerGroupCommandOptions.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from streaming import __version__
from streaming.errors import Exit, UserError
from streaming.logs import LogFormat, set_up, tell_failure

ACTIONS = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
SCENARIOS = (
    "to_offset",
    "shift_by",
    "to_datetime",
    "by_duration",
    "to_earliest",
    "to_latest",
    "to_current",
    "from_file",
)


SWITCH: dict[str, Any] = {"action": "store_true"}
SCENARIO: dict[str, Any] = {"action": "store_true", "default": None}
OPTIONAL: dict[str, Any] = {"nargs": "?", "const": ""}
REPEATED: dict[str, Any] = {"action": "append"}

FLAGS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("--list", SWITCH, "List all consumer groups."),
    ("--describe", SWITCH, "Show a group's partitions with their lag, its members or its state."),
    ("--delete", SWITCH, "Delete groups without members."),
    ("--reset-offsets", SWITCH, "Reset the offsets of a group without members."),
    ("--delete-offsets", SWITCH, "Delete committed offsets of topics."),
    ("--bootstrap-server", {"metavar": "HOST:PORT,..."}, "The Kafka brokers."),
    ("--topic-prefix", {"metavar": "PREFIX"}, "The coordinator's topics are PREFIX.groups and so on."),
    ("--command-config", {"metavar": "FILE"}, "A properties file: security.protocol, sasl.*, ssl.* with PEM files."),
    ("--group", {**REPEATED, "metavar": "GROUP"}, "The group; may be repeated."),
    ("--all-groups", SWITCH, "All groups."),
    ("--members", SWITCH, "Describe the members."),
    ("--offsets", SWITCH, "Describe the partitions; the default of --describe."),
    ("--state", {**OPTIONAL, "metavar": "STATES"}, "Show the state; list only groups in these states."),
    ("--type", {**OPTIONAL, "metavar": "TYPES"}, "List groups with their type, or only groups of these types."),
    ("--verbose", SWITCH, "Describe more columns."),
    ("--timeout", {"type": int, "default": 5_000, "metavar": "MS"}, "The maximum wait, %(default)s ms."),
    ("--topic", {**REPEATED, "metavar": "TOPIC[:0,1]"}, "The topic, or some of its partitions; may be repeated."),
    ("--all-topics", SWITCH, "All topics with committed offsets of the group."),
    ("--to-offset", {"type": int, "metavar": "OFFSET"}, "Reset to an offset."),
    ("--shift-by", {"type": int, "metavar": "RECORDS"}, "Reset by this number of records, forward or backward."),
    (
        "--to-datetime",
        {"metavar": "TIME"},
        "Reset to the first record since YYYY-MM-DDTHH:mm:SS.sss; in UTC if it has no zone.",
    ),
    ("--by-duration", {"metavar": "PnDTnHnMnS"}, "Reset to the first record since that long ago."),
    ("--to-earliest", SCENARIO, "Reset to the first record."),
    ("--to-latest", SCENARIO, "Reset to the end, after the last record."),
    ("--to-current", SCENARIO, "Reset to the committed offsets."),
    ("--from-file", {"metavar": "CSV"}, "Reset to the offsets that --export wrote."),
    ("--dry-run", SWITCH, "Show the offsets of the reset, and change nothing."),
    ("--execute", SWITCH, "Commit the offsets of the reset."),
    ("--export", SWITCH, "Print the reset as CSV."),
)


def parser() -> argparse.ArgumentParser:
    """Return a parser of the flags."""
    made = argparse.ArgumentParser(
        prog="coordinator-consumer-groups",
        description="List, describe and delete groups, and reset their offsets, as kafka-consumer-groups.sh does.",
        allow_abbrev=False,
    )
    for flag, form, text in FLAGS:
        made.add_argument(flag, help=text, **form)
    made.add_argument("--version", action="version", version=__version__)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the tool."""
    asked = _parsed(arguments)
    set_up(LogFormat.text, is_verbose=False)
    from streaming.cli.kafka_tool import run

    try:
        code = run(asked)
        sys.stdout.flush()
        sys.exit(code)
    except UserError as error:
        tell_failure(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except BrokenPipeError:  # the reader has ended, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.FAILED)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the flags. Store the chosen action and scenario as `action` and `scenario`."""
    flags = parser()
    asked = flags.parse_args(arguments)
    for is_wrong, why in _RULES:
        if is_wrong(asked):
            flags.error(why)
    (asked.action,) = _given(asked, ACTIONS)
    asked.scenario = next(iter(_given(asked, SCENARIOS)), None)
    return asked


def _given(asked: argparse.Namespace, names: Iterable[str]) -> list[str]:
    return [name for name in names if (value := getattr(asked, name)) is not None and value is not False]


def _flags(names: Iterable[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


_DESCRIBED = ("members", "offsets")

_RULES: tuple[tuple[Callable[[argparse.Namespace], object], str], ...] = (
    (lambda a: len(_given(a, ACTIONS)) != 1, f"Command must include exactly one action: {_flags(ACTIONS)}"),
    (lambda a: not a.bootstrap_server, 'Missing required argument "[bootstrap-server]"'),
    (lambda a: a.timeout <= 0, "--timeout is not above 0"),
    (
        lambda a: not (a.list or a.delete_offsets) and not (a.group or a.all_groups),
        "Give --group or --all-groups",
    ),
    (lambda a: a.group and a.all_groups, "Give either --group or --all-groups"),
    (
        lambda a: _given(a, (*_DESCRIBED, "verbose")) and not a.describe,
        "--members, --offsets and --verbose require --describe",
    ),
    (lambda a: a.state is not None and not (a.describe or a.list), "--state requires --describe or --list"),
    (lambda a: a.type is not None and not a.list, "--type requires --list"),
    (
        lambda a: a.describe and len(_given(a, _DESCRIBED)) + (a.state is not None) > 1,
        "--describe takes at most one of these options: --members, --offsets, --state",
    ),
    (lambda a: a.describe and a.state, "--describe does not take a value for --state"),
    (lambda a: a.delete and a.topic, "--delete deletes whole groups: use --delete-offsets for topics"),
    (
        lambda a: a.delete_offsets and not (a.group and len(a.group) == 1 and a.topic),
        "--delete-offsets takes one --group, and --topic",
    ),
    (lambda a: a.execute and a.dry_run, "--reset-offsets only accepts one of --execute and --dry-run"),
    (
        lambda a: a.reset_offsets and len(_given(a, SCENARIOS)) != 1,
        f"--reset-offsets takes exactly one of: {_flags(SCENARIOS)}",
    ),
    (
        lambda a: a.reset_offsets and not a.from_file and not (a.topic or a.all_topics),
        "One of the reset scopes should be defined: --all-topics, --topic.",
    ),
    (lambda a: a.topic and a.all_topics, "Give either --topic or --all-topics"),
)
"""The invalid combinations of flags, with their messages."""


if __name__ == "__main__":
    main()
