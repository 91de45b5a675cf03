"""Which parts of Spark's folder are missing, as others show."""

import pytest

from streaming.query.checkpoint.parts import missing_parts


@pytest.mark.parametrize(
    ("plans", "commits", "there", "missing"),
    [
        ([], [], "", []),
        ([], [], "metadata", []),
        ([0], [], "metadata", []),
        ([0], [], "metadata state", []),
        ([0], [0], "metadata state", []),
        ([7, 8], [6, 7], "metadata state", []),
        ([], [], "metadata state", ["query/offsets"]),
        ([], [7], "metadata state", ["query/offsets"]),
        ([], [7], "metadata", ["query/offsets", "query/state"]),
        ([0, 1], [], "metadata state", ["query/commits"]),
        ([7], [7], "metadata", ["query/state"]),
        ([0], [], "", ["query/metadata"]),
        ([7], [7], "state", ["query/metadata"]),
    ],
)
def test_part_is_missing_if_others_show_that_it_was_there(
    plans: list[int], commits: list[int], there: str, missing: list[str]
) -> None:
    assert list(missing_parts(plans, commits, there.split().__contains__)) == missing
