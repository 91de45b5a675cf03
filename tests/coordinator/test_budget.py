"""The bounds of a shard's outputs: for each request, group and step, and for repeated records (I22)."""

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.base import limits
from coordinator.base.config import Config
from coordinator.base.errors import ErrorCode
from coordinator.base.policies import Policy, Settle
from coordinator.messages.events import MemberExpired, MemberFenced
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.outputs import Output, size_of
from coordinator.messages.requests import (
    Assignment,
    DescribeGroup,
    JoinGroup,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    RebalanceGroup,
    Received,
    Request,
    SetPolicies,
    SettleTransactions,
    SyncGroup,
    TopicPartitions,
)
from coordinator.messages.responses import ErrorAnswer, Reply
from coordinator.shard import budget as limits_of_the_step
from coordinator.shard.budget import Budget
from coordinator.shard.shard import Shard
from coordinator.state import codec
from coordinator.state import group as group_parts
from coordinator.state.group import Allowance
from tests.coordinator.reports import report
from tests.coordinator.scenario import Scenario
from tests.coordinator.test_transactions import pend_from_outside
from tests.coordinator.waking import wake

CONFIG = Config(group_initial_rebalance_delay_ms=0)
LOAD = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.number
KIB, MIB = 2**10, 2**20


class Log:
    """One shard, its requests, and all its outputs. Each step begins with the requests that the last step deferred."""

    def __init__(self, config: Config = CONFIG) -> None:
        self.shard, self.config = Shard(0, 1, bytes(16), config), config
        self.now_ms, self.offset = 1_000_000, 0
        self.left: list[Received] = []
        self.outputs: list[Output] = []
        self.steps: list[list[Output]] = []

    def step(self, *requests: Request, size_bytes: int = 0) -> list[Output]:
        log = list(self.left)
        for request in requests:
            self.offset += 1
            log.append(Received(self.offset, self.now_ms, request, None, size_bytes))
        outputs = self.shard.step(log or [wake(self.now_ms)], self.now_ms)
        self.left = list(self.shard.deferred)
        self.outputs += outputs
        self.steps.append(outputs)
        self.shard = Shard(0, 1, bytes(16), self.config, self.shard.to_bytes())
        return outputs

    def drain(self) -> None:
        """Run steps until no request is deferred."""
        while self.left:
            before = len(self.left)
            self.step()
            assert len(self.left) < before, "a step handled no request"


OUTSIDE: dict[str, Any] = {"member_id": "", "generation_id": -1}
NOBODY: dict[str, Any] = {"member_id": "nobody", "generation_id": 1}


def asked(kind: type[Any], number: object, group_id: str = "g", **fields: Any) -> Any:
    return kind(request_id=f"{kind.__name__} {number}", reply_to="in", group_id=group_id, **fields)


def joining(number: object, metadata: bytes, group_id: str = "g", member_id: str = "", **fields: Any) -> Any:
    fields.setdefault("rebalance_timeout_ms", 60_000)
    return asked(
        JoinGroup, number, group_id, member_id=member_id, session_timeout_ms=1_800_000, protocol_type="x",
        protocols=(Protocol("p", metadata),), require_known_member_id=False, **fields,
    )  # fmt: skip


def group_of(
    log: Log, members: int, metadata: bytes, group_id: str = "g", assigned: bytes = b"", **fields: Any
) -> None:
    """Make a Stable group of static members, `i0`, `i1` and so on."""
    names = [f"i{n}" for n in range(members)]
    log.step(*(joining(f"{group_id} {name}", metadata, group_id, group_instance_id=name, **fields) for name in names))
    log.drain()
    ids = log.shard.group(group_id).hot_state.instances
    rejoins = (
        joining(f"{group_id} once more {name}", metadata, group_id, ids[name], group_instance_id=name, **fields)
        for name in names
        if not log.shard.group(group_id).members[ids[name]].awaiting_join
    )
    log.step(*rejoins)
    log.drain()
    group = log.shard.group(group_id)
    assert group.phase.value == "CompletingRebalance"
    plan = tuple(Assignment(member_id, assigned) for member_id in group.members)
    brings = {"member_id": group.leader_id, "generation_id": group.generation_id, "assignments": plan}
    log.step(asked(SyncGroup, f"{group_id} leader", group_id, **brings))
    log.drain()
    assert log.shard.group(group_id).phase.value == "Stable"


