"""Tests of the alarm's decision: which shards are woken, and when, without the alarm's thread."""

from streaming.query.alarm import AGAIN_MS, WAIT_MS_MAX, overdue


def test_no_shard_is_woken_before_its_deadline():
    """S05: a shard is woken one millisecond after its deadline."""
    assert overdue({0: 5_000, 1: None}, {}, now_ms=5_000) == ({}, 1)
    assert overdue({0: 5_000, 1: None}, {}, now_ms=5_001) == ({0: 5_001}, AGAIN_MS)


def test_the_next_check_is_at_the_first_deadline_of_all_shards():
    assert overdue({0: 9_000, 1: 7_000, 2: None}, {}, now_ms=5_000) == ({}, 2_001)
    assert overdue({0: None}, {}, now_ms=5_000) == ({}, WAIT_MS_MAX)
    assert overdue({}, {}, now_ms=5_000) == ({}, WAIT_MS_MAX)


def test_an_overdue_shard_is_woken_again_after_a_second():
    """The wake record may be lost, and a batch may take long."""
    assert overdue({0: 5_000}, {0: 5_001}, now_ms=5_600) == ({}, 401)
    assert overdue({0: 5_000}, {0: 5_001}, now_ms=6_001) == ({0: 6_001}, AGAIN_MS)


def test_a_shard_is_woken_again_at_its_next_deadline():
    assert overdue({0: 5_200}, {0: 5_001}, now_ms=5_201) == ({0: 5_201}, AGAIN_MS)
