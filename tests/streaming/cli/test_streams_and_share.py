"""What the commands show of the streams and share groups that Kafka's own coordinator keeps, of recorded ones."""

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout

import pytest

from streaming.cli.groups import history, show
from streaming.cli.groups.show import GROUPS, Wanted, say_state, show_group
from streaming.cli.lib.lines import MEMBERS, member_lines
from streaming.cli.lib.output import Output, OutputFormat
from streaming.config.settings import Settings
from streaming.errors import NotFound
from streaming.kafka.offsets import ShareOffset, ShareOffsets
from streaming.kafka.share_offsets import ShareOffsetReader
from streaming.views import GroupView
from streaming.views.api import answers
from streaming.views.api.lives import Life
from streaming.views.metrics.metrics import GroupFigures
from streaming.views.state.causes import GroupKind
from streaming.views.state.lag import Bounds
from tests.streaming.observe.recordings import GROUP, Replay

SETTINGS = Settings(bootstrap_servers="h:1", topic_prefix="observed")
WITH_STANDBY, NOT_READY = 3, 7
"""Places of the recording of a streams group where the broker was asked."""

ONE, TWO = "c8tVOGoBSy25vJ4ucTDRvw", "zZ7OxDwSS2OSN9M7hT2lHQ"


def written(write: Callable[[Output], object], form: OutputFormat = OutputFormat.table) -> list[str]:
    with redirect_stdout(io.StringIO()) as to:
        write(Output(form))
    return to.getvalue().splitlines()


def facts(group: GroupView) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in written(lambda to: show_group(group, {}, group.events[-1].at_ms, to)):
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value.strip())
    return found


def test_list_has_the_members_and_the_lag_of_a_streams_group() -> None:
    group = Replay.until("streams", WITH_STANDBY).group
    ends = {place: Bounds(0, 100) for place in group.committed()}
    lines = written(lambda to: to.rows(GROUPS, [answers.summary(group, ends, group.events[-1].at_ms)]))
    assert lines[1].split() == ["counting", "streams", "Stable", "5", "5", "-", "2", "2", "6", "357", "kafka"]


def test_members_of_a_streams_group_show_their_tasks() -> None:
    group = Replay.until("streams", WITH_STANDBY).group
    assert group.kind is GroupKind.STREAMS
    lines = written(lambda to: to.rows(MEMBERS, member_lines([group])))
    of_tasks = slice(lines[0].index("TASKS"), None)
    assert [" ".join(line[of_tasks].split()) for line in lines] == [
        "TASKS STANDBY-TASKS",
        "0_0, 0_1, 1_0 1_1, 1_2",
        "0_2, 1_1, 1_2 1_0",
    ]
    first, second = answers.members(group)
    assert (first.partitions, first.assigned) == (3, {"counting-words-repartition": [0], "lines": [0, 1]})
    assert first.process_id != second.process_id


def test_partition_that_is_given_up_counts_once() -> None:
    (only,) = answers.members(Replay.until("streams", NOT_READY).group)
    assert (only.state, only.partitions) == ("unrevoked", 6)


def test_description_of_a_streams_group_has_its_topology_and_its_settings() -> None:
    found = facts(Replay.until("streams", WITH_STANDBY).group)
    assert found["SUBTOPOLOGY"] == [
        "0 reads lines; writes counting-words-repartition",
        "1 reads counting-words-repartition; keeps its state in counting-counts-changelog",
    ]
    assert (found["CONFIGS"], found["TOPOLOGY-EPOCH"]) == (["num.standby.replicas=1"], ["0"])
    assert "ASSIGNOR" not in found


def test_description_of_a_group_that_is_not_ready_names_the_missing_topics(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replay = Replay.until("streams", NOT_READY)
    asked: list[str] = []

    def partitions(_: object, topics: tuple[str, ...]) -> dict[str, list[int]]:
        asked.extend(topics)
        return {"lines": [0, 1, 2, 3]}

    monkeypatch.setattr(show, "folded", lambda *_, **__: replay.views)
    monkeypatch.setattr(show, "ends_of", lambda *_: {})
    monkeypatch.setattr(show.EndOffsets, "__init__", lambda *_: None)
    monkeypatch.setattr(show.EndOffsets, "partitions", partitions)
    lines = written(lambda to: show.describe(SETTINGS, Wanted((GROUP,)), to))
    assert asked == ["counting-counts-changelog", "counting-words-repartition", "lines"]
    (missing,) = [line.split(" ", 1)[1].strip() for line in lines if line.startswith("MISSING")]
    assert missing == "counting-counts-changelog, counting-words-repartition"
    text = "".join(written(lambda to: show.describe(SETTINGS, Wanted((GROUP,)), to), OutputFormat.json))
    assert json.loads(text)["missing_topics"] == ["counting-counts-changelog", "counting-words-repartition"]
    assert "Streams group 'counting' is not ready" in capsys.readouterr().err


def test_broker_is_not_asked_for_the_topics_of_a_group_that_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show.EndOffsets, "partitions", lambda *_: pytest.fail("not needed"))
    assert show._missing_topics(SETTINGS, Replay.until("streams", WITH_STANDBY).group) is None


