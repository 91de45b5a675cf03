"""docs/map.md and the lists of packages: each file that they name exists, and the questions of the map are enough."""

import ast
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "map.md").read_text()
DRAWINGS = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
BOXES_MAX, QUESTIONS_MIN = 12, 20


def boxes(drawing: str) -> list[str]:
    return [line.split()[0] for line in drawing.splitlines() if not line.startswith(" ")]


def test_each_way_has_a_drawing_of_a_few_files_that_exist() -> None:
    assert len(DRAWINGS) == 4
    assert [(len(boxes(each)), each) for each in DRAWINGS if len(boxes(each)) > BOXES_MAX] == []
    assert [file for each in DRAWINGS for file in boxes(each) if not (ROOT / file).is_file()] == []


def test_files_beside_a_file_exist_too() -> None:
    """A name without a folder is that of a file beside one that its line names with its folder."""
    for line in PAGE.splitlines():
        paths = re.findall(r"(?:coordinator|streaming)/[\w/]+(?:\.py)?", line)
        folders = [path if (path := ROOT / each).is_dir() else path.parent for each in paths]
        for name in re.findall(r"`((?:\w+/)*\w+\.py)`", line):
            if name not in paths:
                assert any((folder / name).is_file() or (folder.parent / name).is_file() for folder in folders), (
                    f"{name} in: {line}"
                )


def test_the_page_answers_where_twenty_things_are() -> None:
    assert len(re.findall(r"^\| (?!what|---)", PAGE, re.MULTILINE)) >= QUESTIONS_MIN


_ROOM = re.compile(r"^    ([a-z_]+(?:, [a-z_]+)*)  +\S", re.MULTILINE)
"""A line of a package's list: its modules, and what they are about."""


@pytest.mark.parametrize("package", [init.parent for name in ("coordinator", "streaming")
                                     for init in (ROOT / name).rglob("__init__.py")], ids=str)  # fmt: skip
def test_modules_that_a_package_lists_exist(package: Path) -> None:
    listed = _ROOM.findall(ast.get_docstring(ast.parse((package / "__init__.py").read_text()), clean=False) or "")
    names = [name for line in listed for name in line.split(", ")]
    assert [name for name in names if not (any(package.glob(f"{name}.*")) or (package / name).is_dir())] == []
