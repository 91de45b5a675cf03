"""The paths of the dashboard's web server.

    GET /                     the page; its files are at /static/NAME
    GET /api/groups           all groups, and alarms
    GET /api/group?id=        one group
    GET /api/timeline?id=     its history; from= and to= bound it
    GET /api/why?id=          its latest rebalance explained, or the latest by at=
    GET /api/owner?id=        the owner of topic= partition= now, or at at=
    GET /api/stream           changes, as server-sent events; of one group with id=
    GET /api/sources          the prefixes of other coordinators whose groups are shown as well
    GET /api/schema           JSON Schema of the answers by path, and of the stream's events
    GET /healthz              200 while the server lives, and the state of reading
    GET /metrics              metrics, if any are registered

With of=PREFIX, each of them answers about the groups of another prefix; without it, about the groups of its own. Times
are Unix milliseconds. An error is `{"error": "..."}`: 400 for a parameter, 404 for an unknown group or file, 503 until
the existing records are read and for too many streams.

The ETag of a file is a hash of its content, so a browser loads it once.

No other site can read the dashboard through a browser: the page loads nothing from other hosts and may not be put into
a frame. If it listens on the loopback interface only, a request must name a loopback host. A name that a foreign name
server resolves to this address is refused (DNS rebinding).
"""

import hashlib
import logging
from collections.abc import Callable, Collection, Mapping
from importlib.resources import files
from typing import Any, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streaming.config.values import is_loopback
from streaming.dashboard.live import LiveViews, NoSuchGroup, NotYet, Status
from streaming.dashboard.streams import STATUS_EVENTS, Stream
from streaming.views.api.answers import json_schema, to_json
from streaming.views.api.rows import Error, GroupDetail, Overview, Owner, Sources, Timeline
from streaming.views.sentences.why import Why

log = logging.getLogger(__name__)

# -- checks of requests ------------------------------------------------------------------------------------------------


HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
METHODS = ("GET", "HEAD")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def names_of(host: str, by_a_proxy: Collection[str] = ()) -> frozenset[str] | None:
    """Return the names by which a server that listens on `host` may be requested; None for any name.

    Args:
        by_a_proxy: Further names, which a proxy on this machine passes on.
    """
    if not is_loopback(host):
        return None
    return LOOPBACK_NAMES | {f"[{host}]" if ":" in host else host} | {name.lower() for name in by_a_proxy}


class RequestFilter:
    """A filter in front of an application.

    Args:
        names: The hosts that a request may name; None for any.
    """

    def __init__(self, app: ASGIApp, names: Collection[str] | None) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refused(scope)
        await (refused or self._app)(scope, receive, send_with_headers)

    def _refused(self, scope: Scope) -> JSONResponse | None:
        if scope["method"] not in METHODS:
            return JSONResponse({"error": "The dashboard only allows reading."}, 405, {"Allow": ", ".join(METHODS)})
        host = Headers(scope=scope).get("host", "")
        name = host[: host.index("]") + 1] if "]" in host else host.partition(":")[0]
        if self._names is not None and name.lower() not in self._names:
            return JSONResponse({"error": "The dashboard is not served under this host name."}, 400)
        return None


# -- the page's files --------------------------------------------------------------------------------------------------


CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".md": "text/markdown; charset=utf-8",
}


class File(NamedTuple):
    """A file, and the ETag of its content."""

    body: bytes
    kind: str
    etag: str


