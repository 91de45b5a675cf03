"""Tests of `coordinator doctor` where no broker answers: its formats, its exit codes, and its secrets."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.doctor.masking import MASKED
from streaming.errors import Exit
from tests.ports import free_port

SECRETS = {
    "COORDINATOR_SASL_USERNAME": "secret-user",
    "COORDINATOR_SASL_PASSWORD": "secret-password",
    "COORDINATOR_ACCESS_KEY": "secret-key-of-at-least-32-bytes-as-a-line",
}


@pytest.fixture
def servers() -> str:
    """Return the address of a port on which nothing listens."""
    return f"127.0.0.1:{free_port()}"


def test_an_unreachable_broker_is_wrong_and_the_rest_is_shown(servers: str) -> None:
    done = CliRunner().invoke(app, ["doctor", "-b", servers])
    assert done.exit_code == Exit.FAILED, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("OK       installation  groupcoord ")
    assert f"OK       settings      bootstrap_servers = {servers}" in lines
    assert any(line.startswith(f"WRONG    brokers       No Kafka broker answers at {servers} (") for line in lines)
    assert any(line.startswith("WARNING  topics        The topics were not looked at, because ") for line in lines)
    assert lines[-1] == "1 wrong, 1 warning."


def test_the_json_has_the_same_findings(servers: str) -> None:
    done = CliRunner().invoke(app, ["doctor", "-b", servers, "-o", "json"])
    report = json.loads(done.stdout)
    assert (done.exit_code, report["wrong"], report["warnings"]) == (Exit.FAILED, 1, 1)
    (finding,) = [each for each in report["findings"] if each["level"] == "WRONG"]
    assert finding["subject"] == "brokers"
    assert set(finding) == {"subject", "level", "text", "remedy"}


@pytest.mark.parametrize("words", [("--health", "ftp://h:1"), ("--log",), ("-o", "xml"), ("now",)])
def test_wrong_usage_has_its_exit_code(words: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, ["doctor", *words]).exit_code == Exit.USAGE


@pytest.mark.parametrize("output", ["text", "json"])
def test_no_secret_is_shown(output: str, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets of the environment, of files, and those that a log has."""
    key, log = tmp_path / "key", tmp_path / "log"
    key.write_text("secret-of-the-peers-with-32-bytes-or-more\n")
    log.write_text(f"coordinator: it ends with {SECRETS['COORDINATOR_SASL_PASSWORD']} and token=secret-token.\n")
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COORDINATOR_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    monkeypatch.setenv("COORDINATOR_SASL_MECHANISM", "SCRAM-SHA-256")
    monkeypatch.setenv("COORDINATOR_PEERS", '["other"]')
    monkeypatch.setenv("COORDINATOR_PEER_KEY_FILE", str(key))
    monkeypatch.setenv("COORDINATOR_STORE_ENDPOINT", "https://ana:secret-of-store@store:9000")
    done = CliRunner().invoke(app, ["doctor", "-b", servers, "--log", str(log), "-o", output])
    assert done.exit_code == Exit.FAILED, done.output
    assert "secret-" not in done.output
    for shown in (
        f"sasl_password = {MASKED}",
        f"access_key = {MASKED}",
        f"sasl_username = {MASKED}",
        "sasl_mechanism = SCRAM-SHA-256",
        f"peer_key_file = {key}",
        f"store_endpoint = https://{MASKED}@store:9000",
        f"it ends with {MASKED} and token={MASKED}",
    ):
        assert shown in done.output
