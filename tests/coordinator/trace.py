r"""The language of `traces/*.txt`: commands, dashes, all outputs, a blank line.

    # W6: the first comment lines name the walkthrough and the feature rows that the trace proves.
    config group_max_size=2                     settings by their names in `Config`; the initial delay is 0 unless set
    joins session=6000 rebalance=60000 two_step=yes     the default options of each join of this trace

    at 1000 join c1
    sync c1 plan c1=0,1 c2=2
    ----
    -> c1 sync NONE assignment=0,1

Every command may begin with `at MS`, the request's time; `at MS` alone lets time pass until then. A name is a client
and its member; `c1#2` is the second id that client c1 was given. Commands, with options as `option=value`:

    join NAME           session= rebalance= protocols=a,b topics=t,u type= two_step=yes new=yes reason= id=
                        instance= skips=no (before JoinGroup v9, which may have skip_assignment)
    sync NAME           plan NAME=0,1 NAME=u-0 NAME=none NAME=hex:00ff; generation= type= protocol= id= instance=
    heartbeat NAME      generation= id= instance=
    leave NAME...       reason= instance=; NAME/INSTANCE and /INSTANCE give each entry its own
    remove INSTANCE...  as administrators do, by instance ids alone; reason=
    commit NAME t-0=5   generation= metadata= retention= epoch= id= instance=
    commit outside t-0=5      as tools do: no member, no generation
    fetch NAME t-0 t-1, fetch NAME all
    describe NAME
    list                states=a,b types=a,b
    delete-offsets NAME t-0 t-1
    delete, rebalance   reason=
    expel NAME          reason= instance= id=
    repeat NAME KIND    send the latest request of that kind again, the same in every byte
    garbage NAME WHY    a record that is not a request, from a client that gets a response; `-` gets none
    policy NAME setting=value...  set a policy of the group, beside those that were set before; `policy NAME off`.
                        Windows of a freeze are minutes of the week: windows=0-60,120-180
    sessions            show the session deadlines of the members
    tokens              show fencing tokens from here on
    away, back MS       the coordinator stops: requests wait in the log, until one batch reads them all at MS

`group=h` sends a request to another group than g. `inbox=x` sends its response to another mailbox than the client's,
as for another process. A new kind of request is a new function in `COMMANDS`.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.base.policies import Freeze, Quarantine, Settle, Succession, Window
from coordinator.messages import requests
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import Protocol, Unreadable
from tests.coordinator.scenario import Scenario
from tests.coordinator.telling import TOPIC, Teller
from tests.coordinator.wire import assignment, subscription

DASHES = "----"

Options = dict[str, str]


@dataclass
class Block:
    """Some commands, and the expected outputs of them all."""

    commands: list[str]
    expected: list[str]


@dataclass
class Trace:
    """A file of conversations with one shard."""

    head: list[str]
    blocks: list[Block]

    @classmethod
    def read(cls, path: Path) -> "Trace":
        """Read a file."""
        paragraphs = [p.splitlines() for p in path.read_text().strip("\n").split("\n\n")]
        head, blocks = [], []
        for lines in paragraphs:
            if DASHES in lines:
                at = lines.index(DASHES)
                blocks.append(Block(lines[:at], lines[at + 1 :]))
            elif lines[0].startswith(("#", "config ", "joins ")) and not blocks:
                head += lines
            else:
                blocks.append(Block(lines, []))
        return cls(head, blocks)

    def settings(self, word: str) -> dict[str, str]:
        """Return the options of the `config` or the `joins` line."""
        found = {}
        for line in self.head:
            if line.startswith(word + " "):
                found.update(option.split("=", 1) for option in shlex.split(line)[1:])
        return found

    def __str__(self) -> str:
        blocks = ("\n".join([*b.commands, DASHES, *b.expected]) for b in self.blocks)
        return "\n\n".join(["\n".join(self.head), *blocks]) + "\n"


class Player:
    """Replays a trace and returns its outputs."""

    def __init__(self, trace: Trace, **config: Any) -> None:
        settings = {name: int(value) for name, value in trace.settings("config").items()}
        delay_ms = settings.pop("group_initial_rebalance_delay_ms", 0)
        self.s = Scenario(delay_ms=delay_ms, **{**settings, **config})
        self.teller = Teller(self.s)
        self.trace = trace
        self.joins = trace.settings("joins")
        self._extra: list[str] = []

    def play(self) -> Trace:
        """Replay all blocks, and return the trace with the actual outputs."""
        return Trace(self.trace.head, [Block(b.commands, list(self._block(b))) for b in self.trace.blocks])

    def _block(self, block: Block) -> Iterator[str]:
        for command in block.commands:
            if command.startswith("#"):
                continue
            seen = len(self.s.outputs)
            self._command(shlex.split(command))
            for output in self.s.outputs[seen:]:
                yield from self.teller.tell(output)
            yield from self._extra
            self._extra = []
        groups = [self.s.shard.group(group_id) for group_id in self.s.shard.group_ids]
        for group in groups:
            if group is not None:
                yield self.teller.state(group)
        if not groups:
            yield "no group"

    def _command(self, words: list[str]) -> None:
        if words[0] == "at":
            self.s.at(int(words[1]))
            if len(words) == 2:
                self.s.until(self.s.now_ms)
                return
            words = words[2:]
        verb, *arguments = words
        options = dict(a.split("=", 1) for a in arguments if "=" in a)
        COMMANDS[verb](self, [a for a in arguments if "=" not in a], options)

    def write_line(self, line: str) -> None:
        """Add a line that is not an output."""
        self._extra.append(line)


# -- commands ----------------------------------------------------------------------------------------------------------


def _fields(options: Options, **names: tuple[str, Callable[[str], Any]]) -> dict[str, Any]:
    """Return the given options as fields of a request; raise for unknown ones."""
    everywhere = {"group": ("group_id", str), "inbox": ("reply_to", str)}
    known = {**everywhere, "id": ("member_id", str), "generation": ("generation_id", int), **names}
    return {known[option][0]: known[option][1](value) for option, value in options.items()}


INSTANCE = ("group_instance_id", str)
REASON = ("reason", str)


def by_topic(words: Iterable[str]) -> dict[str, list[int]]:
    """Parse partitions: `0` is a partition of the usual topic, `u-0` one of topic u."""
    found: dict[str, list[int]] = {}
    for word in words:
        topic, _, number = word.rpartition("-")
        found.setdefault(topic or TOPIC, []).append(int(number))
    return found


def _partitions(text: str) -> dict[str, list[int]]:
    return by_topic(text.split(",") if text != "none" else ())


def _place(text: str) -> tuple[str, int]:
    topic, _, number = text.rpartition("-")
    return topic, int(number)


def _names(text: str) -> list[str]:
    return text.split(",") if text else []


def _join(player: Player, arguments: list[str], options: Options) -> None:
    options = {**player.joins, **options}
    topics = _names(options.pop("topics", TOPIC))
    metadata = bytes.fromhex(options.pop("metadata", "")) or subscription(topics)
    offers = tuple(Protocol(name, metadata) for name in _names(options.pop("protocols", "range")))
    if options.pop("new", "no") == "yes":
        options["id"] = ""
    fields = _fields(
        options,
        session=("session_timeout_ms", int),
        rebalance=("rebalance_timeout_ms", int),
        type=("protocol_type", str),
        two_step=("require_known_member_id", "yes".__eq__),
        reason=("reason", str),
        instance=INSTANCE,
        skips=("supports_skipping_assignment", "yes".__eq__),
    )
    player.s.join(arguments[0], protocols_as_they_are=offers, **fields)


def _sync(player: Player, arguments: list[str], options: Options) -> None:
    own = ("group", "inbox", "id", "generation", "type", "protocol", "instance")
    plan = {
        who: bytes.fromhex(what[4:]) if what.startswith("hex:") else assignment(_partitions(what))
        for who, what in options.items()
        if who not in own
    }
    assert plan.keys() == set() or arguments[1:] == ["plan"], "the assignments begin with the word `plan`"
    fields = _fields(
        {option: value for option, value in options.items() if option in own},
        type=("protocol_type", str),
        protocol=("protocol_name", str),
        instance=INSTANCE,
    )
    player.s.sync(arguments[0], plan, **fields)


def _heartbeat(player: Player, arguments: list[str], options: Options) -> None:
    player.s.heartbeat(arguments[0], **_fields(options, instance=INSTANCE))


def _leave(player: Player, arguments: list[str], options: Options) -> None:
    player.s.leave(*arguments, **_fields(options, reason=REASON, instance=("instance", str)))


def _remove(player: Player, arguments: list[str], options: Options) -> None:
    player.s.remove(*arguments, **_fields(options, reason=REASON))


def _commit(player: Player, arguments: list[str], options: Options) -> None:
    offsets = {_place(where): int(options.pop(where)) for where in list(options) if "-" in where}
    fields = _fields(
        options,
        metadata=("metadata", str),
        retention=("retention_ms", int),
        epoch=("leader_epoch", int),
        instance=INSTANCE,
    )
    if arguments[0] == "outside":
        player.s.commit_from_outside("outside", offsets, **fields)
    else:
        player.s.commit(arguments[0], offsets, **fields)


def _fetch(player: Player, arguments: list[str], options: Options) -> None:
    name, *places = arguments
    player.s.fetch(name, None if places == ["all"] else by_topic(places), **_fields(options))


def _list(player: Player, arguments: list[str], options: Options) -> None:
    def words(text: str) -> tuple[str, ...]:
        return tuple(text.split(","))

    player.s.list_groups(**_fields(options, states=("states", words), types=("types", words)))


def _delete_offsets(player: Player, arguments: list[str], options: Options) -> None:
    player.s.delete_offsets(arguments[0], by_topic(arguments[1:]), **_fields(options))


def _delete(player: Player, arguments: list[str], options: Options) -> None:
    player.s.delete(**_fields(options))


def _rebalance(player: Player, arguments: list[str], options: Options) -> None:
    player.s.rebalance(**_fields(options, reason=REASON))


def _expel(player: Player, arguments: list[str], options: Options) -> None:
    player.s.expel(*arguments, **_fields(options, reason=REASON, instance=INSTANCE))


def _describe(player: Player, arguments: list[str], options: Options) -> None:
    player.s.describe(arguments[0], **_fields(options))


KINDS = {
    "join": requests.JoinGroup,
    "sync": requests.SyncGroup,
    "heartbeat": Heartbeat,
    "leave": requests.LeaveGroup,
    "commit": requests.OffsetCommit,
}


POLICIES = {"succession": Succession, "settle": Settle, "freeze": Freeze, "quarantine": Quarantine}


def _policy(player: Player, arguments: list[str], options: Options) -> None:
    windows = [tuple(map(int, each.split("-"))) for each in options.pop("windows", "").split(",") if each]
    settings: dict[str, Any] = {name: int(value) for name, value in options.items()}
    if windows:
        settings["windows"] = tuple(Window(from_minute=begin, until_minute=end) for begin, end in windows)
    name, *rest = arguments
    player.s.policy(**{name: None if rest == ["off"] else POLICIES[name](**settings)})


def _repeat(player: Player, arguments: list[str], options: Options) -> None:
    name, kind = arguments
    player.s.send(name, player.s.last_request(name, KINDS[kind]))


def _garbage(player: Player, arguments: list[str], options: Options) -> None:
    name, why = arguments
    asker = (f"{name}'s garbage", f"{name}'s inbox") if name != "-" else (None, None)
    player.s.send(name, Unreadable(why, *asker))


def _sessions(player: Player, arguments: list[str], options: Options) -> None:
    player.write_line(player.teller.sessions(player.s.group))


def _tokens(player: Player, arguments: list[str], options: Options) -> None:
    player.teller.tells_tokens = True


def _away(player: Player, arguments: list[str], options: Options) -> None:
    player.s.away()


def _back(player: Player, arguments: list[str], options: Options) -> None:
    player.s.back(int(arguments[0]))


COMMANDS: dict[str, Callable[[Player, list[str], Options], None]] = {
    "join": _join,
    "sync": _sync,
    "heartbeat": _heartbeat,
    "leave": _leave,
    "remove": _remove,
    "commit": _commit,
    "fetch": _fetch,
    "describe": _describe,
    "list": _list,
    "delete-offsets": _delete_offsets,
    "delete": _delete,
    "rebalance": _rebalance,
    "expel": _expel,
    "repeat": _repeat,
    "garbage": _garbage,
    "policy": _policy,
    "sessions": _sessions,
    "tokens": _tokens,
    "away": _away,
    "back": _back,
}
