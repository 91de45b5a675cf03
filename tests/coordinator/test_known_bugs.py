"""Real bugs of group coordinators, put into the core on purpose. The named checker must find each of them.

promises.md, section 4. A seed is a scenario, and the bug as a small change to the core. Without the bug the scenario
passes. With it the named checker of `invariants` raises, or the scenario's own expectations do. So the checkers are
tested. Invented bugs at the end test the other checkers.

Bugs outside the core are not here: etcd #14370 (an acknowledged write lost in a crash) concerns the checkpoint, F8.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Phase
from coordinator.classic import checks, decisions, join, leave, rebalance
from coordinator.common import offsets
from coordinator.common.handler import unless
from coordinator.member import member, requests
from coordinator.member.effects import CommitEnded
from coordinator.messages.events import MemberFenced
from coordinator.messages.group_records import Published
from coordinator.messages.outputs import Output
from coordinator.messages.requests import JoinGroup, OffsetCommit, OffsetFetch, OffsetToCommit, SyncGroup
from coordinator.messages.responses import HeartbeatAnswer, JoinedMember, Reply
from coordinator.shard.handlers import HANDLERS
from coordinator.shard.shard import Shard
from coordinator.state import codec, hot_state_codec
from coordinator.state import store as group_store
from coordinator.state.classic_group import Group, HotState
from coordinator.state.group import Offset, Session
from tests.coordinator.scenario import Scenario
from tests.coordinator.test_member import Alone

SCENARIO = "the scenario"


class Seed(NamedTuple):
    """A bug.

    Args:
        scenario: The requests, and the expected responses.
        bug: Puts the bug into the core.
        seen_by: The checker that finds it, or the scenario itself.
    """

    scenario: Callable[[], Any]
    bug: Callable[[pytest.MonkeyPatch], None]
    seen_by: str


SEEDS: dict[str, Seed] = {}


def seed(name: str, bug: Callable[[pytest.MonkeyPatch], None], seen_by: str) -> Callable[[Callable[[], Any]], None]:
    """Register a scenario as the seed of a bug."""

    def keep(scenario: Callable[[], Any]) -> None:
        SEEDS[name] = Seed(scenario, bug, seen_by)

    return keep


def change_row(patch: pytest.MonkeyPatch, request: type[msgspec.Struct], **columns: Any) -> None:
    """Change columns of the row of a request kind."""
    patch.setitem(HANDLERS, request, msgspec.structs.replace(HANDLERS[request], **columns))


# -- requests that replace each other ----------------------------------------------------------------------------------


def _forgets_superseded_joins(patch: pytest.MonkeyPatch) -> None:
    def park(group: Group, joining: Any, asked: Any) -> Iterator[Output]:
        group.joins_parked += joining.awaiting_join is None
        joining.awaiting_join = asked
        yield from ()

    patch.setattr(join, "_park_join", park)


@seed("KAFKA-20938, joins", _forgets_superseded_joins, "EachRequestIsAnsweredOnce")
def _joins_twice() -> None:
    """A retried join replaces the parked one, which is never answered."""
    s = Scenario.stable("c1", "c2").join("c1").is_parked().join("c1").is_parked().join("c2")
    s.is_("CompletingRebalance", generation=3)


def _forgets_superseded_syncs(patch: pytest.MonkeyPatch) -> None:
    def park(group: Group, syncing: Any, request: SyncGroup) -> Iterator[Output]:
        syncing.awaiting_sync = join.Parked(request.request_id, request.reply_to)
        group.settle_sync(syncing)
        yield from ()

    patch.setattr(join, "_park_sync", park)


@seed("KAFKA-20938, syncs", _forgets_superseded_syncs, "EachRequestIsAnsweredOnce")
def _syncs_twice() -> None:
    """A retried sync replaces the parked one, which is never answered."""
    Scenario.joined("c1", "c2").sync("c2").is_parked().sync("c2").is_parked().sync("c1").is_("Stable")


def _treats_every_join_as_a_new_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(join, "_made_by", lambda *_: None)


@seed("KAFKA-20985, repeats", _treats_every_join_as_a_new_one, SCENARIO)
def _is_delivered_twice() -> None:
    """A static member is fenced by its own join, which the log holds twice."""
    s = Scenario(delay_ms=3_000).join("c1", group_instance_id="i1")
    s.send("c1", s.last_request("c1", JoinGroup)).is_parked()
    s.until(3_000).hears(ErrorCode.NONE, member_id=s.ids["c1"])
    s.sync("c1", group_instance_id="i1").hears(ErrorCode.NONE)
    s.send("c1", s.last_request("c1", JoinGroup)).heartbeat("c1", group_instance_id="i1").hears(ErrorCode.NONE)


def _fences_a_parked_member(patch: pytest.MonkeyPatch) -> None:
    def fence(old: Any, asked: Any) -> Iterator[Output]:
        if old.awaiting_join:
            yield join.refuse_join(old.awaiting_join, ErrorCode.FENCED_INSTANCE_ID, old.member_id)
        elif old.awaiting_sync:
            yield join.refuse_sync(old.awaiting_sync, ErrorCode.FENCED_INSTANCE_ID)

    patch.setattr(join, "_fence", fence)


@seed("KAFKA-20985, abandoned joins", _fences_a_parked_member, SCENARIO)
def _retries_in_a_stall() -> None:
    """After a stall of 15 s the abandoned join is answered first, then the new one: one process, so no fence."""
    s = Scenario(delay_ms=3_000).away().join("c1", group_instance_id="i1")
    abandoned = s.latest_request_id
    s.at(10_000).join("c1", group_instance_id="i1").back(15_000).is_parked()
    assert [answer.error for answer in s.answers[abandoned]] == ["REBALANCE_IN_PROGRESS"]
    s.until(30_000).hears(ErrorCode.NONE)


def _keeps_the_generation_of_a_restarted_member(patch: pytest.MonkeyPatch) -> None:
    replace = join._replace

    def in_place(
        group: Group, old: Any, request: Any, asked: Any, now_ms: int, config: Any, member_id: str
    ) -> Iterator[Output]:
        if group.phase is not Phase.COMPLETING:
            yield from replace(group, old, request, asked, now_ms, config, member_id)
            return
        new = join._member(request, member_id)
        new.is_new, new.fencing_token = False, group.next_token(now_ms, 0)
        group.replace(old, new, Session(group.hot_state.wait(now_ms, 10_000), 10_000))
        yield from join._fence(old, asked)
        replaced_by = {"replaced_by": member_id, "replaced_by_client_id": "c2", "replaced_by_client_host": ""}
        token = {"fencing_token": new.fencing_token}
        yield join.member_event(MemberFenced, group, old, now_ms, **replaced_by, **token)
        yield Reply(asked.reply_to, join.joined(group, new, request.request_id))

    patch.setattr(join, "_replace", in_place)


@seed("KAFKA-9801", _keeps_the_generation_of_a_restarted_member, SCENARIO)
def _restarts_in_completing() -> None:
    """A static member restarts in CompletingRebalance; the assignment is for its old id, the new id owns nothing."""
    s = Scenario().join("c1").join("c2", group_instance_id="i2").join("c1").is_("CompletingRebalance")
    s.join("c2", member_id="", group_instance_id="i2", reply_to="another inbox")
    s.sync("c1", plan={"c1": {"t": [0]}, "c2": {"t": [1]}})
    if s.said.error == "REBALANCE_IN_PROGRESS":
        s.join("c1").sync("c1", plan={"c1": {"t": [0]}, "c2#2": {"t": [1]}})
    s.sync("c2#2", group_instance_id="i2").hears(ErrorCode.NONE)
    assert s.said.assignment, "owns the assignment of its instance id"


def _adds_newcomers_at_once(patch: pytest.MonkeyPatch) -> None:
    def without_asking(group: Group, request: JoinGroup, context: Context) -> Iterator[Output]:
        return join.join(group, msgspec.structs.replace(request, require_known_member_id=False), context)

    change_row(patch, JoinGroup, handler=without_asking)


@seed("KIP-394", _adds_newcomers_at_once, SCENARIO)
def _loses_the_reply_to_its_first_join() -> None:
    """Retried joins without a member id leak phantom members, and every round waits for them."""
    s = Scenario.stable("c1", session_timeout_ms=30_000)
    for _ in range(3):
        s.join("c2", member_id="", require_known_member_id=True)
    s.join("c2").join("c1", session_timeout_ms=30_000).until(10_000)
    s.is_("CompletingRebalance", generation=2, members="c1 c2")


# -- commits -----------------------------------------------------------------------------------------------------------


def _accepts_every_commit(patch: pytest.MonkeyPatch) -> None:
    change_row(patch, OffsetCommit, of_the_group=())


@seed("librdkafka #2631", _accepts_every_commit, "TheGoneStayOut")
def _commits_after_it_was_expelled() -> None:
    """An expelled member continues to consume and to commit for three days."""
    s = Scenario.stable("c1", "c2").at(9_000).heartbeat("c1").until(10_000)
    for day in (1, 2, 3):
        s.at(day * 3_600_000 * 24).commit("c2", {("t", 1): day})


def _judges_commits_by_the_member_alone(patch: pytest.MonkeyPatch) -> None:
    lenient = unless(checks.is_from_outside, *checks.of_hot_state(checks.is_a_member), checks.commits_are_taken)
    change_row(patch, OffsetCommit, of_the_group=lenient)


@seed("Iceberg connect #17551", _judges_commits_by_the_member_alone, "CommitsAreFenced")
def _commits_for_an_earlier_generation() -> None:
    """A commit from before a rebalance rewinds the new owner's commit."""
    s = Scenario.stable("c1", "c2").join("c1").join("c2").sync("c1", plan={"c1": {"t": [0, 1]}}).sync("c2")
    s.commit("c1", {("t", 1): 50}).hears(ErrorCode.NONE)
    s.commit("c2", {("t", 1): 5}, generation_id=2).fetch("c1", {"t": [1]})
    assert [f.offset for f in s.said.partitions] == [50]


