"""The page's files: small, all our own or as they were published, and nothing in them that strangers could use."""

import hashlib
import re
from pathlib import Path

import pytest

import streaming.dashboard
from streaming.dashboard.files import read_all

STATIC = Path(streaming.dashboard.__file__).parent / "static"
BYTES_MAX = 200_000
VENDORED = re.compile(r"^\| `(?P<name>\S+)` \|.*\| `(?P<sum>[0-9a-f]{64})` \|$", re.MULTILINE)
OURS = sorted(
    f for f in STATIC.iterdir() if f.suffix in {".js", ".html", ".css"} and f.name not in {"preact.js", "htm.js"}
)


def test_the_page_is_small() -> None:
    """All files together, as they are, come to 200 KB at most."""
    bytes_in_all = sum(file.stat().st_size for file in STATIC.iterdir())
    print(f"page weight: {bytes_in_all} bytes")
    assert bytes_in_all <= BYTES_MAX


def test_what_is_from_elsewhere_is_as_it_was_published() -> None:
    listed = {m["name"]: m["sum"] for m in VENDORED.finditer((STATIC / "VENDOR.md").read_text())}
    assert listed == {n: hashlib.sha256((STATIC / n).read_bytes()).hexdigest() for n in ("preact.js", "htm.js")}


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.name)
def test_nothing_makes_markup_of_text_and_nothing_comes_from_elsewhere(file: Path) -> None:
    """Text reaches the page as text nodes alone; no inline script or style, no other origin."""
    text = file.read_text()
    forbidden = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|https?://|\sstyle=|javascript:|\bon\w+=\""
    assert not re.findall(forbidden, text)
    assert "<script>" not in text
    assert "<style" not in text


def test_every_file_that_a_module_imports_is_served() -> None:
    served = read_all()
    for file in OURS:
        for name in re.findall(r"""(?:from "\./|"/static/)([\w.]+)\"""", file.read_text()):
            assert name in served, f"{file.name} wants {name}"
