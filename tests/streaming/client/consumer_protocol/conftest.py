"""The simulation and the lone member that the tests of the consumer protocol share."""

import pytest

from tests.streaming.client.consumer_protocol.simulation import BothSimulation
from tests.streaming.client.consumer_protocol.talk import Talk


@pytest.fixture
def s(monkeypatch: pytest.MonkeyPatch) -> BothSimulation:
    """Return a group without members, and a topic of four partitions."""
    return BothSimulation(monkeypatch, {"t": 4})


@pytest.fixture
def talk() -> Talk:
    return Talk()
