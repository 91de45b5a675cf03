"""The versions that brokers show to the gateway."""

import asyncio
import struct
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsResponse

from coordinator.base.errors import ErrorCode
from streaming.gateway.protocol.frames import LENGTH_BYTES
from streaming.gateway.relay.broker_versions import versions_of

KEY_AND_VERSION = struct.Struct(">hh")


class FakeBroker:
    """A broker that serves ApiVersions up to a version, and answers a later one as Kafka does (KIP-511).

    Attributes:
        asked: The versions of all requests so far.
    """

    def __init__(self, newest: int) -> None:
        self._newest, self.asked = newest, list[int]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while length := await reader.read(LENGTH_BYTES):
            frame = await reader.readexactly(int.from_bytes(length))
            _, version = KEY_AND_VERSION.unpack_from(frame)
            self.asked.append(version)
            writer.write(self._response(version))
        writer.close()

    def _response(self, version: int) -> bytes:
        own = ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=self._newest)
        if version <= self._newest:
            said = ApiVersionsResponse(version=version, api_keys=[own], supported_features=self._features(version))
        else:
            error = ErrorCode.UNSUPPORTED_VERSION.number
            said = ApiVersionsResponse(version=0, error_code=error, api_keys=[own])
        said.with_header(correlation_id=0)
        return bytes(said.encode(header=True, framed=True))

    @staticmethod
    def _features(version: int) -> list[Any]:
        feature = ApiVersionsResponse.SupportedFeatureKey
        every = [
            feature(name="metadata.version", min_version=7, max_version=33),
            feature(name="group.version", min_version=0, max_version=1),
        ]
        return every if version > 3 else every[:1]


async def ask(broker: FakeBroker) -> Any:
    async with await asyncio.start_server(broker.serve, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            return await versions_of(reader, writer)
        finally:
            writer.close()


@pytest.mark.parametrize(
    ("newest", "asked", "features"),
    [(5, [4], ["metadata.version", "group.version"]), (3, [4, 3], ["metadata.version"])],
    ids=["as of 3.9", "earlier"],
)
def test_the_newest_version_that_a_broker_serves_is_read(newest: int, asked: list[int], features: list[str]):
    """Version 3 leaves out the features whose minimum is 0."""
    broker = FakeBroker(newest)
    said = asyncio.run(ask(broker))
    assert broker.asked == asked
    assert [each.name for each in said.supported_features] == features


def test_a_broker_without_these_versions_is_refused():
    with pytest.raises(ValueError, match="ApiVersions"):
        asyncio.run(ask(FakeBroker(2)))
