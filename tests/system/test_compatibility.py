"""The built wheel does the same steps with each version of Python, pyspark and Kafka. docs/install.md has the table."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.embedded import Broker
from tests.compatibility import COLUMNS, STEPS, Column, Site, table
from tests.compatibility.columns import BROKERS
from tests.deploy.reading import ROOT
from tests.system.installed import Environment, build

pytestmark = [pytest.mark.long, pytest.mark.nightly]

PAGE = ROOT / "docs" / "install.md"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def done() -> dict[Column, set[str]]:
    """The steps that each column has passed in this run."""
    return {}


@pytest.fixture
def site(column: Column, wheel: Path, tmp_path: Path) -> Iterator[Site]:
    python = column.interpreter()
    if python is None:
        pytest.skip(f"This machine has no Python {column.python}.")
    environment = Environment(
        tmp_path / "environment", wheel, "all", python=python, constraints=column.constraints(tmp_path)
    )
    with Broker(tmp_path / "broker", bundle=BROKERS[column.kafka]) as broker:
        site = Site(environment, broker.bootstrap_servers, tmp_path)
        site.produce()
        site.start_coordinator()
        yield site
        site.stop()


@pytest.mark.parametrize("column", COLUMNS, ids=str)
def test_installed_product_does_each_step(column: Column, site: Site, done: dict[Column, set[str]]) -> None:
    for step, run in STEPS.items():
        run(site)
        done.setdefault(column, set()).add(step)


def test_page_shows_the_outcome(done: dict[Column, set[str]]) -> None:
    found = re.search(r"<!-- versions -->\n(.*?)\n<!-- /versions -->", PAGE.read_text(), re.DOTALL)
    assert found, "docs/install.md has no table of versions"
    assert found[1].strip() == table(done)
