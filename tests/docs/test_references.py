"""Every reference of code and tests to the documents exists: `protocol.md 3.2`, `S05`, `W14`, `I10`, `F8`."""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tests.docs.pages import DESIGN, DOCS, ROOT, sources, text

NUMBERS = r"\d+(?:\.\d+)*"
REFERENCE = re.compile(rf"\b([a-z-]+)\.md(?:,? (?:end of )?(?:sections? )?({NUMBERS}(?:, {NUMBERS})*))?")

ROWS = {
    # its name          its page              the beginning of its row or item
    r"S(\d{2,3})":     ("features.md",     r"^\| S{} \| "),
    r"W(\d{1,2}b?)":   ("walkthroughs.md", r"^## W{} "),
    r"I(\d{1,2})":     ("promises.md",     r"^- I{} "),
    r"F([1-9])":       ("promises.md",     r"^\| F{} \| "),
}  # fmt: skip


@lru_cache
def _files() -> list[tuple[str, str]]:
    here = Path(__file__).parent
    return [
        (str(file.relative_to(ROOT)), re.sub(r"noqa: ?[A-Z0-9, ]+", "", file.read_text()))
        for file in sources()
        if file.parent != here
    ]


@lru_cache
def _sections(page: str) -> frozenset[str]:
    """Return the numbers of a page's headings, and of the list items below them."""
    numbers, section = set(), ""
    for line in text(DESIGN / page).splitlines():
        if found := re.match(rf"#+ ({NUMBERS})\b", line):
            section = found[1]
            numbers.add(section)
        elif found := re.match(r"(\d+)\. ", line):
            numbers.add(f"{section}.{found[1]}")
    return frozenset(numbers)


def _references() -> Iterator[tuple[str, str, str]]:
    for file, content in _files():
        for page, numbers in REFERENCE.findall(content):
            for number in numbers.split(", ") if numbers else [""]:
                yield file, f"{page}.md", number


def test_every_page_and_section_exists() -> None:
    pages = {page.name for page in [*DESIGN.glob("*.md"), *DOCS.glob("*.md"), *ROOT.glob("*.md")]}
    others = {"docs/metrics.md"}  # of KMinion
    missing = [
        (file, page, number)
        for file, page, number in _references()
        if f"docs/{page}" not in others
        and (page not in pages or (number and (DESIGN / page).exists() and number not in _sections(page)))
    ]
    assert missing == []


@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind[0])
def test_every_row_exists(kind: str) -> None:
    page, row = ROWS[kind]
    content = text(DESIGN / page)
    named = {(file, number) for file, code in _files() for number in re.findall(rf"(?<![\w/.-]){kind}(?![\w.-])", code)}
    assert named, "the code has no reference of this kind"
    assert {
        (file, number) for file, number in named if not re.search(row.format(re.escape(number)), content, re.MULTILINE)
    } == set()


def test_every_feature_has_its_row() -> None:
    rows = re.findall(r"^\| S(\d+) \| ", text(DESIGN / "features.md"), re.MULTILINE)
    assert [int(number) for number in rows] == list(range(1, 159))


def test_every_walkthrough_exists() -> None:
    found = re.findall(r"^## W(\d+)(?!\d|b)", text(DESIGN / "walkthroughs.md"), re.MULTILINE)
    assert [int(number) for number in found] == list(range(1, 30))


def test_pages_refer_to_rows_and_sections_that_exist() -> None:
    for page in (*DOCS.glob("*.md"), *DESIGN.glob("*.md")):
        for name, numbers in REFERENCE.findall(text(page)):
            assert not numbers or set(numbers.split(", ")) <= _sections(f"{name}.md"), (page.name, name, numbers)
        for feature in re.findall(r"\bS(\d{2,3})\b", text(page)):
            assert 1 <= int(feature) <= 158, (page.name, feature)
