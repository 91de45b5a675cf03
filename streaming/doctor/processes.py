"""What processes say at their health addresses: whether they are ready, and if not, why."""

import json
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from streaming.doctor.case import Case, Finding, ok, wrong
from streaming.doctor.clocks import ShownTime, difference
from streaming.moments import unix_ms

ANSWER_WAIT_S = 5.0
ANSWER_BYTES_MAX = 100_000

_CONNECTIONS = {"http": HTTPConnection, "https": HTTPSConnection}

_NO_ADDRESS = "Start the process, or give the address of its --health-port."


def address_of(text: str) -> str:
    """Return a health address in full.

    Raises:
        ValueError: The text is no address.
    """
    whole = text if "://" in text else f"http://{text}"
    parts = urlsplit(whole)
    if parts.scheme not in _CONNECTIONS or not parts.hostname or parts.port is None or parts.username is not None:
        raise ValueError("it must be http://HOST:PORT or https://HOST:PORT, without a user")
    return f"{parts.scheme}://{parts.netloc}"


def check(case: Case) -> Iterator[Finding]:
    """Yield the readiness of each process, and the difference of its clock."""
    if not case.health:
        yield ok("No process was asked: --health names the address of one.")
    for address in case.health:
        asked_ms = unix_ms()
        try:
            status, date, body = _answer(address)
        except (OSError, HTTPException) as error:
            yield wrong(f"{address} does not answer ({str(error) or type(error).__name__}).", _NO_ADDRESS)
            continue
        answered_ms = unix_ms()
        yield _readiness(address, status, body)
        if date is not None:
            shown = ShownTime(asked_ms, answered_ms, date, resolution_ms=1_000)
            yield difference(f"The clock at {address}", shown, case.settings.clock_slack_ms)


def _answer(address: str) -> tuple[int, int | None, bytes]:
    """Return the status, the time and the body of the answer to /readyz."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    connection = _CONNECTIONS[parts.scheme](parts.hostname, parts.port, timeout=ANSWER_WAIT_S)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        return response.status, _date_ms(response), response.read(ANSWER_BYTES_MAX)
    finally:
        connection.close()


def _date_ms(response: HTTPResponse) -> int | None:
    try:
        return int(parsedate_to_datetime(response.getheader("Date", "")).timestamp()) * 1_000
    except (ValueError, OverflowError):
        return None


def _readiness(address: str, status: int, body: bytes) -> Finding:
    """Return whether a process is ready."""
    try:
        answer: Mapping[str, Any] = dict(json.loads(body))
        reasons = [str(reason) for reason in answer["why"]]
    except (ValueError, TypeError, KeyError):
        return wrong(f"{address} answers with {status}, and not as a health port does.", _NO_ADDRESS)
    figures = ", ".join(f"{name} {json.dumps(value)}" for name, value in answer.items() if name not in ("well", "why"))
    if reasons:
        return wrong(f"{address} is not ready: {'; '.join(reasons)} ({figures}).", '"Health" in docs/operations.md.')
    return ok(f"{address} is ready: {figures}.")
