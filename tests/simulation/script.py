"""The input of the coordinator: the records of its log, and the batches that read them. A trace is a script as text.

# the broken promise, and the seed that broke it
config {"group_max_size":8}
exact                                           other cuts give the same outputs; see `audits`
partitions 3                                    partitions of the log's topic, if it has more than one
17 at 1000123 {"kind":"heartbeat", ...}         the record with offset 17, without fields that have their default
18 at 4600124 really 1000124 {"kind": ...}      a record whose time is wrong
19 at 1000124 unreadable {"why":"no JSON"}
20 at 1000125 wake {"sent_ms":1000125}
batch at 1001000 killed=0,400 damaged=17
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from coordinator.base.config import Config
from coordinator.messages.requests import Received, Request, Unreadable, Wake


class Batch(Struct, frozen=True):
    """The end of a batch, which reads all records since the previous batch.

    Args:
        now_ms: The batch's time.
        killed: The attempts that are killed before the last attempt, each with the share of its outputs that were
            already written, in thousandths: 0 is F2 and F3, 1000 is F5, values between are F4. Many attempts are F9.
        true_ms: The true time, if the driver's clock shows another time.
        damaged: The place of a flipped bit in a copy of the state, in thousandths. The copy is loaded first (F8).
    """

    now_ms: int
    killed: tuple[int, ...] = ()
    damaged: int | None = None
    true_ms: int | None = None


Happening = Received | Batch


class Script(Struct):
    """All records and batches of one shard.

    Args:
        is_exact: Other cuts must give the same outputs (design.md 7): no record was left for a later batch, both
            clocks went forward, and no deadline counts as noticed late.
        partitions: The number of partitions of the log's topic; the shard is that of the first partition.
        written_ms: The true times of the records whose own time is wrong, by offset.
    """

    config: Config
    is_exact: bool = False
    partitions: int = 1
    happenings: list[Happening] = field(default_factory=list)
    written_ms: dict[int, int] = field(default_factory=dict)

    def batches(self) -> Iterator[tuple[list[Received], Batch]]:
        """Yield each batch with the records that it reads."""
        records: list[Received] = []
        for happening in self.happenings:
            if isinstance(happening, Received):
                records.append(happening)
            else:
                yield records, happening
                records = []


# -- as text -----------------------------------------------------------------------------------------------------------

_requests = msgspec.json.Decoder(Request)
_unreadable = msgspec.json.Decoder(Unreadable)
_wake = msgspec.json.Decoder(Wake)

KINDS = {Unreadable: "unreadable ", Wake: "wake "}


def write(script: Script, remarks: Iterable[str] = ()) -> str:
    """Return a script as the text of a trace."""
    head = [f"# {remark}" for remark in remarks]
    head.append(f"config {_without_defaults(script.config)}")
    head += ["exact"] if script.is_exact else []
    head += [f"partitions {script.partitions}"] if script.partitions > 1 else []
    return "\n".join([*head, *(_line(h, script.written_ms) for h in script.happenings)]) + "\n"


def _line(happening: Happening, written_ms: Mapping[int, int]) -> str:
    if isinstance(happening, Received):
        really = f"really {written_ms[happening.offset]} " if happening.offset in written_ms else ""
        kind = KINDS.get(type(happening.request), "")
        return f"{happening.offset} at {happening.at_ms} {really}{kind}{_without_defaults(happening.request)}"
    killed = ",".join(map(str, happening.killed))
    options = {
        "killed": killed or None,
        "damaged": happening.damaged,
        "true_ms": happening.true_ms,
    }
    return " ".join([f"batch at {happening.now_ms}", *(f"{k}={v}" for k, v in options.items() if v is not None)])


def _without_defaults(struct: Struct) -> str:
    """Return a struct as JSON, without the fields that have their default."""
    said: dict[str, Any] = msgspec.to_builtins(struct)
    for known in msgspec.structs.fields(struct):
        default = known.default if known.default_factory is msgspec.NODEFAULT else known.default_factory()
        if said.get(known.encode_name) == default:
            said.pop(known.encode_name, None)
    return msgspec.json.encode(said).decode()


def read(path: Path) -> Script:
    """Read a trace from a file."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    config = msgspec.json.decode(lines[0].removeprefix("config "), type=Config)
    is_exact = lines[1] == "exact"
    rest = lines[1 + is_exact :]
    script = Script(config, is_exact)
    if rest and rest[0].startswith("partitions "):
        script.partitions = int(rest.pop(0).removeprefix("partitions "))
    script.happenings += [_happening(line, script.written_ms) for line in rest]
    return script


def _happening(line: str, written_ms: dict[int, int]) -> Happening:
    word, _, rest = line.partition(" at ")
    if word == "batch":
        now_ms, *options = rest.split()
        said = dict(option.split("=") for option in options)
        killed = tuple(map(int, said.pop("killed").split(","))) if "killed" in said else ()
        numbers = {name: int(value) for name, value in said.items()}
        return Batch(int(now_ms), killed, **numbers)
    at_ms, _, request = rest.partition(" ")
    if request.startswith("really "):
        really, _, request = request.removeprefix("really ").partition(" ")
        written_ms[int(word)] = int(really)
    if request.startswith("wake "):
        return Received(int(word), int(at_ms), _wake.decode(request.removeprefix("wake ")))
    if request.startswith("unreadable "):
        return Received(int(word), int(at_ms), _unreadable.decode(request.removeprefix("unreadable ")))
    return Received(int(word), int(at_ms), _requests.decode(request))
