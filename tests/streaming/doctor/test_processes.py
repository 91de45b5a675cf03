"""Tests of what a process says at its health address. The listener is the real one."""

import socket
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from prometheus_client import CollectorRegistry

from streaming.config.settings import Settings
from streaming.doctor import Case, Finding, Level
from streaming.doctor.processes import address_of, check
from streaming.health import Listener


class Patient:
    """A subject whose reasons are set by a test."""

    process = "patient"

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reasons: list[str] = []

    def unhealthy_reasons(self) -> Sequence[str]:
        return []

    def not_ready_reasons(self) -> Sequence[str]:
        return self.reasons

    def figures(self) -> dict[str, object]:
        return {"role": "active"}


def found(address: str) -> list[Finding]:
    return list(check(Case(Settings.load(), (address_of(address),))))


def test_readiness_its_reasons_and_the_clock_are_shown() -> None:
    patient = Patient()
    with Listener("127.0.0.1", 0, patient) as listener:
        address = f"127.0.0.1:{listener.server_port}"
        ready, clock = found(address)
        assert ready == Finding(Level.OK, f'http://{address} is ready: role "active".')
        assert (clock.level, clock.text.startswith(f"The clock at http://{address} is between ")) == (Level.OK, True)
        patient.reasons = ["the first batch has not ended yet"]
        waiting, _ = found(address)
    assert waiting.level is Level.WRONG
    assert waiting.text == f'http://{address} is not ready: the first batch has not ended yet (role "active").'


def test_an_address_where_nothing_listens_is_a_finding() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (finding,) = found(f"127.0.0.1:{port}")
    assert (finding.level, f"http://127.0.0.1:{port} does not answer (" in finding.text) == (Level.WRONG, True)


class _Stranger(BaseHTTPRequestHandler):
    """An HTTP server that is no health port."""

    def do_GET(self) -> None:
        """Send a page."""
        self.send_response_only(200)
        self.end_headers()
        self.wfile.write(b"<html>")


@pytest.fixture
def stranger() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Stranger) as server:
        Thread(target=server.handle_request, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"


def test_another_server_is_a_finding(stranger: str) -> None:
    (finding,) = found(f"{stranger}/readyz")
    assert finding.text == f"{stranger} answers with 200, and not as a health port does."


@pytest.mark.parametrize("text", ["", "host", "ftp://host:1", "http://ana:secret@host:1", "http://host:x", "http://:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        address_of(text)
