"""A trial: the figures of a group as it was, and of its processes under other policies."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from coordinator.base.consumer_protocol import assigned_partitions
from coordinator.base.limits import FREEZE_MS_MAX
from coordinator.base.policies import Freeze, Policy, Quarantine, Settle, Succession
from coordinator.messages.events import AnyEvent, AssignmentChanged, Handover, RebalanceStarted
from coordinator.messages.requests import SetPolicies
from streaming.errors import UserError
from streaming.trial.figures import Figures, figures
from streaming.trial.modelling import Model
from streaming.trial.processes import Process, processes_of
from streaming.trial.recording import Recording, Seeded, Start, find_start, policies_at, seed
from streaming.trial.replaying import difference, replay

FITS_WITHIN = 0.1
"""The share by which the number of rebalances of the model may differ from the recorded one."""

Entries = tuple[Policy, ...]


class TrialDiffers(UserError):
    """The recorded requests do not give the recorded rebalances once more."""


class Trial(Struct, kw_only=True):
    """The result of a trial.

    Args:
        from_ms: The end of the rebalance from which on the whole group is known.
        recorded: What the events say happened.
        model: The model members under the recorded policies.
        under: The model members under other policies, by a name for these.
    """

    group_id: str
    from_ms: int
    until_ms: int
    requests: int
    processes: int
    recorded: Figures
    model: Figures
    under: dict[str, Figures]

    @property
    def fits(self) -> bool:
        """Whether the model has about the recorded number of rebalances."""
        apart = abs(self.model.total - self.recorded.total)
        return apart <= max(1, round(self.recorded.total * FITS_WITHIN))


def suggested(group_id: str, now_ms: int) -> dict[str, Entries]:
    """Return the four policies with the suggested settings, one by one and all together."""
    freeze = Freeze(until_ms=now_ms + FREEZE_MS_MAX)
    of_each = {
        "succession": Policy(name=group_id, succession=Succession()),
        "settle": Policy(name=group_id, settle=Settle()),
        "freeze": Policy(name=group_id, freeze=freeze),
        "quarantine": Policy(name=group_id, quarantine=Quarantine()),
        "all but freeze": Policy(name=group_id, succession=Succession(), settle=Settle(), quarantine=Quarantine()),
    }
    return {name: (policy,) for name, policy in of_each.items()}


def run_trial(recording: Recording, since_ms: int, policies: Mapping[str, Entries] | None = None) -> Trial:
    """Return the figures of a group's recorded life, and of its processes under other policies.

    Args:
        policies: By a name, the entries to try; the suggested ones by default.

    Raises:
        NotFound: No rebalance is recorded from which on the whole group is known.
        TrialDiffers: The replayed requests give other rebalances than the recorded ones.
    """
    start = find_start(recording, since_ms)
    seeded = seed(recording, start)
    _check(recording, start, seeded)
    processes = processes_of(recording, start)
    tried = suggested(recording.group_id, start.at_ms) if policies is None else policies
    after = [event for event in recording.events if event.at_ms > start.at_ms]
    return Trial(
        group_id=recording.group_id,
        from_ms=start.at_ms,
        until_ms=recording.until_ms,
        requests=sum(1 for _ in recording.after(start)),
        processes=len(processes),
        recorded=_figures(recording, start, {}, after),
        model=_model(recording, start, seeded, processes, _recorded_policies(recording, start)),
        under={
            name: _model(recording, start, seeded, processes, [(start.at_ms, _in_time(entries, start.at_ms))])
            for name, entries in tried.items()
        },
    )


def _check(recording: Recording, start: Start, seeded: Seeded) -> None:
    recorded = [e for e in recording.events if isinstance(e, RebalanceStarted) and e.at_ms > start.at_ms]
    replayed = [e for e in replay(recording, start, seeded) if isinstance(e, RebalanceStarted)]
    if (found := difference(recorded, replayed)) is not None:
        raise TrialDiffers(
            f"The recorded requests do not give the recorded rebalances once more: {found}. The coordinator may"
            " have been unavailable, or have had other settings. Choose another time with --since."
        )


def _model(
    recording: Recording,
    start: Start,
    seeded: Seeded,
    processes: Sequence[Process],
    policies: Sequence[tuple[int, Entries]],
) -> Figures:
    events = Model(recording, start, seeded, processes, policies).run()
    return _figures(recording, start, seeded.ids, events)


def _figures(recording: Recording, start: Start, ids: Mapping[str, str], events: Sequence[AnyEvent]) -> Figures:
    handovers = tuple(
        Handover(topic, number, None, ids.get(each.member_id, each.member_id))
        for each in start.plan
        for topic, numbers in (assigned_partitions(each.assignment) or {}).items()
        for number in numbers
    )
    first = AssignmentChanged(group_id=recording.group_id, version=None, at_ms=start.at_ms,
                              generation_id=start.generation_id, handovers=handovers)  # fmt: skip
    return figures(recording.group_id, [first], events, start.at_ms, recording.until_ms)


def _recorded_policies(recording: Recording, start: Start) -> list[tuple[int, Entries]]:
    """Return the policies that the shard had, each set with the time from which on it had them."""
    first = policies_at(recording, start)
    later = [(e.at_ms, e.request.policies) for e in recording.after(start) if isinstance(e.request, SetPolicies)]
    return [*([] if first is None else [(start.at_ms, first.policies)]), *later]


def _in_time(entries: Entries, now_ms: int) -> Entries:
    """Return entries whose freezes are in force in the trial, which is in the past."""
    return tuple(replace(each, freeze=_freeze(each.freeze, now_ms)) for each in entries)


def _freeze(freeze: Freeze | None, now_ms: int) -> Freeze | None:
    if freeze is None or freeze.until_ms is None:
        return freeze
    return replace(freeze, until_ms=min(freeze.until_ms, now_ms + FREEZE_MS_MAX))
