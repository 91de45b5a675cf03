"""The documents as values: their text, headings, links and code."""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DESIGN = DOCS / "design"
README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(r"^(?P<ticks>```+)(?P<language>\w*)\n(?P<code>.*?)^(?P=ticks)$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of code."""

    language: str
    code: str


@lru_cache
def text(page: Path) -> str:
    """Return the text of a page."""
    return page.read_text()


@lru_cache
def prose(page: Path) -> str:
    """Return the text of a page without its blocks of code."""
    return FENCE.sub("", text(page))


def blocks(page: Path) -> list[Block]:
    """Return the blocks of code of a page."""
    return [Block(found["language"], found["code"]) for found in FENCE.finditer(text(page))]


def spans(page: Path) -> list[str]:
    """Return the code in the sentences and tables of a page."""
    return [found.replace("\n", " ") for found in SPAN.findall(prose(page))]


def links(page: Path) -> list[str]:
    """Return the targets of the links and pictures of a page."""
    return LINK.findall(SPAN.sub("", prose(page)))


def headings(page: Path) -> list[str]:
    """Return the headings of a page."""
    return HEADING.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(page)}


def name_of(page: Path) -> str:
    """Return the path of a page inside the repository."""
    return str(page.relative_to(ROOT))


def sources() -> Iterator[Path]:
    """Yield every hand-written file of code and of tests."""
    for folder in ("coordinator", "streaming", "tests", "deploy"):
        for file in sorted((ROOT / folder).rglob("*")):
            if (
                file.suffix in {".py", ".txt", ".js", ".sql", ".yml", ".yaml", ".toml"}
                and "node_modules" not in file.parts
            ):
                yield file