def _reads_old_offsets(patch: pytest.MonkeyPatch) -> None:
    def lagging(group: Group | None, request: OffsetFetch, context: Context) -> Iterator[Output]:
        if group:
            known = group.offsets
            seen = {
                t: {p: o for p, o in ps.items() if o.commit_timestamp_ms < group.hot_state.now_ms}
                for t, ps in known.items()
            }
            group = msgspec.structs.replace(group, offsets=seen)
        return offsets.fetch(group, request, context)

    change_row(patch, OffsetFetch, handler=lagging)


@seed("SeaweedFS, a fetch right after a commit", _reads_old_offsets, "CommitsAreKept")
def _reads_its_own_commit() -> None:
    """An offset fetch right after a commit returns -1, and consumers start again at 0."""
    s = Scenario.stable("c1").commit("c1", {("t", 0): 5}).fetch("c1", {"t": [0]})
    assert [f.offset for f in s.said.partitions] == [5]


def _commits_in_every_state(patch: pytest.MonkeyPatch) -> None:
    def commit(self: Any, asked: tuple[OffsetToCommit, ...], now_ms: int) -> tuple[str, list[Any]]:
        ticket = self._calls.next_id()
        return ticket, self._call(requests.commit(self, ticket, asked), now_ms)

    patch.setattr(member.Member, "commit", commit)


