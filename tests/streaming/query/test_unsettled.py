"""The figures of the transactions that no shard has settled."""

from streaming.query.watchers.settling import Unsettled


def test_records_behind_the_settled_place_are_counted():
    unsettled = Unsettled()
    unsettled.record({0: 12, 1: 7, 2: 3}, {0: 10, 1: 7}, 1_000)
    assert unsettled.records() == {0: 2}, "shard 1 has settled all, and of shard 2 nothing is known"
    assert unsettled.waited_ms(4_500) == {0: 3_500}


def test_the_time_counts_from_the_last_progress():
    unsettled = Unsettled()
    unsettled.record({0: 12}, {0: 10}, 1_000)
    unsettled.record({0: 15}, {0: 10}, 2_000)
    assert (unsettled.records(), unsettled.waited_ms(3_000)) == ({0: 5}, {0: 2_000})
    unsettled.record({0: 15}, {0: 13}, 4_000)
    assert (unsettled.records(), unsettled.waited_ms(5_000)) == ({0: 2}, {0: 1_000})
    unsettled.record({0: 15}, {0: 15}, 6_000)
    assert (unsettled.records(), unsettled.waited_ms(7_000)) == ({}, {})
    unsettled.record({0: 16}, {0: 15}, 8_000)
    assert unsettled.waited_ms(9_000) == {0: 1_000}
