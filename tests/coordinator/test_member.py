"""One member, with the test as its coordinator: its reactions to each response, time and call of its owner."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from msgspec import structs

from coordinator.base.errors import ErrorCode
from coordinator.member.effects import Assigned, CommitEnded, Failed, FetchEnded, MakePlan, PartitionsLost, RejoinNeeded
from coordinator.member.member import ON_ERROR, RETRY, STOP, Action, ErrorAction, Member, MemberState, action
from coordinator.member.pending_requests import UNANSWERED_HEARTBEATS_MAX
from coordinator.member.requests import MemberConfig
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
    Assignment,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    Request,
    SyncGroup,
)
from coordinator.messages.responses import (
    AnyAnswer,
    CommittedPartition,
    ErrorAnswer,
    HeartbeatAnswer,
    JoinedMember,
    JoinGroupAnswer,
    OffsetCommitAnswer,
    OffsetFetchAnswer,
    RebalanceNotice,
    SyncGroupAnswer,
)

T = TypeVar("T")
PROTOCOLS = (Protocol("turns", b"everything"),)
NONE = ErrorCode.NONE
ME = MemberConfig(group_id="g", reply_to="inbox", client_id="me", protocol_type="work")


class Alone:
    """One member whose coordinator is this test."""

    def __init__(self, config: MemberConfig = ME) -> None:
        self.now_ms = 0
        self.generation_id = 0
        self.member = Member(config, "r", 0)

    def joining(self) -> JoinGroup:
        self.member.subscribe()
        self.member.poll(self.now_ms)
        return only(JoinGroup, self.member.join(PROTOCOLS, self.now_ms))

    def syncing(self) -> SyncGroup:
        self.generation_id += 1
        return only(
            SyncGroup,
            self.hears(
                JoinGroupAnswer(
                    request_id=self.joining().request_id,
                    generation_id=self.generation_id,
                    protocol_type="work",
                    protocol_name="turns",
                    leader="another",
                    member_id="me-1",
                )
            ),
        )

    def stable(self) -> "Alone":
        self.hears(SyncGroupAnswer(request_id=self.syncing().request_id, protocol_type="work", protocol_name="turns"))
        assert self.member.state is MemberState.STABLE
        return self

    def beating(self) -> Heartbeat:
        self.stable()
        self.now_ms += self.member.config.heartbeat_interval_ms
        return only(Heartbeat, self.member.advance(self.now_ms))

    def committing(self) -> OffsetCommit:
        self.stable()
        return only(OffsetCommit, self.member.commit((OffsetToCommit("t", 0, 1),), self.now_ms)[1])

    def fetching(self) -> OffsetFetch:
        self.stable()
        return only(OffsetFetch, self.member.fetch(None, self.now_ms)[1])

    def hears(self, answer: AnyAnswer) -> list[Action]:
        return self.member.receive(answer, self.now_ms)

    def refused(self, request: Request, error: ErrorCode) -> list[Action]:
        made, _ = _ANSWERS[type(request)]
        more = {"member_id": "me-2"} if error is ErrorCode.MEMBER_ID_REQUIRED and isinstance(request, JoinGroup) else {}
        return self.hears(made(request_id=request.request_id, error=error.name, code=error.number, **more))

    def passes(self, wait_ms: int) -> list[Action]:
        self.now_ms += wait_ms
        return self.member.advance(self.now_ms)


_ANSWERS: dict[type, tuple[Callable[..., AnyAnswer], Callable[[Alone], Request]]] = {
    JoinGroup: (JoinGroupAnswer, Alone.joining),
    SyncGroup: (SyncGroupAnswer, Alone.syncing),
    Heartbeat: (HeartbeatAnswer, Alone.beating),
    OffsetCommit: (OffsetCommitAnswer, Alone.committing),
    OffsetFetch: (OffsetFetchAnswer, Alone.fetching),
}


def only(kind: type[T], todos: Sequence[Action]) -> T:
    (todo,) = todos
    assert isinstance(todo, kind)
    return todo


def outcome(alone: Alone, todos: list[Action]) -> ErrorAction:
    """Return the member's reaction to an error, in the words of the table."""
    member = alone.member
    if any(isinstance(t, Failed) for t in todos):
        return ErrorAction.STOP
    if any(isinstance(t, PartitionsLost) for t in todos):
        return ErrorAction.NEW_GENERATION if member.member_id else ErrorAction.NEW_MEMBER
    if any(isinstance(t, JoinGroup) for t in todos):
        return ErrorAction.ADOPT_ID if member.member_id == "me-2" else ErrorAction.REJOIN
    if any(isinstance(t, RejoinNeeded) for t in todos):
        return ErrorAction.REJOIN
    if any(isinstance(t, CommitEnded | FetchEnded) for t in todos):
        return ErrorAction.REPORT
    assert not todos
    again = alone.passes(ME.retry_backoff_max_ms)
    return (
        ErrorAction.REJOIN_LATER if isinstance(again[0], JoinGroup) and member.generation_id == 1 else ErrorAction.RETRY
    )