@seed("librdkafka #5585", _commits_in_every_state, SCENARIO)
def _commits_for_an_assignment_that_it_lost() -> None:
    """A client sends a commit for an assignment that it has already lost."""
    alone = Alone()
    beat = alone.beating()
    lost = HeartbeatAnswer(request_id=beat.request_id, error="UNKNOWN_MEMBER_ID", code=25)
    alone.hears(lost)
    ticket, todos = alone.member.commit((OffsetToCommit("t", 0, 1),), alone.now_ms)
    assert todos == [CommitEnded(ticket, 25, "UNKNOWN_MEMBER_ID")]


# -- state that is read back -------------------------------------------------------------------------------------------


def _on_reading(patch: pytest.MonkeyPatch, change: Callable[[Group], None]) -> None:
    """Change every group while its shard is decoded, and only then."""
    read = codec.decode_shard

    def otherwise(data: bytes) -> codec.ShardSnapshot:
        kept = read(data)
        for group_id, stored in kept.groups.items():
            group = codec.decode_group(stored)
            change(group)
            rest = codec.encode_rest(group)
            hot_state = hot_state_codec.encode_hot_state(group.hot_state, rest)
            kept.groups[group_id] = msgspec.structs.replace(stored, rest=rest, hot_state=hot_state)
        return kept

    patch.setattr(codec, "decode_shard", otherwise)


