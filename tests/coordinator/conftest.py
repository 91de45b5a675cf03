"""The option of `pytest tests/coordinator --rewrite-traces`.

It writes the present outputs into the traces. Check every changed line against protocol.md.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-traces", action="store_true", help="rewrite what traces expect")


@pytest.fixture
def rewrite_traces(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-traces", default=False))
