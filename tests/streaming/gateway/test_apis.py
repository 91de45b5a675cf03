"""The APIs that clients are offered: served APIs and APIs of the brokers, but none that bypasses the gateway."""

import pytest
from kafka.protocol.metadata import ApiVersionsResponse

from streaming.gateway.exchanges import SERVED
from streaming.gateway.protocol.api import Handling
from streaming.gateway.server.apis import API_VERSIONS, APIS, offered

PAST_US = {
    *(71, 72),  # GetTelemetrySubscriptions, PushTelemetry
    *range(76, 80),  # share groups (KIP-932)
    *range(80, 83),  # the voters among the controllers (KIP-853)
    *range(83, 94),  # state and offsets of share groups; streams groups (KIP-1071)
    94,  # UnregisterController
}


def brokers(**features: tuple[int, int]) -> ApiVersionsResponse:
    """Return the response of a broker that offers all APIs in all versions."""
    own, feature = ApiVersionsResponse.ApiVersion, ApiVersionsResponse.SupportedFeatureKey
    level = ApiVersionsResponse.FinalizedFeatureKey
    return ApiVersionsResponse(
        version=4,
        api_keys=[own(api_key=key, min_version=0, max_version=99) for key in range(120)],
        supported_features=[feature(name=n, min_version=a, max_version=b) for n, (a, b) in features.items()],
        finalized_features_epoch=7,
        finalized_features=[level(name=n, min_version_level=a, max_version_level=b) for n, (a, b) in features.items()],
    )


def ranges(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


def test_no_api_that_bypasses_the_gateway_is_offered():
    assert not PAST_US & ranges(offered(brokers(), 4)).keys()


def test_versions_whose_responses_have_addresses_are_not_offered():
    """KIP-951 and KIP-853: responses that are passed on unread contain node endpoints."""
    found = ranges(offered(brokers(), 4))
    assert (found[0], found[1], found[55]) == ((0, 12), (4, 14), (0, 1))


def test_apis_that_brokers_lack_are_not_offered():
    theirs = brokers()
    theirs.api_keys = [each for each in theirs.api_keys if each.api_key != 60]
    theirs.api_keys[1].max_version = 11
    found = ranges(offered(theirs, 4))
    assert 60 not in found
    assert found[1] == (4, 11)


def test_group_apis_are_offered_without_a_broker():
    found = ranges(offered(None, 3))
    served = {key for key, api in APIS.items() if api.handling is Handling.SERVED}
    assert found.keys() == served | {10, API_VERSIONS}


def test_an_unknown_version_is_answered_with_the_known_versions():
    """As in Kafka (KIP-35), the response has version 0, error 35, and only the versions of ApiVersions."""
    response = offered(brokers(), 9)
    assert (response.version, response.error_code, ranges(response)) == (0, 35, {API_VERSIONS: (0, 4)})


def test_features_that_need_missing_apis_are_not_offered():
    """Share groups and streams groups are the brokers' own."""
    theirs = brokers(**{"transaction.version": (0, 3), "share.version": (0, 1), "metadata.version": (7, 30)})
    response = ApiVersionsResponse.decode(offered(theirs, 4).encode(), version=4)
    assert [(f.name, f.max_version) for f in response.supported_features] == [
        ("transaction.version", 2),
        ("metadata.version", 30),
    ]
    assert [(f.name, f.max_version_level) for f in response.finalized_features] == [
        ("transaction.version", 2),
        ("metadata.version", 30),
    ]
    assert response.finalized_features_epoch == 7


def test_the_consumer_protocol_is_offered_with_its_feature():
    """KIP-848: tools show `group.version`; clients look at the versions of the heartbeat."""
    response = offered(brokers(**{"group.version": (0, 2)}), 4)
    assert {key: ranges(response)[key] for key in (68, 69)} == {68: (0, 1), 69: (0, 1)}
    assert [(f.name, f.max_version_level) for f in response.finalized_features] == [("group.version", 1)]


def test_older_clients_get_no_features_that_begin_with_0():
    response = offered(brokers(**{"transaction.version": (0, 2), "metadata.version": (7, 30)}), 3)
    assert [f.name for f in response.supported_features] == ["metadata.version"]


@pytest.mark.parametrize("version", range(5))
def test_every_version_can_be_written(version: int):
    response = offered(brokers(**{"metadata.version": (7, 30)}), version)
    again = ApiVersionsResponse.decode(response.encode(), version=version)
    assert ranges(again) == ranges(response)


def test_every_served_api_has_an_exchange():
    served = {key for key, api in APIS.items() if api.handling is Handling.SERVED}
    assert served == SERVED.keys()