def _resolves_keys_otherwise_when_replayed(patch: pytest.MonkeyPatch) -> None:
    def by_partition_alone(group: Group) -> None:
        latest: dict[int, Offset] = {p: offset for _, p, offset in group.all_offsets()}
        group.offsets = {t: {p: latest[p] for p in partitions} for t, partitions in group.offsets.items()}

    _on_reading(patch, by_partition_alone)


@seed("Redpanda #31483", _resolves_keys_otherwise_when_replayed, "Scenario")
def _restarts_between_two_fetches() -> None:
    """Live state and a replay of the log use different keys: committed offsets change with a restart."""
    s = Scenario.stable("c1").commit("c1", {("t", 0): 5, ("u", 0): 7}).fetch("c1")
    assert [(f.topic, f.offset) for f in s.said.partitions] == [("t", 5), ("u", 7)]


def _counts_retention_from_the_reload(patch: pytest.MonkeyPatch) -> None:
    def forget_when_it_emptied(group: Group) -> None:
        group.since_ms = 0

    _on_reading(patch, forget_when_it_emptied)


@seed("KAFKA-8069", _counts_retention_from_the_reload, "Scenario")
def _is_decoded_while_empty() -> None:
    """Offsets expire early after a reload, which has lost the time since which the group is Empty."""
    s = Scenario.stable("c1", session_timeout_ms=100_000, offsets_retention_ms=60_000).commit("c1", {("t", 0): 5})
    s.at(50_000).leave("c1").at(70_000).commit_from_outside("tool", {("u", 0): 1}).fetch("tool")
    assert [f.topic for f in s.said.partitions] == ["t", "u"]
    s.until(109_999).fetch("tool")
    assert [f.topic for f in s.said.partitions] == ["t", "u"]
    s.until(110_000).is_gone()


# -- waits and tables --------------------------------------------------------------------------------------------------


def _waits_for_joins_without_a_deadline(patch: pytest.MonkeyPatch) -> None:
    prepare = rebalance.prepare

    def without_a_deadline(group: Group, *rest: Any) -> Iterator[Output]:
        yield from prepare(group, *rest)
        if group.phase is Phase.PREPARING:
            group.hot_state.joins_ms = NEVER_MS

    for module in (rebalance, leave):
        patch.setattr(module, "prepare", without_a_deadline)


@seed("Redpanda #3300", _waits_for_joins_without_a_deadline, "NothingWaitsForEver")
def _all_members_vanish_in_a_rebalance() -> None:
    """A group stays in PreparingRebalance after all members stop: a parked join stops its member's session."""
    s = Scenario.stable("c1", "c2").join("c1").is_parked().until(10_000).is_("CompletingRebalance", members="c1")
    s.until(60_000).is_("Empty")


