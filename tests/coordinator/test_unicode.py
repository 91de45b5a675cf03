"""No output depends on Python's Unicode tables, which differ between versions of Python (I16)."""

import ast
import glob
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.base.hashing import member_suffix
from tests.coordinator.scenario import Scenario
from tests.system.waiting import HANG_S

ROOT = Path(__file__).parents[2]
SECRET = b"secret of sixteen"

FIXED = [
    ((3, 7), "9cb3fe43-9fd5-9341-de32-cee4a1b051fa"),
    (("inbox", "1"), "8e7be20b-52d0-120c-5e17-97ebb93f4765"),
    (("it's", '"1"'), "76bdf82a-7065-ec10-0146-5ef10232dfc3"),
    (("both ' and \"", "a\\b\n\r\t\0\x7f\x1f"), "20d18a6b-dbf8-a83b-df59-fc8c61054cf1"),
    (("ünïcode", "消费者组"), "c166f7c2-f5db-3941-1805-764655dbecf4"),
    (("\U0001fae8", "1"), "13573650-8b27-df75-0de3-93755dfcb70d"),
]
"""Sources of member ids, and the ids."""

CHANGED = "\u1c89\u2ffc\u31ef\U0001fae8\U0001f6dc\U00010d50\U000113d0\U0002ebf0\U0001e4d0\U0001fadc\u0378\U000e0080"
"""Characters that a version of Unicode from 14 to 16 added, and two that no version has."""


@pytest.mark.parametrize(("source", "suffix"), FIXED, ids=ascii)
def test_a_member_id_follows_from_its_source(source: tuple[int | str, int | str], suffix: str):
    """S36: a batch that is repeated, also after an upgrade, assigns the same ids."""
    assert member_suffix(SECRET, "g", source) == suffix


def test_different_pairs_of_ids_are_written_differently():
    texts = [
        "",
        "'",
        '"',
        "\\",
        "\\'",
        "', '",
        "\\x00",
        "\0",
        "\n",
        "\\n",
        "'\"",
        "\\u200b",
        "\u200b",
        "a",
        "a', 'b",
        "b",
        "0:",
        "1:a",
        "a, 1:b",
    ]
    suffixes = {member_suffix(SECRET, "g", (a, b)) for a in texts for b in texts}
    assert len(suffixes) == len(texts) ** 2


DERIVE = f"""
import sys
from coordinator.base.hashing import member_suffix
for c in {CHANGED!a}:
    print(member_suffix({SECRET!r}, c, (c, "x" + c)))
"""


def interpreters() -> list[str]:
    """Return the Python versions on this machine that can run the core."""
    named = (shutil.which(f"python3.{minor}") for minor in range(11, 20))
    kept = glob.glob(str(Path.home() / ".pyenv/versions/3.1[1-9].*/bin/python"))
    return [sys.executable, *filter(None, named), *kept]


def test_each_python_on_this_machine_derives_the_same_ids():
    told = {}
    for python in interpreters():
        done = subprocess.run(
            [python, "-c", DERIVE], cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False
        )
        if done.returncode == 0 or python == sys.executable:
            told[python] = done.stdout.split()
    assert len(told[sys.executable]) == len(CHANGED)
    assert all(ids == told[sys.executable] for ids in told.values()), told


@pytest.mark.parametrize(("state", "is_found"), [
    ("Stable", True), ("STABLE", True), (" \tstable\n", True), ("\xa0Stable", False), ("Stable\u3000", False),
    ("\u017ftable", False),
])  # fmt: skip
def test_a_listings_filter_is_compared_as_ascii(state: str, is_found: bool):
    """As in Java's trim: only ASCII blanks are removed."""
    s = Scenario.stable("ana").list_groups(states=(state,))
    assert [group.group_id for group in s.said.groups] == (["g"] if is_found else [])


# -- the code itself ---------------------------------------------------------------------------------------------------

OF_TABLES = {
    "casefold", "lower", "upper", "title", "capitalize", "swapcase", "isprintable", "isalnum", "isalpha", "isdecimal",
    "isdigit", "isnumeric", "isidentifier", "islower", "isupper", "istitle", "isspace", "splitlines", "format",
    "format_map", "expandtabs", "zfill", "center", "ljust", "rjust",
}  # fmt: skip
"""Methods of text that use Python's Unicode tables, or format values as `repr` does."""

BLANKS_OF_TABLES = {"strip", "lstrip", "rstrip", "split", "rsplit"}
"""Methods that use the tables if they have no argument."""

WRITTEN_BY_TABLES = {"repr", "ascii", "format"}
MODULES_OF_TABLES = {"re", "unicodedata", "locale", "textwrap", "stringprep", "pprint", "reprlib"}

