"""The lines of a TOML file in which its keys and values stand. Python's own parser does not return them.

The text is one that `tomllib` has parsed. So these rules only have to find the places of its keys, not to check them.
"""

import re
from typing import NamedTuple

KeyPath = tuple[str | int, ...]
"""The keys and indexes that lead to a value, as in `("policies", 2, "freeze", "until")`."""

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
_KEY = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"

_TOKEN = re.compile(
    rf"""
    (?P<comment> \#[^\n]*)
    | (?P<key> {_KEY}) [ \t]* =
    | (?P<string> \"{{3}}(?:\\.|[^\\])*?\"{{3,5}} | '{{3}}.*?'{{3,5}} | "(?:\\.|[^"\\\n])*" | '[^'\n]*')
    | (?P<header> ^[ \t]*\[(?P<list>\[)?[ \t]*(?P<name>{_KEY})[ \t]*\]\]?)
    | (?P<open> [\[{{])
    | (?P<close> [\]}}])
    | (?P<comma> ,)
    | (?P<word> [\w.+:-]+)
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)


class _Bracket(NamedTuple):
    """An open `{` or `[`, and the place of its value."""

    is_list: bool
    place: KeyPath


class _Scan:
    """One pass over a text."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._table: KeyPath = ()
        self._value: KeyPath = ()
        self._open: list[_Bracket] = []
        self._sizes: dict[KeyPath, int] = {}

    def token(self, found: re.Match[str], line: int) -> None:
        """Handle one token."""
        kind = found.lastgroup if found.lastgroup not in ("list", "name") else "header"
        match kind:
            case "key":
                self._value = (self._open[-1].place if self._open else self._table) + _parts(found["key"])
                self.lines.setdefault(self._value, line)
            case "header":
                self._begin_table(_parts(found["name"]), line, is_list=found["list"] is not None)
            case "open":
                self.lines.setdefault(self._value, line)
                self._open.append(_Bracket(found["open"] == "[", self._value))
                self._begin_element(0)
            case "string":
                self.lines.setdefault(self._value, line)
            case "comma":
                self._begin_element(1)
            case "close":
                self._value = self._open.pop().place

    @property
    def is_inside(self) -> bool:
        """Whether the next token is inside brackets."""
        return bool(self._open)

    def _begin_table(self, name: KeyPath, line: int, *, is_list: bool) -> None:
        place: KeyPath = ()
        for part in name[:-1]:
            place = self._latest((*place, part))
        place = (*place, name[-1])
        if is_list:
            self._sizes[place] = self._sizes.get(place, 0) + 1
        self._table = self._latest(place)
        self.lines.setdefault(self._table, line)

    def _latest(self, place: KeyPath) -> KeyPath:
        """Return the place of the last table of an array of tables, or the place itself."""
        return (*place, self._sizes[place] - 1) if place in self._sizes else place

    def _begin_element(self, step: int) -> None:
        if self._open and self._open[-1].is_list:
            place = self._open[-1].place
            self._sizes[place] = self._sizes[place] + 1 if step else 1
            self._value = (*place, self._sizes[place] - 1)


def lines_of(text: str) -> dict[KeyPath, int]:
    """Return the line, from 1 on, of each key, table, string and list of a TOML text."""
    scan, at, line = _Scan(), 0, 1
    while (found := _TOKEN.search(text, at)) is not None:
        end = found.end()
        if found["header"] is not None and scan.is_inside:
            end = found.start() + text[found.start() : end].index("[") + 1
            found = _TOKEN.fullmatch(text, end - 1, end)
            assert found is not None, "a bracket alone is a token"
        line += text.count("\n", at, found.start())
        scan.token(found, line)
        line += text.count("\n", found.start(), end)
        at = end
    return scan.lines


def line_of(lines: dict[KeyPath, int], place: KeyPath) -> int:
    """Return the line of a value, or of the nearest table around it; 1 if no line of it is known."""
    return next((lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines), 1)


def _parts(key: str) -> KeyPath:
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in re.findall(_PART, key))
