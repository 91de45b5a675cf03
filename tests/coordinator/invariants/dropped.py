"""I9 to I11, I21: members are dropped for a reason, and members with such a reason are dropped."""

from collections import defaultdict

from coordinator.base.config import Config
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.messages.events import MemberExpired, MemberFenced, MemberJoined
from coordinator.messages.outputs import Output
from coordinator.messages.requests import ExpelMember, JoinGroup, LeaveGroup, SyncGroup
from coordinator.messages.responses import HeartbeatAnswer, JoinGroupAnswer, OffsetCommitAnswer, Reply, SyncGroupAnswer
from coordinator.state.classic_group import Group
from tests.coordinator.invariants.step import GONE, NONE, REBALANCE_IN_PROGRESS, Asker, KnownRequests, Step, forgotten

MemberKey = tuple[str | None, str]

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID.number
METADATA_TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE.number
"""The error of one partition; the commit as a whole was accepted."""


class SessionsEnd:
    """I10: a session is prolonged only by requests that count, and once by an outage of the coordinator."""

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.known: dict[str, tuple[int, dict[str, tuple[int, bool]]]] = {}
        """By group: its generation, and for each member the deadline and whether it was extended."""

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        counted = self._counted(step)
        for group_id, group in (step.groups or {}).items():
            generation_id, known = self.known.get(group_id, (None, {}))
            if generation_id == group.generation_id:
                self._compare(group, known, counted)
            sessions = group.hot_state.sessions.items()
            self.known[group_id] = group.generation_id, {m: (s.deadline_ms, s.extended) for m, s in sessions}

    def _counted(self, step: Step) -> set[MemberKey]:
        counted = set[MemberKey]()
        for output in step.outputs:
            if isinstance(output, Reply):
                answer = output.answer
                if isinstance(answer, HeartbeatAnswer):
                    counts = answer.code in (NONE, REBALANCE_IN_PROGRESS)
                elif isinstance(answer, OffsetCommitAnswer):
                    counts = any(p.code in (NONE, METADATA_TOO_LARGE) for p in answer.partitions)
                elif isinstance(answer, JoinGroupAnswer):
                    counts = self.asked.has_policies and answer.code == NONE  # it may be seated by its join
                else:
                    counts = isinstance(answer, SyncGroupAnswer)
                if counts:
                    request = self.asked.by(output)
                    counted.add((request.group_id, request.member_id))
            elif isinstance(output, MemberJoined):
                counted.add((output.group_id, output.member_id))
        return counted

    @staticmethod
    def _compare(group: Group, known: dict[str, tuple[int, bool]], counted: set[MemberKey]) -> None:
        for member_id, session in group.hot_state.sessions.items():
            if member_id not in known or session.deadline_ms >= NEVER_MS:
                continue
            deadline_ms, extended = known[member_id]
            is_extended_now = session.extended and not extended
            if session.deadline_ms > deadline_ms and not is_extended_now:
                assert (group.group_id, member_id) in counted, f"{member_id} sent no request, and its session is longer"


