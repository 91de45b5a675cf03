"""Bugs of the stored state, of the log's time, and of groups that affect each other."""

from coordinator.classic import admin, describe
from coordinator.shard import clock, republish
from coordinator.shard.shard import Shard
from coordinator.state import codec
from coordinator.state.classic_group import HotState
from coordinator.state.store import GroupStore
from streaming.query.watchers.repeats import Repeats
from tests.simulation.bugs.bug import Bug

RETURNS = "    group.hot_state = hot_state\n"


def _reads_back(name: str, change: str, found_by: str) -> Bug:
    """Make a bug that appears once a group has been decoded from bytes."""
    return Bug(name, codec.decode_rest, RETURNS, f"{RETURNS}    {change}\n", found_by)


EACH = "for m in group.members.values(): "

BUGS = (
    # -- stored state --------------------------------------------------------------------------------------------------
    Bug("changes by heartbeats are not stored", GroupStore.flush,
        "encode_hot_state(hot_state, rest, self._member_indexes)",
        "encode_hot_state(hot_state, rest, self._member_indexes) if group else stored.hot_state",
        "SessionsAreKept"),
    Bug("a changed Stable group is not stored", GroupStore.flush,
        "codec.encode_rest(group, self._member_indexes) if group else",
        "codec.encode_rest(group, self._member_indexes)"
        " if group and (hot_state.phase.value[0] != 'S' or not stored.rest) else",
        "PhasesAreLegal"),
    Bug("the deadline of a new group is lost", GroupStore.flush,
        "hot_state.earliest_ms,", "stored.earliest_ms,", "NothingWaitsForEver"),
    _reads_back("a parked join is lost between batches", EACH + "m.awaiting_join = None", "PhasesAreLegal"),
    _reads_back("which join made a static member is lost between batches", EACH + "m.made_by = None",
                "Coordinator raised AssertionError"),
    _reads_back("the previous owners are lost between batches", "if group.round: group.round.before = {}",
                "HandoversAddUp"),
    _reads_back("the initial delay is lost between batches", "group.delay = None", "NothingWaitsForEver"),
    _reads_back("the version is one less between batches", "group.version = max(group.version - 1, 0)",
                "VersionsHaveNoGap"),
    _reads_back("pending ids are lost between batches", "hot_state.pending.clear()", "PendingIdsAreGoodForOnce"),
    _reads_back("the extension of deadlines is lost between batches",
                "for s in hot_state.sessions.values(): s.extended = False", "SessionsEnd"),
    Bug("no request is sent for late repeats", Repeats.overdue,
        "KEYS_AT_ONCE if now_ms >= self._next_ms else 0", "0", "ComesToRest"),
    Bug("a late repeat is not corrected", republish.republish,
        "yield output", "pass", "VersionsHaveNoGap"),
    Bug("forgotten groups are lost between batches", codec.decode_shard,
        "return decode(_shard_decoder, body)",
        "kept = decode(_shard_decoder, body)\n    kept.removed_groups.clear()\n    return kept", "EqualBytes"),
    Bug("the versions of forgotten groups are dropped at once", GroupStore.expire_tombstones,
        " if removed.until_ms <= horizon_ms]", "]", "GenerationsGrow"),
    # -- groups that affect each other ---------------------------------------------------------------------------------
    Bug("a new group takes the place of another one that was forgotten", GroupStore._begin,
        "removed_groups.get(group_id)", "removed_groups.get(next(iter(self.removed_groups), group_id))",
        "GenerationsGrow"),
    Bug("a group that does not exist returns another group's offsets", Shard._handle,
        "yield from spec.handler(subject, request, context)",
        "if subject is None and spec.answer.__name__ == 'OffsetFetchAnswer':\n"
        "            subject = next(iter(self.store._groups.values()), None)\n"
        "        yield from spec.handler(subject, request, context)", "CommitsAreKept"),
    Bug("groups of one batch share the time of the first", Shard._handle,
        "self._context(request, received, at_ms)",
        "self._context(request, received, max(v.now_ms for v in self.store.hot_state.values())"
        " if subject and spec.answer.__name__ == 'OffsetCommitAnswer' else at_ms)", "TimeNeverGoesBack"),
    Bug("a listing leaves the last group out", admin.list_groups,
        "group_type in groups", "group_type in list(groups)[:-1]", "AnswersFitTheGroup"),
    Bug("a description is of the generation before", describe.describe,
        "generation_id=group.generation_id", "generation_id=max(group.generation_id - 1, 0)", "AnswersFitTheGroup"),
    # -- the log and its time ------------------------------------------------------------------------------------------
    Bug("a batch of more than twenty loses the rest", Shard._read,
        "for received in log:", "for received in list(log)[:20]:", "EachRequestIsAnsweredOnce"),
    Bug("the last request of a batch is taken twice", Shard._read,
        "for received in log:", "for received in [*log, *list(log)[-1:]]:", "EachRequestIsAnsweredOnce"),
    Bug("what is due fires after the request", Shard._handle_for_group,
        "yield from self._deadlines.advance(group_id, received.at_ms, self._step.times.now_ms)", "pass",
        "NothingWaitsForEver"),
    Bug("a heartbeat sets the group's time back", Shard._answer_soon,
        "at_ms = max(at_ms, hot_state.now_ms)", "pass", "TimeNeverGoesBack"),
    Bug("deadlines fire at half of their time", HotState.wait,
        "+ wait_ms", "+ wait_ms // 2", "SessionsAreKept"),
    Bug("a record from the future is believed", Shard._read,
        "received = replace(received, at_ms=latest_ms)", "pass",
        "JumpsHarmNobody"),
    Bug("a log that goes back shortens sessions", clock.advance,
        "earliest_ms=(base_ms if gone_back else clock.read_ms or TIME_MS_MIN) - slack_ms",
        "earliest_ms=TIME_MS_MIN - slack_ms", "JumpsHarmNobody"),
    Bug("time passes beyond what was read", clock.advance,
        "read_ms = max(read_ms, min(latest.at_ms, base_ms + slack_ms))", "read_ms = batch_ms",
        "TheUnreadIsHeardFirst"),
    Bug("silent groups are not called", GroupStore.due_by,
        "if hot_state.get(group_id, stored).earliest_ms <= horizon_ms",
        "if group_id in hot_state and hot_state[group_id].earliest_ms <= horizon_ms",
        "NothingWaitsForEver"),
)  # fmt: skip