def _joins_keys_to_strings(patch: pytest.MonkeyPatch) -> None:
    # Joined by hyphens, and split again at the first one.
    store = offsets._store

    def joined(*arguments: Any) -> Published:
        published = store(*arguments)
        kind, group_id, topic, partition = published.key
        return msgspec.structs.replace(published, key=(kind, group_id, f"{topic}-{partition}".split("-")[0], partition))

    patch.setattr(offsets, "_store", joined)


@seed("Kafka's joined timer keys", _joins_keys_to_strings, "CommitsAreKept")
def _names_that_look_alike() -> None:
    """`a` + `-` + `b-c` is `a-b` + `-` + `c`: keys that are joined strings collide. This project's keys are tuples."""
    s = Scenario().commit_from_outside("tool", {("t", 0): 1, ("t-0", 0): 2, ("t-0-0", 0): 3}).fetch("tool")
    assert [(f.topic, f.offset) for f in s.said.partitions] == [("t", 1), ("t-0", 2), ("t-0-0", 3)]
    assert len({published.key for published in s.published()}) == 4


def _follows_the_comment(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(decisions.HEARTBEAT, Phase.COMPLETING, ErrorCode.REBALANCE_IN_PROGRESS)


@seed("Kafka's comments on heartbeats", _follows_the_comment, "AnswersFitTheGroup")
def _heartbeats_in_completing() -> None:
    """The comment names REBALANCE_IN_PROGRESS in CompletingRebalance, the code NONE.

    A table that runs has one of them.
    """
    Scenario.joined("c1", "c2").heartbeat("c2").hears(ErrorCode.NONE)


# -- bugs for the other checkers ---------------------------------------------------------------------------------------


def _keeps_no_tombstones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group_store, "REMOVED_GROUPS_MAX", 0)


@seed("a group that is created again starts with generation 1", _keeps_no_tombstones, "GenerationsGrow")
def _is_created_again() -> None:
    """As in Kafka itself: a member of the first group may then commit in the second (I2)."""
    Scenario.stable("c1").leave("c1").delete().join("c1", member_id="").is_("CompletingRebalance", generation=3)


def _loses_count_of_parked_joins(patch: pytest.MonkeyPatch) -> None:
    take_out = Group._remove

    def without_counting(self: Group, leaving: Any) -> None:
        parked = self.joins_parked
        take_out(self, leaving)
        self.joins_parked = parked

    patch.setattr(Group, "_remove", without_counting)


@seed("a join round completes without a member that left", _loses_count_of_parked_joins, "PhasesAreLegal")
def _leaves_while_its_join_is_parked() -> None:
    """The counts beside the members must agree with the members (I3)."""
    Scenario.stable("c1", "c2").join("c3").leave("c3").join("c1").is_("PreparingRebalance")


def _sends_all_members_to_followers(patch: pytest.MonkeyPatch) -> None:
    joined = rebalance.joined

    def openly(group: Group, joining: Any, request_id: str) -> Any:
        answer = joined(group, joining, request_id)
        everyone = (JoinedMember(joining.member_id, None, b""),)
        return msgspec.structs.replace(answer, members=answer.members or everyone)

    patch.setattr(rebalance, "joined", openly)


@seed("followers receive the list of members", _sends_all_members_to_followers, "GenerationsAreAgreed")
def _follows() -> None:
    """Ids are bearer tokens: only the leader needs them (I4)."""
    Scenario.stable("c1", "c2")


def _answers_the_wrong_mailbox(patch: pytest.MonkeyPatch) -> None:
    refuse_join = join.refuse_join

    def astray(parked: Any, error: ErrorCode, member_id: str = "") -> Reply:
        return msgspec.structs.replace(refuse_join(parked, error, member_id), to="c2's inbox")

    patch.setattr(join, "refuse_join", astray)


@seed("a response goes to another mailbox", _answers_the_wrong_mailbox, "RepliesFitTheirRequests")
def _joins_from_another_mailbox() -> None:
    """A response goes to the mailbox of its request, whichever request comes next (I5)."""
    Scenario.stable("c1", "c2").join("c1", reply_to="old inbox").join("c1", reply_to="new inbox")


