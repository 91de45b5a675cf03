"""The dashboard inside a process: one thread answers browsers, two threads read the topics and the end offsets."""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Collection
from typing import Self

import uvicorn
from prometheus_client import CollectorRegistry

from streaming.config.settings import Settings
from streaming.dashboard.app import App
from streaming.dashboard.following import Following
from streaming.dashboard.live import Live
from streaming.dashboard.request_filter import names_of
from streaming.errors import PortTaken
from streaming.views.metrics import GroupFigures

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 256
HEADER_BYTES_MAX = 262_144
"""A group's id may be long, and each of its characters may take twelve characters in an address."""

ENDS_WITHIN_S = 5.0


class WebServer:
    """A thread that answers browsers, from `__enter__` to `__exit__`.

    Args:
        host: The address to listen on.
        port: The port; 0 for any free port, which `url` then contains.
        names: The host names that a proxy in front uses in its requests.

    Raises:
        PortTaken: another program listens on that port.
    """

    def __init__(
        self,
        live: Live,
        host: str,
        port: int,
        registry: CollectorRegistry | None = None,
        names: Collection[str] = (),
    ) -> None:
        self._live = live
        self._socket = _listening(host, port)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            App(live, registry).asgi(names_of(host, names)),
            log_config=None,
            access_log=False,
            limit_concurrency=CONNECTIONS_MAX,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
            timeout_graceful_shutdown=1,
            server_header=False,
            lifespan="off",
            ws="none",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="page", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.close()
        self._server.should_exit = True
        self._thread.join(ENDS_WITHIN_S)
        self._socket.close()


class Dashboard(contextlib.ExitStack):
    """The dashboard of one coordinator. `url` is its address.

    Args:
        tell: Called with a sentence when brokers do not answer.

    Raises:
        PortTaken: another program listens on that port.
    """

    def __init__(
        self,
        settings: Settings,
        tell: Callable[[str], None] = lambda sentence: log.warning("%s", sentence),
    ) -> None:
        super().__init__()
        self.live = Live()
        registry = CollectorRegistry()
        registry.register(
            GroupFigures(
                self.live.look,
                groups_max=settings.dashboard_metrics_groups_max,
                of_partitions=settings.dashboard_metrics_of_partitions,
            )
        )
        names = settings.dashboard_names.replace(",", " ").split()
        self._web = WebServer(self.live, settings.dashboard_host, settings.dashboard_port, registry, names)
        self._following = Following(settings, self.live, tell)
        self.url = self._web.url

    def __enter__(self) -> Self:
        super().__enter__()
        self.enter_context(self._following)
        self.enter_context(self._web)
        return self


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise PortTaken(f"Cannot listen on {host}:{port} ({error.strerror}). Choose another port.") from error
