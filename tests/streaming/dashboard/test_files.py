"""Tests of the page's files: their size, their origin, and no code that could run strangers' text."""

import hashlib
import re
from pathlib import Path

import pytest

import streaming.dashboard
from streaming.dashboard.app import read_all

STATIC = Path(streaming.dashboard.__file__).parent / "static"
BYTES_MAX = 200_000
VENDORED = re.compile(r"^\| `(?P<name>\S+)` \|.*\| `(?P<sum>[0-9a-f]{64})` \|$", re.MULTILINE)
OURS = sorted(
    f for f in STATIC.iterdir() if f.suffix in {".js", ".html", ".css"} and f.name not in {"preact.js", "htm.js"}
)


def test_the_page_is_small() -> None:
    """All files together have 200 KB at most, uncompressed."""
    bytes_in_all = sum(file.stat().st_size for file in STATIC.iterdir())
    print(f"page weight: {bytes_in_all} bytes")
    assert bytes_in_all <= BYTES_MAX


def test_vendored_files_equal_the_published_ones() -> None:
    listed = {m["name"]: m["sum"] for m in VENDORED.finditer((STATIC / "VENDOR.md").read_text())}
    assert listed == {n: hashlib.sha256((STATIC / n).read_bytes()).hexdigest() for n in ("preact.js", "htm.js")}


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.name)
def test_no_file_makes_markup_of_text_or_loads_from_another_origin(file: Path) -> None:
    """Text enters the page only as text nodes; there is no inline script or style, and no other origin."""
    text = file.read_text()
    forbidden = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|https?://|\sstyle=|javascript:|\bon\w+=\""
    assert not re.findall(forbidden, text)
    assert "<script>" not in text
    assert "<style" not in text


def test_every_file_that_a_module_imports_is_served() -> None:
    served = read_all()
    for file in OURS:
        for name in re.findall(r"""(?:from "\./|"static/)([\w.]+)\"""", file.read_text()):
            assert name in served, f"{file.name} wants {name}"


def test_a_proxy_may_serve_the_page_under_any_path() -> None:
    """The page fetches its files and data by relative paths."""
    for file in OURS:
        assert not re.search(r"""["'`]/(?:static|api)""", file.read_text()), file.name


# -- colours -----------------------------------------------------------------------------------------------------------

TEXTS = ("ink", "soft", "accent", "good", "busy", "bad", "warm")
GROUNDS = ("page", "panel", "row", "shade")
AA = 4.5
"""The contrast that text of this size needs (WCAG 2.2, 1.4.3)."""


def colours() -> dict[str, tuple[str, str]]:
    """Return the style sheet's names, each with its light and its dark colour."""
    css = (STATIC / "page.css").read_text()
    return {name: (light, dark) for name, light, dark in re.findall(r"--(\w+): light-dark\((#\w+), (#\w+)\)", css)}


def luminance(colour: str) -> float:
    """Compute the relative luminance of `#rgb` or `#rrggbb`, 0 to 1."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("text", TEXTS)
def test_text_can_be_read_in_both_themes(text: str, ground: str, theme: int) -> None:
    named = colours()
    dark, bright = sorted((luminance(named[text][theme]), luminance(named[ground][theme])))
    assert (bright + 0.05) / (dark + 0.05) >= AA