def bytes_of(outputs: list[Output]) -> int:
    return sum(map(size_of, outputs))


def codes(outputs: list[Output], kind: str) -> list[int]:
    return [o.answer.code for o in outputs if isinstance(o, Reply) and str(o.answer.request_id).startswith(kind)]


# -- a shard's step ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def heavy() -> bytes:
    """The state of a shard with a group of 20 members with 256 KiB of metadata each, as in the issue's example."""
    log = Log()
    group_of(log, 20, bytes(256 * KIB))
    return log.shard.to_bytes()


def of(state: bytes) -> Log:
    log = Log()
    log.now_ms += 3_600_000  # the used allowance is restored
    log.shard = Shard(0, 1, bytes(16), CONFIG, state)
    return log


def test_small_requests_with_large_responses_are_bounded(heavy: bytes):
    """S22: of 300 descriptions of 7 MB each in one batch some are answered, and the rest is refused."""
    log = of(heavy)
    log.step(*(asked(DescribeGroup, n) for n in range(300)), size_bytes=122)
    log.drain()
    said = codes(log.outputs, "DescribeGroup")
    assert len(said) == 300
    assert set(said) == {0, LOAD}
    assert 1 <= said.count(0) <= limits.ANSWER_BYTES_BURST // (6 * MIB) + 1
    for outputs in log.steps:
        assert bytes_of(outputs) <= limits.STEP_BYTES_MAX + limits.RECORD_BYTES_MAX


def test_a_replay_refuses_the_same_requests(heavy: bytes):
    """I17: the log's time decides which requests are refused, and not the cuts between batches."""
    answers = []
    for size in (1, 7, 100):
        log = of(heavy)
        requests = [asked(DescribeGroup, n) for n in range(30)]
        for begin in range(0, 30, size):
            log.step(*requests[begin : begin + size])
            log.drain()
        answers.append([(o.answer.request_id, o.answer.code) for o in log.outputs if isinstance(o, Reply)])
    assert answers[0] == answers[1] == answers[2]


def test_a_refused_request_succeeds_some_seconds_later(heavy: bytes):
    log = of(heavy)
    log.step(*(asked(DescribeGroup, n) for n in range(10)))
    log.drain()
    assert codes(log.outputs, "DescribeGroup")[-1] == LOAD
    log.now_ms += 1_000 * limits.ANSWER_BYTES_BURST // limits.ANSWER_BYTES_PER_S
    assert codes(log.step(asked(DescribeGroup, "later")), "DescribeGroup later") == [0]


def test_only_fetches_of_all_offsets_use_the_allowance():
    """A client that fetches all offsets must not keep the members from theirs."""
    log = Log()
    offsets = [OffsetToCommit("t", n, n, -1, "m" * 4_000) for n in range(1_500)]
    for begin in (0, 500, 1_000):
        log.step(asked(OffsetCommit, begin, offsets=tuple(offsets[begin : begin + 500]), **OUTSIDE))
    log.step(*(asked(OffsetFetch, f"all {n}", topics=None) for n in range(40)))
    log.drain()
    assert set(codes(log.outputs, "OffsetFetch all")) == {0, LOAD}
    log.step(asked(OffsetFetch, "mine", topics=(TopicPartitions("t", (7,)),)))
    assert codes(log.outputs, "OffsetFetch mine") == [0]


def test_listings_have_an_allowance():
    log = Log()
    one = (OffsetToCommit("t", 0, 1),)
    log.step(*(asked(OffsetCommit, n, f"{n:0>200}", offsets=one, **OUTSIDE) for n in range(2_000)))
    log.drain()
    log.step(*(asked(ListGroups, n, "") for n in range(100)))
    log.drain()
    assert set(codes(log.outputs, "ListGroups")) == {0, LOAD}
    assert max(map(bytes_of, log.steps)) <= limits.STEP_BYTES_MAX + limits.RECORD_BYTES_MAX


