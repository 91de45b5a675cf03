"""Which shards are woken, and when: the alarm's decision, without its thread."""

from streaming.query.alarm import AGAIN_MS, WAIT_MS_MAX, overdue


def test_nobody_is_woken_before_it_is_due():
    """S05."""
    assert overdue({0: 5_000, 1: None}, {}, now_ms=5_000) == ({}, 1)
    assert overdue({0: 5_000, 1: None}, {}, now_ms=5_001) == ({0: 5_001}, AGAIN_MS)


def test_the_next_look_is_when_the_first_of_all_is_due():
    assert overdue({0: 9_000, 1: 7_000, 2: None}, {}, now_ms=5_000) == ({}, 2_001)
    assert overdue({0: None}, {}, now_ms=5_000) == ({}, WAIT_MS_MAX)
    assert overdue({}, {}, now_ms=5_000) == ({}, WAIT_MS_MAX)


def test_one_that_has_not_been_seen_to_is_woken_again_after_a_second():
    """A record may be lost, and a batch may take long."""
    assert overdue({0: 5_000}, {0: 5_001}, now_ms=5_600) == ({}, 401)
    assert overdue({0: 5_000}, {0: 5_001}, now_ms=6_001) == ({0: 6_001}, AGAIN_MS)


def test_one_that_was_woken_for_an_earlier_moment_is_woken_when_it_is_due_again():
    assert overdue({0: 5_200}, {0: 5_001}, now_ms=5_201) == ({0: 5_201}, AGAIN_MS)
