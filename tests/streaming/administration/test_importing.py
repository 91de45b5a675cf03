"""The import of an exported file into a coordinator, whose core answers here without Kafka."""

import io
import json
import threading
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from typer.testing import CliRunner

from coordinator.base.errors import ErrorCode
from coordinator.messages.requests import DeleteGroup, OffsetToCommit, TxnOffsetCommit
from coordinator.messages.responses import ErrorAnswer
from streaming.administration import importing
from streaming.administration.importing import Choice, Importer, Result, Status, tombstones
from streaming.cli.admin import import_groups as command
from streaming.cli.lib.options import NotConfirmed
from streaming.cli.main import app
from streaming.errors import BadExport, NoAnswer, RequestRefused
from streaming.query.checkpoint.exporting import Names
from tests.coordinator.moving.test_importing import Target
from tests.streaming.exports import every_phase, exported, head_of, lines_of, names_of


class Served(Target):
    """A coordinator whose requests come from several threads. It can stop to answer."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.at(9_000_000)
        self.lock = threading.Lock()
        self.received: list[Any] = []
        self.answers_left = 10**9

    def __call__(self, request: Any, timeout_s: float = 0) -> Any:
        """Return the response to a request."""
        with self.lock:
            if self.answers_left <= 0:
                raise NoAnswer("No response came.")
            self.answers_left -= 1
            self.received.append(request)
            request = structs.replace(request, request_id=f"r{len(self.received)}", reply_to="op")
            self.send("op", request)
            return self.answers[request.request_id][-1]

    def gets(self, names: Names, *, check: bool = False, **choice: Any) -> list[Result]:
        """Import the groups of an export, and return the results."""
        importer = Importer(self, head_of(names), Choice(**choice))
        lines = lines_of(names)
        return list(importer.check_all(lines) if check else importer.import_all(lines))

    def has(self, *group_ids: str) -> bool:
        """Return whether these are the groups."""
        return sorted(self.shard.group_ids) == sorted(group_ids)


LIVING = ("completing", "empty", "g", "preparing")


def all_of(status: Status) -> list[Result]:
    return [Result(name, status) for name in (*LIVING, "removed")]


def test_every_group_is_imported_in_the_order_of_the_file() -> None:
    """A group in each phase, offsets without members, and a removed group."""
    s, names = every_phase(), names_of(every_phase().shard.to_bytes())
    t = Served()
    assert t.gets(names) == all_of(Status.IMPORTED)
    assert t.has(*LIVING)
    for group_id in LIVING:
        group, before = t.shard.group(group_id), s.shard.group(group_id)
        assert group is not None
        assert before is not None
        assert (group.phase, group.generation_id, group.offsets) == (before.phase, before.generation_id, before.offsets)
        assert {m: x.assignment for m, x in group.members.items()} == {
            m: x.assignment for m, x in before.members.items()
        }
    highest = max(name.token for name in names.by_id.values())
    assert {request.token_floor for request in t.received} == {highest + 1}, "above every token of the file"


def test_a_check_changes_nothing() -> None:
    names = names_of(every_phase().shard.to_bytes())
    t = Served()
    assert t.gets(names, check=True) == all_of(Status.WOULD_BE_IMPORTED)
    assert t.shard.is_blank
    t.commit_from_outside("x", {("t", 0): 1})
    wanted = Result("g", Status.REFUSED, "lives_here", "a group of that name lives at the target")
    assert wanted in t.gets(names, check=True)


@pytest.mark.parametrize("slots", ["all", "none"])
def test_a_check_is_true_of_a_coordinator_without_slots(slots: str) -> None:
    names = names_of(every_phase().shard.to_bytes())
    checked, imported = (Served(slots=slots).gets(names, check=check) for check in (True, False))
    reasons = {result.reason for result in imported}
    assert {result.reason for result in checked} == reasons == ({""} if slots == "all" else {"not_home"})


def test_a_second_import_changes_nothing_and_an_interrupted_one_continues() -> None:
    names = names_of(every_phase().shard.to_bytes())
    t = Served()
    t.answers_left = 2
    with pytest.raises(NoAnswer):
        t.gets(names)
    there = len(t.shard.group_ids)
    assert 0 < there < len(LIVING)
    t.answers_left = 10**9
    first = t.gets(names)
    assert sum(result.status is Status.THERE_ALREADY for result in first) == 2
    assert t.has(*LIVING)
    state = {name: t.shard.group(name) for name in LIVING}
    assert t.gets(names) == all_of(Status.THERE_ALREADY)
    assert {name: t.shard.group(name) for name in LIVING} == state


def test_more_groups_than_are_in_work_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "PARALLEL_MAX", 2)
    t = Served()
    assert t.gets(names_of(every_phase().shard.to_bytes())) == all_of(Status.IMPORTED)


def test_a_group_with_members_is_not_replaced_and_one_without_is() -> None:
    names = names_of(every_phase().shard.to_bytes())
    t = Served()
    t.join("x", group_id="empty").commit_from_outside("y", {("t", 0): 1})
    results = {r.group_id: r for r in t.gets(names)}
    assert (results["empty"].reason, results["g"].reason) == ("lives_here", "lives_here")
    results = {r.group_id: r for r in t.gets(names, replaces=True)}
    assert results["empty"].why == "a group of that name lives at the target, and has members"
    assert results["g"].status is Status.IMPORTED
    assert results["preparing"].status is Status.THERE_ALREADY
    assert t.shard.group("empty").offsets == {}
    assert t.shard.group("g").offsets["t"][0].offset == 5
    assert {type(r).__name__ for r in t.received if r.group_id == "preparing"} == {"ImportGroup"}
    t.gets(names, replaces=True)
    assert sum(isinstance(r, DeleteGroup) and r.group_id == "g" for r in t.received) == 1, "an imported group stays"


def test_an_older_state_and_a_token_floor() -> None:
    names = names_of(every_phase().shard.to_bytes())
    t = Served()
    t.gets(names, is_older=True, token_floor=2**52)
    assert {t.shard.group(name).phase.value for name in LIVING} == {"Empty"}
    assert {t.shard.group(name).token for name in LIVING} == {2**52}


def test_open_transactions_are_refused_before_and_at_the_import() -> None:
    s = every_phase()
    offsets = (OffsetToCommit("t", 0, 5),)
    s.ask("p", TxnOffsetCommit, place=3, producer_id=1, producer_epoch=0, offsets=offsets, member_id="")
    s.hears(ErrorCode.NONE)
    names = names_of(s.shard.to_bytes())
    t = Served()
    refused = Result("g", Status.REFUSED, "unsound", "the group has open transactions")
    assert [r for r in t.gets(names, check=True) if r.status is Status.REFUSED] == [refused]
    assert [r for r in t.gets(names) if r.status is Status.REFUSED] == [refused]
    assert t.gets(names, check=True, drops_open_transactions=True)[2].reason == ""
    assert t.gets(names, drops_open_transactions=True)[2] == Result("g", Status.IMPORTED)


def test_a_large_group_is_sent_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.moves.transfer.MOVE_PART_BYTES", 100)
    t = Served()
    assert t.gets(names_of(every_phase().shard.to_bytes())) == all_of(Status.IMPORTED)
    assert max(r.parts for r in t.received) > 3
    assert t.shard.moves.partial == {}


def test_a_sender_without_the_right_and_an_older_coordinator_end_the_command() -> None:
    names = names_of(every_phase().shard.to_bytes())
    for error in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST):

        def refuse(request: Any, error: ErrorCode = error) -> ErrorAnswer:
            return ErrorAnswer(request_id="", error=error.name, code=error.number, error_message="no")

        with pytest.raises(RequestRefused, match=f"did not import .* .{error.name}: no"):
            list(Importer(refuse, head_of(names), Choice()).import_all(lines_of(names)))


def test_a_busy_coordinator_is_asked_again() -> None:
    names = names_of(every_phase().shard.to_bytes())
    t, pauses, busy = Served(), list[float](), set[str]()

    def ask(request: Any) -> Any:
        if request.group_id not in busy:
            busy.add(request.group_id)
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorAnswer(request_id="", error=error.name, code=error.number)
        return t(request)

    importer = Importer(ask, head_of(names), Choice(), pauses.append)
    assert list(importer.import_all(lines_of(names))) == all_of(Status.IMPORTED)
    assert pauses == [importing.PAUSES_S[0]] * len(names.by_id)


def test_a_coordinator_that_stays_busy_ends_the_command() -> None:
    names, pauses = names_of(every_phase().shard.to_bytes()), list[float]()
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def ask(request: Any) -> Any:
        return ErrorAnswer(request_id="", error=error.name, code=error.number)

    importer = Importer(ask, head_of(names), Choice(), pauses.append)
    with pytest.raises(RequestRefused, match="COORDINATOR_LOAD_IN_PROGRESS"):
        list(importer.import_all(lines_of(names)[:1]))
    assert tuple(pauses) == importing.PAUSES_S


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """Return a coordinator that the command reaches."""
    served = Served()

    class Connection:
        def __init__(self, *arguments: object) -> None:
            self.ask = served

        def __enter__(self) -> "Connection":
            return self

        def __exit__(self, *error: object) -> None:
            pass

    monkeypatch.setattr(command, "Transport", Connection)
    return served


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "groups.jsonl"
    exported(path, names_of(every_phase().shard.to_bytes()))
    return path


def run(*words: object) -> tuple[list[dict[str, str]], str, BaseException | None]:
    """Run the command, and return its results, what it told, and its error."""
    with redirect_stderr(io.StringIO()) as told:
        done = CliRunner().invoke(app, ["checkpoint", "import", *map(str, words), "-b", "h:1", "-o", "json"])
    results = json.loads(done.stdout) if done.stdout else []
    return results, told.getvalue() + done.stderr, done.exception


def test_the_command_imports_and_counts(file: Path, served: Served) -> None:
    results, told, error = run(file, "--dry-run")
    assert ({r["status"] for r in results}, error, served.shard.is_blank) == ({"would be imported"}, None, True)
    results, told, error = run(file, "--yes")
    assert ([r["group_id"] for r in results], error) == ([*LIVING, "removed"], None)
    assert "5 imported." in told
    results, told, error = run(file, "--yes")
    assert "5 there already." in told
    assert error is None


def test_the_command_asks_first(file: Path, served: Served) -> None:
    results, _, error = run(file)
    assert isinstance(error, NotConfirmed)
    assert "must not run again" in str(error)
    assert (results, served.received) == ([], [])


def test_the_command_fails_if_a_group_is_refused(file: Path, served: Served) -> None:
    served.join("x", group_id="empty")
    results, told, error = run(file, "--yes")
    assert [r["reason"] for r in results] == ["", "lives_here", "", "", ""]
    assert "4 imported, 1 refused." in told
    assert isinstance(error, RequestRefused)
    assert str(error) == "1 of 5 groups are refused, the first one is empty: a group of that name lives at the target."


def test_the_command_tells_how_far_it_came(file: Path, served: Served) -> None:
    served.answers_left = 0
    _, told, error = run(file, "--yes")
    assert isinstance(error, NoAnswer)
    assert "0 of 5 groups are done. The same command continues." in told


def test_no_group_of_a_changed_file_is_imported(file: Path, served: Served) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    lines[-2] = lines[-2].replace(b'"bytes":', b'"bytes":1')
    file.write_bytes(b"".join(lines))
    _, _, error = run(file, "--yes")
    assert isinstance(error, BadExport)
    assert served.received == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--retire", "other"), "has groups of old: name that prefix with --retire."),
        (("--retire", "old", "--topic-prefix", "old"), "is imported under the prefix that --retire names"),
        (("--retire", "old", "--older"), "is not the newest state of the groups"),
    ],
)
def test_tombstones_are_written_for_the_newest_state_of_the_old_prefix(
    words: tuple[str, ...], why: str, file: Path, served: Served
) -> None:
    _, _, error = run(file, "--yes", *words)
    assert isinstance(error, BadExport)
    assert why in str(error)
    assert served.received == []


def test_the_tombstones_continue_the_versions_of_each_group() -> None:
    s = every_phase()
    written = [t for line in lines_of(names_of(s.shard.to_bytes())) for t in tombstones(line)]
    assert {t.group_id for t in written} == set(LIVING), "the removed group has its own"
    group = s.shard.group("g")
    assert group is not None
    of_g = [(t.key, t.record, t.version, t.ended_ms) for t in written if t.group_id == "g"]
    assert of_g == [
        (("offset", "g", "t", 0), None, group.version + 1, group.hot_state.now_ms),
        (("group", "g"), None, group.version + 2, group.hot_state.now_ms),
    ]


def test_a_state_before_an_unfinished_batch_needs_older(tmp_path: Path, served: Served) -> None:
    file = tmp_path / "unfinished.jsonl"
    exported(file, names_of(every_phase().shard.to_bytes()), unfinished=True)
    _, _, error = run(file, "--yes")
    assert isinstance(error, BadExport)
    assert str(error).endswith("a batch that was planned and not finished: add --older.")
    assert run(file, "--yes", "--older")[2] is None
    assert served.shard.group("g").phase.value == "Empty"
