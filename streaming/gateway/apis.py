"""Which of Kafka's APIs a client is offered, up to which version, and what the gateway does with each.

What is not in `APIS` is not offered, and asking for it ends the connection, as with Kafka: everything that would reach
the brokers' own group coordinator (the protocols of KIP-848, KIP-932 and KIP-1071), telemetry, what only brokers say to
each other, and whatever a newer Kafka brings, until somebody has looked whether its answers name addresses.

Versions end where an answer begins to name brokers' addresses in places that the gateway passes on unread: Fetch 16 and
Produce 10 (KIP-951), DescribeQuorum 2 (KIP-853). Offset requests end where topics go by their ids alone. Fetch 15 has a
tagged field that says whether a broker asks, and is of use to brokers alone (KIP-903). DescribeTopicPartitions pages
through all topics, the coordinator's as well; clients do without it (KIP-966).
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

from kafka.protocol.metadata import ApiVersionsResponse

from coordinator.errors import ErrorCode
from streaming.gateway.limits import RELAYED_BYTES_MAX, SASL_BYTES_MAX, SERVED_BYTES_MAX


class Handling(Enum):
    """What becomes of a request."""

    SERVED = auto()
    """Answered by this coordinator."""

    REWRITTEN = auto()
    """Relayed; the addresses in the answer become the gateway's own."""

    RELAYED = auto()
    """Passed on as it came, once `guard` has nothing against it; the answer is passed on unread."""

    LOCATED = auto()
    """FindCoordinator: a group's coordinator is here, a transaction's is found as `REWRITTEN`."""

    NEGOTIATED = auto()
    """ApiVersions: answered from this table and what the brokers offer."""

    AUTHENTICATED = auto()
    """Relayed, and watched for the name of who asks."""

    REFUSED = auto()
    """Not offered, and answered with an error to who asks nonetheless."""


class Api(NamedTuple):
    """One of Kafka's APIs: its name, the versions that are offered, what is done with it."""

    name: str
    first: int
    last: int
    handling: Handling


