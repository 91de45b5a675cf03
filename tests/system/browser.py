"""One Chromium for a module's tests, and pages on which every error fails the test."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.system.waiting import HANG_S
from tests.tools import missing, needed

WITHIN_MS = 1_000 * HANG_S
expect.set_options(timeout=WITHIN_MS)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Start a browser. Without Chromium the tests are skipped, or fail if `BROWSER_TESTS` is `required`."""
    if shutil.which("chromium") is None and os.environ.get("BROWSER_TESTS") == "required":
        pytest.fail(missing("chromium"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=needed("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """Open a page of a desktop's size. A warning, an error or a dialog on the page fails the test."""
    with_complaints: list[str] = []
    context = chromium.new_context(viewport={"width": 1_360, "height": 900})
    context.set_default_timeout(WITHIN_MS)
    page = context.new_page()

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            with_complaints.append(message.text)

    page.on("console", hear)
    page.on("pageerror", lambda error: with_complaints.append(str(error)))
    page.on("dialog", lambda dialog: with_complaints.append(f"a dialog: {dialog.message}"))
    yield page
    context.close()
    assert not with_complaints


def texts(page: Page, selector: str) -> list[str]:
    """Return the texts that the elements show."""
    found: list[str] = page.locator(selector).all_inner_texts()
    return found


def scrolls_sideways(page: Page) -> bool:
    """Return whether the page as a whole is wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def shot(page: Page, name: str, folder: Any) -> None:
    """Write a picture of the page into the folder, if a folder is given."""
    if folder:
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)
