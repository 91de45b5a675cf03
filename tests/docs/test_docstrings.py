"""Tests of the first words of docstrings: a function's docstring says what the function does, in the imperative."""

import ast
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT

VAGUE = {"Ask", "Bring", "Do", "Give", "Have", "Hear", "Know", "Learn", "Let", "Look", "Say", "See", "Take", "Tell"}
"""Verbs that do not name what a function does, as Return, Check, Start, Write and Raise do."""

PACKAGES = ("coordinator", "streaming", "tests")


def first_words(package: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the first word of each docstring of a function."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text.split()[0].strip(".,:;")


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_begin_with_a_precise_verb(package: str) -> None:
    words = list(first_words(package))
    assert len(words) > 100, "the functions of the package must be found"
    assert [place for place, word in words if word in VAGUE] == []