def test_restarts_of_a_leader_use_the_allowance():
    """The response to a leader's join contains the metadata of all members."""
    log = Log()
    group_of(log, 16, bytes(256 * KIB))
    group = log.shard.group("g")
    leader = group.members[group.leader_id]
    log.now_ms += 600_000
    rejoins = [joining(f"again {n}", bytes(256 * KIB), group_instance_id=leader.group_instance_id) for n in range(40)]
    log.step(*rejoins)
    log.drain()
    assert set(codes(log.outputs, "JoinGroup again")) == {0, LOAD}
    assert max(map(bytes_of, log.steps)) <= limits.STEP_BYTES_MAX + 2 * limits.RECORD_BYTES_MAX


def test_an_allowance_is_restored_over_time_up_to_its_size():
    used = Allowance().with_answer(limits.ANSWER_BYTES_BURST, 1_000)
    assert used.left_at(1_000) == 0
    assert used.left_at(2_000) == limits.ANSWER_BYTES_PER_S
    assert used.left_at(10**9) == limits.ANSWER_BYTES_BURST
    assert used.left_at(0) == 0, "time that goes back restores no allowance"
    assert Allowance().with_answer(limits.ANSWER_BYTES_FREE, 0) == Allowance(), "small responses use no allowance"


# -- deferred requests -------------------------------------------------------------------------------------------------


def test_a_group_with_large_outputs_does_not_delay_others(heavy: bytes, monkeypatch: pytest.MonkeyPatch):
    """I19, I22: its requests wait for the next step, in order; those of other groups are answered at once."""
    monkeypatch.setattr(limits_of_the_step, "GROUP_STEP_BYTES_MAX", MIB)
    log = of(heavy)
    log.step(
        asked(DescribeGroup, 0),
        asked(Heartbeat, 1, **NOBODY),
        asked(Heartbeat, 2, "h", **NOBODY),
        asked(DescribeGroup, 3),
    )
    assert [o.answer.request_id for o in log.steps[0] if isinstance(o, Reply)] == ["DescribeGroup 0", "Heartbeat 2"]
    assert [r.request.request_id for r in log.left] == ["Heartbeat 1", "DescribeGroup 3"]
    log.drain()
    said = [o.answer.request_id for o in log.outputs if isinstance(o, Reply)]
    assert said == ["DescribeGroup 0", "Heartbeat 2", "Heartbeat 1", "DescribeGroup 3"]


def test_time_does_not_pass_for_a_group_with_deferred_requests(monkeypatch: pytest.MonkeyPatch):
    """I10: a heartbeat that waits for the next step keeps its member alive."""
    monkeypatch.setattr(limits_of_the_step, "GROUP_STEP_BYTES_MAX", 1)
    s = Scenario.stable("ana", session_timeout_ms=10_000)
    beat = Heartbeat(request_id="b", reply_to="in", group_id="g", generation_id=1, member_id=s.ids["ana"])
    shard = s.new_shard(s.shard.to_bytes())
    log = [Received(50, 9_000, asked(DescribeGroup, 0)), Received(51, 9_500, beat), wake(30_000, 52)]
    outputs = shard.step(log, 30_000)
    assert [r.offset for r in shard.deferred] == [51]
    assert shard.due_in_ms == 0
    outputs += shard.step(shard.deferred, 30_000)
    (answer,) = (o.answer for o in outputs if isinstance(o, Reply) and o.answer.request_id == "b")
    assert answer.code == 0


def test_deferred_requests_keep_the_time_of_their_records(monkeypatch: pytest.MonkeyPatch):
    """I17: the log continues in between, and this does not count as a clock that goes back."""
    monkeypatch.setattr(limits_of_the_step, "GROUP_STEP_BYTES_MAX", 1)
    s = Scenario.stable("ana", "bo", session_timeout_ms=10_000)
    beat = Heartbeat(request_id="b", reply_to="in", group_id="g", generation_id=2, member_id=s.ids["ana"])
    shard = s.new_shard(s.shard.to_bytes())
    shard.step([Received(50, 5_000, asked(DescribeGroup, 0)), Received(51, 5_000, beat), wake(9_000, 52)], 9_000)
    again = s.new_shard(shard.to_bytes())
    again.step(shard.deferred, 9_500)
    assert again.group("g").hot_state.sessions[s.ids["ana"]].deadline_ms == 15_000