APIS: Mapping[int, Api] = {
    0: Api("Produce", 0, 9, Handling.RELAYED),
    1: Api("Fetch", 4, 14, Handling.RELAYED),
    2: Api("ListOffsets", 1, 11, Handling.RELAYED),
    3: Api("Metadata", 0, 13, Handling.REWRITTEN),
    8: Api("OffsetCommit", 2, 9, Handling.SERVED),
    9: Api("OffsetFetch", 1, 9, Handling.SERVED),
    10: Api("FindCoordinator", 0, 6, Handling.LOCATED),
    11: Api("JoinGroup", 0, 9, Handling.SERVED),
    12: Api("Heartbeat", 0, 4, Handling.SERVED),
    13: Api("LeaveGroup", 0, 5, Handling.SERVED),
    14: Api("SyncGroup", 0, 5, Handling.SERVED),
    15: Api("DescribeGroups", 0, 6, Handling.SERVED),
    16: Api("ListGroups", 0, 5, Handling.SERVED),
    17: Api("SaslHandshake", 0, 1, Handling.AUTHENTICATED),
    18: Api("ApiVersions", 0, 4, Handling.NEGOTIATED),
    19: Api("CreateTopics", 2, 7, Handling.RELAYED),
    20: Api("DeleteTopics", 1, 6, Handling.RELAYED),
    21: Api("DeleteRecords", 0, 2, Handling.RELAYED),
    22: Api("InitProducerId", 0, 5, Handling.RELAYED),
    23: Api("OffsetForLeaderEpoch", 2, 4, Handling.RELAYED),
    24: Api("AddPartitionsToTxn", 0, 5, Handling.RELAYED),
    25: Api("AddOffsetsToTxn", 0, 4, Handling.REFUSED),
    26: Api("EndTxn", 0, 5, Handling.RELAYED),
    27: Api("WriteTxnMarkers", 1, 2, Handling.RELAYED),
    28: Api("TxnOffsetCommit", 0, 5, Handling.REFUSED),
    29: Api("DescribeAcls", 1, 3, Handling.RELAYED),
    30: Api("CreateAcls", 1, 3, Handling.RELAYED),
    31: Api("DeleteAcls", 1, 3, Handling.RELAYED),
    32: Api("DescribeConfigs", 1, 4, Handling.REWRITTEN),
    33: Api("AlterConfigs", 0, 2, Handling.RELAYED),
    34: Api("AlterReplicaLogDirs", 1, 2, Handling.RELAYED),
    35: Api("DescribeLogDirs", 1, 5, Handling.RELAYED),
    36: Api("SaslAuthenticate", 0, 2, Handling.AUTHENTICATED),
    37: Api("CreatePartitions", 0, 3, Handling.RELAYED),
    38: Api("CreateDelegationToken", 1, 3, Handling.RELAYED),
    39: Api("RenewDelegationToken", 1, 2, Handling.RELAYED),
    40: Api("ExpireDelegationToken", 1, 2, Handling.RELAYED),
    41: Api("DescribeDelegationToken", 1, 3, Handling.RELAYED),
    42: Api("DeleteGroups", 0, 2, Handling.SERVED),
    43: Api("ElectLeaders", 1, 2, Handling.RELAYED),
    44: Api("IncrementalAlterConfigs", 0, 1, Handling.RELAYED),
    45: Api("AlterPartitionReassignments", 0, 1, Handling.RELAYED),
    46: Api("ListPartitionReassignments", 0, 0, Handling.RELAYED),
    47: Api("OffsetDelete", 0, 0, Handling.SERVED),
    48: Api("DescribeClientQuotas", 0, 1, Handling.RELAYED),
    49: Api("AlterClientQuotas", 0, 1, Handling.RELAYED),
    50: Api("DescribeUserScramCredentials", 0, 0, Handling.RELAYED),
    51: Api("AlterUserScramCredentials", 0, 0, Handling.RELAYED),
    55: Api("DescribeQuorum", 0, 1, Handling.RELAYED),
    57: Api("UpdateFeatures", 0, 2, Handling.RELAYED),
    60: Api("DescribeCluster", 0, 2, Handling.REWRITTEN),
    61: Api("DescribeProducers", 0, 0, Handling.RELAYED),
    64: Api("UnregisterBroker", 0, 0, Handling.RELAYED),
    65: Api("DescribeTransactions", 0, 0, Handling.RELAYED),
    66: Api("ListTransactions", 0, 2, Handling.RELAYED),
    74: Api("ListConfigResources", 0, 1, Handling.RELAYED),
}

PRODUCE, API_VERSIONS, SASL_AUTHENTICATE = 0, 18, 36


def bytes_max(api_key: int) -> int:
    """Return how large a request may be."""
    if api_key == PRODUCE:
        return RELAYED_BYTES_MAX
    return SASL_BYTES_MAX if APIS[api_key].handling is Handling.AUTHENTICATED else SERVED_BYTES_MAX


BEFORE_AUTHENTICATION = frozenset({Handling.NEGOTIATED, Handling.AUTHENTICATED})
"""What one may ask before the brokers know who asks."""

_NOT_FROM_BROKERS = frozenset({Handling.SERVED, Handling.LOCATED, Handling.NEGOTIATED})

_FEATURES_LEFT_OUT = frozenset({"group.version", "share.version", "streams.version"})
_FEATURE_MAX = {"transaction.version": 1}
"""Version 2 of transactions wants Produce 12."""

_FEATURES_FROM_ZERO = 4
"""From this version on ApiVersions may tell of a feature that begins with 0."""


def offered(brokers: Any | None, version: int) -> Any:
    """Answer an ApiVersions request.

    Args:
        brokers: What a broker answered to ApiVersions, in its newest version; None while no broker can be asked, when
            only what needs no broker is offered.
        version: The request's.
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


def _ranges(theirs: Mapping[int, Any]) -> Iterable[Any]:
    for key, api in APIS.items():
        if api.handling in _NOT_FROM_BROKERS:
            yield _range(key, api.first, api.last)
        elif api.handling is not Handling.REFUSED and (broker := theirs.get(key)):
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
