"""S16: the port of a group's coordinator, in every version, and the cases without a port."""

import asyncio

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest

from coordinator.messages.responses import OffsetFetchAnswer
from streaming.gateway.relay.coordinator_lookup import about, located, seen_by, sought, without_rules
from streaming.gateway.relay.metadata import Cluster
from tests.streaming.gateway.test_cluster import THREE, Kafka, listen


def find(
    version: int, kind: int, *keys: str, is_served: bool = True, kafka: Kafka | None = None
) -> list[tuple[int, int]]:
    """Return the error and the port for each key in the response to FindCoordinator."""

    async def ask() -> list[tuple[int, int]]:
        cluster = Cluster((kafka or Kafka(THREE)).list_topics, listen)
        await cluster.refresh()
        request = FindCoordinatorRequest(version=version, key_type=kind, key=keys[0], coordinator_keys=list(keys))
        errors = dict.fromkeys(sought(request), without_rules(request, is_served=is_served))
        response = located(request, cluster, errors)
        read = type(response).decode(response.encode(), version=version)
        return [(each.error_code, each.port) for each in (read.coordinators if version >= 4 else [read])]

    return asyncio.run(ask())


@pytest.mark.parametrize("version", range(7))
def test_a_group_is_at_one_of_the_gateways_ports(version: int):
    assert find(version, 0, "a") == [(0, 9195)], "97 % 3 is 1, the second broker's"


@pytest.mark.parametrize("version", range(4, 7))
def test_many_groups_are_found_in_one_request(version: int):
    assert find(version, 0, "a", "b", "a") == [(0, 9195), (0, 9200), (0, 9195)]


@pytest.mark.parametrize("version", range(7))
def test_an_unavailable_coordinator_is_a_retriable_error(version: int):
    assert find(version, 0, "a", is_served=False) == [(15, -1)]


@pytest.mark.parametrize("version", range(7))
def test_without_a_broker_no_port_is_found(version: int):
    assert find(version, 0, "a", kafka=Kafka({})) == [(15, -1)]


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize("kind", [2, 3, -1])
def test_other_kinds_of_coordinators_are_refused(version: int, kind: int):
    """This includes share groups (KIP-932). The error is 42, as in a Kafka without them."""
    assert find(version, kind, "a") == [(42, -1)]


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (30, 30), (15, 15), (24, 0)])
def test_with_rules_a_clients_error_comes_from_the_coordinator(code: int, expected: int):
    """With access rules, the gateway fetches no offsets of the group, which needs the right to describe the group."""
    request = about("g", {"request_id": "1", "reply_to": "inbox", "principal": "User:ana"})
    assert (request.group_id, request.topics, request.principal) == ("g", (), "User:ana")
    assert seen_by(OffsetFetchAnswer(request_id="1", code=code)).number == expected