def test_requests_beyond_the_bound_of_deferred_ones_are_refused(heavy: bytes, monkeypatch: pytest.MonkeyPatch):
    """I22: requests up to the bound wait, further ones are refused; every request is answered."""
    monkeypatch.setattr(limits_of_the_step, "STEP_BYTES_MAX", MIB)
    size_bytes = limits.DEFERRED_BYTES_MAX // 4
    log = of(heavy)
    log.step(asked(DescribeGroup, "first"))
    monkeypatch.setattr(limits_of_the_step, "STEP_BYTES_PER_BYTE", 0)
    log.step(*(asked(DescribeGroup, n) for n in range(6)), size_bytes=size_bytes)
    assert [r.request.request_id for r in log.left] == [f"DescribeGroup {n}" for n in range(1, 5)]
    assert codes(log.steps[-1], "DescribeGroup 5") == [LOAD]
    log.drain()
    assert len(codes(log.outputs, "DescribeGroup")) == 7


def test_a_commit_is_never_deferred():
    """A commit's response and records are as large as the request, so a commit never waits for the next step."""
    budget = Budget()
    reply = [Reply("in", ErrorAnswer(request_id="r", error_message="m" * 1_000))]
    budget.spend("g", reply * 100_000, limits.STEP_BYTES_PER_BYTE * 100_000 * 300)
    assert not budget.is_tight


