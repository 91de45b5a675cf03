"""Groups that move here from Kafka's own coordinator: both are compared, and the offsets are taken over."""

import io
import json
from collections.abc import Callable, Collection
from contextlib import redirect_stdout
from typing import Any

import pytest
from msgspec import UNSET
from typer.testing import CliRunner

from streaming.administration.resetting import Bounds, NewOffset
from streaming.cli.groups import migrate
from streaming.cli.lib.output import Output, OutputFormat
from streaming.cli.main import app
from streaming.config.settings import Settings
from streaming.errors import NotFound, RequestRefused
from streaming.views import Views
from streaming.views.api.answers import compare
from streaming.views.state.fields import PartitionKey
from tests.streaming.views.observing import Observed, T, member_id

ANA, BO = member_id("ana"), member_id("bo")
SETTINGS = Settings(bootstrap_servers="h:1")
LATEST = "latest offset for topic partition orders-1."
Committed = dict[str, dict[PartitionKey, NewOffset]]


class FakeLog:
    """Partitions that all have records from 10 to 100."""

    def __init__(self, settings: object = None) -> None:
        pass

    def bounds(self, places: Collection[PartitionKey]) -> dict[PartitionKey, Bounds]:
        return {place: Bounds(10, 100) for place in places if place[0] == "orders"}


def theirs() -> Observed:
    observed = Observed().begins().to(7).record(0, {ANA: [0], BO: [1]}).commits(10, 0, 40, metadata="m", leader_epoch=3)
    return observed.commits(11, 1, 500)


def ours(*members: str, offset: int | None = None) -> Observed:
    """Return the group as this coordinator has it."""
    observed = Observed().to(2).record(0, {who: [0] for who in members}, kept_by=UNSET, type=UNSET)
    return observed if offset is None else observed.commits(5, 0, offset, member_id="", generation_id=-1)


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> Committed:
    """The commits that the commands make."""
    made: Committed = {}
    monkeypatch.setattr(migrate, "commit", lambda _, group_id, offsets: made.update({group_id: dict(offsets)}))
    monkeypatch.setattr(migrate, "BrokerLog", FakeLog)
    monkeypatch.setattr(migrate, "ends_of", lambda *_: {("orders", 0): Bounds(0, 100), ("orders", 1): Bounds(0, 600)})
    return made


def given(monkeypatch: pytest.MonkeyPatch, here: Views, kafka: Views) -> None:
    by_prefix = {"coordinator": here, "observed": kafka}
    monkeypatch.setattr(migrate, "folded", lambda settings, *_, **__: by_prefix[settings.topic_prefix])


def written(write: Callable[[Output], Any], form: OutputFormat = OutputFormat.table) -> list[str]:
    with redirect_stdout(io.StringIO()) as to:
        write(Output(form))
    return [" ".join(line.split()) for line in to.getvalue().splitlines()]


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_offsets_are_shown_and_not_committed_without_execute(
    monkeypatch: pytest.MonkeyPatch, committed: Committed, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, Views(), theirs().views())
    lines = written(lambda to: migrate.import_offsets(SETTINGS, "observed", ["clicks"], to, execute=False))
    assert lines == [
        "GROUP TOPIC PARTITION OFFSET-HERE NEW-OFFSET STATUS", "clicks orders 0 - 40 -", "clicks orders 1 - 100 -",
    ]  # fmt: skip
    assert committed == {}
    assert capsys.readouterr().err.splitlines() == [
        "Warning: clicks still has 2 members at Kafka's coordinator. Their later commits are not taken over.",
        f"Warning: New offset (500) is higher than {LATEST} Value will be set to 100.",
        "Nothing was changed. --execute commits these offsets.",
    ]


@pytest.mark.parametrize(
    ("offset", "seconds", "stays"),
    [
        pytest.param(500, 20, True, id="the group has gone on here"),
        pytest.param(90, 5, True, id="an old client of Kafka's coordinator has committed later"),
        pytest.param(20, 20, True, id="a reset on purpose"),
        pytest.param(20, 5, False, id="the group has gone on at Kafka's coordinator"),
        pytest.param(40, 20, False, id="the offset of the first import"),
    ],
)
def test_a_repetition_takes_nothing_back(
    monkeypatch: pytest.MonkeyPatch, committed: Committed, offset: int, seconds: int, stays: bool
) -> None:
    """Public reports, R5: a group that had gone on here to 500 was taken back to 100, with exit code 0."""
    here = ours().commits(seconds, 0, offset, member_id="", generation_id=-1).views()
    given(monkeypatch, here, theirs().views())
    lines = written(lambda to: migrate.import_offsets(SETTINGS, "observed", ["clicks"], to, execute=True))
    row = f"clicks orders 0 {offset} - kept, newer" if stays else f"clicks orders 0 {offset} 40 -"
    assert lines == ["GROUP TOPIC PARTITION OFFSET-HERE NEW-OFFSET STATUS", row, "clicks orders 1 - 100 -"]
    taken = {} if stays else {("orders", 0): NewOffset(40, 3, "m")}
    assert committed == {"clicks": {**taken, ("orders", 1): NewOffset(100, -1, "")}}


