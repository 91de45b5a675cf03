"""Conversations as text, replayed and compared whole; `trace` tells their language.

The same requests must also give each group the same outputs however they are cut into batches, and wherever the shard
is written to bytes and read back between (W29, S144; I17, I18).
"""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from coordinator.outputs import Output, RebalanceNotice, Reply
from coordinator.requests import Received
from tests.coordinator.scenario import Scenario
from tests.coordinator.trace import Player, Trace

TRACES = sorted((Path(__file__).parent / "traces").glob("*.txt"))
NO_MERCY = {"late_notice_ms": 2**40}

every_trace = pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)


@every_trace
def test_says_what_the_trace_says(path: Path, rewrite_traces: bool):
    trace = Trace.read(path)
    played = str(Player(trace).play())
    if rewrite_traces:
        path.write_text(played)
    assert played == path.read_text()


@every_trace
def test_names_what_it_proves(path: Path):
    head = Trace.read(path).head
    assert re.match(r"# .+\.$", head[0]), "the first line is a sentence"
    assert re.search(r"# .*\b([SWI]\d+|protocol\.md \d)", "\n".join(head)), "name a walkthrough, a row or a section"


# -- cuts --------------------------------------------------------------------------------------------------------------

CUTS = {
    "one_batch": (10**6, False),
    "one_by_one": (1, False),
    "one_by_one_with_restarts": (1, True),
    "by_threes_with_restarts": (3, True),
}


@every_trace
@pytest.mark.parametrize(("size", "restarts"), CUTS.values(), ids=CUTS)
def test_cuts_do_not_show(path: Path, size: int, restarts: bool):
    player = Player(Trace.read(path), **NO_MERCY)
    player.play()
    log = [received for batch, _ in player.s.batches for received in batch]
    end_ms = max(now_ms for _, now_ms in player.s.batches)
    outputs = replay(player.s, [log[i : i + size] for i in range(0, len(log), size)], end_ms, restarts=restarts)
    assert by_group(player.s, outputs) == by_group(player.s, player.s.outputs)


def replay(s: Scenario, batches: Sequence[list[Received]], end_ms: int, *, restarts: bool) -> list[Output]:
    """Give the log to a new shard, each batch at the time of its last request."""
    shard, outputs = s.new_shard(), []
    for batch in [*batches, []]:
        outputs += shard.step(batch, batch[-1].at_ms if batch else end_ms)
        if restarts:
            shard = s.new_shard(shard.to_bytes())
    return outputs


def by_group(s: Scenario, outputs: Sequence[Output]) -> dict[str | None, list[Output]]:
    """Sort outputs by the group they are about; between groups there is no order."""
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
