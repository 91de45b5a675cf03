"""Checks of each request and headers of each response, so that no other site can read the dashboard through a browser.

The page loads nothing from other hosts and may not be put into a frame. If it listens on the loopback interface only, a
request must name a loopback host. A name that a foreign name server resolves to this address is refused (DNS
rebinding).
"""

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streaming.config.values import is_loopback

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
