"""The member's state machine alone: what each of its requests says, and what it does after each response."""

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.member.consumer_config import Wanted
from coordinator.member.consumer_member import AssignmentChanged, State
from coordinator.member.effects import CoordinatorSilent, Failed, Left, PartitionsLost
from coordinator.messages.consumer_requests import TopicFact
from coordinator.messages.responses import Ask, AssignmentNotice, ConsumerGroupHeartbeatAnswer
from tests.streaming.client.consumer_protocol.talk import FACTS, INTERVAL_MS, Talk, U, owned, says

# -- heartbeats --------------------------------------------------------------------------------------------------------


def test_a_join_has_all_fields(talk: Talk) -> None:
    """1.1: a member joins with epoch 0, and owns nothing."""
    talk = Talk(rack_id="north", server_assignor="range", client_id="ana", max_poll_interval_ms=7)
    talk.joins()
    assert says(talk.beat()) == {
        "client_id": "ana", "rack_id": "north", "server_assignor": "range", "rebalance_timeout_ms": 7,
        "subscribed_topic_names": ("t",), "subscribed_topic_regex": "", "topic_partitions": (), "topics": (FACTS["t"],),
    }  # fmt: skip
    assert (talk.member.state, talk.member.generation_id) == (State.JOINING, -1)


def test_a_member_joins_only_once_its_topics_are_known(talk: Talk) -> None:
    talk.member.subscribe()
    talk.take(talk.member.poll(0))
    assert talk.sent == []
    assert talk.member.deadline_ms == NEVER_MS


def test_an_assignment_is_acknowledged_after_it_was_reconciled(talk: Talk) -> None:
    """9.1: RECONCILING, ACKNOWLEDGING, STABLE; the acknowledgement has the owned partitions and nothing else."""
    talk.joins().hears(2, 0, 1)
    assert talk.effects == [AssignmentChanged()]
    assert (talk.member.state, talk.member.generation_id) == (State.RECONCILING, 2)
    talk.reconciles()
    assert says(talk.beat()) == {"member_epoch": 2, "topic_partitions": owned(0, 1)}
    assert talk.member.state is State.STABLE


def test_heartbeats_in_the_interval_say_only_what_has_changed(talk: Talk) -> None:
    talk.settled(0, 1).at(INTERVAL_MS - 1)
    assert talk.sent == []
    talk.at(INTERVAL_MS)
    assert says(talk.beat()) == {"member_epoch": 2}
    talk.hears_nothing_new(2).follows(Wanted(("t", "u"), facts={**FACTS, "u": TopicFact("u", U, 1)}))
    assert says(talk.beat()) == {
        "member_epoch": 2, "topic_partitions": owned(0, 1),
        "subscribed_topic_names": ("t", "u"), "subscribed_topic_regex": "",
        "topics": (FACTS["t"], TopicFact("u", U, 1)),
    }  # fmt: skip


def test_an_instance_id_is_in_every_heartbeat() -> None:
    talk = Talk(group_instance_id="i").settled(0).at(INTERVAL_MS)
    assert says(talk.beat()) == {"member_epoch": 2, "group_instance_id": "i"}


def test_a_heartbeat_without_a_response_is_followed_by_one_that_says_all(talk: Talk) -> None:
    """3.8: the lost response may have raised the epoch. Only the response to the last heartbeat counts."""
    talk.settled(0, 1).at(INTERVAL_MS)
    first = talk.beat()
    talk.at(2 * INTERVAL_MS)
    assert talk.beat().is_full
    assert talk.beat().topic_partitions == owned(0, 1)
    late = ConsumerGroupHeartbeatAnswer(request_id=first.request_id, member_epoch=3, heartbeat_interval_ms=INTERVAL_MS)
    talk.take(talk.member.receive(late, talk.now_ms))
    assert talk.member.epoch == 2
    talk.hears(3, 0)
    assert talk.member.epoch == 3