# -- many members together ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [400, 1_600])
def test_restarts_of_static_members_are_published_at_a_bounded_rate(members: int):
    """KIP-345: the group is published at a bounded rate, not once for each member; the last record is right."""
    log = Log()
    group_of(log, members, b"subscription", assigned=b"t" * 50)
    begun, restart_ms = len(log.outputs), log.now_ms
    for tenth in range(10):
        log.now_ms = restart_ms + 100 * tenth
        back = range(tenth * members // 10, (tenth + 1) * members // 10)
        log.step(*(joining(f"back {n}", b"subscription", group_instance_id=f"i{n}") for n in back))
    outputs = log.outputs[begun:]
    assert sum(isinstance(output, MemberFenced) for output in outputs) == members
    assert codes(outputs, "JoinGroup back") == [0] * members
    published = [o for o in outputs if isinstance(o, Published)]
    assert bytes_of(published) <= 2 * limits.PUBLISH_BYTES_PER_S
    log.now_ms += 60_000
    (last,) = (o.record for o in log.step() if isinstance(o, Published))
    assert isinstance(last, GroupRecord)
    assert [m.member_id for m in last.members] == list(log.shard.group("g").members)


def test_a_round_without_joins_does_not_start_again_every_millisecond():
    """I22: a static member with a rebalance timeout of 1 ms stays away."""
    log = Log()
    group_of(log, 1, b"x", rebalance_timeout_ms=1)
    log.step(asked(RebalanceGroup, 0, reason=None))
    begun = log.now_ms
    rounds = 0
    while log.now_ms < begun + 60_000:
        log.now_ms = max(log.now_ms + 1, log.shard.next_deadline_ms + CONFIG.clock_slack_ms)
        log.step()
        rounds += 1
    assert rounds <= 60


# -- a group -----------------------------------------------------------------------------------------------------------


def test_metadata_of_a_group_is_bounded():
    """I22: all members are accepted up to the bound, further ones get GROUP_MAX_SIZE_REACHED."""
    log = Log()
    chunk = limits.PROTOCOL_METADATA_BYTES_MAX
    fitting = limits.GROUP_PROTOCOLS_BYTES_MAX // chunk
    log.step(*(joining(n, bytes(chunk), group_instance_id=f"i{n}") for n in range(fitting)))
    log.drain()
    log.step(joining("one more", b"x", group_instance_id="more"))
    log.drain()
    assert codes(log.outputs, "JoinGroup one more") == [ErrorCode.GROUP_MAX_SIZE_REACHED.number]
    group = log.shard.group("g")
    assert group.protocols_bytes == limits.GROUP_PROTOCOLS_BYTES_MAX
    assert len(group.members) == fitting


def test_offsets_of_a_group_are_bounded(monkeypatch: pytest.MonkeyPatch):
    """I22: stored offsets may be overwritten; new ones are refused, partition by partition."""
    monkeypatch.setattr(group_parts, "OFFSETS_PER_GROUP_MAX", 3)
    s = Scenario().commit_from_outside("tool", {("t", 0): 1, ("t", 1): 1, ("u", 0): 1})
    s.commit_from_outside("tool", {("u", 0): 2, ("v", 0): 2}).hears(ErrorCode.NONE)
    (answer,) = (o.answer for o in s.latest if isinstance(o, Reply))
    assert [p.error for p in answer.partitions] == ["NONE", "INVALID_COMMIT_OFFSET_SIZE"]
    assert s.group.offsets_count == 3
    s.delete_offsets("tool", {"t": [0]}).commit_from_outside("tool", {("v", 0): 3})
    assert s.group.offsets["v"][0].offset == 3


def test_a_listing_decodes_no_group(monkeypatch: pytest.MonkeyPatch):
    """A listing once decoded 5,000 groups."""
    log = Log()
    group_of(log, 2, b"x", "g")
    log.step(asked(OffsetCommit, 0, "h", offsets=(OffsetToCommit("t", 0, 1),), **OUTSIDE))
    monkeypatch.setattr(codec, "decode_rest", None)
    (answer,) = (o.answer for o in log.step(asked(ListGroups, 0, "")) if isinstance(o, Reply))
    assert [(g.group_id, g.protocol_type, g.state.value) for g in answer.groups] == [
        ("g", "x", "Stable"),
        ("h", "", "Empty"),
    ]


# -- time --------------------------------------------------------------------------------------------------------------


def of_its_own(s: Scenario) -> Request:
    return asked(SettleTransactions, 1, **report(s.shard, 11, [10]))


def of_another_group(s: Scenario) -> Request:
    pend_from_outside(s, 20, {("t", 0): 8}, group_id="other")
    return asked(SettleTransactions, 1, **report(s.shard, 21, [20], still=[10]))


def policies(s: Scenario) -> Request:
    return asked(SetPolicies, 1, "", made_ms=s.now_ms, policies=(Policy(name="g", settle=Settle()),))


@pytest.mark.parametrize("later", [of_its_own, of_another_group, policies])
def test_no_time_passes_for_a_group_whose_earlier_requests_wait(
    later: Callable[[Scenario], Request], monkeypatch: pytest.MonkeyPatch
):
    """Its members have sent their heartbeats in time. A request about other groups too does not overtake them."""
    s = Scenario.stable("c1", "c2", session_timeout_ms=10_000)
    pend_from_outside(s, 10, {("t", 0): 8})
    request, now_ms = later(s), s.now_ms
    monkeypatch.setattr(limits_of_the_step, "GROUP_STEP_BYTES_MAX", 1)
    monkeypatch.setattr(limits_of_the_step, "STEP_BYTES_PER_BYTE", 0)
    in_time = [
        asked(Heartbeat, name, member_id=s.ids[name], generation_id=s.generations[name]) for name in ("c1", "c2")
    ]
    log = [Received(101, now_ms + 9_000, asked(DescribeGroup, 1))]
    log += [Received(102 + n, now_ms + 9_500, heartbeat) for n, heartbeat in enumerate(in_time)]
    log.append(Received(104, now_ms + 10_500, request))
    outputs = s.shard.step(log, now_ms + 11_000)
    assert s.shard.deferred
    while s.shard.deferred:
        outputs += s.shard.step(s.shard.deferred, now_ms + 11_000)
    assert codes(outputs, "Heartbeat") == [0, 0]
    assert not [output for output in outputs if isinstance(output, MemberExpired)]
