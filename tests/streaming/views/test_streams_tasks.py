"""The tasks in assignments of Kafka Streams: each version, as Kafka's own class writes it, and broken bytes."""

import pytest

from coordinator.base.consumer_protocol import write_assignment
from streaming.views.state.streams_tasks import VERSION_MAX, StreamsTasks, tasks_of
from tests.streaming.views.recordings import Replay

HEAD = "00000003000000000000000100000000000000010000000100000003"
NAMED = "00000003" + 2 * "000000000000000100000000" + "000000010000000300000003" + "0074006f0070"
STANDBY = "000000010000000100000000000000010005776f72647300000000"
STANDBY_NAMED = "00000001000000010000000000000000000000010005776f72647300000000"
HOSTS = "0000000100016800000050000000010005776f72647300000003"
DICTIONARY = "00000001000000000005776f726473"
BY_NUMBER = "0000000100016800000050000000010000000000000003"
AT_MS = "000001a212a089bd"
NEVER = "7fffffffffffffff"
NO_ERROR = "00000000"
COMMON = "0000000b"

VERSIONS = {
    1: f"00000001{HEAD}{STANDBY}",
    2: f"00000002{HEAD}{STANDBY}{HOSTS}",
    3: f"00000003{COMMON}{HEAD}{STANDBY}{HOSTS}",
    4: f"00000004{COMMON}{HEAD}{STANDBY}{HOSTS}{NO_ERROR}",
    5: f"00000005{COMMON}{HEAD}{STANDBY}{DICTIONARY}{BY_NUMBER}{NO_ERROR}",
    6: f"00000006{COMMON}{HEAD}{STANDBY}{DICTIONARY}{BY_NUMBER}{BY_NUMBER}{NO_ERROR}",
    7: f"00000007{COMMON}{HEAD}{STANDBY}{DICTIONARY}{BY_NUMBER}{BY_NUMBER}{NO_ERROR}{AT_MS}",
    8: f"00000008{COMMON}{HEAD}{STANDBY}{DICTIONARY}{BY_NUMBER}{BY_NUMBER}{NO_ERROR}{AT_MS}",
    9: f"00000009{COMMON}{HEAD}{STANDBY}{DICTIONARY}{BY_NUMBER}{BY_NUMBER}{NO_ERROR}{AT_MS}",
    10: f"0000000a{COMMON}{NAMED}{STANDBY_NAMED}{DICTIONARY}{BY_NUMBER}{BY_NUMBER}{NO_ERROR}{AT_MS}",
    11: f"0000000b{COMMON}{NAMED}{STANDBY_NAMED}{DICTIONARY}{BY_NUMBER}{BY_NUMBER}{NO_ERROR}{NEVER}",
}
"""AssignmentInfo of Kafka Streams 4.4.0, encoded by itself: active 0_1 twice and 1_3 (from version 10 on of topology
`top`), standby 1_0 with the partition words-0, the address h:80, and the next rebalance."""

SCHEDULED_MS = 1_795_608_840_637


def assignment(user_data: bytes) -> bytes:
    return write_assignment({"words": [1, 3]}, user_data)


@pytest.mark.parametrize(("version", "data"), VERSIONS.items(), ids=map(str, VERSIONS))
def test_each_version_is_read(version: int, data: str) -> None:
    third = "top__1_3" if version >= 10 else "1_3"
    scheduled = SCHEDULED_MS if 7 <= version <= 10 else None
    assert tasks_of(assignment(bytes.fromhex(data))) == StreamsTasks(["0_1", third], ["1_0"], scheduled)


@pytest.mark.parametrize(("version", "data"), VERSIONS.items(), ids=map(str, VERSIONS))
def test_data_that_end_too_early_are_not_read(version: int, data: str) -> None:
    """Up to version 6, the addresses after the tasks are not needed."""
    whole = bytes.fromhex(data)
    needed = whole if version >= 7 else whole[: len(bytes.fromhex(VERSIONS[1])) + (4 if version >= 3 else 0)]
    for length in range(len(needed)):
        assert tasks_of(assignment(needed[:length])) is None
    assert tasks_of(assignment(needed)) is not None


@pytest.mark.parametrize("version", [0, -1, VERSION_MAX + 1, 2**31 - 1])
def test_an_unknown_version_is_not_read(version: int) -> None:
    data = version.to_bytes(4, "big", signed=True) + bytes.fromhex(VERSIONS[11])[4:]
    assert tasks_of(assignment(data)) is None


@pytest.mark.parametrize("count", ["7fffffff", "ffffffff", "80000000"])
def test_a_count_beyond_the_data_is_refused(count: str) -> None:
    data = bytes.fromhex(f"0000000b{COMMON}{count}")
    assert tasks_of(assignment(data)) is None
    assert tasks_of(assignment(bytes.fromhex(f"0000000b{COMMON}000000010000000000000001{count}"))) is None


def test_the_tasks_of_real_instances_are_read() -> None:
    """Two instances with one standby task each: while tasks warm up, the leader has scheduled a rebalance."""
    replay = Replay("streams")
    first, second = (tasks_of(member.assignment) for member in replay.until(50_000).members)
    assert first == StreamsTasks(["1_0", "1_1", "1_2", "1_3"], [], SCHEDULED_MS)
    assert second is not None
    assert (second.active, second.next_rebalance_ms) == (["0_0", "0_1", "0_2", "0_3"], None)
    assert second.standby == ["1_0", "1_1", "1_2", "1_3"]
    first, second = (tasks_of(member.assignment) for member in replay.until(90_000).members)
    assert first == StreamsTasks(["0_1", "0_3", "1_1", "1_3"], ["1_0", "1_2"])
    assert second == StreamsTasks(["0_0", "0_2", "1_0", "1_2"], ["1_1", "1_3"])