MAY_FORMAT = {
    "consumer_protocol.write_partitions",  # a number
    "binary.Reader.elements",              # text
    "binary.Reader.numbers",               # text and a number
    "authorizer.set_access",                    # numbers
    "converting._read",                    # text
    "drain",                            # a number
    "hashing",                             # numbers
    "store._why_not",              # numbers
    "peers._about_slots",                  # text
    "peers.received_from_peer",            # text
    "policies.Problem.__str__",            # text
    "policies.problems",                   # numbers
    "policies._problems_of_settle",        # text and numbers
    "policies._problems_of_freeze",        # text and numbers
    "hashing._written",                    # text and a number
    "hashing.member_suffix",               # text
    "imports._incoming",                 # a number
    "join._new_id",                  # text
    "shard.Shard._group_for",              # a number
    "shard.Shard._handle_for_moves",       # a number
    "slot_source._why_never",              # text and numbers
    "slot_source._why_not_again",          # a number
    "slot_source._why_not_now",            # text and numbers
    "slot_source.release_slots",           # numbers
    "slot_target._why_not",                # numbers
    "slots.ranges_of",                     # numbers
    "validate._problem_of_classic",       # text
    "validate.problem_of",                # a number
    "source._release",                     # text and numbers
    "source._why_not",                     # text and numbers
    "source.take_back_sent",               # text
    "target._codec_refusal",               # numbers
    "target._too_large",                   # numbers
    "target.adopt",                        # a number
    "target.cancel",                       # text
    "target.check",                        # numbers
    "target.gather",                       # a number
    "target.refusal_of",                   # a number
}  # fmt: skip
"""Where text is put together that may reach an output: of `str` and `int` alone, for whatever holds text writes that by
`repr`. Sentences of errors and assertions are no outputs."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Return the parsed modules of the core, without the client's side, whose ids are its own."""
    for path in sorted((ROOT / "coordinator").rglob("*.py")):
        if path.parent.name != "member":
            yield path.stem, ast.parse(path.read_text())


def offences(module: str, tree: ast.Module) -> Iterator[str]:
    """Return the places in a module that may make an output depend on Unicode tables."""
    yield from _of_nodes(tree, module, is_error=False)


def _of_nodes(node: ast.AST, where: str, *, is_error: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        inside = f"{where}.{child.name}" if isinstance(child, ast.FunctionDef | ast.ClassDef) else where
        in_error = is_error or isinstance(child, ast.Raise | ast.Assert)
        if (what := _offence(child)) and not in_error and (what != "f-string" or inside not in MAY_FORMAT):
            yield f"{inside}: {what}"
        yield from _of_nodes(child, inside, is_error=in_error)


def _offence(node: ast.AST) -> str | None:
    match node:
        case ast.Import(names=names) if found := {name.name for name in names} & MODULES_OF_TABLES:
            return f"import {found}"
        case ast.ImportFrom(module=module) if module in MODULES_OF_TABLES:
            return f"import {module}"
        case ast.FormattedValue(conversion=conversion) if conversion in (ord("r"), ord("a")):
            return "!r"
        case ast.JoinedStr(values=values) if any(isinstance(value, ast.FormattedValue) for value in values):
            return "f-string"
        case ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str())):
            return "%"
        case ast.Attribute(attr=attr) if attr in OF_TABLES:
            return attr
        case ast.Call(func=ast.Attribute(attr=attr), args=[]) if attr in BLANKS_OF_TABLES:
            return attr
        case ast.Call(func=ast.Name(id=name)) if name in WRITTEN_BY_TABLES:
            return name
    return None


def test_no_output_of_the_core_depends_on_unicode_tables():
    assert [offence for module, tree in modules() for offence in offences(module, tree)] == []


@pytest.mark.parametrize("line", [
    "x = f'{pair}/{group_id}'", "x = f'{name!r}'", "x = repr(name)", "x = name.lower()", "x = name.strip()",
    "x = name.isprintable()", "import re", "from unicodedata import name", "x = '%s' % pair", "x = '{}'.format(pair)",
    "x = map(str.lower, names)",
])  # fmt: skip
def test_each_use_of_unicode_tables_is_found(line: str):
    assert list(offences("any", ast.parse(line)))


@pytest.mark.parametrize(
    "line", ["raise E(f'{x!r}')", "x = name.strip(' ')", "x = a.split(',')", "x = f'plain'", "a % b"]
)
def test_code_without_unicode_tables_is_accepted(line: str):
    assert not list(offences("any", ast.parse(line)))
