"""Every target of a link or picture exists, and every page is linked."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, README, ROOT, anchors, links, name_of, text

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def _broken(page: Path, target: str) -> bool:
    if target.startswith(("https://", "http://")):
        return False
    path, _, anchor = target.partition("#")
    linked = (page.parent / path).resolve() if path else page
    if not linked.exists():
        return True
    return bool(anchor) and anchor not in anchors(linked)


@every_page
def test_link_targets_exist(page: Path) -> None:
    assert [target for target in links(page) if _broken(page, target)] == []


@every_page
def test_links_stay_in_the_repository(page: Path) -> None:
    """No page depends on another host."""
    assert [target for target in links(page) if target.startswith("http")] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page != README], ids=name_of)
def test_links_of_the_site_stay_in_its_folder(page: Path) -> None:
    paths = [target.partition("#")[0] for target in links(page)]
    assert [path for path in paths if not (page.parent / path).resolve().is_relative_to(DOCS)] == []


def test_the_site_has_every_page() -> None:
    index = (DOCS / "index.rst").read_text().split()
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES if page != README}
    assert pages <= set(index)


def test_the_readme_maps_every_page() -> None:
    linked = {(ROOT / target.partition("#")[0]).resolve() for target in links(README)}
    assert {page for page in DOCS.glob("*.md") if page not in linked} == set()


def test_the_readme_is_short() -> None:
    assert len(text(README).splitlines()) <= 200


def test_every_picture_is_used() -> None:
    used = {(page.parent / target).resolve() for page in PAGES for target in links(page)}
    assert {picture.name for picture in (DOCS / "pictures").iterdir() if picture not in used} == set()
