"""Replays of a script in other ways, which must give the same outputs. `AUDITS` names them; `audit` runs them."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial

from coordinator.base.policies import Policy, Quarantine, Settle, Succession
from coordinator.messages.outputs import Output
from coordinator.messages.requests import ListGroups, Received, SetPolicies, SettleTransactions, Wake
from coordinator.messages.responses import AssignmentNotice, RebalanceNotice, Reply
from coordinator.shard.shard import Shard
from coordinator.state import codec
from coordinator.state.classic_group import Group
from coordinator.state.codec import RemovedGroup
from coordinator.state.consumer_group import ConsumerGroup
from tests.coordinator.consumer.long_path import long_paths, on_long_path
from tests.coordinator.waking import wake
from tests.simulation.judge import Broken, Judge
from tests.simulation.script import Script

OF_ALL_GROUPS = (ListGroups, SetPolicies, SettleTransactions, Wake)
"""The records that are not of one group."""

ByGroup = dict[str | None, list[Output]]


def one_life(script: Script, judge: Judge) -> None:
    """I18, I21: check that a shard that runs through all batches without being stored gives the same outputs."""
    living = judge.shard(None)
    for (records, batch), outputs in zip(script.batches(), judge.outputs, strict=False):
        if living.step([*living.deferred, *records], batch.now_ms) != outputs:
            raise Broken("OneLife", f"storing and loading the state changes the outputs of the batch of {batch.now_ms}")
    if _kept(living) != _kept(judge.shard(judge.state)):
        raise Broken("OneLife", "storing and loading the state changes the state")


def _kept(shard: Shard) -> tuple[dict[str, Group | ConsumerGroup | None], dict[str, RemovedGroup]]:
    """Return a shard's groups, and the ends of removed groups."""
    groups = {group_id: shard.group(group_id) or shard.consumer_group(group_id) for group_id in shard.group_ids}
    return groups, codec.decode_shard(shard.to_bytes()).removed_groups


def cut(size: int, script: Script, judge: Judge) -> None:
    """I17: check that batches of `size` records each give the same outputs, if the script is exact."""
    batches = list(script.batches())
    if not script.is_exact or not any(records for records, _ in batches):
        return
    log, end_ms = [record for records, _ in batches for record in records], batches[-1][1].now_ms
    living = judge.shard(None)
    outputs = []
    for begin in range(0, len(log), size):
        part = log[begin : begin + size]
        outputs += living.step([*living.deferred, *part], part[-1].at_ms)
    outputs += living.step([*living.deferred, wake(log[-1].at_ms)], end_ms)
    mine, theirs = _by_group(script, outputs), _by_group(script, _said(judge))
    for group_id in theirs:
        if mine.get(group_id) != theirs[group_id]:
            raise Broken("Cuts", f"batches of {size} records change the outputs of {group_id}")


def each_alone(script: Script, judge: Judge) -> None:
    """I19: check that each group has the same outputs when the other groups send no request."""
    if script.written_ms or any(batch.true_ms is not None for _, batch in script.batches()):
        return  # a shard without groups forgets the state of its clocks, which changes the outputs if a clock is wrong
    for group_id, heard in _by_group(script, _said(judge)).items():
        if group_id is None:
            continue
        living = judge.shard(None)
        outputs = []
        for records, batch in script.batches():
            own = [
                r if _group_of(r) == group_id or isinstance(r.request, OF_ALL_GROUPS) else wake(r.at_ms, r.offset)
                for r in records
            ]
            outputs += living.step([*living.deferred, *own], batch.now_ms)
        if _by_group(script, outputs).get(group_id, []) != heard:
            raise Broken("Neighbours", f"the other groups change the outputs of {group_id}")


def long_path(script: Script, judge: Judge) -> None:
    """10.3: check that plain heartbeats of the consumer protocol give the same outputs on the path of all others."""
    living = judge.shard(None)
    with long_paths():
        for (records, batch), outputs in zip(script.batches(), judge.outputs, strict=False):
            log = [*living.deferred, *(on_long_path(received) for received in records)]
            if living.step(log, batch.now_ms) != outputs:
                raise Broken("LongPath", f"the long path changes the outputs of the batch of {batch.now_ms}")
        if _kept(living) != _kept(judge.shard(judge.state)):
            raise Broken("LongPath", "the long path changes the state")


def policies_elsewhere(script: Script, judge: Judge) -> None:
    """P8: check that policies of another group change nothing, if the script sets none."""
    batches = list(script.batches())
    log = [record for records, _ in batches for record in records]
    has_policies = any(isinstance(record.request, SetPolicies) for record in log)
    if has_policies or not log:
        return
    policy = Policy(name="no group's", succession=Succession(), settle=Settle(), quarantine=Quarantine())
    request = SetPolicies(request_id="", reply_to="nobody", made_ms=1, policies=(policy,))
    at_ms = min(log[0].at_ms, next(batch.now_ms for records, batch in batches if records))  # not ahead of the driver
    before, living = [Received(-1, at_ms, request)], judge.shard(None)
    for (records, batch), outputs in zip(batches, judge.outputs, strict=False):
        begun = before if records else []
        before = [] if records else before
        told = living.step([*living.deferred, *begun, *records], batch.now_ms)
        if told[2 * len(begun) :] != outputs:
            raise Broken("PoliciesElsewhere", f"policies of another group change the batch of {batch.now_ms}")


AUDITS: dict[str, Callable[[Script, Judge], None]] = {
    "one life": one_life,
    "one batch": partial(cut, 10**9),
    "one by one": partial(cut, 1),
    "by sevens": partial(cut, 7),
    "each alone": each_alone,
    "long path": long_path,
    "policies elsewhere": policies_elsewhere,
}


def audit(script: Script, judge: Judge, names: Iterable[str] = AUDITS) -> None:
    """Run some audits over a script that the judge has replayed.

    Raises:
        Broken: the first difference that an audit finds.
    """
    for name in names:
        AUDITS[name](script, judge)


def _said(judge: Judge) -> list[Output]:
    return [output for outputs in judge.outputs for output in outputs]


def _group_of(received: Received) -> str | None:
    return getattr(received.request, "group_id", None) or None


def _by_group(script: Script, outputs: Iterable[Output]) -> ByGroup:
    """Return the outputs of each group; outputs of different groups have no order."""
    asked = {
        (r.request.reply_to, r.request.request_id): _group_of(r)
        for records, _ in script.batches()
        for r in records
        if not isinstance(r.request, Wake)
    }
    groups: ByGroup = defaultdict(list)
    for output in outputs:
        if not isinstance(output, Reply):
            groups[output.group_id].append(output)
        elif isinstance(output.answer, RebalanceNotice | AssignmentNotice):
            groups[output.answer.group_id].append(output)
        else:
            groups[asked[output.to, output.answer.request_id]].append(output)
    return groups
