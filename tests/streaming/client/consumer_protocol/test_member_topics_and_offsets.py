"""The member's state machine alone: what it tells of topics, its commits and its fetches."""

from coordinator.base.errors import ErrorCode
from coordinator.member.consumer_config import Wanted
from coordinator.member.effects import CommitEnded, FetchEnded
from coordinator.messages.consumer_requests import GroupTopics, TopicFact
from coordinator.messages.requests import OffsetCommit, OffsetFetch, TopicPartitions
from coordinator.messages.responses import Ask, ErrorAnswer, GroupTopicsAnswer, OffsetCommitAnswer, OffsetFetchAnswer
from tests.streaming.client.consumer_protocol.talk import FACTS, P0, T, Talk, U, owned, says

# -- topics ------------------------------------------------------------------------------------------------------------


def news(talk: Talk) -> list[GroupTopics]:
    return [each for each in talk.sent if isinstance(each, GroupTopics)]


def test_a_group_is_told_of_topics_that_have_changed_until_it_answers(talk: Talk) -> None:
    talk = Talk(request_timeout_ms=2_000).settled(0)
    grown = TopicFact("t", T, 5)
    talk.follows(Wanted(("t",), facts={"t": grown}))
    assert [each.topics for each in news(talk)] == [(grown,)]
    talk.at(2_000)
    assert [each.topics for each in news(talk)] == [(grown,)] * 2
    talk.topics_told().follows(Wanted(("t",), facts={"t": grown})).at(4_000)
    assert len(news(talk)) == 2


def test_topics_are_told_again_if_the_coordinator_is_not_ready(talk: Talk) -> None:
    talk = Talk(request_timeout_ms=2_000).settled(0)
    talk.follows(Wanted(("t",), facts={"t": TopicFact("t", T, 5)}))
    for error, count in ((ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2), (ErrorCode.GROUP_ID_NOT_FOUND, 2)):
        answer = GroupTopicsAnswer(request_id=news(talk)[-1].request_id, code=error.number, error=error.name)
        talk.take(talk.member.receive(answer, talk.now_ms))
        talk.at(talk.now_ms + 2_000)
        assert len(news(talk)) == count


def test_a_member_tells_all_that_it_knows_once_it_has_joined(talk: Talk) -> None:
    """A heartbeat does not change what the group knows already."""
    talk.joins()
    assert news(talk) == []
    talk.hears(2, 0)
    assert [each.topics for each in news(talk)] == [(FACTS["t"],)]


def test_the_matches_of_a_pattern_are_told_when_they_change(talk: Talk) -> None:
    talk.joins(Wanted((), "t.*", ("t",), FACTS)).hears(2, 0).topics_told()
    assert talk.sent[0].subscribed_topic_regex == "t.*"
    assert talk.sent[0].regex_topics == ("t",)
    assert [each.regexes for each in news(talk)] == [()]
    more = TopicFact("t2", U, 1)
    talk.follows(Wanted((), "t.*", ("t", "t2"), {**FACTS, "t2": more}))
    request = news(talk)[-1]
    assert [(each.regex, each.topics, each.member_id) for each in request.regexes] == [("t.*", ("t", "t2"), "me")]
    assert request.topics == (more,)


def test_the_coordinator_is_answered_what_it_asks_for(talk: Talk) -> None:
    """10.2: a classic group is converted once the topics of its members are known."""
    talk.joins().refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ask=Ask(topics=("u",)))
    assert talk.member.requested_topics == {"u"}
    talk.follows(Wanted(("t",), facts={**FACTS, "u": TopicFact("u", U, 1)})).at(200)
    assert [fact.topic for fact in talk.beat().topics] == ["t", "u"]
    assert news(talk) == []


def test_a_repeated_ask_is_not_answered_at_once(talk: Talk) -> None:
    talk.settled(0).notified()
    for _ in range(3):
        talk.hears(2, assigns=False, ask=Ask(topics=("t",)))
    assert len(talk.sent) == 2


# -- offsets -----------------------------------------------------------------------------------------------------------


def commit(talk: Talk) -> str:
    ticket, todos = talk.member.commit(P0, talk.now_ms)
    talk.take(todos)
    return ticket


def answers_commit(talk: Talk, error: ErrorCode) -> None:
    request = next(each for each in reversed(talk.sent) if isinstance(each, OffsetCommit))
    answer = OffsetCommitAnswer(request_id=request.request_id, error=error.name, code=error.number)
    talk.take(talk.member.receive(answer, talk.now_ms))


def test_a_commit_carries_the_member_epoch(talk: Talk) -> None:
    talk.settled(0)
    ticket = commit(talk)
    assert (talk.sent[-1].generation_id, talk.sent[-1].member_id) == (2, "me")
    answers_commit(talk, ErrorCode.NONE)
    assert talk.effects == [CommitEnded(ticket, 0, "NONE")]


def test_a_commit_without_an_epoch_fails(talk: Talk) -> None:
    ticket = commit(talk)
    assert talk.effects == [CommitEnded(ticket, 25, "UNKNOWN_MEMBER_ID")]


def test_a_commit_with_a_stale_epoch_is_sent_again_while_its_partitions_are_owned(talk: Talk) -> None:
    """9.2: 113."""
    talk.settled(0)
    commit(talk)
    talk.notified().hears_nothing_new(3)
    answers_commit(talk, ErrorCode.STALE_MEMBER_EPOCH)
    assert talk.effects == []
    talk.at(200)
    again = [each for each in talk.sent if isinstance(each, OffsetCommit)]
    assert [each.generation_id for each in again] == [2, 3]


def test_a_commit_with_a_stale_epoch_fails_once_a_partition_was_given_up(talk: Talk) -> None:
    talk.settled(0, 1)
    ticket = commit(talk)
    talk.notified().hears(2, 1).reconciles().hears_nothing_new(3)
    answers_commit(talk, ErrorCode.STALE_MEMBER_EPOCH)
    assert talk.effects[-1] == CommitEnded(ticket, 113, "STALE_MEMBER_EPOCH")


def test_a_commit_of_an_unknown_member_fails_and_brings_a_heartbeat(talk: Talk) -> None:
    talk.settled(0)
    ticket = commit(talk)
    answers_commit(talk, ErrorCode.UNKNOWN_MEMBER_ID)
    assert talk.effects == [CommitEnded(ticket, 25, "UNKNOWN_MEMBER_ID")]
    assert says(talk.beat()) == {"member_epoch": 2, "topic_partitions": owned(0)}


def test_a_fetch_carries_the_member_epoch_and_is_sent_again_with_the_newest(talk: Talk) -> None:
    """6.2."""
    talk.settled(0)
    ticket, todos = talk.member.fetch((TopicPartitions("t", (0,)),), 0)
    talk.take(todos)
    asked = talk.sent[-1]
    assert (asked.generation_id, asked.member_id) == (2, "me")
    talk.take(talk.member.receive(ErrorAnswer(request_id=asked.request_id, code=113, error="STALE_MEMBER_EPOCH"), 0))
    talk.hears_nothing_new(3).at(200)
    asked = next(each for each in reversed(talk.sent) if isinstance(each, OffsetFetch))
    assert asked.generation_id == 3
    talk.take(talk.member.receive(OffsetFetchAnswer(request_id=asked.request_id), 200))
    assert talk.effects == [FetchEnded(ticket, 0, "NONE")]


def test_a_fetch_without_an_epoch_has_no_member_id(talk: Talk) -> None:
    _, todos = talk.member.fetch(None, 0)
    talk.take(todos)
    assert (talk.sent[0].generation_id, talk.sent[0].member_id) == (-1, None)