@pytest.mark.parametrize(("place", "owner"), [("lines-2", TWO), ("0_2", TWO), ("1_0", ONE)])
def test_owner_of_a_partition_and_of_a_task_is_told(place: str, owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Replay.until("streams", WITH_STANDBY)
    monkeypatch.setattr(history, "whole", lambda *_: Life(replay.views, replay.group))
    (line,) = written(lambda to: history.owner(SETTINGS, GROUP, place, None, to))
    assert f": {owner}, client " in line


@pytest.mark.parametrize(("recording", "task"), [("streams", "2_0"), ("streams", "0_x"), ("share", "0_0")])
def test_task_that_a_group_does_not_have_is_not_found(
    recording: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = Replay.until(recording, 1)
    monkeypatch.setattr(history, "whole", lambda *_: Life(replay.views, replay.group))
    with pytest.raises(NotFound, match=f"counting has no task {task}"):
        history.owner(SETTINGS, GROUP, task, None, Output(OutputFormat.table))


def test_share_group_has_members_and_no_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Replay.until("share", 2)
    group = replay.group
    assert {place: [each.client_id for each in of] for place, of in group.shared().items()} == {
        ("lines", 0): ["two"], ("lines", 1): ["one"],
    }  # fmt: skip
    assert (group.owned(), group.planned()) == ({}, {})
    summary = answers.summary(group, {}, group.events[-1].at_ms)
    assert (summary.members, summary.partitions, summary.total_lag) == (2, 2, None)
    assert [row.member_id for row in answers.offsets(group, {})] == [None, None]
    monkeypatch.setattr(history, "whole", lambda *_: Life(replay.views, group))
    (line,) = written(lambda to: history.owner(SETTINGS, GROUP, "lines-0", None, to))
    assert line == "lines-0 now: two-LpHk; several members may have it"
    text = "".join(written(lambda to: history.owner(SETTINGS, GROUP, "lines-0", None, to), OutputFormat.json))
    assert json.loads(text)["members"] == ["LpHkcqydRdW7MWHq888Rog"]


def test_empty_groups_are_named_by_their_type(capsys: pytest.CaptureFixture[str]) -> None:
    for name, said in (("streams", 8), ("share", 7)):
        say_state(Replay.until(name, said).group)
    assert capsys.readouterr().err.splitlines() == [
        "Streams group 'counting' has no active members.",
        "Share group 'counting' has no active members.",
    ]


@pytest.mark.parametrize("recording", ["streams", "share"])
def test_metrics_have_members_and_no_count_of_what_is_not_recorded(recording: str) -> None:
    """W8: an alert of groups that nobody reads must not fire while such a group runs."""
    from contextlib import nullcontext

    replay = Replay.until(recording, 2)
    views, ends = replay.views, {place: Bounds(0, 100) for place in replay.group.committed()}
    figures = GroupFigures(lambda: nullcontext((views, ends)), groups_max=10, of_partitions=False)
    samples = {s.name: s.value for metric in figures.collect() for s in metric.samples if "group" in s.labels}
    assert (samples["groupcoord_group_members"], samples["groupcoord_group_idle_members"]) == (2, 0)
    assert ("groupcoord_group_lag" in samples) is (recording == "streams")
    assert "groupcoord_members_left_total" not in samples


def test_positions_of_a_share_group_are_those_that_the_brokers_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lag does not follow from the end of the log."""
    group = Replay.until("share", 2).group
    positions = {("lines", 0): ShareOffset(3, 4), ("lines", 1): ShareOffset(5, None)}
    asked: list[str] = []

    def of(_: object, group_ids: list[str]) -> ShareOffsets:
        asked.extend(group_ids)
        return {GROUP: positions}

    monkeypatch.setattr(ShareOffsetReader, "of", of)
    monkeypatch.setattr(show.EndOffsets, "__init__", lambda *_: None)
    monkeypatch.setattr(show.EndOffsets, "bounds", lambda _, wanted: {place: Bounds(0, 60) for place in wanted})
    streams = Replay.until("streams", 2).group
    ends = show.ends_of(SETTINGS, [group, streams])
    assert asked == [GROUP], "only the share group"
    first, second = answers.offsets(group, ends)
    assert (first.committed_offset, first.end_offset, first.lag) == (3, 60, 4)
    assert (second.committed_offset, second.end_offset, second.lag) == (5, 60, None)
    assert answers.summary(group, ends, group.events[-1].at_ms).total_lag == 4
