"""Tests of the progress of a download: lines in a log, and a bar on a terminal."""

import io
import threading

from rich.console import Console

from streaming.embedded.progress import Download, shown

HANG_S = 60.0
STARTED = "downloading https://example.org/org/apache/kafka/one-4.4.0.jar ..."
ENDED = "[SUCCESSFUL ] org.apache.kafka#one;4.4.0!one.jar (12ms)"


def test_a_download_counts_jars_and_names_the_current_one() -> None:
    download = Download(2)
    assert str(download) == "0 of 2 jars have been downloaded."
    download.read("found org.apache.kafka#one;4.4.0 in central")
    assert str(download) == "0 of 2 jars have been downloaded; found org.apache.kafka#one;4.4.0."
    download.read(STARTED)
    assert str(download) == "0 of 2 jars have been downloaded; downloading one-4.4.0.jar."
    download.read("................ (1200kB)")
    download.read(ENDED)
    assert (download.done, download.step) == (1, "downloading one-4.4.0.jar")
    download.read(ENDED)
    assert str(download) == "2 of 2 jars have been downloaded."


def test_a_log_gets_a_line_while_one_jar_takes_long() -> None:
    """A report comes by time, and not only when Ivy has written a line."""
    reports: list[str] = []
    twice = threading.Event()

    def say(report: str) -> None:
        reports.append(report)
        if reports.count(report) == 2:
            twice.set()

    with shown(Download(9), say, Console(file=io.StringIO()), every_s=0.01) as read:
        read(STARTED)
        assert twice.wait(HANG_S)
    assert reports[-1] == "0 of 9 jars have been downloaded; downloading one-4.4.0.jar."
    assert not [thread for thread in threading.enumerate() if thread.name == "download progress"]


def test_a_terminal_gets_a_bar_and_no_lines() -> None:
    terminal, reports = io.StringIO(), list[str]()
    console = Console(file=terminal, force_terminal=True, width=80)
    with shown(Download(2), reports.append, console, every_s=0.01) as read:
        read(STARTED)
        read(ENDED)
    assert "1/2" in terminal.getvalue()
    assert "one-4.4.0.jar" in terminal.getvalue()
    assert reports == []
