"""Stock clients use this coordinator in the way in which they use Kafka's: see `tests.clients`."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.embedded import Broker
from tests.clients import go_programs
from tests.clients.kinds import JAVA_848, LIBRDKAFKA_848, NEXT
from tests.clients.matrix import CELLS, REASONS, Cell, Matrix, playing_at
from tests.clients.play import Venue
from tests.tiers import NIGHTLY

KILLED = "one is killed"
"""With the consumer protocol, it takes the coordinator's session timeout of 45 s."""

ALWAYS = {"joins alone", "in a mixed group", KILLED, "commits, resumes"}
"""The scenarios of each classic client in `make test`; the others are nightly."""

ALWAYS_NEXT = {("in a mixed group", LIBRDKAFKA_848), ("commits, resumes", JAVA_848)}
"""The plays of clients of the consumer protocol in `make test`. Their other plays of these scenarios are long."""

PAGE = Path(__file__).parents[2] / "docs" / "gateway.md"


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Return the clients' address. With KAFKA_ALONE it is the broker's own, to compare with Kafka's coordinator."""
    server = request.getfixturevalue("broker" if "KAFKA_ALONE" in os.environ else "gateway")
    return str(server.bootstrap_servers)


@pytest.fixture(scope="module")
def matrix(
    broker: Broker, bootstrap: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Matrix]:
    """Begin all plays that this test run has selected."""
    folder = tmp_path_factory.mktemp("clients")
    go_programs.build(folder)
    chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    with playing_at(Venue(broker.bootstrap_servers, bootstrap, folder)) as matrix:
        matrix.begin(params["cell"] for params in chosen if "cell" in params)
        yield matrix


def _marks(cell: Cell) -> tuple[pytest.MarkDecorator, ...]:
    scenario, kind = cell
    if scenario not in ALWAYS or (kind in NEXT and scenario == KILLED):
        return NIGHTLY
    return (pytest.mark.long,) if kind in NEXT and cell not in ALWAYS_NEXT else ()


@pytest.mark.parametrize(
    "cell",
    [pytest.param(cell, marks=_marks(cell)) for cell in CELLS],
    ids=lambda cell: f"{cell[0]}-{cell[1]}",
)
def test_stock_client_passes_the_scenario(matrix: Matrix, cell: Cell) -> None:
    """S16, S28: each stock client passes each scenario that it supports."""
    matrix.outcome(cell)


def test_page_gives_the_reasons_for_missing_plays() -> None:
    assert REASONS in PAGE.read_text().splitlines()


@pytest.mark.long
@pytest.mark.nightly
def test_page_shows_the_outcome(matrix: Matrix) -> None:
    found = re.search(r"<!-- clients -->\n(.*?)\n<!-- /clients -->", PAGE.read_text(), re.DOTALL)
    table = matrix.table()
    assert found, f"docs/gateway.md has no place for the clients; this is the table:\n{table}"
    assert found[1].strip() == table
