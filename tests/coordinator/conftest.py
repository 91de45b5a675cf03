"""What the core's tests share: no chance, no clock, and `pytest tests/coordinator --rewrite-traces`.

That option writes down what the traces say now. Check every line that it changes against protocol.md.
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
