"""S16: whose port clients are told for a group, in every version, and when they are told none."""

import asyncio

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest

from coordinator.outputs import OffsetFetchAnswer
from streaming.gateway.cluster import Cluster
from streaming.gateway.locating import about, located, seen_by, sought, without_rules
from tests.streaming.gateway.test_cluster import THREE, Kafka, listen


def find(
    version: int, kind: int, *keys: str, is_served: bool = True, kafka: Kafka | None = None
) -> list[tuple[int, int]]:
    """Ask; tell the error and the port of each answer."""

    async def ask() -> list[tuple[int, int]]:
        cluster = Cluster((kafka or Kafka(THREE)).list_topics, listen)
        await cluster.refresh()
        request = FindCoordinatorRequest(version=version, key_type=kind, key=keys[0], coordinator_keys=list(keys))
        errors = dict.fromkeys(sought(request), without_rules(request, is_served=is_served))
        response = located(request, cluster, errors)
        said = type(response).decode(response.encode(), version=version)
        return [(each.error_code, each.port) for each in (said.coordinators if version >= 4 else [said])]

    return asyncio.run(ask())


@pytest.mark.parametrize("version", range(7))
def test_a_group_is_at_one_of_our_ports(version: int):
    assert find(version, 0, "a") == [(0, 9195)], "97 % 3 is 1, the second broker's"


@pytest.mark.parametrize("version", range(4, 7))
def test_many_are_found_at_once(version: int):
    assert find(version, 0, "a", "b", "a") == [(0, 9195), (0, 9200), (0, 9195)]


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_that_does_not_answer_is_looked_for_again(version: int):
    assert find(version, 0, "a", is_served=False) == [(15, -1)]


@pytest.mark.parametrize("version", range(7))
def test_without_a_broker_there_is_no_port(version: int):
    assert find(version, 0, "a", kafka=Kafka({})) == [(15, -1)]


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize("kind", [2, 3, -1])
def test_there_is_no_other_kind_of_coordinator(version: int, kind: int):
    """Of share groups (KIP-932) neither: as a Kafka without them says, 42."""
    assert find(version, kind, "a") == [(42, -1)]


@pytest.mark.parametrize(("heard", "told"), [(0, 0), (30, 30), (15, 15), (24, 0)])
def test_what_the_coordinator_says_of_a_group_is_what_who_looks_for_it_hears(heard: int, told: int):
    """Where rules say who may do what: it is asked for no offsets, which takes the right to describe the group."""
    request = about("g", {"request_id": "1", "reply_to": "inbox", "principal": "User:ana"})
    assert (request.group_id, request.topics, request.principal) == ("g", (), "User:ana")
    assert seen_by(OffsetFetchAnswer(request_id="1", code=heard)).number == told
