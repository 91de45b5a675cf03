"""Every command, flag, make target and module that a page names exists."""

import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import typer

from streaming.cli.main import app
from tests.docs.pages import PAGES, ROOT, blocks, name_of, spans

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)

MAKEFILE = (ROOT / "Makefile").read_text()

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
END_OF_COMMAND = re.compile(r"\s(?:#|\||>|&&|;).*$")
PLACEHOLDERS = re.compile(r"\[[^\]]*\]|\.\.\.|'[^']*'")

OF_OTHERS = {
    "--conf", "--packages", "--py-files", "--archives", "--jars", "--deploy-mode",  # spark-submit
    "--build",  # docker compose
    "--under-replicated-partitions",  # kafka-topics.sh
    "--describe", "--state",  # kafka-consumer-groups.sh
    "--constraint", "--force-reinstall",  # pip
    "--steps", "--jobs", "--bugs", "--seed",  # python -m tests.simulation
}  # fmt: skip


def _lines(page: Path) -> list[str]:
    """Return the lines of code of a page."""
    code = "\n".join(block.code for block in blocks(page)).replace("\\\n", " ")
    return [*code.splitlines(), *spans(page)]


def _commands(page: Path) -> Iterator[str]:
    """Yield every `coordinator ...` or `groupcoord ...` command of a page, with its flags."""
    for line in _lines(page):
        line = re.sub(r"^\$ |^\.venv/bin/|^spark-submit ", "", line.strip())
        if line.startswith(("coordinator ", "groupcoord ", "groupcoord.py ")):
            yield END_OF_COMMAND.sub("", line)


@lru_cache
def _program() -> Any:
    return typer.main.get_command(app)


def _subcommands(command: Any) -> dict[str, Any]:
    return dict(getattr(command, "commands", {}))


def _flags_of(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


def _unknown(line: str) -> str | None:
    """Return the first unknown subcommand or flag of a line, or None."""
    command = _program()
    words = shlex.split(PLACEHOLDERS.sub("", line))[1:]
    while words and _subcommands(command):
        if not re.fullmatch(r"[a-z-]+", words[0]):
            break
        if words[0] not in _subcommands(command):
            return words[0]
        command = _subcommands(command)[words.pop(0)]
    known = _flags_of(command) | _flags_of(_program())
    return next((word for word in words if word.startswith("--") and word not in known), None)


@every_page
def test_commands_exist_with_their_flags(page: Path) -> None:
    assert {line: unknown for line in _commands(page) if (unknown := _unknown(line))} == {}


@lru_cache
def _all_flags() -> frozenset[str]:
    found: set[str] = set()
    commands = [_program()]
    while commands:
        command = commands.pop()
        found |= _flags_of(command)
        commands += _subcommands(command).values()
    return frozenset(found)


@every_page
def test_flags_in_sentences_exist(page: Path) -> None:
    named = {flag for span in spans(page) if not span.startswith(("pip ", "env/")) for flag in FLAG.findall(span)}
    assert named - _all_flags() - OF_OTHERS == set()


@every_page
def test_targets_of_make_exist(page: Path) -> None:
    targets = {each for line in re.findall(r"^([a-z -]+):", MAKEFILE, re.MULTILINE) for each in line.split()}
    named = {found[1] for line in _lines(page) if (found := re.match(r"make ([a-z-]+)", line))}
    assert named - targets == set()


@every_page
def test_modules_that_are_run_exist(page: Path) -> None:
    modules = {found for line in _lines(page) for found in re.findall(r"python -m (tests[\w.]*\w)", line)}
    paths = {module: ROOT / module.replace(".", "/") for module in modules}
    assert {
        module for module, path in paths.items() if not (path.is_dir() or path.with_suffix(".py").is_file())
    } == set()


def test_contributing_page_lists_every_make_target() -> None:
    targets = [each for line in re.findall(r"^([a-z -]+):.*##", MAKEFILE, re.MULTILINE) for each in line.split()]
    page = (ROOT / "docs" / "contributing.md").read_text()
    assert [target for target in targets if f"`make {target}" not in page] == []
