"""`coordinator verify` and its option `--peer`, without topics."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import streaming.verify
from streaming.cli.main import app
from streaming.config.peers import PEERS_MAX
from streaming.verify import Finding, Report
from streaming.verify.findings import Kind

ASKED = list[tuple[str, tuple[str, ...]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> ASKED:
    """The prefix and the peers of each verification, which finds one broken promise."""
    asked: ASKED = []

    def verify(settings: Any, groups: Any, tell: Any, *, peers: tuple[str, ...]) -> Report:
        asked.append((settings.topic_prefix, tuple(peers)))
        report = Report()
        prefix = {"prefix": settings.topic_prefix} if peers else {}
        report.add(Finding(Kind.MISSING, "g", "events-0@1", "version 7 is in no topic", **prefix))
        return report

    monkeypatch.setattr(streaming.verify, "verify", verify)
    return asked


def run(*typed: str) -> Any:
    return CliRunner().invoke(app, ["verify", "--topic-prefix", "old", *typed])


def test_each_named_coordinator_is_checked_once(asked: ASKED):
    assert run("--peer", "new", "--peer", "old", "--peer", "new").exit_code == 1
    assert asked == [("old", ("new",))]


def test_without_the_option_one_coordinator_is_checked(asked: ASKED, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The setting `peers` changes nothing."""
    (key_file := tmp_path / "peers.key").write_text("k" * 32)
    monkeypatch.setenv("COORDINATOR_PEERS", '["new"]')
    monkeypatch.setenv("COORDINATOR_PEER_KEY_FILE", str(key_file))
    assert run().exit_code == 1
    assert asked == [("old", ())]


def test_a_finding_has_the_prefix_if_several_coordinators_are_checked(asked: ASKED):
    assert run("--peer", "new").output.startswith("missing: old: g: version 7 is in no topic (events-0@1)\n")
    assert run().output.startswith("missing: g: version 7 is in no topic (events-0@1)\n")
    assert json.loads(run("--peer", "new", "-o", "json").output)["findings"][0]["prefix"] == "old"
    assert len(asked) == 3


def test_too_many_peers_are_refused(asked: ASKED):
    done = run(*(word for number in range(PEERS_MAX + 1) for word in ("--peer", f"p{number}")))
    assert (done.exit_code, asked) == (2, [])
