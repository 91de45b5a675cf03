"""Every file, variable, and name of a setting, field, event or figure on a page exists."""

import re
from functools import lru_cache
from pathlib import Path

import pytest

from streaming.config.settings import Settings
from tests.docs.pages import PAGES, ROOT, name_of, sources, spans

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)

FILE = re.compile(r"^(?:coordinator|streaming|tests|deploy|docs|checkpoints)/[\w./-]+$")
MADE = {"tests/benchmarks/latest.json", "checkpoints/default", "checkpoints/observed", "docs/tallies/bits.json"}
TEST = re.compile(r"^test_\w+\.py$")
NAME = re.compile(r"^(?:[a-z]+(?:_[a-z]+)+|[A-Z]{3,}(?:_[A-Z]+)*)$")

VARIABLES = {"COORDINATOR_CONFIG", "COORDINATOR_LOG_FORMAT", "COORDINATOR_CACHE_DIR"}
NOT_VARIABLES = {
    "COORDINATOR_NAME", "COORDINATOR_SERVICE_HOST",  # a placeholder for a setting; a variable of Kubernetes
    "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE",  # errors
}  # fmt: skip

OF_OTHER_PROJECTS = {"client_sessions", "verifiable_consumer"}  # TigerBeetle's and Kafka's


@every_page
def test_files_exist(page: Path) -> None:
    assert [span for span in spans(page) if FILE.match(span) and span not in MADE and not (ROOT / span).exists()] == []


@every_page
def test_tests_exist(page: Path) -> None:
    tests = {file.name for file in (ROOT / "tests").rglob("test_*.py")}
    assert [span for span in spans(page) if TEST.match(span) and span not in tests] == []


@every_page
def test_variables_exist(page: Path) -> None:
    settings = {f"COORDINATOR_{name}".upper() for name in Settings.model_fields}
    named = {found for span in spans(page) for found in re.findall(r"COORDINATOR_[A-Z_]*[A-Z]", span)}
    assert named - settings - VARIABLES - NOT_VARIABLES == set()


@lru_cache
def _words() -> frozenset[str]:
    """Return all words of the code, and the names of all queries."""
    here = Path(__file__).parent
    words = {word for file in sources() if file.parent != here for word in re.findall(r"\w+", file.read_text())}
    return frozenset(words | {file.stem for file in (ROOT / "streaming" / "history" / "queries").iterdir()})


@every_page
def test_names_exist(page: Path) -> None:
    """A name such as `clock_slack_ms`, `member_fenced` or `NEEDS` occurs in the code."""
    assert {span for span in spans(page) if NAME.match(span)} - _words() - OF_OTHER_PROJECTS == set()
