"""Tests of `coordinator policy` against real shards: what the commands set, show and refuse. There is no broker."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result
from typer.testing import CliRunner

from coordinator.base.config import Config
from coordinator.base.hashing import shard_of
from coordinator.base.limits import POLICIES_MAX
from coordinator.base.policies import Freeze, Policies, Policy, Settle, Succession, Window
from coordinator.messages.requests import Received, Request
from coordinator.messages.responses import AnyAnswer, Reply
from coordinator.shard.shard import Shard
from streaming.administration import policies as administration
from streaming.administration import shards
from streaming.administration.policies import set_policies, shown_policies, with_freeze, without_ended_freezes
from streaming.cli.admin import policy
from streaming.cli.lib.times import moment
from streaming.cli.main import app
from streaming.config.settings import Settings
from streaming.errors import Exit, RequestRefused, UserError
from tests.coordinator.test_authorizer import CONFIG as RULES

HOUR_MS = 3_600_000
NOW_MS = 1_795_795_200_000
ENTRY = '[[policies]]\nname = "orders"\nsuccession = {}\n'


class ShardsOfATopic:
    """A transport to four shards in this process, as an unsigned client has it."""

    shards: list[Shard] = []  # noqa: RUF012 - set by the fixture
    now_ms = NOW_MS
    handled = 0

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> "ShardsOfATopic":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask_every_shard(self, request: Request, timeout_s: float) -> list[AnyAnswer]:
        return [self.ask(shard, request) for shard in self.shards]

    @classmethod
    def ask(cls, shard: Shard, request: Request) -> AnyAnswer:
        cls.handled += 1
        asked: Any = msgspec.structs.replace(request, request_id="r", reply_to="inbox")
        outputs = shard.step([Received(cls.handled, cls.now_ms, asked)], cls.now_ms)
        return next(output.answer for output in outputs if isinstance(output, Reply))


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> type[ShardsOfATopic]:
    of_test = type("OfTest", (ShardsOfATopic,), {"shards": [Shard(n, 4, bytes(16), Config()) for n in range(4)]})
    monkeypatch.setattr(shards, "Transport", of_test)
    for module in (administration, policy):
        monkeypatch.setattr(module, "unix_ms", lambda: of_test.now_ms)
    return of_test


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["policy", *words])


def kept() -> tuple[Policy, ...]:
    """Return the policies that every shard keeps."""
    shown = shown_policies(Settings())
    assert not shown.shards_behind
    return shown.latest.policies


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (file := tmp_path / "policies.toml").write_text(ENTRY)
    return file


def test_policies_are_set_in_every_shard_and_shown_as_they_were_set(topic: type[ShardsOfATopic], file: Path) -> None:
    done = run("set", str(file))
    assert (done.exit_code, done.stderr) == (0, "1 policies are set in 4 shards.\n")
    assert kept() == (Policy(name="orders", succession=Succession()),)
    shown = run("show")
    assert (shown.exit_code, shown.stdout) == (0, ENTRY)
    entry = {"name": "orders", "succession": {}}
    assert json.loads(run("show", "-o", "json").stdout) == {"made_ms": NOW_MS, "policies": [entry]}


def test_shards_without_policies_show_none(topic: type[ShardsOfATopic]) -> None:
    shown = run("show")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", "")


def test_shards_with_different_policies_are_an_error(topic: type[ShardsOfATopic], file: Path) -> None:
    """policies.md 3.3: a shard may not have received the latest policies."""
    run("set", str(file))
    topic.shards[2] = Shard(2, 4, bytes(16), Config())
    shown = run("show")
    assert (shown.exit_code, shown.stdout) == (1, ENTRY)
    assert shown.stderr == "1 of 4 shards have other policies. Set the policies again.\n"


def test_a_bad_file_sets_nothing(topic: type[ShardsOfATopic], file: Path) -> None:
    file.write_text(ENTRY + "settel = {}")
    error = run("set", str(file)).exception
    assert isinstance(error, UserError)
    assert (str(error), error.exit_code) == (
        f"{file}, line 4: unknown key settel; settle is the nearest known key.", Exit.NEEDS_A_PERSON,
    )  # fmt: skip
    assert kept() == ()


def test_policies_are_refused_by_access_rules(topic: type[ShardsOfATopic], file: Path) -> None:
    """With access = rules, nobody may set policies without a signature."""
    topic.shards[3] = Shard(3, 4, bytes(16), RULES)
    for words in (["set", str(file)], ["show"], ["of", "orders"], ["thaw", "orders"]):
        error = run(*words).exception
        assert isinstance(error, RequestRefused)
        assert "does not allow User:ANONYMOUS to show or set policies" in str(error)
        assert "super_users" in str(error)


def test_older_policies_are_refused(topic: type[ShardsOfATopic]) -> None:
    set_policies(Settings(), (), NOW_MS)
    with pytest.raises(RequestRefused, match=r"did not accept the policies .*already has policies made at"):
        set_policies(Settings(), (), NOW_MS - 1)


def test_the_entry_of_a_group_is_shown(topic: type[ShardsOfATopic], file: Path) -> None:
    file.write_text('[[policies]]\nname = "ord"\npattern = "PREFIXED"\nfreeze = { until = 2030-01-01T00:00:00.5Z }\n')
    topic.now_ms = 1_893_456_000_000 - HOUR_MS
    assert run("set", str(file)).exit_code == 0
    found = run("of", "orders")
    assert (found.exit_code, found.stdout) == (0, file.read_text().replace("00.5Z", "00.500Z"))
    assert found.stderr == f"orders is frozen until {moment(topic.now_ms + HOUR_MS + 500)}.\n"
    assert json.loads(run("of", "orders", "-o", "json").stdout)["name"] == "ord"
    none = run("of", "billing")
    assert (none.exit_code, none.stdout) == (0, "")
    assert none.stderr == "billing has no policy. It rebalances as with Kafka's own coordinator.\n"
    assert json.loads(run("of", "billing", "-o", "json").stdout) is None


def test_the_entry_of_a_group_is_that_of_its_shard(topic: type[ShardsOfATopic], file: Path) -> None:
    run("set", str(file))
    topic.shards[shard_of("orders", 4)] = Shard(shard_of("orders", 4), 4, bytes(16), Config())
    assert shown_policies(Settings()).of("orders") is None


def test_a_group_is_frozen_and_thawed(topic: type[ShardsOfATopic], file: Path) -> None:
    file.write_text(ENTRY + '\n[[policies]]\nname = "*"\nsettle = {}\n')
    run("set", str(file))
    before = kept()
    topic.now_ms += 1
    assert "orders is frozen until" in run("freeze", "orders", "--for", "2h").stderr
    until_ms = topic.now_ms + 2 * HOUR_MS
    frozen = Policy(name="orders", succession=Succession(), freeze=Freeze(until_ms=until_ms))
    assert set(kept()) == {frozen, before[1]}
    run("freeze", "billing", "--for", "PT1H")
    assert Policy(name="billing", settle=Settle(), freeze=Freeze(until_ms=topic.now_ms + HOUR_MS)) in kept()
    for group_id in ("billing", "orders"):
        assert run("thaw", group_id).stderr == f"{group_id} is not frozen.\n"
    assert set(kept()) == set(before)


@pytest.mark.parametrize("wait", ["0s", "73h", "soon"])
def test_a_freeze_is_bounded(wait: str, topic: type[ShardsOfATopic]) -> None:
    done = run("freeze", "orders", "--for", wait)
    assert Exit.USAGE in (done.exit_code, getattr(done.exception, "exit_code", None))
    assert kept() == ()


def test_a_freeze_does_not_replace_windows_of_the_week(topic: type[ShardsOfATopic]) -> None:
    windows = (Window(from_minute=0, until_minute=60),)
    set_policies(Settings(), (Policy(name="*", freeze=Freeze(windows=windows)),), NOW_MS)
    error = run("freeze", "orders", "--for", "2h").exception
    assert isinstance(error, RequestRefused)
    assert "The entry * has a freeze with windows of the week" in str(error)
    assert run("thaw", "orders").exit_code == 0
    assert kept()[1:] == (Policy(name="orders"),)


def test_a_freeze_is_no_entry_too_many(topic: type[ShardsOfATopic]) -> None:
    set_policies(Settings(), tuple(Policy(name=f"g{n}", settle=Settle()) for n in range(POLICIES_MAX)), NOW_MS)
    error = run("freeze", "orders", "--for", "2h").exception
    assert isinstance(error, RequestRefused)
    assert str(error) == "There are 200 entries already. Remove one with policy set."
    assert run("freeze", "g7", "--for", "2h").exit_code == 0


def test_a_freeze_keeps_its_other_settings_and_drops_freezes_that_ended(topic: type[ShardsOfATopic]) -> None:
    """A shard refuses a freeze that has ended, and the policies with it."""
    freeze = Freeze(until_ms=NOW_MS + HOUR_MS, unowned_max_ms=5_000)
    set_policies(Settings(), (Policy(name="a", freeze=freeze), Policy(name="b", freeze=freeze)), NOW_MS)
    topic.now_ms += HOUR_MS // 2
    run("freeze", "b", "--for", "2h")
    later = Freeze(until_ms=topic.now_ms + 2 * HOUR_MS, unowned_max_ms=5_000)
    assert set(kept()) == {Policy(name="a", freeze=freeze), Policy(name="b", freeze=later)}
    topic.now_ms += HOUR_MS
    run("freeze", "c", "--for", "2h")
    assert set(kept()) == {
        Policy(name="a"), Policy(name="b", freeze=later),
        Policy(name="c", freeze=Freeze(until_ms=topic.now_ms + 2 * HOUR_MS)),
    }  # fmt: skip


def test_policies_of_a_clock_ahead_are_replaced(topic: type[ShardsOfATopic]) -> None:
    set_policies(Settings(), (), NOW_MS + 60_000)
    assert run("thaw", "orders").exit_code == 0
    assert shown_policies(Settings()).latest == Policies(NOW_MS + 60_001)


def test_an_entry_that_makes_no_difference_is_not_kept() -> None:
    assert with_freeze((), "g", None) == ()
    assert with_freeze((Policy(name="g"),), "g", None) == ()
    assert without_ended_freezes((Policy(name="g"),), NOW_MS) == (Policy(name="g"),)
