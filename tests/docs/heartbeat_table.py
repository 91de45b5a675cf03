"""The table of a heartbeat's states in docs/gateway.md, drawn from `streaming.gateway.members.heartbeat_states`.

`make docs-tables` writes it into the page, between two comments.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from streaming.gateway.members.heartbeat_states import TABLE, Event, State

PAGE = Path(__file__).parents[2] / "docs" / "gateway.md"
PART = re.compile(r"(?<=<!-- begin heartbeats -->\n).*?(?=<!-- end heartbeats -->)", re.DOTALL)


def drawn() -> str:
    """Return the states and the moves between them."""
    states = ((f"`{state.name}`", state.value) for state in State)
    moves = [
        (f"`{before.name}`", event.value, action.value, f"`{after.name}`")
        for (before, event), (action, after) in TABLE.items()
        if event is not Event.CLOSED
    ]
    action, after = TABLE[State.NEW, Event.CLOSED]
    assert all(row == (action, after) for (_, event), row in TABLE.items() if event is Event.CLOSED)
    moves.append(("any", Event.CLOSED.value, action.value, f"`{after.name}`"))
    return "\n".join(
        (
            _markdown(("state", "meaning"), states),
            _markdown(("a heartbeat in", "when", "the gateway's action", "then in"), moves),
        )
    )


def _markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ("---",) * len(head), *rows))


def written(text: str) -> str:
    """Return the page with the table."""
    return PART.sub(lambda _: drawn(), text)


def main() -> int:
    """Write the table into the page."""
    PAGE.write_text(written(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
