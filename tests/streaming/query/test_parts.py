"""Which parts of Spark's folder are missing, as others show."""

import pytest

from streaming.query.checkpoint.parts import missing_parts


@pytest.mark.parametrize(
    ("plans", "commits", "has_state", "missing"),
    [
        ([], [], False, []),
        ([0], [], False, []),
        ([0], [], True, []),
        ([0], [0], True, []),
        ([7, 8], [6, 7], True, []),
        ([], [], True, ["query/offsets"]),
        ([], [7], True, ["query/offsets"]),
        ([], [7], False, ["query/offsets", "query/state"]),
        ([0, 1], [], True, ["query/commits"]),
        ([7], [7], False, ["query/state"]),
    ],
)
def test_part_is_missing_if_others_show_that_it_was_there(
    plans: list[int], commits: list[int], has_state: bool, missing: list[str]
) -> None:
    assert list(missing_parts(plans, commits, has_state=has_state)) == missing
