"""The topics that a pattern matches. Patterns are those of RE2, whose time is linear in the length of a name.

A pattern has to match the whole name. Kafka uses RE2/J, which agrees with RE2 except for the form that `REFUSED` names.

Source: KIP-848, and Kafka's GroupMetadataManager.refreshRegularExpressions.
"""

import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import re2

from coordinator.base.limits import PATTERN_CHARS_MAX, REASON_CHARS_MAX

PROGRAM_BYTES_MAX = 2**17
"""The memory for one compiled pattern. A pattern that needs more is refused. The time for a name grows with it."""

MATCH_S, MATCH_NAME_S = 0.5, 0.000_1
"""The processor time in which a pattern has to be matched against names, and what each name adds to it. A usual pattern
takes a twentieth of that, on a busy machine a fifth. A pattern that takes longer is refused."""

CHECKED_NAMES = 64
"""The names after which the time is compared with its limit."""

PATTERNS_KEPT_MAX = 2_000
"""The patterns with stored matches, of all members of one process; the others are matched against all names again."""

COMPILED_MAX = 200
"""The compiled patterns that are kept."""

REFUSED = r"\C"
"""Any byte: RE2 accepts it and RE2/J does not."""

NO_NAMES = frozenset[str]()


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
    names = list(names)
    until_s = time.thread_time() + MATCH_S + MATCH_NAME_S * len(names)
    topics: list[str] = []
    for start in range(0, len(names), CHECKED_NAMES):
        topics += filter(compiled.fullmatch, names[start : start + CHECKED_NAMES])
        if time.thread_time() > until_s:
            return Matches(error="the pattern takes too long: write it with fewer repetitions")
    return Matches(tuple(sorted(topics)))


class Patterns:
    """Patterns and the topics that they match. A pattern that is stored is matched against new names only.

    A method may take long, so it is called in a thread; one at a time.
    """

    def __init__(self) -> None:
        self._stored: dict[str, tuple[frozenset[str], Matches]] = {}
        self._difference: tuple[frozenset[str], frozenset[str], frozenset[str]] = (NO_NAMES, NO_NAMES, NO_NAMES)

    def matching(self, pattern: str, names: frozenset[str]) -> Matches:
        """Return those of the names that a pattern matches as a whole.

        Args:
            names: All names. The same object as in the call before if nothing has changed.
        """
        before, found = self._stored.pop(pattern, (NO_NAMES, Matches()))
        if before is not names and found.error is None:
            found = self._changed(pattern, before, names, found)
        self._stored[pattern] = names, found
        if len(self._stored) > PATTERNS_KEPT_MAX:
            del self._stored[next(iter(self._stored))]
        return found

    def _changed(self, pattern: str, before: frozenset[str], names: frozenset[str], found: Matches) -> Matches:
        """Return the matches among the names, of which those before have been matched."""
        if self._difference[0] is not before or self._difference[1] is not names:
            self._difference = before, names, names - before
        new = matching(pattern, self._difference[2])
        if new.error is not None:
            return new
        left = [topic for topic in found.topics if topic in names]
        is_same = len(left) == len(found.topics) and not new.topics
        return found if is_same else Matches(tuple(sorted([*left, *new.topics])))


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
