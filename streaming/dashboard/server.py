"""The dashboard inside a process: one thread answers browsers, two threads read the topics and the end offsets."""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Self

import uvicorn
from prometheus_client import CollectorRegistry

from streaming.config.settings import Settings
from streaming.dashboard.app import App, names_of
from streaming.dashboard.live import LiveViews
from streaming.dashboard.live_reader import LiveReader
from streaming.errors import PortTaken
from streaming.views.metrics.metrics import GroupFigures
from streaming.views.metrics.observed import LABELS, SeveralFigures

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
        others: The groups of other prefixes, by prefix.

    Raises:
        PortTaken: another program listens on that port.
    """

    def __init__(
        self,
        live: LiveViews,
        host: str,
        port: int,
        registry: CollectorRegistry | None = None,
        names: Collection[str] = (),
        others: Mapping[str, LiveViews] | None = None,
    ) -> None:
        self._lives = [live, *(others or {}).values()]
        self._socket = _listening(host, port)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            App(live, registry, others).asgi(names_of(host, names)),
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
        for live in self._lives:
            live.close()
        self._server.should_exit = True
        self._thread.join(ENDS_WITHIN_S)
        self._socket.close()


class Dashboard(contextlib.ExitStack):
    """The dashboard of a coordinator and its peers, and of groups that Kafka's own one keeps. `url` is its address.

    The groups of peers are shown as well, and the history of a group is that at all of them. They have no metrics here,
    because their own dashboards have.

    Args:
        tell: Called with a sentence when brokers do not answer.
        observe: The prefixes to which `coordinator observe` writes, and whose groups are shown as well.

    Raises:
        PortTaken: another program listens on that port.
    """

    def __init__(
        self,
        settings: Settings,
        tell: Callable[[str], None] = lambda sentence: log.warning("%s", sentence),
        observe: Collection[str] = (),
    ) -> None:
        super().__init__()
        self.live = LiveViews()
        own = settings.topic_prefix
        observed = {prefix: LiveViews() for prefix in observe if prefix != own}
        exchanging = {prefix: LiveViews() for prefix in settings.peers if prefix not in observed}
        self.others = observed | exchanging
        together = {own: self.live, **exchanging}
        for live in together.values():
            live.peers = together
        registry = CollectorRegistry()
        figures = [_figures(settings, self.live, {}), *(_figures(settings, o, LABELS) for o in observed.values())]
        registry.register(SeveralFigures(figures))
        names = settings.dashboard_names.replace(",", " ").split()
        host, port = settings.dashboard_host, settings.dashboard_port
        self._web = WebServer(self.live, host, port, registry, names, self.others)
        self._readers = [LiveReader(settings, self.live, tell)]
        for prefix, other in self.others.items():
            self._readers.append(LiveReader(settings.model_copy(update={"topic_prefix": prefix}), other, tell))
        self.url = self._web.url

    def __enter__(self) -> Self:
        super().__enter__()
        for following in self._readers:
            self.enter_context(following)
        self.enter_context(self._web)
        return self


def _figures(settings: Settings, live: LiveViews, labels: Mapping[str, str]) -> GroupFigures:
    return GroupFigures(
        live.snapshot,
        groups_max=settings.dashboard_metrics_groups_max,
        of_partitions=settings.dashboard_metrics_of_partitions,
        labels=labels,
    )


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise PortTaken(f"Cannot listen on {host}:{port} ({error.strerror}). Choose another port.") from error
