"""Tests of the output of `coordinator policy try`."""

import json

import pytest
from msgspec.structs import replace

from coordinator.base.policies import Policy, Succession
from streaming.cli.admin.try_policy import show_trial
from streaming.cli.lib.output import Output, OutputFormat
from streaming.trial.trials import Trial, run_trial
from tests.streaming.trial.test_trial import recorded, rolled

TABLE = """\
                           RECORDED MODEL F
rebalances                 13       13    1
  member joined            6        6     0
  member left              6        6     0
  operator                 1        1     1
seats passed on            0        0     6
seats adopted              0        0     0
"""


@pytest.fixture(scope="module")
def trial() -> Trial:
    policy = Policy(name="g", succession=Succession())
    return run_trial(recorded(rolled(None, surges=False)), 0, {"F": (policy,)})


def test_a_trial_has_a_column_for_each_life(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    """policies.md 4: recorded, as the model has it, and under other policies."""
    show_trial(trial, Output(OutputFormat.table))
    printed = capsys.readouterr()
    assert printed.out.startswith(TABLE)
    assert "longest wait of a seat     -        -     3." in printed.out
    assert f"{trial.requests} requests of 12 processes" in printed.err
    assert "does not fit" not in printed.err


def test_a_model_that_does_not_fit_is_named(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    """policies.md 4: more than a tenth apart, and more than one rebalance."""
    other = replace(trial.model, rebalances={"operator": 11})
    show_trial(replace(trial, model=other), Output(OutputFormat.table))
    assert "The model does not fit" in capsys.readouterr().err
    near = replace(trial.model, rebalances={"operator": 12})
    show_trial(replace(trial, model=near), Output(OutputFormat.json))
    printed = capsys.readouterr()
    assert "does not fit" not in printed.err
    assert json.loads(printed.out)["under"]["F"]["seats_passed_on"] == 6
