"""A member whose assignment fails, a static member, and a member of a coordinator that does not answer."""

from msgspec import structs

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.member.effects import CommitEnded, CoordinatorSilent, Failed, MakePlan, PartitionsLost, PrepareToJoin
from coordinator.member.member import MemberState
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import JoinGroup, SyncGroup
from coordinator.messages.responses import HeartbeatAnswer, JoinedMember, JoinGroupAnswer
from tests.coordinator.test_member import ME, PROTOCOLS, Alone, only

# -- failed assignments ------------------------------------------------------------------------------------------------


def test_failed_assignments_are_computed_again() -> None:
    alone = Alone()
    members = (JoinedMember("me-1", None, b""),)
    answer = JoinGroupAnswer(request_id=alone.joining().request_id, generation_id=1, protocol_type="work",
                             protocol_name="turns", leader="me-1", member_id="me-1", members=members)  # fmt: skip
    alone.hears(answer)
    assert alone.member.fail_to_plan(0, alone.now_ms) == []
    assert alone.member.fail_to_plan(1, alone.now_ms) == []
    again = only(JoinGroup, alone.passes(ME.retry_backoff_max_ms))
    assert (again.member_id, again.protocols) == ("me-1", PROTOCOLS)
    assert alone.hears(structs.replace(answer, request_id=again.request_id)) == [MakePlan(1, "turns", members)]
    assert only(SyncGroup, alone.member.plan(1, (), alone.now_ms))


# -- static members ----------------------------------------------------------------------------------------------------

STATIC = structs.replace(ME, group_instance_id="i1")


def test_a_static_member_sends_its_instance_id_with_every_request() -> None:
    """KIP-345: so another process with that instance id fences it."""
    asks = (Alone.joining, Alone.syncing, Alone.beating, Alone.committing)
    asked = [ask(Alone(STATIC)) for ask in asks]
    assert [request.group_instance_id for request in asked] == ["i1"] * 4  # type: ignore[attr-defined]


def test_a_static_member_leaves_by_silence() -> None:
    """S89, protocol.md 6.4: after close or missed polls it sends no heartbeats, and no leave request."""
    alone = Alone(STATIC).stable()
    assert alone.member.leave("consumer closed", 0) == []
    assert (alone.member.state, alone.member.deadline_ms) == (MemberState.UNJOINED, NEVER_MS)
    late = Alone(STATIC).stable()
    todos = late.passes(STATIC.max_poll_interval_ms)
    assert [type(t) for t in todos if not isinstance(t, CoordinatorSilent)] == [PartitionsLost]


def test_a_fence_stops_only_the_member_of_its_generation() -> None:
    """Protocol.md 6.2, 82 to a commit: fatal in the same generation; else only the commit has failed."""
    alone = Alone(STATIC)
    commit = alone.committing()
    todos = alone.refused(commit, ErrorCode.FENCED_INSTANCE_ID)
    assert [type(t) for t in todos] == [PartitionsLost, Failed, CommitEnded]
    other = Alone(STATIC)
    commit = other.committing()
    other.member.request_rejoin("for the test")
    other.stable()
    assert other.refused(commit, ErrorCode.FENCED_INSTANCE_ID) == [
        CommitEnded(commit.request_id, 82, "FENCED_INSTANCE_ID")
    ]


def test_a_leader_that_skips_the_assignment_syncs_at_once() -> None:
    """KIP-814: it gets the members, and the request to skip the assignment."""
    alone = Alone(STATIC)
    others = (JoinedMember("me-1", "i1", b""), JoinedMember("bo-1", None, b""))
    answer = JoinGroupAnswer(request_id=alone.joining().request_id, generation_id=3, protocol_type="work",
                             protocol_name="turns", leader="me-1", member_id="me-1", members=others,
                             skip_assignment=True)  # fmt: skip
    sync, lead = alone.hears(answer)
    assert isinstance(sync, SyncGroup)
    assert sync.assignments == ()
    assert lead == MakePlan(3, "turns", others, is_planned=True)


# -- a coordinator that does not answer --------------------------------------------------------------------------------


def test_silence_for_a_session_timeout_is_reported_once() -> None:
    """Protocol.md 6.3, session timer: the log keeps the heartbeats, so the member stays.

    Any response ends the silence.
    """
    alone = Alone().stable()
    silent = [t for _ in range(40) for t in alone.passes(3_000) if isinstance(t, CoordinatorSilent)]
    assert silent == [CoordinatorSilent(45_000)]
    assert alone.member.state is MemberState.STABLE
    (beat,) = [t for t in alone.passes(3_000) if isinstance(t, Heartbeat)]
    alone.hears(HeartbeatAnswer(request_id=beat.request_id))
    assert alone.passes(44_999)[0] != CoordinatorSilent(45_000)
    assert CoordinatorSilent(45_000) in alone.passes(1)


def test_a_member_that_leaves_before_its_join_does_not_join():
    """The owner's preparation may take long, and end after the member has left."""
    alone = Alone()
    alone.member.subscribe()
    assert alone.member.poll(0) == [PrepareToJoin("subscribed")]
    alone.member.leave("not any more", 1)
    assert alone.member.join(PROTOCOLS, 2) == []
    assert alone.member.state is MemberState.UNJOINED
