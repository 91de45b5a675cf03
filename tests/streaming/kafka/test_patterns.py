"""The topics that a pattern of RE2 matches, and patterns that do not compile."""

import itertools
import time

import pytest

from coordinator.base.limits import PATTERN_CHARS_MAX, REASON_CHARS_MAX
from streaming.kafka import patterns as module
from streaming.kafka.patterns import CHECKED_NAMES, MATCH_S, Matches, Patterns, matching

NAMES = ["orders-1", "orders-2", "my-orders", "Orders", "b.c", "bxc", "größe"]


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("orders-.*", ["orders-1", "orders-2"]),
        ("^orders-[0-9]$", ["orders-1", "orders-2"]),
        ("orders", []),
        ("(?i)orders", ["Orders"]),
        (r"b\.c", ["b.c"]),
        ("b.c", ["b.c", "bxc"]),
        (r"\Qb.c\E", ["b.c"]),
        ("(^orders-1)|(^my-.*)", ["my-orders", "orders-1"]),
        (r"gr\pL+e", ["größe"]),
        (r"orders-1\\C", []),
        ("", []),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, topics: list[str]):
    """KIP-848: the pattern of a subscription has to match the whole name of a topic."""
    assert matching(pattern, NAMES) == Matches(tuple(sorted(topics)))


@pytest.mark.parametrize("pattern", ["a(", "[", "*", r"\C", r"a\Cb", r"(a)\1", "(?=a)", "a{2000}", "(?P<n>"])
def test_a_pattern_that_does_not_compile_has_a_reason(pattern: str):
    """Java's RE2/J refuses these patterns too."""
    found = matching(pattern, NAMES)
    assert found.topics == ()
    assert found.error
    assert len(found.error) <= REASON_CHARS_MAX


def test_a_long_pattern_is_refused_at_its_bound():
    assert matching("a" * PATTERN_CHARS_MAX, ["a" * PATTERN_CHARS_MAX]).topics
    assert "more than" in (matching("a" * (PATTERN_CHARS_MAX + 1), NAMES).error or "")


def test_a_pattern_whose_program_is_large_is_refused():
    assert matching("((((a{30}){30}){30}){30})", NAMES).error
    assert matching("(.{1,500})" * 20, NAMES).error


def test_a_hostile_pattern_takes_linear_time():
    """Python's own `re` runs for ever on this pattern; ten thousand names of 249 characters take RE2 no second."""
    since_s = time.process_time()
    assert matching("(a*)*(a|aa)*b", ["a" * 249] * 10_000).topics == ()
    assert time.process_time() - since_s < 60


def test_a_pattern_that_takes_too_long_is_refused():
    """Its time is linear too, but it keeps the other patterns waiting.

    The names are as long as Kafka allows, so that the fastest machines take several times the limit.
    """
    names = [f"topic-{number:05}-".ljust(249, "x") for number in range(5_000)]
    assert matching("(.?){200}z", names).error == "the pattern takes too long: write it with fewer repetitions"


def test_the_time_of_a_pattern_is_compared_with_its_limit_after_a_few_names(monkeypatch: pytest.MonkeyPatch):
    times_s = itertools.count(step=MATCH_S / 3)
    monkeypatch.setattr(module.time, "thread_time", lambda: next(times_s))
    assert len(matching(".*", list(map(str, range(3 * CHECKED_NAMES)))).topics) == 3 * CHECKED_NAMES
    assert matching(".*", list(map(str, range(4 * CHECKED_NAMES)))).error


def test_a_usual_pattern_is_within_the_limits():
    names = [f"topic-{number:05}-with-a-usual-name" for number in range(5_000)]
    for pattern in [".*", r"(?i)topic-\d+.*", "|".join(f"(^topic-0{number}.*)" for number in range(60))]:
        assert matching(pattern, names).topics


# -- stored patterns ---------------------------------------------------------------------------------------------------


@pytest.fixture
def matched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Record which names each pattern is matched against."""
    calls: list[tuple[str, list[str]]] = []

    def recorded(pattern: str, names: frozenset[str]) -> Matches:
        calls.append((pattern, sorted(names)))
        return matching(pattern, names)

    monkeypatch.setattr(module, "matching", recorded)
    return calls


def test_a_stored_pattern_is_matched_against_new_names_only(matched: list[tuple[str, list[str]]]):
    patterns, first = Patterns(), frozenset({"a1", "a2", "b"})
    for _ in range(2):
        assert patterns.matching("a.*", first).topics == ("a1", "a2")
    second = frozenset({"a2", "a3", "b", "c"})
    assert patterns.matching("a.*", second).topics == ("a2", "a3")
    assert matched == [("a.*", ["a1", "a2", "b"]), ("a.*", ["a3", "c"])]
    same = patterns.matching("a.*", second)
    assert patterns.matching("a.*", second | {"d"}) is same, "the same matches are the same object"


def test_a_pattern_that_is_wrong_stays_wrong(matched: list[tuple[str, list[str]]]):
    patterns = Patterns()
    for name in "ab":
        assert patterns.matching("a(", frozenset({name})).error
    assert len(matched) == 1


def test_the_stored_patterns_are_bounded(monkeypatch: pytest.MonkeyPatch, matched: list[tuple[str, list[str]]]):
    """The one that was used least lately is matched anew when it is used again."""
    monkeypatch.setattr(module, "PATTERNS_KEPT_MAX", 2)
    patterns, names = Patterns(), frozenset({"a", "b", "c"})
    for pattern in ["a", "b", "a", "c", "a", "b"]:
        assert patterns.matching(pattern, names).topics == (pattern,)
    assert [pattern for pattern, _ in matched] == ["a", "b", "c", "b"]
