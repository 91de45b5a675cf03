"""docs/settings.md, "Timeouts": its values are those of the code, and no constant of `config.timeouts` is missing."""

import re
from importlib import import_module
from typing import Any, NamedTuple

import pytest

from streaming.config import timeouts
from streaming.config.settings import Settings
from tests.docs.settings_table import PAGE

ROW = re.compile(r"^\| (?:`(?P<constant>[a-z_.]+\.[A-Z_]+)`|\[`(?P<setting>\w+)`\]\(#[\w-]+\)) \| (?P<value>[^|]+) \|")

MS = {"ms": 1, "s": 1_000, "min": 60_000}
"""The units of the page, in milliseconds."""


class Wait(NamedTuple):
    """A row of the table.

    Args:
        name: The name of a setting, or of a constant with its module below `streaming`.
        value: The value and its unit, as the page shows them.
    """

    name: str
    value: str


def waits() -> list[Wait]:
    (section,) = re.findall(r"^## Timeouts\n(.*?)^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    found = [ROW.match(row) for row in rows]
    assert None not in found, rows[found.index(None)]
    return [Wait(row["constant"] or row["setting"], row["value"]) for row in found if row]


WAITS = waits()


def in_the_code(name: str) -> float:
    """Return the value of a constant or the default of a setting: milliseconds, or a number without a unit."""
    module, _, constant = name.rpartition(".")
    value: Any = (
        getattr(import_module(f"streaming.{module}"), constant) if module else Settings.model_fields[name].default
    )
    return float(value * 1_000 if constant.endswith("_S") else value)


@pytest.mark.parametrize("wait", WAITS, ids=lambda wait: wait.name)
def test_the_page_has_the_value_of_the_code(wait: Wait) -> None:
    number, _, unit = wait.value.partition(" ")
    assert bool(unit) == wait.name.lower().endswith(("_s", "_ms"))
    assert float(number) * MS.get(unit, 1) == in_the_code(wait.name)


def test_every_constant_of_the_timeouts_is_on_the_page_once() -> None:
    names = [wait.name for wait in WAITS]
    assert len(set(names)) == len(names)
    assert {f"config.timeouts.{name}" for name in vars(timeouts) if name.isupper()} <= set(names)
