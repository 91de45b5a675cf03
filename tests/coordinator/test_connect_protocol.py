"""The bytes of Kafka Connect's workers, as Kafka's own classes write them, and bytes that are broken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.base.connect_protocol import Work, has_to_give_up_work, read_worker_assignment, work_of

ASSIGNED = "0000000200016300000002ffffffff00000000000164000000010000000" + "2"
HEAD = "000000016c0001750000000000000007"
REVOKED = "0000000200016500000001ffffffff0001630000000100000001"
DELAY = "00000bb8"
V0 = bytes.fromhex(f"0000{HEAD}{ASSIGNED}")
V1 = bytes.fromhex(f"0001{HEAD}{ASSIGNED}{REVOKED}{DELAY}")
V2 = bytes.fromhex(f"0002{HEAD}{ASSIGNED}{REVOKED}{DELAY}")
"""Connector c with task 0, and task 2 of d; revoked: connector e, and task 1 of c; 3 seconds of delay."""

STATE = "0008687474703a2f2f750000000000000007"
STATE_V0 = bytes.fromhex(f"0000{STATE}")
STATE_V2_NEW = bytes.fromhex(f"0002{STATE}ffffffff")

COMES = Work(("c",), {"c": [0], "d": [2]})
GOES = Work(("e",), {"c": [1]})


def state(assignment: bytes, version: int = 2) -> bytes:
    """Return the state of a worker that has this assignment when it joins."""
    return version.to_bytes(2, "big") + bytes.fromhex(STATE) + len(assignment).to_bytes(4, "big") + assignment


@pytest.mark.parametrize("version", [1, 2])
def test_versions_with_a_change_are_read(version: int):
    read = read_worker_assignment({1: V1, 2: V2}[version])
    assert read is not None
    assert (read.version, read.config_offset, read.assigned, read.revoked, read.delay_ms) == (
        version, 7, COMES, GOES, 3_000,
    )  # fmt: skip


def test_version_0_has_all_work():
    read = read_worker_assignment(V0)
    assert read is not None
    assert (read.version, read.assigned, read.revoked, read.delay_ms) == (0, COMES, Work(), 0)
    assert work_of(STATE_V0, V0) == COMES


def test_later_version_is_read_as_the_newest_known_one():
    """Connect itself reads it so: versions only add fields at the end."""
    read = read_worker_assignment(b"\x00\x09" + V2[2:] + b"more")
    assert read is not None
    assert (read.version, read.assigned) == (9, COMES)


def test_missing_and_null_fields_have_their_defaults():
    for data in (f"0001{HEAD}{ASSIGNED}", f"0001{HEAD}{ASSIGNED}ffffffff", f"0002{HEAD}{ASSIGNED}00000000"):
        read = read_worker_assignment(bytes.fromhex(data))
        assert read is not None
        assert (read.assigned, read.revoked, read.delay_ms) == (COMES, Work(), 0)
    nothing = read_worker_assignment(b"")
    assert nothing is not None
    assert nothing.assigned.is_empty


def test_work_is_the_state_with_the_change():
    """Connect's leader sends only the change to a worker that has some work already."""
    before = bytes.fromhex(f"0002{HEAD}0000000200016500000001ffffffff000163000000020000000100000003")
    assert work_of(state(before), V2) == Work(("c",), {"c": [0, 3], "d": [2]})
    assert work_of(STATE_V2_NEW, V2) == COMES
    assert work_of(state(before), bytes.fromhex(f"0002{HEAD}0000000000000000{DELAY}")) == Work(("e",), {"c": [1, 3]})


def test_only_revoked_work_makes_a_worker_join_again():
    assert has_to_give_up_work(V1)
    assert not has_to_give_up_work(V0)
    assert not has_to_give_up_work(bytes.fromhex(f"0002{HEAD}{ASSIGNED}00000000{DELAY}"))
    assert not has_to_give_up_work(b"\xff")


@pytest.mark.parametrize("count", ["7fffffff", "80000000", "fffffffe"])
def test_count_beyond_the_data_is_refused(count: str):
    assert read_worker_assignment(bytes.fromhex(f"0002{HEAD}{count}")) is None
    assert read_worker_assignment(bytes.fromhex(f"0002{HEAD}00000001000163{count}")) is None


def test_negative_version_and_unreadable_state_are_refused():
    assert read_worker_assignment(b"\xff\xff" + V2[2:]) is None
    assert work_of(b"\x00\x02\x00", V2) is None
    assert work_of(state(b"\xff\xff" + V2[2:]), V2) is None
    assert work_of(STATE_V2_NEW, b"\x00") is None


@pytest.mark.parametrize("whole", [V0, V1, V2])
def test_assignment_that_ends_too_early_is_refused(whole: bytes):
    """Only the fields that Connect itself may leave out may be missing."""
    ends = {len(V0), len(V0) + len(bytes.fromhex(REVOKED)), len(whole)}
    for length in range(1, len(whole)):
        assert (read_worker_assignment(whole[:length]) is not None) == (length in ends), length


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(metadata: bytes, assignment: bytes):
    work = work_of(metadata, assignment)
    assert work is None or isinstance(work, Work)
