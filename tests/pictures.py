"""`make pictures`: the README's pictures, taken of the demo as it runs.

Everything is started as a user starts it; when the demo has told its story, a browser and a terminal are looked at.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.text import Text

from streaming.embedded.child import Child

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
ROOT = PICTURES.parents[1]
GROUP = "demo"
REBALANCES = 4
"""They join, one leaves, one dies, and both come back."""

WITHIN_S = 300.0
WIDE, HIGH, COLUMNS = 1_200, 760, 118

COMMANDS = {
    "terminal-describe": ("groups", "describe", GROUP),
    "terminal-why": ("groups", "why", GROUP),
    "terminal-timeline": ("groups", "timeline", GROUP, "--limit", "12"),
}


def main() -> int:
    """Take all pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pictures-") as name:
        folder = Path(name)
        ready_file = folder / "ready"
        command = [sys.executable, "-m", "streaming", "up", "--ready-file", str(ready_file)]
        running = Child(command, folder=ROOT, log_file=folder / "log", die_with_parent=True)
        try:
            ready = _await_ready(ready_file, running)
            _await_story(ready["dashboard"], running)
            _photograph(ready["dashboard"])
            for picture, arguments in COMMANDS.items():
                _copy_terminal(picture, arguments, ready["bootstrap_servers"])
        finally:
            running.stop(90)
    return 0


def _await_ready(ready_file: Path, running: Child) -> dict[str, Any]:
    until_s = time.monotonic() + WITHIN_S
    while not ready_file.exists():
        if running.ended.wait(0.5) or time.monotonic() > until_s:
            sys.exit("The product did not start.")
    return dict(json.loads(ready_file.read_text()))


def _await_story(page: str, running: Child) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not _is_told(page):
        if running.ended.wait(1.0) or time.monotonic() > until_s:
            sys.exit("The demo did not tell its story.")


def _is_told(page: str) -> bool:
    try:
        with urllib.request.urlopen(f"{page}/api/timeline?id={GROUP}", timeout=10) as answer:
            told = json.load(answer)["rebalances"]
    except OSError:
        return False
    return len(told) >= REBALANCES and all(each["ended_ms"] for each in told)


def _photograph(page: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            _shoot(browser, page, scheme)
        browser.close()


def _shoot(browser: Browser, page: str, scheme: Any) -> None:
    tab = browser.new_page(viewport={"width": WIDE, "height": HIGH}, color_scheme=scheme)
    tab.goto(f"{page}/#/g/{GROUP}")
    tab.get_by_role("tab", name="Timeline").click()
    tab.get_by_role("button", name="15 m").click()
    tab.locator("svg").first.wait_for()
    tab.screenshot(path=PICTURES / f"timeline-{scheme}.png")
    tab.close()


def _copy_terminal(picture: str, arguments: tuple[str, ...], bootstrap_servers: str) -> None:
    command = [sys.executable, "-m", "streaming", *arguments, "-b", bootstrap_servers]
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ coordinator {' '.join(arguments)}", style="bold"))
    console.print(Text.from_ansi(told))
    console.save_svg(str(PICTURES / f"{picture}.svg"), title="coordinator")


if __name__ == "__main__":
    sys.exit(main())
