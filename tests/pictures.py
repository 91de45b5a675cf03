"""`make pictures`: the pictures of the documents, taken of the running demo.

The product is started as a user starts it. When the demo has run its rebalances, pictures of a browser and of a
terminal are taken.
"""

import contextlib
import io
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import termios
import time
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from streaming.embedded.child import Child

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
ROOT = PICTURES.parents[1]
GROUP = "demo"
REBALANCES = 9
"""The rebalances of two rounds of the demo. In a round, members join, one leaves, one dies, and both come back."""

WITHIN_S = 300.0
WIDE, HIGH, COLUMNS, LINES = 1_200, 760, 150, 40

FETCHES_FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*|<!--.*?-->\s*", re.DOTALL)
"""The parts of Rich's pictures that refer to other servers."""


def main() -> int:
    """Write all pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pictures-") as name:
        folder = Path(name)
        ready_file = folder / "ready"
        command = [sys.executable, "-m", "streaming", "up", "--ready-file", str(ready_file)]
        running = Child(command, folder=ROOT, log_file=folder / "log", die_with_parent=True)
        try:
            ready = _await_ready(ready_file, running)
            _await_rebalances(ready["dashboard"], running)
            _photograph(ready["dashboard"])
            for picture, arguments in _commands(ready["dashboard"]).items():
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


def _await_rebalances(page: str, running: Child) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not _has_rebalanced(page):
        if running.ended.wait(1.0) or time.monotonic() > until_s:
            sys.exit("The demo did not rebalance in time.")


def _has_rebalanced(page: str) -> bool:
    try:
        rebalances = _rebalances(page)
    except OSError:
        return False
    return len(rebalances) >= REBALANCES and all(each["ended_ms"] for each in rebalances)


def _rebalances(page: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{page}/api/timeline?id={GROUP}", timeout=10) as answer:
        return list(json.load(answer)["rebalances"])


def _commands(page: str) -> dict[str, tuple[str, ...]]:
    """Return the commands by picture: describe, why and owner at the time of an expiry, and the timeline."""
    died_ms = next(each["started_ms"] for each in reversed(_rebalances(page)) if each["cause"] == "session_expired")
    at = datetime.fromtimestamp(died_ms / 1_000 + 0.1).astimezone().strftime("%H:%M:%S.%f")[:-3]
    return {
        "terminal-describe": ("groups", "describe", GROUP),
        "terminal-why": ("groups", "why", GROUP, "--at", at),
        "terminal-owner": ("groups", "owner", GROUP, "demo.orders-4", "--at", at),
        "terminal-timeline": ("groups", "timeline", GROUP, "--limit", "12"),
    }


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
    tab.get_by_role("button", name="All").click()
    tab.locator(".lane .span").first.wait_for()
    tab.screenshot(path=PICTURES / f"timeline-{scheme}.png")
    tab.close()


def _copy_terminal(picture: str, arguments: tuple[str, ...], bootstrap_servers: str) -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ coordinator {' '.join(arguments)}", style="bold"))
    console.print(Text.from_ansi(_as_on_a_terminal([*arguments, "-b", bootstrap_servers])))
    picture_text = console.export_svg(title="coordinator", code_format=FETCHES_FONTS.sub("", CONSOLE_SVG_FORMAT))
    (PICTURES / f"{picture}.svg").write_text(picture_text)


def _as_on_a_terminal(arguments: list[str]) -> str:
    """Run a command and return its output to a terminal."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (LINES, COLUMNS))
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    running = subprocess.Popen([sys.executable, "-m", "streaming", *arguments], env=environment, stdout=its, stdin=its)
    os.close(its)
    output = b""
    with contextlib.suppress(OSError):  # the end of a terminal's output raises this error
        while piece := os.read(ours, 65_536):
            output += piece
    os.close(ours)
    if running.wait(60):
        sys.exit(f"coordinator {' '.join(arguments)} failed.")
    return output.decode().replace("\r\n", "\n")


if __name__ == "__main__":
    sys.exit(main())
