"""The health of a process over HTTP, for monitoring: a small listener.

    GET /healthz    200 while the process is alive; 503 when only a restart can help
    GET /readyz     200 while the process does its work; 503 with the reason, which may be temporary
    GET /metrics    metrics, as Prometheus reads them; one of them repeats what /readyz says

The bodies of the first two are JSON with the reasons. Every client that reaches the port may connect. So a connection
has a short time limit, and the number of connections is limited: a new one closes the oldest.
"""

import json
import logging
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any, Protocol, Self

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streaming.errors import PortTaken

log = logging.getLogger(__name__)

EXCHANGE_S = 5.0
"""The maximum age of a connection. An older one is closed, answered or not."""

CONNECTIONS_MAX = 32


class Subject(Protocol):
    """A process whose health can be checked."""

    @property
    def process(self) -> str:
        """The name of this kind of process in metrics."""

    @property
    def registry(self) -> CollectorRegistry:
        """The metrics of the process."""

    def unhealthy_reasons(self) -> Sequence[str]:
        """Return the defects that only a restart can repair."""

    def not_ready_reasons(self) -> Sequence[str]:
        """Return the reasons why the process is not ready."""

    def figures(self) -> dict[str, object]:
        """Return more fields for the JSON body."""


class Readiness(Collector):
    """The metric that says what /readyz says, collected when Prometheus asks."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def reasons(self) -> Sequence[str]:
        """Return the reasons why the process does not do its work."""
        return [*self._subject.unhealthy_reasons(), *self._subject.not_ready_reasons()]

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily("groupcoord_ready", "Whether /readyz says ready: 1 or 0.", labels=["process"])
        family.add_metric([self._subject.process], float(not self.reasons()))
        yield family


class Listener(ThreadingHTTPServer):
    """An HTTP server for the health of a process. It runs in its own threads, from `start` to `stop`.

    Args:
        host: The address to listen on.
        port: The port; with 0 any free port, which `server_port` contains.

    Raises:
        PortTaken: Another program listens on the port.
    """

    daemon_threads = True

    def __init__(self, host: str, port: int, subject: Subject) -> None:
        self.subject, self.readiness = subject, Readiness(subject)
        self._ready_registry = CollectorRegistry()
        self._ready_registry.register(self.readiness)
        self._since_s: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Exchange)
        except OSError as error:
            raise PortTaken(
                f"Cannot listen on {host}:{port} for health checks ({error.strerror}). Choose another port."
            ) from error
        self._thread = threading.Thread(target=self.serve_forever, name="health", daemon=True)

    def start(self) -> Self:
        """Start the server."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop the server."""
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        """The server's address, with the name of this machine if it listens on all addresses."""
        host = socket.gethostname() if ip_address(self.server_name).is_unspecified else self.server_name
        return f"http://[{host}]:{self.server_port}" if ":" in host else f"http://{host}:{self.server_port}"

    def metrics(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.subject.registry) + generate_latest(self._ready_registry)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- bounds, in the methods that socketserver provides
    # ----------------------------------------------------------

    def server_bind(self) -> None:
        """Bind the socket without a lookup of our own host name, which HTTPServer's method makes."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._since_s) >= CONNECTIONS_MAX:
                _hang_up(next(iter(self._since_s)))
            self._since_s[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        with self._lock:
            for connection, since_s in self._since_s.items():
                if time.monotonic() - since_s > EXCHANGE_S:
                    _hang_up(connection)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._since_s.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a connection to the health port broke", exc_info=True)


def _hang_up(connection: socket.socket) -> None:
    """Shut a connection down, which ends the wait of its thread."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        log.debug("a connection to the health port had ended: %s", error)


class _Exchange(BaseHTTPRequestHandler):
    """One request and its response."""

    server: Listener
    timeout = EXCHANGE_S
    server_version = "coordinator"
    sys_version = ""

    def do_GET(self) -> None:
        """Send the response. The base class refuses every other HTTP method."""
        server = self.server
        match self.path.partition("?")[0]:
            case "/healthz":
                self._send_reasons(server.subject.unhealthy_reasons())
            case "/readyz":
                self._send_reasons(server.readiness.reasons())
            case "/metrics":
                self._send(HTTPStatus.OK, CONTENT_TYPE_LATEST, server.metrics())
            case _:
                self.send_error(HTTPStatus.NOT_FOUND)

    def _send_reasons(self, wrong: Sequence[str]) -> None:
        body = {"well": not wrong, "why": wrong, **self.server.subject.figures()}
        status = HTTPStatus.SERVICE_UNAVAILABLE if wrong else HTTPStatus.OK
        self._send(status, "application/json", json.dumps(body).encode() + b"\n")

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        """Log nothing, because monitoring sends a request every few seconds."""