def test_a_group_is_taken_back_on_purpose(
    monkeypatch: pytest.MonkeyPatch, committed: Committed, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, ours(offset=90).views(), theirs().views())
    written(lambda to: migrate.import_offsets(SETTINGS, "observed", ["clicks"], to, execute=True, rewinds=True))
    assert committed["clicks"]["orders", 0] == NewOffset(40, 3, "m")
    assert "Warning: orders-0 of clicks goes back: it is newer here." in capsys.readouterr().err.splitlines()


def test_offsets_are_committed_with_their_epochs_and_metadata(
    monkeypatch: pytest.MonkeyPatch, committed: Committed
) -> None:
    given(monkeypatch, Views(), theirs().views())
    lines = written(
        lambda to: migrate.import_offsets(SETTINGS, "observed", ["clicks", "clicks"], to, execute=True),
        OutputFormat.json,
    )
    assert committed == {"clicks": {("orders", 0): NewOffset(40, 3, "m"), ("orders", 1): NewOffset(100, -1, "")}}
    assert [each["new_offset"] for each in json.loads("".join(lines))] == [40, 100]


def test_nothing_is_committed_if_one_group_cannot_be_taken_over(
    monkeypatch: pytest.MonkeyPatch, committed: Committed
) -> None:
    """A group with members here is refused, and so is one that Kafka's coordinator does not have."""
    kafka = theirs().views()
    kafka.groups |= Observed("other").begins().commits(1, 0, 20).views().groups
    given(monkeypatch, ours(ANA).views(), kafka)
    for wanted, error, sentence in (
        (
            ["other", "clicks"],
            RequestRefused,
            "'clicks' has members here. Stop them, so that offsets can be taken over.",
        ),
        (
            ["other", "nobody"],
            NotFound,
            "Kafka's coordinator keeps no offsets of a group 'nobody', as far as it was observed.",
        ),
    ):
        with pytest.raises(error) as refused:
            migrate.import_offsets(SETTINGS, "observed", wanted, Output(OutputFormat.table), execute=True)
        assert str(refused.value) == sentence
    assert committed == {}


def test_a_partition_that_does_not_exist_any_more_is_refused(
    monkeypatch: pytest.MonkeyPatch, committed: Committed
) -> None:
    gone = Observed().begins().commits(1, 0, 20)
    kafka = gone.views()
    kafka.groups["clicks"].offsets["gone"] = kafka.groups["clicks"].offsets.pop("orders")
    given(monkeypatch, Views(), kafka)
    with pytest.raises(NotFound, match="These partitions do not exist: gone-0"):
        migrate.import_offsets(SETTINGS, "observed", ["clicks"], Output(OutputFormat.table), execute=True)


def test_the_source_of_the_offsets_must_be_named() -> None:
    refused = CliRunner().invoke(app, ["offsets", "import", "clicks", "-b", "h:1"])
    assert refused.exit_code == 2
    assert "--from-observed" in refused.output


# -- comparison --------------------------------------------------------------------------------------------------------


def test_both_sides_of_a_group_are_shown(monkeypatch: pytest.MonkeyPatch, committed: Committed) -> None:
    given(monkeypatch, ours(ANA, offset=42).views(), theirs().views())
    lines = written(lambda to: migrate.compare_groups(SETTINGS, "observed", "clicks", to))
    assert lines == [
        "HERE KAFKA", "STATE Stable Stable", "TYPE classic classic", "GENERATION 2 7", "MEMBERS 1 2", "PARTITIONS 1 2",
        "TOTAL-LAG 58 160", "REBALANCES-1H 0 0", "",
        "TOPIC PARTITION OFFSET-HERE OFFSET-KAFKA AHEAD OWNER-HERE OWNER-KAFKA",
        f"orders 0 42 40 2 {ANA} {ANA}", f"orders 1 - 500 - - {BO}",
    ]  # fmt: skip


@pytest.mark.parametrize(("here", "kafka"), [(True, False), (False, True)])
def test_a_group_may_be_in_one_coordinator_only(here: bool, kafka: bool) -> None:
    group = theirs().views().groups["clicks"]
    told = compare("clicks", group if here else None, group if kafka else None, {}, T)
    assert ((told.here is not None), (told.kafka is not None)) == (here, kafka)
    assert [row.ahead for row in told.partitions] == [None, None]


def test_a_group_in_neither_coordinator_is_not_found(monkeypatch: pytest.MonkeyPatch, committed: Committed) -> None:
    given(monkeypatch, Views(), Views())
    with pytest.raises(NotFound, match="Neither coordinator has a group 'clicks'"):
        migrate.compare_groups(SETTINGS, "observed", "clicks", Output(OutputFormat.table))
