"""What a process says on standard error: lines for a person, or one JSON object a line for a program (`--log-format`).

    {"time": "2026-11-22T07:46:06.123Z", "level": "WARNING", "logger": "streaming.query.alarm", "message": "...",
     "exception": "Traceback ..."}

Names in what is said are chosen by strangers: whatever they hold, it neither ends a line nor reaches a terminal.
"""

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType

FORMAT_VARIABLE = "COORDINATOR_LOG_FORMAT"
"""A variable and a flag, and no setting: it has to be known before there are any."""

_SAID = logging.getLogger("coordinator")
"""What is said to whoever started the process: how it comes up, and the sentence that it ends with."""


class LogFormat(StrEnum):
    """How lines are written."""

    text = "text"
    json = "json"


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Write a line, and under it what was raised."""
        return fit_for_a_terminal(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return super().formatMessage(record).replace("\n", "\\n")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Write one object, in ASCII: nothing in it ends a line, whatever a reader takes for the end of one."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


_FORMATTERS = {
    LogFormat.text: _TextLines("%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"),
    LogFormat.json: _JsonLines(),
}


def set_up(log_format: LogFormat, *, is_verbose: bool) -> None:
    """Have this process log on standard error: each batch and failures in full if verbose, else only what is wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_FORMATTERS[log_format])
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("streaming").setLevel(logging.DEBUG if is_verbose else logging.WARNING)
    logging.getLogger("kafka").setLevel(logging.WARNING if is_verbose else logging.CRITICAL)
    if log_format is LogFormat.json:
        _SAID.setLevel(logging.INFO)
        logging.captureWarnings(True)
        sys.excepthook = _log_crash
        threading.excepthook = lambda crash: _log_crash(crash.exc_type, crash.exc_value, crash.exc_traceback)


def are_json() -> bool:
    """Tell whether lines are for a program."""
    return _SAID.isEnabledFor(logging.INFO)


def tell(sentence: str) -> None:
    """Report progress to whoever watches the terminal, or reads the log; results go to standard output."""
    _say(logging.INFO, sentence, fit_for_a_terminal(sentence))


def tell_failure(error: Exception) -> None:
    """Say the one sentence that a process ends with."""
    _say(logging.ERROR, str(error), "coordinator: " + fit_for_a_terminal(str(error)).replace("\n", "\\n"))


def fit_for_a_terminal(text: str) -> str:
    """Escape in JSON what a terminal would act on, or not show at all: ids in it are chosen by strangers."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _say(level: int, message: str, line: str) -> None:
    if are_json():
        _SAID.log(level, "%s", message)
    else:
        print(line, file=sys.stderr, flush=True)  # noqa: T201


def _log_crash(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if not isinstance(error, KeyboardInterrupt):
        _SAID.critical("the process ends by a bug", exc_info=(kind, error or kind(), trace))
