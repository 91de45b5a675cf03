"""The topics that a pattern matches. Patterns are those of RE2, whose time is linear in the length of a name.

A pattern has to match the whole name. Kafka uses RE2/J, which agrees with RE2 except for the form that `REFUSED` names.

Source: KIP-848, and Kafka's GroupMetadataManager.refreshRegularExpressions.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import re2

from coordinator.limits import PATTERN_CHARS_MAX, REASON_CHARS_MAX

PROGRAM_BYTES_MAX = 2**20
"""The memory for one compiled pattern. A pattern that needs more is refused."""

COMPILED_MAX = 200
"""The compiled patterns that are kept."""

REFUSED = r"\C"
"""Any byte: RE2 accepts it and RE2/J does not."""


class Matches(NamedTuple):
    """The topics that a pattern matches, in order; or why it does not compile."""

    topics: tuple[str, ...] = ()
    error: str | None = None


class WholeName:
    """A pattern that has to match the whole name of a topic.

    Raises:
        ValueError: the pattern does not compile.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern, self._compiled = pattern, _compiled(pattern)

    def match(self, name: str, /) -> object | None:
        """Return a match if the pattern matches all of a name; None if it does not."""
        found: object | None = self._compiled.fullmatch(name)
        return found


def matching(pattern: str, names: Iterable[str]) -> Matches:
    """Return those of the names that a pattern matches as a whole."""
    try:
        compiled = _compiled(pattern)
    except ValueError as error:
        return Matches(error=str(error)[:REASON_CHARS_MAX])
    return Matches(tuple(sorted(name for name in names if compiled.fullmatch(name))))


@lru_cache(COMPILED_MAX)
def _compiled(pattern: str) -> Any:
    if len(pattern) > PATTERN_CHARS_MAX:
        raise ValueError(f"the pattern has more than {PATTERN_CHARS_MAX} characters")
    if REFUSED in pattern.replace(r"\\", ""):
        raise ValueError(f"the pattern has {REFUSED}, which is not supported")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PROGRAM_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(f"the pattern does not compile: {_text(error)}") from None


def _text(error: Exception) -> str:
    [what] = error.args or ("",)
    return what.decode(errors="replace") if isinstance(what, bytes) else str(what)
