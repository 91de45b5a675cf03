"""I10, I13, I15: a clock jump ends no session early, expires no offset early, and delays no member."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from msgspec.structs import replace as changed

from coordinator.base.config import Config
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Phase
from coordinator.messages.events import MemberExpired, MemberFenced, OffsetsExpired
from coordinator.messages.group_records import GroupRecord, OffsetRecord, Published
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.outputs import Output
from tests.coordinator.invariants.lives import NothingWaitsForEver, SessionsAreKept
from tests.coordinator.invariants.step import Step, Truth, forgotten

OffsetKey = tuple[str | None, str, int]


class JumpsHarmNobody:
    """I10, I11, I15: in true time, sessions and offsets last as promised, less the slack, and waits end.

    If one clock is wrong, the other one corrects it. If both were wrong, nothing can be promised.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sessions = SessionsAreKept()
        self.waits = NothingWaitsForEver(config)
        self.committed_ms: dict[OffsetKey, tuple[int, int]] = {}
        """The true time of an offset's commit, or the earlier time of its record, and its retention."""
        self.emptied_ms: dict[str, int] = {}
        self.ends: Counter[str | None] = Counter()
        """The number of ends of a group; after each the next group of that name begins a millisecond later."""

    def watch(self, step: Step) -> None:
        truth = step.truth
        self.ends.update(output.group_id for output in step.news if forgotten(output))
        if truth is None or not (truth.is_driver_right or truth.is_log_right):
            return
        self.sessions.watch(self._translated(step, truth))
        for output in step.news:
            self._note(output, truth)
            if isinstance(output, OffsetsExpired):
                self._expired(output, truth)
        self.waits.note(step)
        if truth.is_driver_right:
            for group in (step.groups or {}).values():
                begun_ms = truth.now_ms + self.config.clock_slack_ms + self.ends[group.group_id]
                self.waits.check_waits(group, begun_ms)

    def _translated(self, step: Step, truth: Truth) -> Step:
        """Return the step in true times; expiries get the slack on top."""
        received = [changed(r, at_ms=truth.written_ms.get(r.offset, r.at_ms)) for r in step.received]
        return replace(step, received=received, outputs=list(self._in_truth(step, truth)))

    def _in_truth(self, step: Step, truth: Truth) -> Iterator[Output]:
        for output in step.outputs:
            if isinstance(output, MemberExpired):
                yield changed(output, at_ms=truth.now_ms + 2 * self.config.clock_slack_ms)
            elif isinstance(output, MemberFenced):
                yield changed(output, at_ms=min(output.at_ms, truth.now_ms))
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                record = output.record
                yield changed(output, record=changed(record, since_ms=min(record.since_ms, truth.now_ms)))
            else:
                yield output

    def _note(self, output: Output, truth: Truth) -> None:
        """Store the times of commits and of groups that become Empty, none later than now."""
        if isinstance(output, Published) and isinstance(output.record, GroupRecord):
            record = output.record
            is_empty = record.state is Phase.EMPTY and record.protocol_type is not None
            self.emptied_ms[record.group_id] = min(record.since_ms, truth.now_ms) if is_empty else NEVER_MS
        elif isinstance(output, Published) and isinstance(output.record, OffsetRecord):
            record = output.record
            kept_ms = self.config.offsets_retention_by_group_ms.get(record.group_id, self.config.offsets_retention_ms)
            if record.expire_timestamp_ms is not None:
                kept_ms = record.expire_timestamp_ms - record.commit_timestamp_ms
            place = record.group_id, record.topic, record.partition
            self.committed_ms[place] = min(record.commit_timestamp_ms, truth.now_ms), kept_ms

    def _expired(self, event: OffsetsExpired, truth: Truth) -> None:
        for topic, partition in event.partitions:
            at_ms, kept_ms = self.committed_ms.pop((event.group_id, topic, partition))
            after_ms = truth.now_ms - min(at_ms, self.emptied_ms.get(event.group_id or "", NEVER_MS))
            assert after_ms >= kept_ms - 2 * self.config.clock_slack_ms, f"after {after_ms} ms: {event}"


class TheUnreadIsHeardFirst:
    """I10: no member is expelled by a time up to which the log was not read, as its heartbeats may follow."""

    def __init__(self) -> None:
        self.expired: dict[tuple[str | None, str], MemberExpired] = {}

    def watch(self, step: Step) -> None:
        if not step.has_honest_clocks:
            return
        for received, request in step.requests:
            event = self.expired.get((request.group_id, request.member_id)) if isinstance(request, Heartbeat) else None
            if event and request.generation_id == event.generation_id:
                is_its = request.group_instance_id in (None, event.group_instance_id)
                before_ms = event.at_ms - received.at_ms
                assert not is_its or before_ms <= 0, f"a request came {before_ms} ms before {event}"
        for output in step.news:
            if isinstance(output, MemberExpired) and output.why == "session_expired":
                self.expired[output.group_id, output.member_id] = output
