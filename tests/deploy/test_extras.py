"""The base installation has no Spark: what it imports, and the sentence of a command whose extra is missing."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from streaming.cli.lib.extras import ALL, EXTRAS
from streaming.errors import Exit
from tests.deploy.reading import ROOT
from tests.system.waiting import HANG_S

AS_BASE = f"""
import sys
from importlib.machinery import PathFinder

class Base:
    '''Finds all packages but those of the extras.'''

    @staticmethod
    def find_spec(name, path=None, target=None):
        absent = name.partition(".")[0] in {sorted({name for names in EXTRAS.values() for name in names})!r}
        return None if absent else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Base
"""
START = "import groupcoord; groupcoord.main()"

COMMANDS = {
    # command                          the extra that it needs
    "up": ALL,
    "run": "coordinator",
    "observe": "coordinator",
    "broker": "coordinator",
    "prepare": "coordinator",
    "export": "coordinator",
    "checkpoint inspect x": "coordinator",
    "checkpoint verify x": "coordinator",
    "checkpoint export x y": "coordinator",
    "checkpoint replan x": "coordinator",
    "gateway": "gateway",
    "dashboard": "page",
}


def run(program: str, *words: str, path: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), str(ROOT)])}
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(
        command, env=environment, cwd=path, capture_output=True, text=True, timeout=HANG_S, check=False
    )


def test_the_extras_of_the_commands_are_those_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        extra: {word.partition(">=")[0].replace("-", "_") for word in project["optional-dependencies"][extra]}
        for extra in EXTRAS
    }
    assert declared == {extra: set(packages) for extra, packages in EXTRAS.items()}
    assert project["optional-dependencies"][ALL] == [f"groupcoord[{','.join(EXTRAS)}]"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_its_extra_names_the_installation(command: str) -> None:
    done = run(AS_BASE + START, *command.split())
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("coordinator: This command needs ")
    assert sentence.endswith(f": run pip install 'groupcoord[{COMMANDS[command]}]'.")
    assert (done.returncode, done.stdout) == (Exit.NEEDS_A_PERSON, "")


@pytest.mark.parametrize(
    "module",
    [
        "coordinator.shard.shard",
        "streaming.client",
        "streaming.cli.lib.requests",
        "streaming.cli.groups.change",
        "streaming.cli.main",
        "streaming.cli.groups.migrate",
        "streaming.cli.admin.request",
        "streaming.cli.groups.show",
        "streaming.cli.admin.size",
        "streaming.cli.admin.try_policy",
        "streaming.administration.policies",
        "streaming.cli.admin.doctor",
        "streaming.doctor",
        "streaming.kafka.topics",
        "streaming.trial.trials",
        "streaming.verify",
    ],
)
def test_the_parts_of_the_base_import_no_extra(module: str) -> None:
    done = run(f"{AS_BASE}import {module}")
    assert done.returncode == 0, done.stderr


def test_the_client_loads_no_settings_and_no_clients_of_commands() -> None:
    """Their import takes longer than all of the client."""
    done = run("import streaming.client, sys; print(*sys.modules)")
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"streaming", "coordinator", "kafka"} <= loaded
    assert loaded & {"pydantic", "pydantic_settings", "confluent_kafka", "rich", "typer"} == set()


@pytest.mark.parametrize("words", [("up",), ("groups", "list", "--help"), ()])
def test_a_start_says_which_package_shadows_ours(words: tuple[str, ...], tmp_path: Path) -> None:
    other = tmp_path / "streaming" / "__init__.py"
    other.parent.mkdir()
    other.write_text('"""Data for training."""\nraise AssertionError("the start has imported it")\n')
    done = run(START, *words, path=tmp_path)
    assert done.stderr == (
        f"Another package named streaming, at {other}, shadows groupcoord's: install groupcoord in a virtual"
        " environment of its own, or uninstall the other distribution (mosaicml-streaming has a package of this name)"
        " and install groupcoord again.\n"
    )
    assert (done.returncode, done.stdout) == (Exit.NEEDS_A_PERSON, "")


def test_a_start_without_another_package_runs_the_command() -> None:
    done = run(START, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("groupcoord ")
