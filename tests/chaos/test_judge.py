"""The judge of chaos runs reports each kind of error, from the members' notes and the coordinator's records."""

import json
from pathlib import Path

from coordinator.outputs import OffsetRecord
from tests.chaos.judge import Run

ENDS = {0: 10}
Line = tuple[str, object, int, str]

ANA: list[Line] = [
    ("assigned", [0], 1, "ana"),
    ("read", [0, 0, 3], 1, "ana"),
    ("acknowledged", {0: 4}, 1, "ana"),
    ("read", [0, 4, 5], 1, "ana"),
    ("lost", [0], 1, "ana"),
]
BO: list[Line] = [
    ("assigned", [0], 2, "bo"),
    ("read", [0, 4, 9], 2, "bo"),
    ("acknowledged", {0: 10}, 2, "bo"),
    ("revoked", [0], 2, "bo"),
]
COMMITS = [(1, "ana", 4), (2, "bo", 10)]


def wrongs(
    folder: Path, ana: list[Line] = ANA, bo: list[Line] = BO, commits: list[tuple[int, str, int]] = COMMITS
) -> list[str]:
    for name, lines in {"ana": ana, "bo": bo}.items():
        (folder / name).write_text("".join(json.dumps([0.0, *line]) + "\n" for line in lines) + '{"cut of')
    published = [
        OffsetRecord(
            group_id="work", topic="work", partition=0, offset=offset, leader_epoch=-1, metadata="",
            commit_timestamp_ms=0, expire_timestamp_ms=None, generation_id=generation, member_id=member_id, version=1,
        )
        for generation, member_id, offset in commits
    ]  # fmt: skip
    return Run([folder / "ana", folder / "bo"], published, ENDS).judge()


def test_what_at_least_once_allows_is_not_wrong(tmp_path: Path) -> None:
    """Two records are read twice, because they were not committed; the last line of a killed member is cut off."""
    assert wrongs(tmp_path) == []


def test_a_record_that_nobody_read_is_told(tmp_path: Path) -> None:
    bo = [BO[0], ("read", [0, 4, 8], 2, "bo"), ("acknowledged", {0: 9}, 2, "bo")]
    assert wrongs(tmp_path, bo=bo, commits=[(1, "ana", 4), (2, "bo", 9)]) == ["0: nobody has read 9 to 9"]


def test_a_record_that_was_left_out_is_told(tmp_path: Path) -> None:
    bo = [BO[0], ("read", [0, 4, 5], 2, "bo"), ("read", [0, 7, 9], 2, "bo"), *BO[2:]]
    assert wrongs(tmp_path, bo=bo) == ["0: bo read 7 where 6 was next"]


def test_an_acknowledged_commit_that_is_not_published_is_told(tmp_path: Path) -> None:
    """I13, by the record and by the first offset of the next owner."""
    lost, _ = wrongs(tmp_path, commits=[(2, "bo", 10)])
    assert lost == "0: 4 was acknowledged to ana, and is not published"


def test_an_owner_that_begins_before_what_was_acknowledged_is_told(tmp_path: Path) -> None:
    """I13."""
    bo = [BO[0], ("read", [0, 2, 9], 2, "bo"), *BO[2:]]
    told = wrongs(tmp_path, bo=bo)
    assert any("began before 4, which had been acknowledged" in wrong for wrong in told), told


def test_a_commit_above_the_position_is_told(tmp_path: Path) -> None:
    (wrong,) = wrongs(tmp_path, commits=[(1, "ana", 4), (2, "bo", 10), (2, "bo", 11)])
    assert wrong == "0: 11 was committed by bo, who had read to 10"


def test_two_owners_in_one_generation_are_told(tmp_path: Path) -> None:
    """I1."""
    ana = [(what, value, 2, who) for what, value, _, who in ANA]
    told = wrongs(tmp_path, ana=ana, commits=[(2, "ana", 4), (2, "bo", 10)])
    assert "0: 2 owners in generation 2" in told


def test_who_has_read_nothing_may_commit_where_it_began(tmp_path: Path) -> None:
    """A commit names all partitions of its member, also one without new records."""
    bo = [("assigned", [0], 2, "bo"), ("acknowledged", {0: 10}, 2, "bo")]
    ana: list[Line] = [ANA[0], ("read", [0, 0, 9], 1, "ana"), ("acknowledged", {0: 10}, 1, "ana")]
    assert wrongs(tmp_path, ana=ana, bo=bo, commits=[(1, "ana", 10), (2, "bo", 10)]) == []
    (wrong,) = wrongs(tmp_path, ana=ana, bo=bo, commits=[(1, "ana", 10), (2, "bo", 10), (2, "bo", 11)])
    assert wrong == "0: 11 was committed by bo, who had read to 0"
