"""Output on standard error: lines for a person, or one JSON object a line for a program (`--log-format`).

    {"time": "2026-11-22T07:46:06.123Z", "level": "WARNING", "logger": "streaming.query.watchers.alarm",
     "message": "...", "exception": "Traceback ..."}

Clients choose the names in messages. No name can end a line or control a terminal.
"""

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType

FORMAT_VARIABLE = "COORDINATOR_LOG_FORMAT"
"""A variable and a flag, but not a setting, because its value is needed before the settings are loaded."""

_USER_LOG = logging.getLogger("coordinator")
"""The logger of messages to the user that started the process: the progress of the start, and the last sentence."""


class LogFormat(StrEnum):
    """The formats of lines."""

    text = "text"
    json = "json"


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return a line, followed by the traceback of an exception."""
        return fit_for_a_terminal(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return super().formatMessage(record).replace("\n", "\\n")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return one JSON object in ASCII, in which no character ends a line for any reader."""
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
    """Set up logging on standard error: all batches and whole failures if verbose, else only warnings and errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_FORMATTERS[log_format])
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("streaming").setLevel(logging.DEBUG if is_verbose else logging.WARNING)
    logging.getLogger("kafka").setLevel(logging.WARNING if is_verbose else logging.CRITICAL)
    if log_format is LogFormat.json:
        _USER_LOG.setLevel(logging.INFO)
        logging.captureWarnings(True)
        sys.excepthook = _log_crash
        threading.excepthook = lambda crash: _log_crash(crash.exc_type, crash.exc_value, crash.exc_traceback)


def are_json() -> bool:
    """Return whether the log format is JSON."""
    return _USER_LOG.isEnabledFor(logging.INFO)


def tell(sentence: str) -> None:
    """Report progress on the terminal or in the log. Results go to standard output."""
    _write(logging.INFO, sentence, fit_for_a_terminal(sentence))


def tell_failure(error: Exception) -> None:
    """Report the failure with which a process ends, in one sentence."""
    _write(logging.ERROR, str(error), "coordinator: " + fit_for_a_terminal(str(error)).replace("\n", "\\n"))


def fit_for_a_terminal(text: str) -> str:
    """Escape, as in JSON, the characters that control a terminal or are not printable, because clients choose ids."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _write(level: int, message: str, line: str) -> None:
    if are_json():
        _USER_LOG.log(level, "%s", message)
    else:
        print(line, file=sys.stderr, flush=True)  # noqa: T201


def _log_crash(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if not isinstance(error, KeyboardInterrupt):
        _USER_LOG.critical("the process ends by a bug", exc_info=(kind, error or kind(), trace))
