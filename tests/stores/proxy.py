"""A proxy before an S3 server: it delays, refuses and counts requests, holds one back, and removes conditions.

It passes conditional writes on one after the other. The server looks for the object and then writes it, so of two that
come at once it took both in 3 of 1,500 cases; a store that keeps its promise takes one.
"""

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.stores.server import HOST

CONDITION = "if-none-match"
_OF_THE_CONNECTION = {"connection", "expect", "keep-alive", "transfer-encoding"}


class Request(NamedTuple):
    """A request for an object or a folder.

    Args:
        kind: The method; COPY for a PUT with a source, LIST for a GET of a bucket.
        is_conditional: Whether it must not replace an object.
    """

    kind: str
    key: str
    is_conditional: bool


Rule = Callable[[Request], bool]


def every(_: Request) -> bool:
    return True


def none(_: Request) -> bool:
    return False


class Proxy:
    """A proxy on a free port. Each rule chooses the requests that it is for.

    Args:
        delay_s: The time before each request is passed on.
        is_away: Whether the server is away: it ends the connections that it has, and takes no other.
        refused: The requests that are answered with 503.
        lost: The requests that are passed on, and whose answer is replaced by a closed connection.
        unconditional: The requests without whose conditions they are passed on.
        changed: A part of an object, and what clients read in place of it, of the same length.
    """

    def __init__(self, port: int) -> None:
        self.delay_s, self.is_away = 0.0, False
        self.refused: Rule = none
        self.lost: Rule = none
        self.unconditional: Rule = none
        self.changed = (b"", b"")
        self.seen: list[Request] = []
        self.in_turn = threading.Lock()
        self._held: Rule = none
        self._holds, self._goes_on = threading.Event(), threading.Event()
        self._handler = type("HandlerOfProxy", (Handler,), {"proxy": self, "port": port})
        self._listen(0)

    def _listen(self, port: int) -> None:
        self._server = ThreadingHTTPServer((HOST, port), self._handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_address[1]}"

    def counts(self, since: int = 0) -> Counter[str]:
        """Return the number of requests of each kind, after the first `since` of them."""
        return Counter(request.kind for request in self.seen[since:])

    def hold(self, rule: Rule) -> threading.Event:
        """Hold back the next request that the rule chooses, until `release`. Return the event that it has come."""
        self._holds.clear()
        self._goes_on.clear()
        self._held = rule
        return self._holds

    def release(self) -> None:
        """Pass the held request on."""
        self._held = none
        self._goes_on.set()

    @contextmanager
    def away(self) -> Iterator[None]:
        """End all connections, and refuse new ones until the block ends."""
        self.is_away, port = True, self._server.server_address[1]
        self._close()
        try:
            yield
        finally:
            self.is_away = False
            self._listen(int(port))

    def admit(self, request: Request) -> bool:
        """Count a request, and wait as long as it is to wait. Return False if it is refused."""
        self.seen.append(request)
        if self._held(request):
            self._held = none
            self._holds.set()
            self._goes_on.wait()
        time.sleep(self.delay_s)
        return not self.refused(request)

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._close()


class Handler(BaseHTTPRequestHandler):
    """The conversation with one client. Subclasses set the proxy, and the port of the server."""

    proxy: "Proxy"
    port: int
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one write: two small ones would wait for an acknowledgement

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        request = self._request()
        if self.proxy.is_away:
            self.close_connection = True
            return None
        if not self.proxy.admit(request):
            return self._respond(503, {}, b"")
        server = http.client.HTTPConnection(HOST, self.port)
        dropped = _OF_THE_CONNECTION | ({CONDITION} if self.proxy.unconditional(request) else set())
        headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
        with self.proxy.in_turn if request.is_conditional else nullcontext():
            server.request(self.command, self.path, body, headers)
            answer = server.getresponse()
            content = answer.read()
        if request.kind == "GET" and all(self.proxy.changed):
            content = content.replace(*self.proxy.changed)
        server.close()
        if self.proxy.lost(request):
            self.close_connection = True
            return None
        return self._respond(answer.status, dict(answer.getheaders()), content)

    do_PUT = do_HEAD = do_DELETE = do_POST = do_GET  # noqa: N815

    def handle_expect_100(self) -> bool:
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()
        return True

    def _request(self) -> Request:
        parts = urlsplit(self.path)
        _, _, key = parts.path.lstrip("/").partition("/")
        kind = self.command
        if kind == "PUT" and "x-amz-copy-source" in self.headers:
            kind = "COPY"
        elif kind == "GET" and not key:
            kind, key = "LIST", parse_qs(parts.query).get("prefix", [""])[0]
        return Request(kind, key, CONDITION in self.headers)

    def _respond(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response_only(status)
        kept = {name: value for name, value in headers.items() if name.lower() not in _OF_THE_CONNECTION}
        if self.command != "HEAD":
            kept = {name: value for name, value in kept.items() if name.lower() != "content-length"}
            kept["Content-Length"] = str(len(content))
        for name, value in kept.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Log nothing."""
