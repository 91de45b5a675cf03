"""Tests of the bounds of each check, and of the report."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from streaming.config.settings import Settings
from streaming.doctor import Case, Finding, Level, examine
from streaming.doctor.case import ok, wrong
from streaming.doctor.installation import PACKAGES
from streaming.errors import TopicRefused

ROOT = Path(__file__).parents[3]


@pytest.fixture
def case() -> Case:
    return Case(Settings.load())


def test_a_check_that_fails_is_a_finding_after_what_it_has_found(case: Case) -> None:
    def refused(_case: Case) -> Iterator[Finding]:
        yield ok("One.")
        raise TopicRefused("The topic is not shown: grant a right.")

    def broken(_case: Case) -> Iterator[Finding]:
        yield from ()
        raise LookupError("password=hunter2")

    report = examine(case, {"a": refused, "b": broken})
    assert [tuple(row[:3]) for row in report.rows] == [
        ("a", Level.OK, "One."),
        ("a", Level.WRONG, "The topic is not shown: grant a right."),
        ("b", Level.WRONG, "This check has failed (LookupError: password=********"),
    ]


def test_a_check_that_hangs_is_a_finding(case: Case) -> None:
    over = Event()

    def hanging(_case: Case) -> Iterator[Finding]:
        yield ok("One.")
        over.wait()
        yield ok("Two.")

    report = examine(case, {"a": hanging, "b": lambda _: [wrong("Three.")]}, wait_s=0.2)
    over.set()
    assert [row.text for row in report.rows] == ["One.", "This check has not ended within 0.2 s.", "Three."]
    assert report.to_json()["wrong"] == 2


def test_the_packages_are_those_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {"": project["dependencies"], **project["optional-dependencies"]}
    declared = {extra: tuple(word.partition(">=")[0] for word in wanted[extra]) for extra in PACKAGES}
    assert declared == dict(PACKAGES)
