"""A bug as a change of the core's text: the function, its text before, and its text with the bug."""

import inspect
from textwrap import dedent
from types import FunctionType
from typing import Any

import pytest
from msgspec import Struct


class Bug(Struct, frozen=True):
    """One bug.

    Args:
        name: Its effect on a member, an operator or a reader.
        function: The function that is changed.
        before: A piece of that function's text, which occurs once.
        after: The text with the bug.
        found_by: The checker or audit that raises, at the first of the simulations that the test runs.
    """

    name: str
    function: Any
    before: str
    after: str
    found_by: str

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        """Replace the function's code with the code that has the bug. So every reference to the function has the bug.

        Raises:
            LookupError: the core's text has changed, and `before` does not occur exactly once.
        """
        function = self.function.fget if isinstance(self.function, property) else self.function
        patch.setattr(function, "__code__", _code(function, self.before, self.after))


def _code(function: FunctionType, before: str, after: str) -> Any:
    text = dedent(inspect.getsource(function))
    if text.count(before) != 1:
        raise LookupError(f"{function.__qualname__} contains {before!r} {text.count(before)} times")
    names: dict[str, Any] = {}
    exec(compile(text.replace(before, after), inspect.getfile(function), "exec"), dict(function.__globals__), names)
    changed = names[function.__name__]
    return (changed.fget if isinstance(changed, property) else changed).__code__