def _skips_a_version(patch: pytest.MonkeyPatch) -> None:
    next_version = Group.next_version
    patch.setattr(Group, "next_version", lambda self: max(next_version(self), next_version(self)))


@seed("a version is skipped", _skips_a_version, "VersionsHaveNoGap")
def _publishes() -> None:
    """A reader treats a gap as a loss (I8)."""
    Scenario.stable("c1")


def _ends_sessions_early(patch: pytest.MonkeyPatch) -> None:
    wait = HotState.wait
    patch.setattr(HotState, "wait", lambda self, now_ms, wait_ms: wait(self, now_ms, wait_ms * 9 // 10))


@seed("sessions are rounded down", _ends_sessions_early, "SessionsAreKept")
def _falls_silent() -> None:
    """A session ends late or on time, and never early (I10)."""
    s = Scenario.stable("c1", "c2").at(5_000).heartbeat("c1").heartbeat("c2").at(9_000).heartbeat("c1")
    s.until(14_999).is_("Stable").until(15_000).is_("PreparingRebalance", members="c1")


def _trusts_the_logs_time(patch: pytest.MonkeyPatch) -> None:
    handle = Shard._handle

    def at_its_own_time(self: Shard, kind: Any, subject: Any, request: Any, received: Any, _: int) -> Iterator[Output]:
        if isinstance(subject, Group):
            subject.hot_state.now_ms = received.at_ms
        return handle(self, kind, subject, request, received, received.at_ms)

    patch.setattr(Shard, "_handle", at_its_own_time)


@seed("a broker's clock goes back", _trusts_the_logs_time, "TimeNeverGoesBack")
def _has_an_earlier_time() -> None:
    """A group's time never goes back, whatever the times in the log (I12)."""
    s = Scenario.stable("c1").at(5_000).join("c2").at(1_000).join("c1")
    assert s.group.since_ms == 5_000


# -- an earlier design of fencing tokens -------------------------------------------------------------------------------


def _uses_the_generation_as_token(patch: pytest.MonkeyPatch) -> None:
    def the_generation(self: Group, now_ms: int, floor: int) -> int:
        self.token = self.generation_id
        return self.token

    patch.setattr(Group, "next_token", the_generation)


@seed("a static member's new process shows the token of the old one", _uses_the_generation_as_token, "TokensGrow")
def _restarts_in_stable() -> None:
    """A store that keeps the highest token accepts both processes as the owner."""
    s = Scenario().join("c1", group_instance_id="i1").sync("c1", plan={"c1": {"t": [0]}})
    s.join("c1", member_id="", group_instance_id="i1", reply_to="another inbox")


@seed("a group that comes back shows tokens of its first life", _uses_the_generation_as_token, "TokensGrow")
def _is_forgotten_for_more_than_a_day() -> None:
    """A store that keeps the highest token refuses every worker from then on."""
    s = Scenario()
    for name in ("c1", "c2"):
        s.join(name).sync(name, plan={name: {"t": [0]}}).leave(name).until(s.now_ms + 51 * 3_600_000)


# -- the test ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SEEDS)
def test_the_scenario_of_a_bug_passes(name: str):
    """Without the bug, the scenario passes."""
    SEEDS[name].scenario()


@pytest.mark.parametrize("name", SEEDS)
def test_the_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch):
    """With the bug, the named checker raises."""
    scenario, bug, seen_by = SEEDS[name]
    bug(monkeypatch)
    with pytest.raises(AssertionError) as raised:
        scenario()
    last = raised.traceback[-1]
    is_expectation = last.name in (scenario.__name__, "hears", "is_", "is_parked", "is_gone", "said")
    assert (SCENARIO if is_expectation else type(last.frame.f_locals.get("self")).__name__) == seen_by