def read_all() -> dict[str, File]:
    """Return the files by name. A request for another name finds nothing, whatever path it contains."""
    found = {}
    for file in files("streaming.dashboard").joinpath("static").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in CONTENT_TYPES:
            body = file.read_bytes()
            found[file.name] = File(body, CONTENT_TYPES[suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found


STREAMS_MAX = 64
SEND_TIMEOUT_S = 30
"""The time after which a browser that receives nothing is disconnected. It reconnects and resumes."""

JAVASCRIPT_INTEGER_MAX = 2**53 - 1

ANSWERS: dict[str, Any] = {
    "/api/groups": Overview,
    "/api/group": GroupDetail,
    "/api/timeline": Timeline,
    "/api/why": Why | None,
    "/api/owner": Owner,
    "/api/sources": Sources,
    "/api/schema": dict[str, Any],
    "/healthz": Status,
}
"""The JSON type of each path's answer."""


class App:
    """The routes.

    Args:
        registry: The metrics for /metrics; None for no such path.
        others: The groups of other prefixes, by prefix.
    """

    def __init__(
        self, live: LiveViews, registry: CollectorRegistry | None = None, others: Mapping[str, LiveViews] | None = None
    ) -> None:
        self._live, self._registry, self._others = live, registry, others or {}
        self._streams = 0
        self._files = read_all()
        self._schema = to_json(json_schema(ANSWERS, STATUS_EVENTS))

    def asgi(self, names: Collection[str] | None) -> ASGIApp:
        """Build the application. A request must name one of the hosts `names`; None for any host."""
        api: dict[str, Callable[[Request], bytes]] = {
            "/api/groups": lambda request: self._of(request).overview(),
            "/api/group": lambda request: self._of(request).detail(_id(request)),
            "/api/timeline": lambda request: self._of(request).timeline(
                _id(request), _number(request, "from"), _number(request, "to")
            ),
            "/api/why": lambda request: self._of(request).why(_id(request), _number(request, "at")),
            "/api/owner": self._owner,
            "/api/sources": lambda request: to_json(Sources(others=sorted(self._others))),
            "/api/schema": lambda request: self._schema,
            "/healthz": lambda request: to_json(self._of(request).status),
        }
        routes = [Route(path, _json(answer)) for path, answer in api.items()]
        routes += [
            Route("/", self._index),
            Route("/static/{name}", self._static),
            Route("/api/stream", self._stream),
        ]
        if self._registry is not None:
            routes.append(Route("/metrics", self._metrics))
        refusals: dict[Any, Any] = {
            HTTPException: lambda request, error: _error(error.status_code, error.detail),
            NoSuchGroup: lambda request, error: _error(404, "This group is unknown."),
            NotYet: lambda request, error: _error(503, _not_yet(self._of(request).status)),
            Exception: lambda request, error: _error(500, "The dashboard has a bug. Its log has the error."),
        }
        return RequestFilter(Starlette(routes=routes, exception_handlers=refusals), names)

    def _of(self, request: Request) -> LiveViews:
        """Return the groups that a request is about."""
        of = request.query_params.get("of")
        if of is None:
            return self._live
        if (other := self._others.get(of)) is None:
            raise HTTPException(404, "This page does not show that prefix.")
        return other

    def _owner(self, request: Request) -> bytes:
        topic, partition = request.query_params.get("topic"), _number(request, "partition")
        if topic is None or partition is None:
            raise HTTPException(400, "topic and partition are required.")
        return self._of(request).owner(_id(request), topic, partition, _number(request, "at"))

    def _index(self, request: Request) -> Response:
        return _file(request, self._files["index.html"])

    def _static(self, request: Request) -> Response:
        if (file := self._files.get(request.path_params["name"])) is None:
            raise HTTPException(404, "This file does not exist.")
        return _file(request, file)

    def _metrics(self, request: Request) -> Response:
        assert self._registry is not None
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    async def _stream(self, request: Request) -> Response:
        if self._streams >= STREAMS_MAX:
            raise HTTPException(503, f"{STREAMS_MAX} browsers are connected already.")
        cursor = request.headers.get("last-event-id") or request.query_params.get("last")
        stream = Stream(self._of(request), request.query_params.get("id"), cursor)

        async def counted() -> Any:
            self._streams += 1
            try:
                async for event in stream.events():
                    yield event
            finally:
                self._streams -= 1

        return EventSourceResponse(counted(), send_timeout=SEND_TIMEOUT_S, ping=15)


def _not_yet(status: Status) -> str:
    if status.why:
        return status.why
    return f"Catching up: {status.read} of about {status.of} records are read."


def _json(answer: Callable[[Request], bytes]) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        return Response(answer(request), media_type="application/json")

    return endpoint


def _file(request: Request, file: File) -> Response:
    headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.kind, headers=headers)


def _error(status: int, text: str) -> Response:
    return Response(to_json(Error(text)), status, media_type="application/json")


def _id(request: Request) -> str:
    group_id = request.query_params.get("id")
    if group_id is None:
        raise HTTPException(400, "id is required: a group's id.")
    return group_id


def _number(request: Request, name: str) -> int | None:
    """Return a parameter as a whole number, 0 or more; None if it is absent."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= JAVASCRIPT_INTEGER_MAX):
        raise HTTPException(400, f"{name} must be a whole number, 0 or more.")
    return int(text)
