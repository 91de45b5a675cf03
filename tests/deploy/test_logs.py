"""The log on standard error: each message is one line, also with hostile input."""

import json
import subprocess
import sys

import pytest

from tests.system.waiting import HANG_S

HOSTILE = "orders\n2026-01-01 level=ERROR forged\x1b[31m\u2028\x00\"}{'\ud800"

PROGRAM = f"""
import logging, threading, warnings, sys
from streaming.errors import UserError
from streaming.logs import LogFormat, set_up, tell, tell_failure
set_up(LogFormat(sys.argv[1]), is_verbose=False)
hostile = {HOSTILE!r}
logging.getLogger("streaming.x").warning("group %s", hostile)
tell("Serving " + hostile)
tell_failure(UserError("No group " + hostile))
try:
    raise ValueError(hostile)
except ValueError:
    logging.getLogger("streaming.x").error("it broke", exc_info=True)
logging.getLogger("streaming.x").info("not logged at this level")
if len(sys.argv) > 2:
    warnings.warn("old")
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start(); thread.join()
    raise KeyError(hostile)
"""


def log_lines(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, timeout=HANG_S, check=False, encoding="utf-8"
    )
    assert done.stdout == ""
    return done.stderr.split("\n")[:-1]


def test_json_has_one_object_per_line() -> None:
    """The lines are log records, messages for the user, warnings, and the errors that end a thread and the process."""
    lines = [json.loads(line) for line in log_lines("json", "and crash")]
    assert all(line.keys() - {"exception"} == {"time", "level", "logger", "message"} for line in lines)
    assert [(line["level"], line["logger"]) for line in lines] == [
        ("WARNING", "streaming.x"),
        ("INFO", "coordinator"),
        ("ERROR", "coordinator"),
        ("ERROR", "streaming.x"),
        ("WARNING", "py.warnings"),
        ("CRITICAL", "coordinator"),
        ("CRITICAL", "coordinator"),
    ]
    assert lines[0]["message"] == f"group {HOSTILE}"
    assert lines[2]["message"] == f"No group {HOSTILE}"
    assert lines[3]["exception"].startswith("Traceback")
    assert "ZeroDivisionError" in lines[5]["exception"]
    assert "KeyError" in lines[6]["exception"]


def test_json_contains_no_line_separators() -> None:
    lines = log_lines("json")
    assert len(lines) == 4
    assert all(line.isascii() and line.isprintable() for line in lines)


def test_text_escapes_control_characters_in_names() -> None:
    """A group id cannot forge a line of the log, nor of the final error message of the process."""
    lines = log_lines("text")
    assert not any(char in line for line in lines for char in "\x1b\x00\u2028")
    assert "level=WARNING logger=streaming.x group orders\\n2026-01-01 level=ERROR forged\\u001b[31m" in lines[0]
    assert any(line.startswith("coordinator: No group orders\\n2026-01-01") for line in lines)


@pytest.mark.parametrize("flags", [["--log-format", "yaml"], []])
def test_an_unknown_format_is_a_usage_error(flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if not flags:
        monkeypatch.setenv("COORDINATOR_LOG_FORMAT", "yaml")
    done = subprocess.run(
        [sys.executable, "-m", "streaming", *flags, "tables"],
        capture_output=True,
        timeout=HANG_S,
        check=False,
        text=True,
    )
    assert done.returncode == 2
    assert "yaml" in done.stderr


def test_the_variable_and_the_flag_have_the_same_effect() -> None:
    """With both, the error message of a failure is a JSON object."""
    for flags, variable in (([], {"COORDINATOR_LOG_FORMAT": "json"}), (["--log-format", "json"], {})):
        done = subprocess.run(
            [sys.executable, "-m", "streaming", *flags, "topics"],
            env={"COORDINATOR_BOOTSTRAP_SERVERS": "nobody", **variable},
            capture_output=True,
            timeout=HANG_S,
            check=False,
            text=True,
        )
        [line] = done.stderr.splitlines()
        assert json.loads(line)["message"].startswith("bootstrap_servers: ")
        assert done.returncode == 78
