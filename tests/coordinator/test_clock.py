"""Wrong clocks: a broker's, the driver's, and a log that is read late (design.md 7.6, I10, I15, I17)."""

import pytest

from coordinator.base import limits
from coordinator.base.config import Config
from coordinator.base.errors import ErrorCode
from coordinator.base.states import Phase
from coordinator.messages.events import ClockAhead, MemberExpired, OffsetsExpired
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.outputs import Output
from coordinator.messages.requests import JoinGroup, Protocol, Received, Wake
from coordinator.shard import clock
from coordinator.state.codec import Clock
from tests.coordinator.scenario import Scenario
from tests.coordinator.waking import wake

HOUR_MS, DAY_MS = 3_600_000, 24 * 3_600_000
SLACK_MS = Config().clock_slack_ms
START_MS = 100 * DAY_MS


def beat(s: Scenario, name: str, at_ms: int, offset: int = 99) -> Received:
    """Return a heartbeat with the time `at_ms`."""
    request = Heartbeat(
        request_id=f"beat {name} {at_ms}", reply_to="in", group_id=s.group_id,
        generation_id=s.group.generation_id, member_id=s.ids[name],
    )  # fmt: skip
    return Received(offset, at_ms, request)


def two_members(**settings: int) -> Scenario:
    """Return a group of two, at a time that is not near 0; the shard has no other group."""
    s = Scenario(**settings).at(START_MS)
    s.join("ana", session_timeout_ms=45_000).join("bo", session_timeout_ms=45_000).join(
        "ana", session_timeout_ms=45_000
    )
    return s.sync("ana", plan={"ana": {"t": [0]}, "bo": {"t": [1]}}).sync("bo").is_("Stable")


def expired(outputs: list[Output]) -> list[str]:
    """Return the members that were expelled."""
    return [output.member_id for output in outputs if isinstance(output, MemberExpired)]


# -- a broker's clock --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead_ms", [SLACK_MS + 1, HOUR_MS, 8 * DAY_MS])
def test_record_from_the_future_expels_no_member_and_is_reported(ahead_ms: int):
    """S05, I10: a record's time counts at most as the batch's time plus the slack."""
    s = two_members()
    outputs = s.step([beat(s, "ana", START_MS + ahead_ms)], START_MS)
    assert not expired(outputs)
    (told,) = (output for output in outputs if isinstance(output, ClockAhead))
    assert (told.at_ms, told.records, told.offset) == (START_MS + SLACK_MS, 1, 99)
    assert told.ahead_ms == ahead_ms - SLACK_MS
    for second in range(3, 60, 3):
        now_ms = START_MS + second * 1_000
        s.step([beat(s, "ana", now_ms), beat(s, "bo", now_ms)], now_ms)
    s.is_("Stable")


def test_time_of_a_record_within_the_slack_is_accepted():
    s = two_members()
    outputs = s.step([beat(s, "ana", START_MS + SLACK_MS)], START_MS)
    assert not any(isinstance(output, ClockAhead) for output in outputs)
    assert s.group.hot_state.now_ms == START_MS + SLACK_MS


def test_join_is_answered_after_a_record_from_the_future():
    """S79, I11: time continues before the clocks agree again."""
    s = Scenario(delay_ms=3_000).at(START_MS)
    join = JoinGroup(
        request_id="j", reply_to="in", group_id="g", member_id="", session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000, protocol_type="consumer", protocols=(Protocol("range"),),
        require_known_member_id=False,
    )  # fmt: skip
    s.send("ana", join)
    s.step([Received(98, START_MS + HOUR_MS, join)], START_MS)
    for ms in range(0, 6_000, 1_000):
        s.step([wake(START_MS + ms)], START_MS + ms)
    s.is_("CompletingRebalance", generation=1)


