"""What a process writes on standard error: one line for one thing, whatever strangers have put into it."""

import json
import subprocess
import sys

import pytest

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
logging.getLogger("streaming.x").info("nobody wants to know")
if len(sys.argv) > 2:
    warnings.warn("old")
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start(); thread.join()
    raise KeyError(hostile)
"""


def said(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, timeout=60, check=False, encoding="utf-8"
    )
    assert done.stdout == ""
    return done.stderr.split("\n")[:-1]


def test_in_json_everything_is_one_object_a_line() -> None:
    """Log lines, sentences for the user, warnings, what a thread and what the process ends with."""
    lines = [json.loads(line) for line in said("json", "and crash")]
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


def test_in_json_nothing_is_left_that_a_reader_could_take_for_the_end_of_a_line() -> None:
    lines = said("json")
    assert len(lines) == 4
    assert all(line.isascii() and line.isprintable() for line in lines)


def test_in_text_a_name_ends_no_line_and_reaches_no_terminal() -> None:
    """A group's id cannot forge a line of the log, nor of the sentence that the process ends with."""
    lines = said("text")
    assert not any(char in line for line in lines for char in "\x1b\x00\u2028")
    assert "level=WARNING logger=streaming.x group orders\\n2026-01-01 level=ERROR forged\\u001b[31m" in lines[0]
    assert any(line.startswith("coordinator: No group orders\\n2026-01-01") for line in lines)


@pytest.mark.parametrize("way", [["--log-format", "yaml"], []])
def test_a_format_that_is_none_is_wrong_usage(way: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if not way:
        monkeypatch.setenv("COORDINATOR_LOG_FORMAT", "yaml")
    done = subprocess.run(
        [sys.executable, "-m", "streaming", *way, "tables"], capture_output=True, timeout=60, check=False, text=True
    )
    assert done.returncode == 2
    assert "yaml" in done.stderr


def test_the_variable_and_the_flag_are_one() -> None:
    """And a failure's sentence comes as an object then."""
    for way, variable in (([], {"COORDINATOR_LOG_FORMAT": "json"}), (["--log-format", "json"], {})):
        done = subprocess.run(
            [sys.executable, "-m", "streaming", *way, "topics"],
            env={"COORDINATOR_BOOTSTRAP_SERVERS": "nobody", **variable},
            capture_output=True,
            timeout=60,
            check=False,
            text=True,
        )
        [line] = done.stderr.splitlines()
        assert json.loads(line)["message"].startswith("bootstrap_servers: ")
        assert done.returncode == 78
