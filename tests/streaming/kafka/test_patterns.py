"""The topics that a pattern of RE2 matches, and patterns that do not compile."""

import time

import pytest

from coordinator.limits import PATTERN_CHARS_MAX, REASON_CHARS_MAX
from streaming.kafka.patterns import Matches, matching

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
