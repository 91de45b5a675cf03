"""Conversations as text, replayed and compared in full; `trace` describes their language.

The same requests must also give each group the same outputs for any cuts into batches, with the shard encoded and
decoded between any of them (W29, S144; I17, I18).
"""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from coordinator.messages.outputs import Output
from coordinator.messages.requests import Received, Wake
from coordinator.messages.responses import RebalanceNotice, Reply
from tests.coordinator.scenario import Scenario
from tests.coordinator.trace import Player, Trace
from tests.coordinator.waking import wake

TRACES = sorted((Path(__file__).parent / "traces").glob("*.txt"))
NO_MERCY = {"late_notice_ms": 2**40}

every_trace = pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)


@every_trace
def test_outputs_are_those_of_the_trace(path: Path, rewrite_traces: bool):
    trace = Trace.read(path)
    played = str(Player(trace).play())
    if rewrite_traces:
        path.write_text(played)
    assert played == path.read_text()


@every_trace
def test_a_trace_names_its_source(path: Path):
    head = Trace.read(path).head
    assert re.match(r"# .+\.$", head[0]), "the first line is a sentence"
    source = r"# .*\b([SWI]\d+|(protocol|policies)\.md \d)"
    assert re.search(source, "\n".join(head)), "name a walkthrough, a row or a section"


# -- cuts --------------------------------------------------------------------------------------------------------------

CUTS = {
    "one_batch": (10**6, False),
    "one_by_one": (1, False),
    "one_by_one_with_restarts": (1, True),
    "by_threes_with_restarts": (3, True),
}


@every_trace
@pytest.mark.parametrize(("size", "restarts"), CUTS.values(), ids=CUTS)
def test_cuts_do_not_change_outputs(path: Path, size: int, restarts: bool):
    player = Player(Trace.read(path), **NO_MERCY)
    player.play()
    log = [received for batch, _ in player.s.batches for received in batch]
    end_ms = max(now_ms for _, now_ms in player.s.batches)
    outputs = replay(player.s, [log[i : i + size] for i in range(0, len(log), size)], end_ms, restarts=restarts)
    assert by_group(player.s, outputs) == by_group(player.s, player.s.outputs)


PUNCTUAL = [path for path in TRACES if "away" not in path.read_text()]


@pytest.mark.parametrize("path", PUNCTUAL, ids=lambda path: path.stem)
@pytest.mark.parametrize("trigger_ms", [1_000, 4_000])
def test_the_trigger_interval_does_not_change_outputs(path: Path, trigger_ms: int):
    """I17: cuts by the clock, as in Spark. Late notices are allowed, but no notice is that late."""
    player = Player(Trace.read(path))
    player.play()
    log = [r for batch, _ in player.s.batches for r in batch if not isinstance(r.request, Wake)]
    end_ms = max(now_ms for _, now_ms in player.s.batches)
    shard, outputs = player.s.new_shard(), []
    while log:
        at_ms = log[0].at_ms // trigger_ms * trigger_ms + trigger_ms
        while (due_ms := shard.next_deadline_ms) is not None:
            woken_ms = (due_ms + 1_000) // trigger_ms * trigger_ms + trigger_ms
            if woken_ms >= at_ms:
                break
            outputs += shard.step([wake(woken_ms)], woken_ms)
        outputs += shard.step([*(r for r in log if r.at_ms < at_ms), wake(at_ms)], at_ms)
        log = [r for r in log if r.at_ms >= at_ms]
    while (due_ms := shard.next_deadline_ms) is not None and due_ms + 1_000 <= end_ms:
        woken_ms = min((due_ms + 1_000) // trigger_ms * trigger_ms + trigger_ms, end_ms)
        outputs += shard.step([wake(woken_ms)], woken_ms)
    assert by_group(player.s, outputs) == by_group(player.s, player.s.outputs)


def replay(s: Scenario, batches: Sequence[list[Received]], end_ms: int, *, restarts: bool) -> list[Output]:
    """Run the log in a new shard, each batch at the time of its last request."""
    shard, outputs = s.new_shard(), []
    for batch in [*batches, []]:
        batch = batch or [wake(end_ms)]
        outputs += shard.step(batch, batch[-1].at_ms)
        if restarts:
            shard = s.new_shard(shard.to_bytes())
    return outputs


def by_group(s: Scenario, outputs: Sequence[Output]) -> dict[str | None, list[Output]]:
    """Return the outputs of each group; outputs of different groups have no order."""
    groups: dict[str | None, list[Output]] = {}
    for output in outputs:
        if not isinstance(output, Reply):
            group_id = output.group_id
        elif isinstance(output.answer, RebalanceNotice):
            group_id = output.answer.group_id
        else:
            group_id = getattr(s.asked[output.answer.request_id][1], "group_id", None)
        groups.setdefault(group_id, []).append(output)
    return groups


# -- other groups ------------------------------------------------------------------------------------------------------

NEIGHBOUR = next(path for path in TRACES if path.stem.startswith("w14_"))


@every_trace
def test_other_groups_do_not_change_outputs(path: Path):
    """I19: the same requests, between those of another group, and all in one batch."""
    player, neighbour = Player(Trace.read(path), **NO_MERCY), Player(Trace.read(NEIGHBOUR), **NO_MERCY)
    player.play()
    neighbour.play()
    own = [received for batch, _ in player.s.batches for received in batch]
    others = [in_another_group(received) for batch, _ in neighbour.s.batches for received in batch]
    asked = [received.request for received in others if not isinstance(received.request, Wake)]
    player.s.asked |= {request.request_id: ("neighbour", request) for request in asked}
    both = sorted(own + others, key=lambda received: (received.at_ms, received.offset % 1_000))
    end_ms = max(now_ms for p in (player, neighbour) for _, now_ms in p.s.batches)
    mine = by_group(player.s, replay(player.s, [both], end_ms, restarts=False))
    for group_id, alone in by_group(player.s, player.s.outputs).items():
        assert mine[group_id][: len(alone)] == alone, "later outputs are after the time of the trace"


def in_another_group(received: Received) -> Received:
    request = received.request
    if isinstance(request, Wake):
        return received
    renamed = msgspec.structs.replace(request, group_id="neighbour", request_id=f"neighbour's {request.request_id}")
    return Received(1_000 + received.offset, received.at_ms, renamed)