@pytest.mark.parametrize("asked", _ANSWERS)
@pytest.mark.parametrize("error", [e for e in ErrorCode if e is not NONE])
def test_each_error_of_the_table_has_its_effect(asked: type, error: ErrorCode) -> None:
    """Protocol.md 6.2, every cell; an error outside the table stops the member, or is returned to the caller."""
    alone = Alone()
    request = _ANSWERS[asked][1](alone)
    assert outcome(alone, alone.refused(request, error)) is action(asked, error.number)


def test_the_table_is_kafkas() -> None:
    """A few cells of protocol.md 6.2, so that an error in the table does not confirm itself."""
    assert ON_ERROR[SyncGroup, 22] is ErrorAction.NEW_GENERATION
    assert ON_ERROR[Heartbeat, 25] is ErrorAction.NEW_MEMBER
    assert ON_ERROR[JoinGroup, 79] is ErrorAction.ADOPT_ID
    assert ON_ERROR[SyncGroup, 16] is ErrorAction.REJOIN_LATER
    assert ON_ERROR[OffsetCommit, 27] is ErrorAction.REJOIN
    membership = (JoinGroup, SyncGroup, Heartbeat)
    assert {action(asked, code) for asked in membership for code in (23, 24, 26, 30, 35, 81, 82)} == {ErrorAction.STOP}
    assert (action(OffsetCommit, 82), action(OffsetCommit, 7), action(OffsetFetch, 88)) == (STOP, RETRY, RETRY)
    assert {action(asked, code) for asked in (OffsetCommit, OffsetFetch) for code in (24, 28, 29, 30)} == {
        ErrorAction.REPORT
    }
    assert {action(asked, 12) for asked in (OffsetCommit, OffsetFetch)} == {ErrorAction.REPORT}


def test_an_unanswered_request_is_sent_again_unchanged() -> None:
    """So the coordinator recognizes a parked request, and does not answer it as superseded."""
    alone = Alone()
    request = alone.syncing()
    assert request not in alone.passes(ME.request_timeout_ms - 1)
    assert request in alone.passes(1)


def test_a_refused_request_is_retried_under_a_new_id_without_the_owner() -> None:
    alone = Alone()
    request = alone.committing()
    assert alone.refused(request, ErrorCode.COORDINATOR_NOT_AVAILABLE) == []
    again = only(OffsetCommit, alone.passes(ME.retry_backoff_ms * 2))
    assert again.request_id != request.request_id
    ended = only(CommitEnded, alone.hears(OffsetCommitAnswer(request_id=again.request_id)))
    assert ended == CommitEnded(request.request_id, 0, "NONE")