def test_broker_that_is_always_ahead_expels_no_member():
    """I10: every record of a partition is an hour ahead, permanently."""
    s = two_members()
    for second in range(3, 120, 3):
        now_ms = START_MS + second * 1_000
        s.step([beat(s, "ana", now_ms + HOUR_MS), beat(s, "bo", now_ms + HOUR_MS)], now_ms)
    s.is_("Stable")
    for second in range(120, 180, 3):  # bo sends nothing more
        now_ms = START_MS + second * 1_000
        s.step([beat(s, "ana", now_ms + HOUR_MS)], now_ms)
    assert s.events(MemberExpired)[0].member_id == s.ids["bo"]


def test_offsets_survive_a_record_from_the_future():
    """I15: a record is eight days ahead, and offsets with seven days' retention stay."""
    s = Scenario().at(START_MS).commit_from_outside("tool", {("t", 0): 7})
    outputs = s.step([wake(START_MS + 8 * DAY_MS)], START_MS + 1_000)
    outputs += s.step([wake(START_MS + 2_000)], START_MS + 2_000)
    assert not any(isinstance(output, OffsetsExpired) for output in outputs)
    s.at(START_MS + 3_000).fetch("tool", {"t": [0]}).hears(ErrorCode.NONE)
    assert s.group.offsets["t"][0].offset == 7


def test_broker_whose_clock_goes_back_neither_expels_nor_stalls():
    """I10, I11: the clock goes back by an hour permanently; deadlines use the batch's time."""
    s = two_members()
    for second in range(3, 120, 3):
        now_ms = START_MS + second * 1_000
        s.step([beat(s, "ana", now_ms - HOUR_MS), beat(s, "bo", now_ms - HOUR_MS)], now_ms)
    s.is_("Stable")
    now_ms = START_MS + 120_000
    for second in range(1, 61):
        s.step([wake(now_ms + second * 1_000 - HOUR_MS)], now_ms + second * 1_000)
        assert s.group.phase is (Phase.STABLE if second < 43 else Phase.EMPTY)


def test_record_with_an_earlier_time_renews_from_the_time_of_the_log():
    """I10: the log's time is that of the record before it."""
    s = two_members()
    now_ms = START_MS + 20_000
    s.step([wake(now_ms), beat(s, "ana", now_ms - HOUR_MS), wake(now_ms)], now_ms)
    assert s.group.hot_state.sessions[s.ids["ana"]].deadline_ms == now_ms + 45_000


# -- the driver's clock ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, 8 * DAY_MS])
def test_driver_whose_clock_is_ahead_expels_no_member_and_expires_no_offset(ahead_ms: int):
    """I10, I15: deadlines fire by the time up to which the log was read."""
    s = two_members()
    s.commit("ana", {("t", 0): 7})
    for second in range(3, 120, 3):
        at_ms = START_MS + second * 1_000
        s.step([beat(s, "ana", at_ms), beat(s, "bo", at_ms)], at_ms + ahead_ms)
    s.is_("Stable")
    assert s.group.offsets["t"][0].offset == 7


def test_wake_record_gives_the_lead_of_the_drivers_clock():
    """I11: waits have their right length, whatever the driver's clock shows."""
    s = Scenario(delay_ms=3_000)
    s.step([Received(1, START_MS, Wake(START_MS + HOUR_MS))], START_MS + HOUR_MS)
    s.away().at(START_MS).join("ana").back(START_MS, batch_ms=START_MS + HOUR_MS)
    assert s.group.hot_state.joins_ms == START_MS + 3_000
    s.step([Received(9, START_MS + 4_000, Wake(START_MS + 4_000 + HOUR_MS))], START_MS + 4_000 + HOUR_MS)
    s.is_("CompletingRebalance", generation=1)


def test_a_clock_jump_lengthens_a_wait_within_a_bound():
    s = two_members()
    s.step([beat(s, "ana", START_MS + 1_000)], START_MS + 8 * DAY_MS)
    latest_ms = START_MS + 1_000 + limits.AWAY_MS_MAX + 45_000
    assert s.group.hot_state.sessions[s.ids["ana"]].deadline_ms <= latest_ms