class NobodyIsDroppedUnheard:
    """I9, I11: a member that did its part is not dropped for others, and a static member may be restarting.

    A member with a parked request gets the response to it just before the event of its end.
    """

    def __init__(self, config: Config, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.config = config
        self.heard: set[MemberKey] = set()
        """Members that have completed a round."""
        self.synced: dict[MemberKey, int] = {}
        """The latest generation in which a member got its assignment."""

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        before: Output | None = None
        for output in step.news:
            if isinstance(output, MemberExpired):
                self._dropped(output, before, step)
            if isinstance(output, MemberFenced):
                self.heard.add((output.group_id, output.replaced_by))
            if isinstance(output, GONE):
                self.heard.discard((output.group_id, output.member_id))
            elif isinstance(output, Reply) and isinstance(output.answer, JoinGroupAnswer) and not output.answer.code:
                self.heard.add((self.asked.by(output).group_id, output.answer.member_id))
            elif isinstance(output, Reply) and isinstance(output.answer, SyncGroupAnswer) and not output.answer.code:
                request = self.asked.by(output)
                self.synced[request.group_id, request.member_id] = request.generation_id
            before = output

    def _dropped(self, told: MemberExpired, before: Output | None, step: Step) -> None:
        refused = type(before.answer) if before is not None and self._is_refused(before, told) else None
        if told.why == "joins_overdue":
            assert refused is not JoinGroupAnswer, f"its join had arrived: {told}"
            assert told.group_instance_id is None, f"it may be restarting: {told}"
        elif told.why == "syncs_overdue":
            has_synced = self.synced.get((told.group_id, told.member_id)) == told.generation_id
            assert refused is not SyncGroupAnswer, f"its sync had arrived: {told}"
            assert not has_synced, f"it had its assignment: {told}"
        elif told.why == "session_expired":
            is_waiting = refused in (JoinGroupAnswer, SyncGroupAnswer)
            assert not (is_waiting and (told.group_id, told.member_id) in self.heard), (
                f"it was waiting for other members: {told}"
            )
            if step.has_honest_clocks and told.silence_ms is not None:
                late_ms = step.now_ms - told.at_ms
                assert late_ms <= self.config.late_notice_ms, f"{late_ms} ms ago: {told}"
                group = (step.groups or {}).get(told.group_id) or step.consumer_groups.get(told.group_id)
                spared_ms = 0 if group is None else group.hot_state.back_ms + told.silence_ms
                assert told.at_ms >= spared_ms, f"it could not reach the coordinator for a part of its session: {told}"

    def _is_refused(self, output: Output, told: MemberExpired) -> bool:
        """Check whether an output refuses the parked request of a member."""
        if not isinstance(output, Reply) or output.answer.code != UNKNOWN:
            return False
        request = self.asked.by(output)
        if not isinstance(request, JoinGroup | SyncGroup) or request.group_id != told.group_id:
            return False
        if request.group_instance_id != told.group_instance_id:
            return False
        return request.member_id == told.member_id or (not request.member_id and told.group_instance_id is not None)


class PendingIdsAreGood:
    """KIP-394: an id from MEMBER_ID_REQUIRED is accepted within its session timeout."""

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.until_ms: dict[MemberKey, int] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for _, request in step.requests:
            if isinstance(request, LeaveGroup):
                for entry in request.members:
                    self.until_ms.pop((request.group_id, entry.member_id), None)
            elif isinstance(request, ExpelMember):
                self.until_ms.pop((request.group_id, request.member_id), None)
        times_ms: defaultdict[Asker, list[int]] = defaultdict(list)
        for received, request in step.requests:
            times_ms[request.reply_to or "", request.request_id].append(step.at_ms(received))
        for output in step.news:
            if isinstance(output, MemberJoined):
                self.until_ms.pop((output.group_id, output.member_id), None)
            elif forgotten(output):
                self.until_ms = {key: ms for key, ms in self.until_ms.items() if key[0] != output.group_id}
            elif isinstance(output, Reply) and isinstance(output.answer, JoinGroupAnswer) and output.answer.code:
                self._refused(
                    self.asked.by(output),
                    output.answer,
                    times_ms[output.to, output.answer.request_id],
                    is_honest=step.has_honest_clocks,
                )

    def _refused(self, request: JoinGroup, answer: JoinGroupAnswer, times_ms: list[int], *, is_honest: bool) -> None:
        """Store an assigned id from its earliest possible time; check a refusal against the latest."""
        handed_out = request.group_id, answer.member_id or request.member_id
        if answer.code == ErrorCode.MEMBER_ID_REQUIRED.number:
            self.until_ms[handed_out] = min(times_ms, default=0) + request.session_timeout_ms
        elif answer.code == ErrorCode.GROUP_MAX_SIZE_REACHED.number:
            self.until_ms.pop(handed_out, None)
        elif answer.code == UNKNOWN and times_ms and request.group_instance_id is None:
            until_ms = self.until_ms.pop(handed_out, -NEVER_MS)
            assert max(times_ms) >= until_ms or not is_honest, f"{handed_out} had to be accepted until {until_ms}"
