"""The simulation that the tests of participants share."""

import pytest

from streaming.testing.plugin import group_coordinator as group_coordinator
from tests.streaming.client.simulation import Simulation


@pytest.fixture
def s(monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """Return a group without members, and a topic of three partitions."""
    return Simulation(monkeypatch, {"t": 3})
