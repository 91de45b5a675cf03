"""The format of Java's properties files, as java.util.Properties reads them."""

import re
from collections.abc import Iterator

_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_LINE = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    """Parse properties as java.util.Properties does: the last of several equal names counts."""
    return {_unescaped(name): _unescaped(value) for name, value in map(_parted, _logical_lines(text))}


def _logical_lines(text: str) -> Iterator[str]:
    begun = ""
    for line in text.splitlines():
        stripped = line.lstrip(" \t\f")
        if not begun and (not stripped or stripped[0] in "#!"):
            continue
        begun += stripped
        if _CONTINUED.search(begun):
            begun = begun[:-1]
            continue
        yield begun
        begun = ""
    if begun:
        yield begun


def _parted(line: str) -> tuple[str, str]:
    found = _LINE.fullmatch(line)
    assert found, "each line has a name, which may be empty"
    return found[1], found[2]


def _unescaped(text: str) -> str:
    """Return a text without the escapes of a properties file."""

    def letter(found: re.Match[str]) -> str:
        what = found[1]
        return chr(int(what[1:], 16)) if len(what) > 1 else _LETTERS.get(what, what)

    return _ESCAPED.sub(letter, text)