def test_the_time_between_unanswered_heartbeats_doubles_up_to_a_bound(talk: Talk) -> None:
    talk.settled(0)
    times = []
    while len(times) < 6:
        talk.now_ms = talk.member.deadline_ms
        talk.take(talk.member.poll(talk.now_ms))
        before = len(talk.sent)
        talk.take(talk.member.advance(talk.now_ms))
        times += [talk.now_ms // INTERVAL_MS] * (len(talk.sent) - before)
    assert times == [1, 2, 4, 8, 12, 16]


def test_a_silent_coordinator_is_reported_once(talk: Talk) -> None:
    talk.settled(0)
    for now_ms in range(0, 60_000, 1_000):
        talk.at(now_ms)
    assert talk.effects == [CoordinatorSilent(30_000)]


@pytest.mark.parametrize("error", ["COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"])
def test_a_retriable_error_is_retried_after_a_backoff_with_all_fields(talk: Talk, error: str) -> None:
    talk.settled(0).at(INTERVAL_MS).refused(ErrorCode[error])
    assert len(talk.sent) == 1
    talk.at(INTERVAL_MS + 200)
    assert talk.beat().is_full
    assert talk.beat().member_epoch == 2


# -- one of many heartbeats in a record --------------------------------------------------------------------------------


def test_a_member_at_rest_sends_bare_heartbeats_that_a_code_answers(talk: Talk) -> None:
    """The code has the meaning of a response with the same epoch, the same interval and no assignment."""
    talk.settled(0)
    for time in 1, 2, 3:
        talk.at(time * INTERVAL_MS)
        assert talk.beat().is_bare
        talk.hears_code(ErrorCode.NONE)
        assert talk.member.deadline_ms == (time + 1) * INTERVAL_MS
    assert (talk.member.state, talk.member.epoch, len(talk.sent), talk.effects) == (State.STABLE, 2, 3, [])


@pytest.mark.parametrize("pending", ["waiting", "revoking"])
def test_a_member_that_expects_a_change_sends_no_bare_heartbeat(talk: Talk, pending: str) -> None:
    talk.settled(0).at(INTERVAL_MS).hears(2, assigns=False, pending=pending).at(2 * INTERVAL_MS)
    assert says(talk.beat()) == {"member_epoch": 2, "topic_partitions": owned(0)}
    talk.hears_nothing_new(2).at(3 * INTERVAL_MS)
    assert talk.beat().is_bare


def test_a_member_that_reconciles_sends_no_bare_heartbeat(talk: Talk) -> None:
    talk.settled(0, 1).at(INTERVAL_MS).hears(3, 0).at(2 * INTERVAL_MS)
    assert talk.member.state is State.RECONCILING
    assert says(talk.beat()) == {"member_epoch": 3, "topic_partitions": owned(0, 1)}


def test_a_member_whose_group_asks_for_topics_sends_no_bare_heartbeat(talk: Talk) -> None:
    talk.settled(0).at(INTERVAL_MS).hears(2, assigns=False, ask=Ask(("u",))).hears(2, assigns=False, ask=Ask(("u",)))
    talk.at(2 * INTERVAL_MS)
    assert not talk.beat().is_bare


def test_a_refused_bare_heartbeat_is_followed_by_one_with_all_fields(talk: Talk) -> None:
    talk.settled(0).at(INTERVAL_MS).hears_code(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS).at(INTERVAL_MS + 200)
    assert talk.beat().is_full
    talk.hears(3, 0, 1).reconciles().hears_nothing_new(3).at(2 * INTERVAL_MS)
    assert says(talk.beat()) == {"member_epoch": 3}


def test_a_refusal_for_good_is_one_by_a_code_too(talk: Talk) -> None:
    talk.settled(0).at(INTERVAL_MS).hears_code(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert (talk.member.state, talk.member.deadline_ms) == (State.FATAL, NEVER_MS)


def test_heartbeats_are_sent_at_common_times() -> None:
    """At multiples of the interval by the wall clock, which is 1,300 ms ahead of the member's."""
    talk = Talk(moments_ms=1_300).settled(0).at(3_699)
    assert talk.sent == []
    talk.at(3_700).at(3_900).hears_nothing_new(2)
    assert talk.member.deadline_ms == 8_700
    talk.at(8_700).at(13_699).hears_nothing_new(2)
    assert talk.member.deadline_ms == 13_700
    talk.at(13_700).at(13_900).hears_nothing_new(2)
    assert (len(talk.sent), talk.member.deadline_ms) == (3, 18_700)


def test_a_heartbeat_after_a_late_response_is_sent_at_once() -> None:
    talk = Talk(moments_ms=1_300).settled(0).at(3_700)
    talk.now_ms = 8_701
    talk.hears_nothing_new(2)
    assert talk.member.deadline_ms == 8_701


# -- notices -----------------------------------------------------------------------------------------------------------


def test_a_notice_brings_a_heartbeat_at_once(talk: Talk) -> None:
    """10.7."""
    talk.settled(0).notified()
    assert says(talk.beat()) == {"member_epoch": 2, "topic_partitions": owned(0)}


def test_a_notice_during_a_heartbeat_brings_one_behind_its_response(talk: Talk) -> None:
    talk.settled(0).notified().notified()
    assert len(talk.sent) == 1
    talk.hears_nothing_new(2)
    assert len(talk.sent) == 2


def test_a_notice_for_another_member_is_ignored(talk: Talk) -> None:
    talk.settled(0)
    notice = AssignmentNotice(request_id=None, group_id="g", member_id="you", group_epoch=9)
    talk.take(talk.member.receive(notice, 0))
    assert talk.sent == []


# -- reconciliation ----------------------------------------------------------------------------------------------------


def test_a_newer_assignment_waits_until_the_present_one_is_reconciled(talk: Talk) -> None:
    """9.2: one at a time. Until then the member denies no partition of either."""
    talk.settled(0, 1).notified().hears(2, 0)
    first = talk.member.target
    talk.notified().hears(3, 0, 2)
    assert first is not None
    talk.take(talk.member.reconciled(first, 0))
    assert talk.beat().topic_partitions == owned(0, 2)
    assert talk.member.state is State.RECONCILING
    talk.hears_nothing_new(3).reconciles()
    assert (talk.member.state, talk.beat().topic_partitions) == (State.STABLE, owned(0, 2))


def test_a_reconciliation_of_an_earlier_membership_is_void(talk: Talk) -> None:
    talk.settled(0).notified().hears(2, 0, 1)
    target = talk.member.target
    assert target is not None
    talk.notified().refused(ErrorCode.UNKNOWN_MEMBER_ID)
    sent = len(talk.sent)
    talk.take(talk.member.reconciled(target, 0))
    assert (len(talk.sent), talk.member.state) == (sent, State.FENCED)


def test_an_assignment_that_is_repeated_changes_nothing(talk: Talk) -> None:
    talk.settled(0, 1).notified().hears(2, 0, 1, fencing_token=5)
    assert (talk.effects, talk.member.state) == ([], State.STABLE)


# -- the end of a membership -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND"])
def test_a_fenced_member_joins_again_once_its_partitions_are_released(talk: Talk, error: str) -> None:
    """9.2: all partitions are lost; the member keeps its id."""
    talk.settled(0, 1).notified().refused(ErrorCode[error])
    assert talk.effects == [PartitionsLost(f"the coordinator answered {error}")]
    assert (talk.member.state, talk.member.deadline_ms) == (State.FENCED, NEVER_MS)
    talk.take(talk.member.released(0))
    assert (talk.beat().member_id, talk.beat().member_epoch, talk.beat().topic_partitions) == ("me", 0, ())
    assert talk.beat().is_full


@pytest.mark.parametrize(
    "error",
    ["GROUP_AUTHORIZATION_FAILED", "INVALID_REQUEST", "GROUP_ID_NOT_FOUND", "GROUP_MAX_SIZE_REACHED",
     "UNRELEASED_INSTANCE_ID", "FENCED_INSTANCE_ID", "UNSUPPORTED_ASSIGNOR", "INVALID_REGULAR_EXPRESSION"],
)  # fmt: skip
def test_a_member_that_is_refused_for_good_joins_only_after_it_was_unsubscribed(talk: Talk, error: str) -> None:
    talk.joins().refused(ErrorCode[error], error_message="a sentence")
    assert talk.member.failed == Failed(ErrorCode[error].number, error, "a sentence")
    assert (talk.member.state, talk.member.deadline_ms) == (State.FATAL, NEVER_MS)
    talk.take(talk.member.released(0))
    talk.joins()
    assert len(talk.sent) == 1
    assert talk.member.leave("", 0) == []
    talk.joins()
    assert (len(talk.sent), talk.member.failed) == (2, None)


def test_a_topic_without_the_right_to_describe_it_is_reported_and_the_member_continues(talk: Talk) -> None:
    """9.2: 29."""
    talk.settled(0).notified().refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert talk.effects == [Failed(29, "TOPIC_AUTHORIZATION_FAILED", None)]
    assert talk.member.epoch == 2
    talk.at(INTERVAL_MS)
    assert talk.beat().is_full


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_a_member_leaves_and_a_static_one_goes_away(instance_id: str | None, epoch: int) -> None:
    talk = Talk(group_instance_id=instance_id).settled(0)
    talk.take(talk.member.leave("", 0))
    assert (talk.beat().member_epoch, talk.beat().group_instance_id) == (epoch, instance_id)
    assert talk.member.is_leaving
    talk.hears(epoch)
    assert talk.effects == [Left()]
    assert not talk.member.is_leaving
    assert talk.member.deadline_ms == NEVER_MS


def test_a_member_that_is_not_polled_leaves_and_joins_with_the_next_poll(talk: Talk) -> None:
    """9.1: STALE."""
    talk = Talk(max_poll_interval_ms=3_000).settled(0).at(3_000)
    assert talk.effects == [PartitionsLost("poll() was not called for 3000 ms")]
    assert (talk.beat().member_epoch, talk.member.state) == (-1, State.STALE)
    talk.take(talk.member.poll(9_000))
    talk.take(talk.member.released(9_000))
    assert (talk.beat().member_epoch, talk.member.state) == (0, State.JOINING)


def test_a_static_member_that_joins_again_goes_away_first() -> None:
    """3.5: else its own instance id counts as taken (111)."""
    talk = Talk(group_instance_id="i", request_timeout_ms=2_000).joins()
    talk.at(2_000)
    assert [each.member_epoch for each in talk.sent] == [0, -2, 0]
    talk.hears(2, 0).notified().refused(ErrorCode.FENCED_MEMBER_EPOCH)
    talk.take(talk.member.released(talk.now_ms))
    assert [each.member_epoch for each in talk.sent[-2:]] == [-2, 0]
