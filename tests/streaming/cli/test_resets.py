"""Tests of `coordinator groups reset-offsets` without Kafka."""

from pathlib import Path

import pytest

from streaming.cli.groups import resets
from streaming.cli.groups.resets import ResetOptions, reset_offsets
from streaming.cli.lib.output import Output, OutputFormat
from streaming.config.settings import Settings
from streaming.errors import BadReset
from streaming.views import Views
from tests.streaming.administration.test_resetting import InMemory


@pytest.fixture(autouse=True)
def _group(monkeypatch: pytest.MonkeyPatch, views: Views) -> None:
    """The group `idle` has committed 40 in t-1 and 5 in gone-0. The log of t-1 ends at 50, the others at 10."""
    monkeypatch.setattr(resets, "folded", lambda *_, **__: views)
    monkeypatch.setattr(resets, "BrokerLog", lambda _: InMemory(t=[(0, 10), (0, 50)], gone=[(0, 10)]))


def reset(scenario: str, value: object = None, *, export: bool = False) -> None:
    asked = ResetOptions(scenario, value)
    reset_offsets(Settings(), "idle", asked, Output(OutputFormat.table), execute=False, export=export)


def test_an_exported_plan_can_be_given_as_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An offset beyond the end becomes the end offset, with a warning."""
    reset("to-current", export=True)
    (plan := tmp_path / "plan.csv").write_text(capsys.readouterr().out + "t,0,99\n")
    reset("from-file", str(plan))
    said = capsys.readouterr()
    assert [line.split() for line in said.out.splitlines()[1:]] == [
        ["idle", "gone", "0", "5"],
        ["idle", "t", "0", "10"],
        ["idle", "t", "1", "40"],
    ]
    assert "Warning: New offset (99) is higher than latest offset for topic partition t-0" in said.err


def test_a_file_that_cannot_be_read_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(BadReset, match="cannot be read"):
        reset("from-file", str(tmp_path / "none.csv"))
