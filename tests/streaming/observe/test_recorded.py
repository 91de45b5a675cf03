"""Groups of real clients, as a broker of 4.4.0 recorded them: what is said of them, and what the broker said."""

import pytest

from coordinator.messages.group_records import GroupRecord
from tests.streaming.observe.log import translated, without_versions
from tests.streaming.observe.recordings import HERE, NAMES, Replay, Said, steps, text_of


@pytest.mark.parametrize("name", NAMES)
def test_all_that_is_said_of_a_recorded_group_is_as_before(name: str) -> None:
    """After a change on purpose: `python -m tests.streaming.observe.recordings`."""
    assert text_of(name) == (HERE / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_state_and_members_are_those_that_the_brokers_tool_showed(name: str) -> None:
    replay, rows, told = Replay(), [], 0
    for step in steps(name):
        if not isinstance(step, Said):
            rows.append(step)
            continue
        replay.read(rows)
        rows.clear()
        record = replay.group.record
        assert isinstance(record, GroupRecord)
        assert (record.state.value, len(record.members)) == step
        told += 1
    assert told > 1


@pytest.mark.parametrize("name", NAMES)
def test_outputs_do_not_depend_on_where_the_recording_is_cut(name: str) -> None:
    rows = [step for step in steps(name) if not isinstance(step, Said)]
    each_alone = translated(rows, range(1, len(rows)))
    assert without_versions(each_alone) == without_versions(translated(rows))
