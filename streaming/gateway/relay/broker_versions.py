"""The API versions and the features that a broker shows to the gateway."""

import asyncio
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from coordinator.base.errors import ErrorCode
from streaming.gateway.protocol.frames import LENGTH_BYTES

API_VERSIONS_VERSIONS = (4, 3)
"""The versions of ApiVersions in which the gateway asks, the best first. Version 3 leaves out the features whose
minimum is 0. Brokers before Kafka 3.9 serve no later one (KAFKA-17011)."""

_NAME = "coordinator-gateway"
_ERROR = slice(4, 6)
"""The error code in a response of any version: it follows the correlation id."""


async def versions_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    """Return a broker's response to ApiVersions in the best version that it serves.

    Raises:
        OSError: The connection has failed.
        asyncio.IncompleteReadError: The broker has closed the connection.
        ValueError: The broker serves none of these versions.
    """
    for version in API_VERSIONS_VERSIONS:
        request = ApiVersionsRequest(version=version, client_software_name=_NAME, client_software_version="1")
        request.with_header(correlation_id=0, client_id=_NAME)
        writer.write(request.encode(header=True, framed=True))
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(LENGTH_BYTES)))
        if int.from_bytes(frame[_ERROR], signed=True) != ErrorCode.UNSUPPORTED_VERSION.number:
            return ApiVersionsResponse.decode(frame, version=version, header=True)
    raise ValueError(f"it serves none of the versions {API_VERSIONS_VERSIONS} of ApiVersions")
