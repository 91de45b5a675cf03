"""Kafka's APIs that a client is offered, their highest versions, and the gateway's handling of each.

The rows are in two tables: `exchanges` for the APIs that this coordinator serves, `relayed_apis` for the APIs that the
brokers serve. Each table begins with the steps for another row. This module has the three APIs that belong to neither.

An API that is not in `APIS` is not offered, and a request for it ends the connection, as with Kafka. These APIs are not
offered: the APIs of the brokers' own group coordinator (the protocols of KIP-932 and KIP-1071), telemetry, changes of
the controllers' voters (KIP-853), the APIs between brokers, and each API of a newer Kafka, until a developer has
checked its responses for addresses.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from coordinator.base.errors import ErrorCode
from streaming.gateway.exchanges import SERVED
from streaming.gateway.exchanges.exchange import Served
from streaming.gateway.protocol.api import Api, Handling
from streaming.gateway.protocol.limits import RELAYED_BYTES_MAX, SASL_BYTES_MAX, SERVED_BYTES_MAX
from streaming.gateway.protocol.messages import API_VERSIONS
from streaming.gateway.protocol.produce import Produce
from streaming.gateway.relay.relayed_apis import RELAYED, Relayed

PRODUCE, SASL_AUTHENTICATE = Produce.API_KEY, SaslAuthenticateRequest.API_KEY


def _api(row: Served | Relayed, handling: Handling) -> Api:
    return Api(row.request.name.removesuffix("Request"), row.first, row.last, handling, row.has_large_response)


def _relayed(row: Relayed) -> Api:
    if row.request is FindCoordinatorRequest:
        return _api(row, Handling.LOCATED)
    return _api(row, Handling.REWRITTEN if row.rewrite else Handling.RELAYED)


_OWN = {
    SaslHandshakeRequest.API_KEY: Api("SaslHandshake", 0, 1, Handling.AUTHENTICATED),
    API_VERSIONS:                 Api("ApiVersions", 0, 4, Handling.NEGOTIATED),
    SASL_AUTHENTICATE:            Api("SaslAuthenticate", 0, 2, Handling.AUTHENTICATED),
}  # fmt: skip

APIS: Mapping[int, Api] = dict(
    sorted(
        {
            **_OWN,
            **{key: _relayed(row) for key, row in RELAYED.items()},
            **{key: _api(row, Handling.SERVED) for key, row in SERVED.items()},
        }.items()
    )
)
"""All APIs by Kafka's key, in the order of the keys."""


def bytes_max(api_key: int) -> int:
    """Return the maximum size of a request, in bytes."""
    if api_key == PRODUCE:
        return RELAYED_BYTES_MAX
    return SASL_BYTES_MAX if APIS[api_key].handling is Handling.AUTHENTICATED else SERVED_BYTES_MAX


_NOT_FROM_BROKERS = frozenset({Handling.SERVED, Handling.LOCATED, Handling.NEGOTIATED})

_FEATURES_LEFT_OUT = frozenset({"share.version", "streams.version"})
_FEATURE_MAX = {"group.version": 1, "transaction.version": 2}

_FEATURES_FROM_ZERO = 4
"""The first version of ApiVersions that may contain a feature whose minimum is 0."""


def offered(brokers: Any | None, version: int) -> Any:
    """Return the response to an ApiVersions request.

    Args:
        brokers: A broker's response to ApiVersions in its newest version; None while no broker answers. In that case
            only the APIs that need no broker are offered.
        version: The version of the request.
    """
    if not APIS[API_VERSIONS].first <= version <= APIS[API_VERSIONS].last:
        own = _range(API_VERSIONS, APIS[API_VERSIONS].first, APIS[API_VERSIONS].last)
        return ApiVersionsResponse(version=0, error_code=ErrorCode.UNSUPPORTED_VERSION.number, api_keys=[own])
    theirs = {} if brokers is None else {each.api_key: each for each in brokers.api_keys}
    ranges = list(_ranges(theirs))
    if brokers is None:
        return ApiVersionsResponse(version=version, api_keys=ranges)
    return ApiVersionsResponse(
        version=version,
        api_keys=ranges,
        supported_features=list(_supported(brokers.supported_features or (), version)),
        finalized_features_epoch=brokers.finalized_features_epoch,
        finalized_features=list(_finalized(brokers.finalized_features or ())),
    )


def is_produce_served(brokers: Any | None, version: int) -> bool:
    """Return whether a broker serves a version of Produce; True while its versions are unknown.

    Args:
        brokers: The broker's response to ApiVersions; None while it does not answer.
    """
    for each in brokers.api_keys if brokers is not None else ():
        if each.api_key == PRODUCE:
            first = _PRODUCE_FIRST if each.max_version >= _PRODUCE_SAID_FROM_ZERO else each.min_version
            return bool(first <= version <= each.max_version)
    return brokers is None


_PRODUCE_FIRST, _PRODUCE_SAID_FROM_ZERO = 3, 12
"""Brokers whose last version is 12 or later serve Produce from 3 on, and offer it from 0 on, because librdkafka needs
that (KAFKA-18659)."""


def _ranges(theirs: Mapping[int, Any]) -> Iterable[Any]:
    for key, api in APIS.items():
        if api.handling in _NOT_FROM_BROKERS:
            yield _range(key, api.first, api.last)
        elif broker := theirs.get(key):
            first, last = max(api.first, broker.min_version), min(api.last, broker.max_version)
            if first <= last:
                yield _range(key, first, last)


def _range(key: int, first: int, last: int) -> Any:
    return ApiVersionsResponse.ApiVersion(api_key=key, min_version=first, max_version=last)


def _supported(features: Iterable[Any], version: int) -> Iterable[Any]:
    for each in features:
        if each.name in _FEATURES_LEFT_OUT or (each.min_version == 0 and version < _FEATURES_FROM_ZERO):
            continue
        last = min(each.max_version, _FEATURE_MAX.get(each.name, each.max_version))
        yield ApiVersionsResponse.SupportedFeatureKey(name=each.name, min_version=each.min_version, max_version=last)


def _finalized(features: Iterable[Any]) -> Iterable[Any]:
    for each in features:
        if each.name not in _FEATURES_LEFT_OUT:
            level = min(each.max_version_level, _FEATURE_MAX.get(each.name, each.max_version_level))
            yield ApiVersionsResponse.FinalizedFeatureKey(
                name=each.name, max_version_level=level, min_version_level=min(level, each.min_version_level)
            )
