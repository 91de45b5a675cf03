"""The setup of the core's tests: no chance, no clock, and `pytest tests/coordinator --rewrite-traces`.

That option writes the present outputs into the traces. Check every changed line against protocol.md.
"""

import pytest
from hypothesis import settings

settings.register_profile("core", max_examples=100, derandomize=True, deadline=None)
settings.load_profile("core")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-traces", action="store_true", help="rewrite what traces expect")


@pytest.fixture
def rewrite_traces(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-traces", default=False))
