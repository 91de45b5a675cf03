"""Tests of the last warnings and errors of a log, as text and as JSON."""

import json
from pathlib import Path

from streaming.config.settings import Settings
from streaming.doctor import Case, Level, examine
from streaming.doctor.log_file import LINES_MAX, TAIL_BYTES, check

WARNING = "2026-11-22 07:46:06,123 level=WARNING logger=streaming.query.watchers.alarm an alarm is late"
ERROR = "coordinator: No Kafka broker answers at a:9092."


def found(log: Path) -> list[str]:
    return [each.text for each in check(Case(Settings.load(), log=log))]


def test_warnings_errors_and_the_last_sentence_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    fine = WARNING.replace("WARNING", "INFO")
    log.write_text(
        "\n".join([fine, WARNING, "Traceback (most recent call last):", "  File x", fine, ERROR, "{no JSON"])
    )
    assert found(log) == [WARNING, ERROR]


def test_lines_of_json_are_shown_as_text(tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = {"time": "T", "level": "ERROR", "logger": "coordinator", "message": "it ends", "exception": "Traceback"}
    log.write_text(f"{json.dumps({**line, 'level': 'INFO'})}\n{json.dumps(line)}\n[]\n")
    assert found(log) == ["T ERROR coordinator it ends"]


def test_only_the_end_of_a_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{ERROR} the first\n" + "x" * TAIL_BYTES + "\n" + f"{WARNING}\n" * (LINES_MAX + 5))
    assert found(log) == [WARNING] * LINES_MAX


def test_a_secret_is_removed_before_a_long_line_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{WARNING} {'x' * 900} password={'hunter2' * 30}\n")
    (row,) = examine(Case(Settings.load(), log=log), {"log": check}).rows
    assert "hunter2" not in row.text


def test_a_log_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    (finding,) = check(Case(Settings.load(), log=tmp_path / "none"))
    assert finding.level is Level.WRONG
    assert finding.text == f"{tmp_path / 'none'} cannot be read (No such file or directory)."
