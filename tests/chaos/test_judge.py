"""The judge of chaos runs reports each kind of error, from the members' notes and the coordinator's records."""

import json
from collections.abc import Sequence
from pathlib import Path

from coordinator.messages.group_records import OffsetRecord
from coordinator.messages.policy_events import SeatTaken
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
    folder: Path,
    ana: list[Line] = ANA,
    bo: list[Line] = BO,
    commits: list[tuple[int, str, int]] = COMMITS,
    seats: Sequence[SeatTaken] = (),
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
    return Run([folder / "ana", folder / "bo"], published, ENDS, seats).judge()


def test_at_least_once_reads_are_no_error(tmp_path: Path) -> None:
    """Two uncommitted records are read twice, and the last line of a killed member is cut off. Neither is an error."""
    assert wrongs(tmp_path) == []


def test_an_unread_record_is_reported(tmp_path: Path) -> None:
    bo = [BO[0], ("read", [0, 4, 8], 2, "bo"), ("acknowledged", {0: 9}, 2, "bo")]
    assert wrongs(tmp_path, bo=bo, commits=[(1, "ana", 4), (2, "bo", 9)]) == ["0: no member has read 9 to 9"]


def test_a_skipped_record_is_reported(tmp_path: Path) -> None:
    bo = [BO[0], ("read", [0, 4, 5], 2, "bo"), ("read", [0, 7, 9], 2, "bo"), *BO[2:]]
    assert wrongs(tmp_path, bo=bo) == ["0: bo read 7, but 6 was next"]


def test_an_unpublished_acknowledged_commit_is_reported(tmp_path: Path) -> None:
    """I13: the record is missing, and the next owner starts at another offset."""
    lost, _ = wrongs(tmp_path, commits=[(2, "bo", 10)])
    assert lost == "0: 4 was acknowledged to ana, but is not published"


def test_an_owner_that_starts_before_an_acknowledged_offset_is_reported(tmp_path: Path) -> None:
    """I13: the next owner starts at offset 2 after offset 4 was acknowledged."""
    bo = [BO[0], ("read", [0, 2, 9], 2, "bo"), *BO[2:]]
    found = wrongs(tmp_path, bo=bo)
    assert any("began before 4, which had been acknowledged" in wrong for wrong in found), found


def test_a_commit_above_the_position_is_reported(tmp_path: Path) -> None:
    (wrong,) = wrongs(tmp_path, commits=[(1, "ana", 4), (2, "bo", 10), (2, "bo", 11)])
    assert wrong == "0: 11 was committed by bo, which had read to 10"


def test_two_owners_in_one_generation_are_reported(tmp_path: Path) -> None:
    """I1: both members own partition 0 in generation 2."""
    ana = [(what, value, 2, who) for what, value, _, who in ANA]
    found = wrongs(tmp_path, ana=ana, commits=[(2, "ana", 4), (2, "bo", 10)])
    assert "0: 2 owners in generation 2" in found


def seat(before: str, member_id: str, generation: int = 2) -> SeatTaken:
    return SeatTaken(
        group_id="work", version=5, at_ms=0, generation_id=generation, member_id=member_id, group_instance_id=None,
        client_id="", client_host="", how="took", before=before, partitions={"work": [0]}, unowned_ms=0,
        fencing_token=1,
    )  # fmt: skip


def test_a_seat_may_pass_on_within_a_generation(tmp_path: Path) -> None:
    """I1: one owner at a moment, and the next one begins where the last one ended. A repeated event changes nothing."""
    ana = [(what, value, 2, who) for what, value, _, who in ANA]
    commits = [(2, "ana", 4), (2, "bo", 10)]
    assert wrongs(tmp_path, ana=ana, commits=commits, seats=[seat("ana", "bo")] * 2) == []
    for seats in ([seat("ana", "bo", 1)], [seat("cy", "bo")]):
        assert "0: 2 owners in generation 2" in wrongs(tmp_path, ana=ana, commits=commits, seats=seats)
    late = [BO[0], ("read", [0, 5, 9], 2, "bo"), *BO[2:]]
    (wrong,) = wrongs(tmp_path, ana=ana, bo=late, commits=commits, seats=[seat("ana", "bo")])
    assert "did not begin at the offset of" in wrong


def test_a_member_without_reads_may_commit_its_first_position(tmp_path: Path) -> None:
    """A commit contains all partitions of its member, also a partition without new records."""
    bo = [("assigned", [0], 2, "bo"), ("acknowledged", {0: 10}, 2, "bo")]
    ana: list[Line] = [ANA[0], ("read", [0, 0, 9], 1, "ana"), ("acknowledged", {0: 10}, 1, "ana")]
    assert wrongs(tmp_path, ana=ana, bo=bo, commits=[(1, "ana", 10), (2, "bo", 10)]) == []
    (wrong,) = wrongs(tmp_path, ana=ana, bo=bo, commits=[(1, "ana", 10), (2, "bo", 10), (2, "bo", 11)])
    assert wrong == "0: 11 was committed by bo, which had read to 0"
