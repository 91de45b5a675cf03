"""The cluster of three brokers that all tests of this package share: started once, and mended after each test."""

from collections.abc import Iterator

import pytest

from tests.cluster3.brokers import ThreeBrokers


@pytest.fixture(scope="session")
def _shared_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path_factory.mktemp("three-brokers")) as brokers:
        yield brokers


@pytest.fixture
def three(_shared_brokers: ThreeBrokers) -> Iterator[ThreeBrokers]:
    """Three brokers without a fault. The test may do anything to them."""
    yield _shared_brokers
    _shared_brokers.mend()
