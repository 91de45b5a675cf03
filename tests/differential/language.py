"""The language of `conversations/*.txt`: each line has one request, and all responses that it causes.

    == A plan is void once somebody else has joined
    # W6, S92
    join c1                       | 0
    join c2                       | parked
    sync c1 plan c1=0             | 27
    join c1                       | 0, c2 0 generation=2

The request is left of the bar, the responses that come then are right of it: `NAME CODES words`, without the name of
the requesting client. Codes are those of the whole response, or else of its entries (`0/25`). Words must occur in the
response, or in the description of the group afterwards. `parked` and `silence` stand for no response. A known
difference between Kafka and this coordinator has three columns, the last of which is a name that `differences`
explains:

    join c1 | kafka: parked | ours: c1 27 | a superseded join

Commands, with options as `option=value`; `v=3` uses an older version of the request, otherwise the newest is used:

    join NAME           session= rebalance= protocols=a,b topics=t,u type= instance= id= reason= new again once
    sync NAME           plan NAME=0,1 NAME=u-0 NAME=none; generation= type= protocol= id=
    heartbeat NAME      generation= id=
    leave NAME...       reason=; `NAME@` leaves without its instance id, `@INSTANCE` is removed by it
    commit NAME t-0=5   generation= metadata= epoch= id=
    commit outside t-0=5          as tools do: no member, no generation
    fetch t-0 t-1, fetch all      generation= id= stable
    describe, list      states=a,b types=a,b
    delete, forget t-0  the group, its committed offsets
    wait MS             time passes until an event happens, MS after the last time
    pass MS             time passes without an event

and those of the consumer protocol (KIP-848):

    beat NAME EPOCH     full; own=0,u-1 names=t,u regex= instance= assignor= rack= rebalance= id=
    describe-consumer
    topic x=4           topic x has 4 partitions from now on; `x=gone` deletes it, `x=4 anew` deletes and creates it
    set session=800 beats=100 interval=0      this group's session timeout, interval of heartbeats, and of plans, in ms

and those of a transactional producer, which only a gateway's clients can send:

    init NAME           begins as a producer with that transactional id
    partitions NAME t-0 adds partitions to the transaction
    add NAME            adds the group's offsets to the transaction
    send NAME t-0=5     commits offsets inside the transaction; member= generation= instance= of a member, metadata=
    end NAME commit     ends the transaction, or `end NAME abort`
    settle t-0          fetches stable offsets until no transaction can change them any more

A name is a client and its member: `c1#2` is the second id that client c1 was given. An unknown name is used as a member
id itself, and `id=` sets another one. A member sends its instance id with each request; `instance=` sets another one,
and `instance=none` leaves it out. A new member joins twice, first to get an id and then with that id, unless `once`. A
client that has an id joins without it as `new`, the client's next process, or `again`, if it never received that id.
`client=x` gives the client id of its requests from then on; without it, that is the client's name. `group=h` names
another group than g, and `x*99` is a text of 99 letters. `topics=none` is no subscription at all, and `topics=broken`
one that announces more topics than it has. A producer's requests have its name as the transactional id and the epoch
that it was given last; `id=` and `epoch=` set other ones.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

CODES = re.compile(r"-?\d+(/-?\d+)*")
REPEATED = re.compile(r"(.)\*(\d+)")
NOTHING = {"parked", "silence"}
TIME = {"wait", "pass"}
SURROUNDINGS = {"topic", "set"}
NAMELESS = {"fetch", "forget", "topic", "settle"}
OF_PRODUCERS = {"init", "partitions", "add", "send", "end", "settle"}
FIRST_VERSION_WITH_TWO_STEPS = 4

Options = dict[str, str]


@dataclass(frozen=True)
class Heard:
    """A response as a conversation expects it."""

    name: str
    codes: str
    words: frozenset[str]


@dataclass(frozen=True)
class Line:
    """One request, or a wait, and the expected responses of either side."""

    text: str
    verb: str
    words: tuple[str, ...]
    options: Options
    kafka: tuple[Heard, ...]
    ours: tuple[Heard, ...]
    difference: str | None = None

    @property
    def who(self) -> str:
        """The name of the client that sends the request: the first name of the line, or else `admin`."""
        named = self.words[0].split("@")[0] if self.words and self.verb not in NAMELESS else ""
        return named or "admin"

    @property
    def is_time(self) -> bool:
        return self.verb in TIME

    @property
    def is_request(self) -> bool:
        return self.verb not in TIME | SURROUNDINGS


@dataclass(frozen=True)
class Conversation:
    """A conversation: its title, the features that it proves, and its lines."""

    title: str
    proves: str
    lines: tuple[Line, ...] = field(repr=False)

    @property
    def slug(self) -> str:
        """The title as a part of a group id."""
        return re.sub(r"\W+", "-", self.title).strip("-").lower()

    @property
    def lasts_ms(self) -> int:
        """The sum of its waits, in milliseconds."""
        return sum(int(line.words[0]) for line in self.lines if line.is_time)

    @property
    def own_topics(self) -> set[str]:
        """The topics that its lines create or delete."""
        made = (word for line in self.lines if line.verb == "topic" for word in line.words)
        return {word.split("=")[0] for word in made if "=" in word}

    @property
    def changes_surroundings(self) -> bool:
        """True if it changes topics or settings."""
        return any(line.verb in SURROUNDINGS for line in self.lines)

    @property
    def has_transactions(self) -> bool:
        """True if a transactional producer takes part."""
        return any(line.verb in OF_PRODUCERS for line in self.lines)

    @property
    def is_about_all(self) -> bool:
        """True if the conversation uses the group without a name, which all conversations share."""
        return any(line.options.get("group") == "" for line in self.lines)


def read(path: Path) -> Iterator[Conversation]:
    """Yield the conversations of a file."""
    for story in path.read_text().split("== ")[1:]:
        title, *rest = story.strip().splitlines()
        comments = [line.removeprefix("#").strip() for line in rest if line.startswith("#")]
        yield Conversation(title.strip(), " ".join(comments), tuple(lines_of(rest)))


def lines_of(texts: list[str]) -> Iterator[Line]:
    """Yield the lines of a conversation. The join of a new member becomes two lines."""
    known: set[str] = set()
    for text in texts:
        if text and not text.startswith("#"):
            line = parse(text)
            if _takes_two_steps(line, known):
                yield _for_an_id(line)
                line = replace(line, words=tuple("newest" if w == "new" else w for w in line.words))
            if line.verb == "join":
                known.add(line.who)
            yield line


def parse(text: str) -> Line:
    """Parse one line."""
    command, *columns = (column.strip() for column in text.split("|"))
    verb, *rest = shlex.split(command)
    options = dict(word.split("=", 1) for word in rest if _is_option(word))
    words = tuple(word for word in rest if not _is_option(word))
    who = Line(command, verb, words, options, (), ()).who
    match columns:
        case []:
            return Line(command, verb, words, options, (), ())
        case [both]:
            heard = _heard(both, who)
            return Line(command, verb, words, options, heard, heard)
        case [kafka, ours, difference] if kafka.startswith("kafka:") and ours.startswith("ours:"):
            theirs, own = _heard(kafka.removeprefix("kafka:"), who), _heard(ours.removeprefix("ours:"), who)
            return Line(command, verb, words, options, theirs, own, difference)
        case _:
            raise ValueError(f"expected one column, or kafka:, ours: and the name of a difference: {text}")


def unfolded(value: str) -> str:
    """Return a text with `x*99` written out."""
    repeated = REPEATED.fullmatch(value)
    return repeated[1] * int(repeated[2]) if repeated else value


MEMBERSHIP = {
    "session",
    "rebalance",
    "protocols",
    "topics",
    "type",
    "protocol",
    "instance",
    "id",
    "generation",
    "reason",
}
OPTIONS = MEMBERSHIP | {"metadata", "epoch", "client", "group", "states", "types", "v"}
OPTIONS |= {"member", "own", "names", "regex", "assignor", "rack", "beats", "interval"}


def _is_option(word: str) -> bool:
    return word.split("=")[0] in OPTIONS and "=" in word


def _heard(column: str, who: str) -> tuple[Heard, ...]:
    return tuple(_one_heard(item.split(), who) for item in column.split(", ") if item.strip())


def _one_heard(words: list[str], who: str) -> Heard:
    if words[0] in NOTHING:
        return Heard("", "", frozenset(words[1:]))
    name = who if CODES.fullmatch(words[0]) else words.pop(0)
    assert CODES.fullmatch(words[0]), f"not an error code: {words}"
    return Heard(name, words[0], frozenset(words[1:]))


def _takes_two_steps(line: Line, known: set[str]) -> bool:
    return (
        line.verb == "join"
        and (line.who not in known or "new" in line.words)
        and int(line.options.get("v", FIRST_VERSION_WITH_TWO_STEPS)) >= FIRST_VERSION_WITH_TWO_STEPS
        and not {"instance", "id"} & set(line.options)
        and "once" not in line.words
    )


def _for_an_id(line: Line) -> Line:
    expected = (Heard(line.who, "79", frozenset()),)
    first = replace(line, words=(*line.words, "once"), text=f"{line.text} (for an id)")
    return replace(first, kafka=expected, ours=expected, difference=None)