def test_driver_whose_clock_goes_back_neither_expels_nor_stalls():
    """Finding 14: the clock goes back by an hour, and deadlines fire within that hour."""
    s = two_members()
    s.step([beat(s, "ana", START_MS + 1_000), beat(s, "bo", START_MS + 1_000)], START_MS + 1_000)
    for second in range(2, 90):
        at_ms = START_MS + second * 1_000
        log = [beat(s, "ana", at_ms)] if second % 3 == 0 else [wake(at_ms)]
        s.step(log, at_ms - HOUR_MS)
    assert s.events(MemberExpired)[0].member_id == s.ids["bo"]
    assert START_MS + 46_000 <= s.events(MemberExpired)[0].at_ms <= START_MS + 47_000


# -- a log that is read late -------------------------------------------------------------------------------------------


def test_member_whose_heartbeats_are_unread_is_not_expelled():
    """Finding 7, I10: each batch has one request, and its time is minutes after the requests were written."""
    s = two_members()
    log = [beat(s, name, START_MS + second * 1_000) for second in range(3, 300, 3) for name in ("ana", "bo")]
    outputs: list[Output] = []
    for number, received in enumerate(log):
        outputs += s.step([received], START_MS + 300_000 + number * 100)
    assert not expired(outputs)
    s.is_("Stable")


def test_step_without_a_record_lets_no_time_pass():
    """A timeout does not show whether the log was read to its end."""
    s = two_members()
    shard = s.new_shard(s.shard.to_bytes())
    assert shard.step([], START_MS + 60_000) == []
    assert shard.due_in_ms == 0


@pytest.mark.parametrize(
    ("before", "log_ms", "batch_ms", "expected"),
    [
        # remembered               last record  batch      now      latest   horizon
        (Clock(),                  9_900,       10_000,   (10_000,  11_000,  8_900)),
        (Clock(),                  11_000,      10_000,   (10_000,  11_000,  10_000)),
        (Clock(),                  99_000,      10_000,   (10_000,  11_000,  10_000)),
        (Clock(9_000, 9_000, 0),   None,        10_000,   (10_000,  11_000,  8_000)),
        (Clock(9_000, 9_000, 0),   7_999,       10_000,   (10_000,  11_000,  9_000)),
        (Clock(9_000, 9_000, 0),   8_000,       10_000,   (10_000,  11_000,  8_000)),
        (Clock(9_000, 9_000, 500), 9_400,       10_000,   (9_500,   10_500,  8_400)),
        (Clock(9_000, 9_000, 0),   9_100,       -50_000,  (-50_000, 9_000,   8_000)),
        (Clock(-51_000, 9_000, 0), 9_900,       -50_000,  (-50_000, 10_000,  8_900)),
        (Clock(9_000, 9_000, 0),   9_500,       10**9,    (609_500, 10**9 + 1_000, 8_500)),
    ],
)  # fmt: skip
def test_the_times_of_a_step(before: Clock, log_ms: int | None, batch_ms: int, expected: tuple[int, int, int]):
    log = [] if log_ms is None else [wake(log_ms)]
    times = clock.advance(before, log, batch_ms, SLACK_MS)[1]
    assert (times.now_ms, times.latest_ms, times.horizon_ms) == expected


@pytest.mark.parametrize("back_ms", [SLACK_MS + 4_001, HOUR_MS])
def test_record_with_an_earlier_time_renews_for_the_whole_session_timeout(back_ms: int):
    """I10: a heartbeat with a time before the time of the last read record counts from when it is read."""
    s = Scenario().at(START_MS).join("ana", session_timeout_ms=6_000).sync("ana").is_("Stable")
    s.step([wake(START_MS + 3_900)], START_MS + 3_900)
    s.step([beat(s, "ana", START_MS + 4_000 - back_ms)], START_MS + 4_000)
    assert not expired(s.step([wake(START_MS + 9_999)], START_MS + 9_999))
    assert expired(s.step([wake(START_MS + 4_000 + 6_000 + SLACK_MS)], START_MS + 4_000 + 6_000 + SLACK_MS))
