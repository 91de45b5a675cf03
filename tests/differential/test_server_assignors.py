"""The server assignors of this project and Kafka's make the same plans, partition by partition."""

from collections.abc import Iterator

import pytest

from coordinator.assignors.server import SERVER_ASSIGNORS
from tests.differential.java_assignors import kafkas_classes
from tests.differential.java_server_assignors import JavaServerAssignors, draw
from tests.tiers import NIGHTLY

SEEDS = 150
SEEDS_NIGHTLY = 10_000


@pytest.fixture(scope="module")
def kafkas() -> Iterator[JavaServerAssignors]:
    with kafkas_classes() as gateway:
        yield JavaServerAssignors(gateway)


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(SEEDS_NIGHTLY, marks=NIGHTLY)])
@pytest.mark.parametrize("name", SERVER_ASSIGNORS)
def test_plans(kafkas: JavaServerAssignors, name: str, seeds: int):
    """next-generation.md 4: the same plans.

    Two entries of one bucket have an order that depends on the history of the hash table, so groups of the uniform
    assignor have none. The range assignor sorts members and topics.
    """
    for seed in range(seeds):
        spec, unknown = draw(seed, may_tie=name == "range")
        assert SERVER_ASSIGNORS[name](spec) == kafkas.targets(name, spec, unknown), f"seed {seed}"