def test_backoffs_grow_to_their_bound_and_differ_between_members() -> None:
    alone, waits_ms = Alone(), []
    request: Request = alone.joining()
    for _ in range(8):
        alone.refused(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        waits_ms.append(alone.member.deadline_ms - alone.now_ms)
        request = only(JoinGroup, alone.passes(waits_ms[-1]))
    bounds_ms = (100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000)
    for wait_ms, bound_ms in zip(waits_ms, bounds_ms, strict=True):
        assert bound_ms * 4 // 5 <= wait_ms <= bound_ms * 6 // 5
    assert len(set(waits_ms[4:])) > 1


def test_an_old_commit_is_not_sent_again_after_a_newer_one() -> None:
    """Offsets do not go back, whichever of the two commits the coordinator stored last."""
    alone = Alone()
    first = alone.committing()
    second = only(OffsetCommit, alone.member.commit((OffsetToCommit("t", 0, 2),), alone.now_ms)[1])
    alone.hears(OffsetCommitAnswer(request_id=second.request_id))
    todos = [t for t in alone.passes(ME.request_timeout_ms) if not isinstance(t, Heartbeat)]
    assert only(CommitEnded, todos) == CommitEnded(first.request_id, 15, "COORDINATOR_NOT_AVAILABLE")


def test_a_response_for_an_earlier_generation_is_ignored() -> None:
    """S114, protocol.md 6.2: "if generation unchanged ... else ignore"."""
    alone = Alone()
    beat = alone.beating()
    commit = only(OffsetCommit, alone.member.commit((OffsetToCommit("t", 0, 1),), alone.now_ms)[1])
    alone.member.request_rejoin("for the test")
    alone.stable()
    assert alone.refused(beat, ErrorCode.UNKNOWN_MEMBER_ID) == []
    assert alone.refused(commit, ErrorCode.UNKNOWN_MEMBER_ID) == [
        CommitEnded(commit.request_id, 25, "UNKNOWN_MEMBER_ID")
    ]
    assert (alone.member.state, alone.member.generation_id) == (MemberState.STABLE, 2)


def test_a_notice_for_another_generation_or_member_is_ignored() -> None:
    alone = Alone().stable()
    notice = RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id="me-1")
    for field_name, value in (("group_id", "h"), ("generation_id", 0), ("member_id", "me-0")):
        other = {"group_id": "g", "generation_id": 1, "member_id": "me-1", field_name: value}
        assert alone.hears(RebalanceNotice(request_id=None, **other)) == []  # type: ignore[arg-type]
    assert alone.hears(notice) == [RejoinNeeded("group is already rebalancing")]
    assert alone.hears(notice) == []


def test_heartbeats_keep_their_interval_despite_late_responses() -> None:
    """Each heartbeat renews the session at the time at which it was appended to the log, answered or not."""
    alone = Alone().stable()
    sent_ms = []
    for _ in range(3):
        alone.now_ms = alone.member.deadline_ms
        sent_ms += [alone.now_ms for t in alone.member.advance(alone.now_ms) if isinstance(t, Heartbeat)]
    assert sent_ms == [3_000, 6_000, 9_000]


def test_unanswered_heartbeats_of_a_long_outage_are_not_stored() -> None:
    alone = Alone().stable()
    beats = [t for _ in range(2 * UNANSWERED_HEARTBEATS_MAX) for t in alone.passes(3_000) if isinstance(t, Heartbeat)]
    alone.member.poll(alone.now_ms)
    assert alone.refused(beats[0], ErrorCode.UNKNOWN_MEMBER_ID) == []
    assert [type(t) for t in alone.refused(beats[-1], ErrorCode.UNKNOWN_MEMBER_ID)] == [PartitionsLost]


def test_no_heartbeat_before_the_join_is_answered() -> None:
    """S119, protocol.md 6.1: a member sends no heartbeat before its join is answered."""
    alone = Alone()
    alone.joining()
    assert [t for t in alone.passes(20_000) if isinstance(t, Heartbeat)] == []


def test_a_heartbeats_rebalance_error_is_ignored_while_a_sync_is_open() -> None:
    """Protocol.md 6.2, Heartbeat 27: only in STABLE."""
    alone = Alone()
    alone.syncing()
    beat = only(Heartbeat, alone.passes(ME.heartbeat_interval_ms))
    assert alone.refused(beat, ErrorCode.REBALANCE_IN_PROGRESS) == []


def test_a_leaders_assignments_are_void_after_a_new_join() -> None:
    alone = Alone()
    others = (JoinedMember("me-1", None, b""), JoinedMember("bo-1", None, b""))
    answer = JoinGroupAnswer(request_id=alone.joining().request_id, generation_id=3, protocol_type="work",
                             protocol_name="turns", leader="me-1", member_id="me-1", members=others)  # fmt: skip
    assert alone.hears(answer) == [MakePlan(3, "turns", others)]
    assert alone.member.plan(2, (), 0) == []
    plan = (Assignment("me-1", b"0"), Assignment("bo-1", b"1"))
    assert only(SyncGroup, alone.member.plan(3, plan, 0)).assignments == plan


