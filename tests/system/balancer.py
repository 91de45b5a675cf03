"""A load balancer of TCP connections, as stands before several gateways.

with Balancer("::1", [9192, 9193], ["127.0.0.2", "127.0.0.3"]) as balancer:
    ...
"""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Self

from streaming.gateway.relay.metadata import Address

PIECE_BYTES = 2**16
WAIT_S = 10.0


class Balancer:
    """A balancer that passes each connection on to the same port of one of its hosts, in turn. It skips a host that
    refuses the connection.

    Args:
        host: The address at which it listens.
        ports: Its ports; the first one is the clients' bootstrap address.
        targets: The hosts behind it.

    Attributes:
        passed: The number of connections that each host has accepted.
    """

    def __init__(self, host: str, ports: Sequence[int], targets: Sequence[str]) -> None:
        self._host, self._ports, self._targets = host, ports, list(targets)
        self.passed = Counter[str]()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="balancer", daemon=True)

    @property
    def bootstrap_servers(self) -> str:
        return str(Address(self._host, self._ports[0]))

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._servers = [await asyncio.start_server(self._serve, self._host, port) for port in self._ports]

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError), contextlib.closing(writer):
            if (there := await self._connect(writer.get_extra_info("sockname")[1])) is not None:
                there_reader, there_writer = there
                with contextlib.closing(there_writer):
                    await _first_ended(_pass_on(reader, there_writer), _pass_on(there_reader, writer))

    async def _connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for target in list(self._targets):
            self._targets.append(self._targets.pop(0))
            with contextlib.suppress(OSError):
                there = await asyncio.open_connection(target, port)
                self.passed[target] += 1
                return there
        return None


async def _first_ended(*ways: Coroutine[object, object, None]) -> None:
    tasks = [asyncio.ensure_future(way) for way in ways]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
