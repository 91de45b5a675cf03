"""The pytest plugin. Pytest loads it in each environment that has this distribution; so it imports nothing big."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from streaming.testing.coordinator import InMemoryCoordinator


@pytest.fixture
def group_coordinator() -> "Iterator[InMemoryCoordinator]":
    """Return a coordinator in memory, without groups and topics, that all members of this test use."""
    from streaming.testing.coordinator import InMemoryCoordinator

    with InMemoryCoordinator() as coordinator:
        yield coordinator