def test_a_generation_of_another_type_is_refused() -> None:
    """Protocol.md 6.1: else 23, fatal."""
    alone = Alone()
    answer = JoinGroupAnswer(request_id=alone.joining().request_id, generation_id=1, protocol_type="connect")
    assert Failed(23, "INCONSISTENT_GROUP_PROTOCOL", "the group is of type connect") in alone.hears(answer)


def test_an_invalid_request_has_a_clear_error() -> None:
    alone = Alone()
    answer = ErrorAnswer(request_id=alone.joining().request_id, error="INVALID_REQUEST", code=42,
                                  error_message="Expected `int` - at `session_timeout_ms`")  # fmt: skip
    assert Failed(42, "INVALID_REQUEST", "Expected `int` - at `session_timeout_ms`") in alone.hears(answer)


def test_a_commit_fails_with_the_error_of_a_refused_partition() -> None:
    alone = Alone()
    answer = OffsetCommitAnswer(
        request_id=alone.committing().request_id,
        partitions=(CommittedPartition("t", 0, "OFFSET_METADATA_TOO_LARGE", 12),),
    )
    assert only(CommitEnded, alone.hears(answer)).code == 12


def test_a_cancelled_commit_or_fetch_has_no_result() -> None:
    alone = Alone()
    commit = alone.committing()
    _, (fetch,) = alone.member.fetch(None, alone.now_ms)
    for asked, answer in ((commit, OffsetCommitAnswer), (fetch, OffsetFetchAnswer)):
        alone.member.give_up(asked.request_id)
        assert alone.hears(answer(request_id=asked.request_id)) == []


def test_an_assignment_of_another_protocol_is_refused() -> None:
    """Protocol.md 6.1: the protocol of the sync's response must be that of the join's."""
    alone = Alone()
    answer = SyncGroupAnswer(request_id=alone.syncing().request_id, protocol_type="work", protocol_name="dice")
    assert Failed(23, "INCONSISTENT_GROUP_PROTOCOL", "the assignment is for ('work', 'dice')") in alone.hears(answer)


@pytest.mark.parametrize("given", [1_790_000_000_000_000, 0])
def test_an_assignment_has_the_token_of_the_response(given: int) -> None:
    """design.md 17: 0 before the member was given a partition."""
    alone = Alone()
    answer = SyncGroupAnswer(request_id=alone.syncing().request_id, protocol_type="work", protocol_name="turns")
    (assigned,) = alone.hears(structs.replace(answer, fencing_token=given))
    assert isinstance(assigned, Assigned)
    assert assigned.fencing_token == given


def test_a_retriable_partition_retries_the_whole_commit() -> None:
    """Protocol.md 6.2: under a new id, after a backoff; the owner gets only the result of the last try."""
    alone = Alone()
    first = alone.committing()
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    partition = CommittedPartition("t", 0, error.name, error.number)
    assert alone.hears(OffsetCommitAnswer(request_id=first.request_id, partitions=(partition,))) == []
    second = only(OffsetCommit, alone.passes(200))
    assert (second.offsets, second.request_id != first.request_id) == (first.offsets, True)
    ended = only(CommitEnded, alone.hears(OffsetCommitAnswer(request_id=second.request_id)))
    assert (ended.ticket, ended.code) == (first.request_id, 0)


def test_a_fetch_with_a_fatal_error_ends_with_that_error() -> None:
    alone = Alone()
    asked = alone.fetching()
    assert alone.refused(asked, ErrorCode.INVALID_GROUP_ID) == [FetchEnded(asked.request_id, 24, "INVALID_GROUP_ID")]


def test_a_commit_of_an_earlier_generation_ends_with_its_error() -> None:
    """Protocol.md 6.2: it is refused for its generation, while the member joins the next one."""
    alone = Alone()
    asked = alone.committing()
    for again in (alone.stable, alone.joining):
        alone.member.request_rejoin("for the test")
        again()
    assert alone.refused(asked, ErrorCode.ILLEGAL_GENERATION) == [
        CommitEnded(asked.request_id, 27, "REBALANCE_IN_PROGRESS")
    ]
