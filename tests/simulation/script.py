"""What the coordinator was given: records of its log, and the batches that took them. As text, a trace.

# what was found, and by which seed
config {"group_max_size":8}
exact                                           cuts must not show; see `audits`
17 at 1000123 {"kind":"heartbeat", ...}         the record with offset 17, without what is at its default
18 at 1000124 unreadable {"why":"no JSON"}
19 at 1000125 wake
batch at 1001000 killed=0,400 codec=2 damaged=17
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from coordinator.config import Config
from coordinator.requests import Received, Request, Unreadable, Wake


class Batch(Struct, frozen=True):
    """The end of a batch: it takes all records since the one before.

    Args:
        now_ms: The time that it is planned for.
        killed: Attempts that are killed before the one that lasts, each with how much of its output was out by then,
            in thousandths: 0 is F2 and F3, 1000 is F5, and between them F4. Many are F9.
        codec: The version that the state is written in before.
        damaged: Where a bit of the state has flipped in a copy that is offered first, in thousandths (F8).
    """

    now_ms: int
    killed: tuple[int, ...] = ()
    codec: int | None = None
    damaged: int | None = None


Happening = Received | Batch


class Script(Struct):
    """All that happens to one shard.

    Args:
        is_exact: It was cut so that other cuts must not show (design.md 7): no record was left for a later batch,
            both clocks went forward, and nothing counts as noticed late.
    """

    config: Config
    is_exact: bool = False
    happenings: list[Happening] = field(default_factory=list)

    def batches(self) -> Iterator[tuple[list[Received], Batch]]:
        """Walk through the batches with what each of them takes."""
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


def write(script: Script, remarks: Iterable[str] = ()) -> str:
    """Write a script as a trace."""
    head = [f"# {remark}" for remark in remarks]
    head.append(f"config {_without_defaults(script.config)}")
    head += ["exact"] if script.is_exact else []
    return "\n".join([*head, *map(_line, script.happenings)]) + "\n"


def _line(happening: Happening) -> str:
    if isinstance(happening, Received):
        if isinstance(happening.request, Wake):
            return f"{happening.offset} at {happening.at_ms} wake"
        unreadable = "unreadable " if isinstance(happening.request, Unreadable) else ""
        return f"{happening.offset} at {happening.at_ms} {unreadable}{_without_defaults(happening.request)}"
    killed = ",".join(map(str, happening.killed))
    options = {"killed": killed or None, "codec": happening.codec, "damaged": happening.damaged}
    return " ".join([f"batch at {happening.now_ms}", *(f"{k}={v}" for k, v in options.items() if v is not None)])


def _without_defaults(struct: Struct) -> str:
    """Write a struct as JSON, without the fields that say nothing."""
    said: dict[str, Any] = msgspec.to_builtins(struct)
    for known in msgspec.structs.fields(struct):
        default = known.default if known.default_factory is msgspec.NODEFAULT else known.default_factory()
        if said.get(known.encode_name) == default:
            said.pop(known.encode_name, None)
    return msgspec.json.encode(said).decode()


def read(path: Path) -> Script:
    """Read a trace."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    config = msgspec.json.decode(lines[0].removeprefix("config "), type=Config)
    is_exact = lines[1] == "exact"
    return Script(config, is_exact, [_happening(line) for line in lines[1 + is_exact :]])


def _happening(line: str) -> Happening:
    word, _, rest = line.partition(" at ")
    if word == "batch":
        now_ms, *options = rest.split()
        said = dict(option.split("=") for option in options)
        killed = tuple(map(int, said.pop("killed").split(","))) if "killed" in said else ()
        return Batch(int(now_ms), killed, **{name: int(value) for name, value in said.items()})
    at_ms, _, request = rest.partition(" ")
    if request == "wake":
        return Received(int(word), int(at_ms), Wake())
    if request.startswith("unreadable "):
        return Received(int(word), int(at_ms), _unreadable.decode(request.removeprefix("unreadable ")))
    return Received(int(word), int(at_ms), _requests.decode(request))
