"""A proxy before one listener of one broker: it cuts one client off, while the broker serves all others."""

import asyncio
import contextlib
import threading
from enum import Enum, auto

PIECE_BYTES = 2**16


class Cut(Enum):
    """How a client is cut off."""

    NONE = auto()
    REFUSED = auto()  # connections are refused, and open ones closed, as by a broker that has ended
    SILENT = auto()  # connections are accepted and stay open, and nothing passes, as with a broken network


class Proxies:
    """The event loop, in a thread, that runs proxies until `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()
        self._proxies: list[Proxy] = []

    def open(self, host: str, target: int) -> "Proxy":
        """Start a proxy on a free port before another port of the same host."""
        proxy = Proxy(host, target)
        self._call(proxy.start())
        self._proxies.append(proxy)
        return proxy

    def set(self, proxy: "Proxy", cut: Cut) -> None:
        """Cut the clients of a proxy off, or let them pass again. Return when it is done."""
        self._call(proxy.cut(cut))

    def close(self) -> None:
        """Close all proxies."""
        for proxy in self._proxies:
            self._call(proxy.cut(Cut.REFUSED))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)  # type: ignore[arg-type]


class Proxy:
    """A proxy on `port`. Its coroutines run in the loop of `Proxies`."""

    def __init__(self, host: str, target: int) -> None:
        self._host, self._target = host, target
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._passes = asyncio.Event()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, self._host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self._passes.set()

    async def cut(self, cut: Cut) -> None:
        if cut is Cut.SILENT:
            self._passes.clear()
            return
        if cut is Cut.REFUSED and self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:  # connections of before: of a silent network nothing arrives late
            writer.transport.abort()
        if cut is Cut.NONE and self._server is None:
            await self.start()
        self._passes.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            await self._passes.wait()
            there_reader, there_writer = await asyncio.open_connection(self._host, self._target)
            self._writers.add(there_writer)
            await asyncio.wait(
                [
                    asyncio.ensure_future(self._pass_on(reader, there_writer)),
                    asyncio.ensure_future(self._pass_on(there_reader, writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
            there_writer.transport.abort()
            self._writers.discard(there_writer)
        writer.transport.abort()
        self._writers.discard(writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                await self._passes.wait()
                writer.write(piece)
                await writer.drain()
