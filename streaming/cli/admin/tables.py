"""The tables of the protocol core as Markdown. The diagram is drawn from the same objects."""

from collections.abc import Callable, Iterable
from enum import Enum
from inspect import getdoc
from itertools import groupby, product
from typing import Any

from coordinator.base.errors import ErrorCode
from coordinator.base.states import MOVES, Phase
from coordinator.classic import checks, decisions
from coordinator.shard.handlers import HANDLERS


def diagram() -> str:
    """Return the moves of a group as a Mermaid diagram."""
    arrows = sorted(((before, after, cause) for (before, cause), after in MOVES.items()), key=_by_phase)
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.EMPTY.value}"]
    for (before, after), causes in groupby(arrows, key=lambda arrow: arrow[:2]):
        lines.append(f"    {before.value} --> {after.value}: {', or '.join(cause.value for *_, cause in causes)}")
    return "\n".join(["```mermaid", *lines, "```"])


def _by_phase(arrow: tuple[Phase, Phase, Any]) -> tuple[int, int]:
    phases = list(Phase)
    return phases.index(arrow[0]), phases.index(arrow[1])


def moves() -> str:
    """Return every legal move as a table. A move that is not in the table is illegal."""
    rows = ((before.value, cause.value, after.value) for (before, cause), after in MOVES.items())
    return _table(("a group that is", "when", "becomes"), rows)


def order_of_checks() -> str:
    """Return the checks of each kind of request, in their order."""
    parts = [
        "Every request, before its group is looked up. A request for another shard's group then gets NOT_COORDINATOR:",
        _numbered([_check(checks.group_id_fits)]),
    ]
    for request, kind in HANDLERS.items():
        absent = [("the group exists", kind.absent.name)] if kind.absent else []
        rows = [*map(_check, kind.on_its_own), *absent, *map(_check, kind.of_the_group)]
        if rows:
            parts += [f"`{request.__struct_config__.tag}`, in this order:", _numbered(rows)]
    return "\n\n".join(parts)


def _check(check: Callable[..., ErrorCode]) -> tuple[str, str]:
    return check.__name__.replace("_", " "), " ".join((getdoc(check) or "").split())


def _numbered(rows: Iterable[tuple[str, str]]) -> str:
    return _table(("", "must hold", "or else"), ((number, *row) for number, row in enumerate(rows, 1)))


def answers_by_phase() -> str:
    """Return the responses to a member of the current generation whose request has passed all checks."""
    who = {"leader": True, "follower": False}
    offers = {"the same protocols": True, "other protocols": False}
    columns: dict[str, dict[Phase, Enum]] = {
        f"join of the {name}, {offer}": {
            phase: decisions.rejoin(phase, is_leader=is_leader, same_protocols=same) for phase in decisions.REJOIN
        }
        for (name, is_leader), (offer, same) in product(who.items(), offers.items())
    }
    columns |= {"sync": {**decisions.SYNC}, "heartbeat": {**decisions.HEARTBEAT}, "commit": {**decisions.COMMIT}}
    rows = ((name, *(column[phase].name for phase in decisions.SYNC)) for name, column in columns.items())
    return _table(("", *(phase.value for phase in decisions.SYNC)), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "diagram": ("The life of a group", diagram),
    "moves": ("Moves", moves),
    "checks": ("Order of checks", order_of_checks),
    "answers": ("Answers", answers_by_phase),
}


def tables(only: str | None = None) -> str:
    """Return one of the tables, or all of them under headings."""
    if only:
        return TABLES[only][1]()
    return "\n\n".join(f"## {title}\n\n{text()}" for title, text in TABLES.values())
