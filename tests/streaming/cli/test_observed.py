"""The commands for groups that Kafka's own coordinator keeps: they are shown, and not changed."""

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pytest

from streaming.cli.groups import change as changing
from streaming.cli.groups import show
from streaming.cli.groups.show import GROUPS, Wanted, show_group, show_offsets, warn_beyond_end
from streaming.cli.lib import requests
from streaming.cli.lib.output import Output, OutputFormat
from streaming.cli.lib.requests import Administration
from streaming.config.settings import Settings
from streaming.errors import Exit, KeptByKafka, NoCoordinator
from streaming.views.api import answers
from streaming.views.state.lag import Bounds
from tests.streaming.views.observing import Observed, T, member_id

SENTENCE = "clicks is kept by Kafka's coordinator; observe only reads: use kafka-consumer-groups."
SETTINGS = Settings(bootstrap_servers="h:1", topic_prefix="observed")


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Observed:
    """A group of the prefix `observed`, which has no topic for requests."""
    observed = Observed().begins().to(1).record(0, {member_id("ana"): [0]}).commits(1_000, 0, 17)

    def missing(*_: object, **__: object) -> None:
        raise NoCoordinator.without("observed.requests", "h:1")

    monkeypatch.setattr(requests, "Transport", missing)
    monkeypatch.setattr(requests, "is_observed", lambda settings: settings is SETTINGS)
    for module in changing, show:
        monkeypatch.setattr(module, "folded", lambda *_, **__: observed.views())
    return observed


def agree(question: str) -> None:
    assert question


CHANGES: dict[str, Callable[[Output], Any]] = {
    "delete": lambda to: changing.delete(SETTINGS, Wanted(("clicks",)), to, agree),
    "delete-offsets": lambda to: changing.delete_offsets(SETTINGS, "clicks", ["orders"], to, agree),
    "rebalance": lambda to: changing.rebalance(SETTINGS, "clicks", None, to),
    "expel": lambda to: changing.expel(SETTINGS, "clicks", member_id("ana"), None, to, agree),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_group_that_kafka_keeps_is_not_changed(observed: Observed, change: Callable[[Output], Any]) -> None:
    with pytest.raises(KeptByKafka) as refused:
        change(Output(OutputFormat.table))
    assert (str(refused.value), refused.value.exit_code) == (SENTENCE, Exit.FAILED)


def test_a_coordinator_that_does_not_exist_is_another_error(observed: Observed) -> None:
    other = Settings(bootstrap_servers="h:1", topic_prefix="other")
    with pytest.raises(NoCoordinator):
        Administration(other)


def test_lists_and_descriptions_say_who_keeps_a_group(observed: Observed) -> None:
    group = observed.views().groups["clicks"]
    with redirect_stdout(io.StringIO()) as to:
        Output(OutputFormat.table).rows(GROUPS, [answers.summary(group, {}, T)])
        show_group(group, {("orders", 0): Bounds(0, 20)}, T, Output(OutputFormat.table))
    head, line, *described = to.getvalue().splitlines()
    assert head.split()[-1] == "KEPT-BY"
    assert line.split()[-1] == "kafka"
    assert any(line.split() == ["KEPT-BY", "kafka"] for line in described)


def test_an_offset_beyond_the_end_of_its_log_is_a_negative_lag_and_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Recorded: an offset of 1000 is committed for a topic without records. Kafka's own tool shows -1000."""
    observed = Observed()
    for partition, offset in enumerate((1_000, 15, 21, 22, 23)):
        observed.commits(0, partition, offset)
    group = observed.views().groups["clicks"]
    ends = {("orders", n): Bounds(0, n and 20, beyond=1_000) for n in range(5)}
    rows = {row.partition: row.lag for row in answers.offsets(group, ends)}
    assert rows == {0: -1_000, 1: 5, 2: -1, 3: -2, 4: -3}
    summary = answers.summary(group, ends, T)
    assert (summary.total_lag, summary.partitions_beyond_end) == (5, 4), "it hides no lag"
    Output(OutputFormat.table).rows(GROUPS, [summary])
    show_offsets([group], ends, Output(OutputFormat.table))
    warn_beyond_end([group], ends)
    told = capsys.readouterr()
    assert "BEYOND-END" in told.out
    assert "-1000" in told.out.split()
    assert " ".join(told.err.split()) == (
        "Warning: Consumer group 'clicks' has committed beyond the end of a log (orders 0 at 1,000, and the log ends at"
        " 0; orders 2 at 21, and the log ends at 20; orders 3 at 22, and the log ends at 20; 1 more partition): the"
        " topic was made anew, or the offset is wrong."
    )
    warn_beyond_end([group], {place: Bounds(0, 2_000) for place in ends})
    assert capsys.readouterr().err == ""
