"""No definition has a name for which Kafka or the field has a word of its own (contributing.md, Plain words)."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT

_WORDS = {
    "callbacks, records and parameters: a callback, a response, a record; a cause; handle, store, record_...": """
        told asked behind news wish take keep note
    """,
    "the core": """
        Vitals vitals Pulse KINDS CONSUMER_KINDS Blame blame noting look_at_offsets put_away take_out bury
        forget_ends rosters Rosters KeptRules KeptPolicies KeptMoves Kept Guard guard seating seat_parts Kin kin
        likeness debt debts pay Quiet led lapsed Coming coming Going going Gone Becomes becomes Leaves TAKER AS_EVER
        Flapper flapper flappers raising planning classics takes_no_ones_place says_all_if_it_joins
        is_known_if_it_says_so tells_of_few_matches speaks_our_protocol names_no_empty_place let_go turn_away
        goodbye hide Todo Lost Act TELL TAKE_ID
    """,
    "the gateway": """
        Asking asking Questions Question Answers PortView world Gathering Gatherings gathering Unanswered unanswered
        LateAnswers Resting resting locating seeing probing needs refusing certified Slot Ledger ledger Outgoing
        outgoing
    """,
    "the clients and the query": """
        Whereabouts whereabouts Lane Home Next FollowedGroups Bell bell Company company ring stand_still keep_at
        go_on Correspondent correspondent correspondents beats guarded Place Live say look Standing standing stands
    """,
    "modules": """
        showing telling changing relocating trying resuming carrying soundness taking_back at_a_time moving
        following
    """,
    "names that stand for several things, or for none": """
        Told Asked Reading Following Moving ails lacks Wish Taker taker World House Way way NOT_THE_WAY Manned Grave
        UNSAYABLE born_of live_once_elsewhere access_is_of_one_piece look_for_changes_of_lag turns_within of_old
        crew story leash
    """,
}

ODD = frozenset(word for words in _WORDS.values() for word in words.split())
"""Compared without the underscores at the beginning of a name."""

PUBLISHED = {
    ("coordinator/messages/group_records.py", "standing"),  # a field of the records of groups
    ("coordinator/messages/responses.py", "led"),  # a field of descriptions of groups
    ("streaming/sizing/lines.py", "note"),  # a field of `coordinator size --output json`
    ("streaming/views/api/rows.py", "Lane"),  # a type of the dashboard's API, as the schema names it
    ("streaming/views/api/rows.py", "becomes"),  # a field of the dashboard's API
    ("streaming/views/api/rows.py", "standing"),
}
"""Names that other programs see, so they stay."""


def definitions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each function, class, parameter, attribute, field and constant."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        if isinstance(node, ast.Module | ast.ClassDef):
            names = (
                name for each in node.body if isinstance(each, ast.Assign | ast.AnnAssign) for name in ast.walk(each)
            )
            yield from ((n.lineno, n.id) for n in names if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def odd_names(path: Path) -> Iterator[str]:
    """Yield the odd names of a module and of its definitions, each with its place."""
    file = str(path.relative_to(ROOT))
    parts = Path(file).with_suffix("").parts
    yield from (f"{file}: {part}" for part in parts if part in ODD)
    for line, name in definitions(ast.parse(path.read_text())):
        word = name.strip("_")
        if (word in ODD or word.startswith("note_")) and (file, name) not in PUBLISHED:
            yield f"{file}:{line}: {name}"


def test_no_definition_has_an_odd_name() -> None:
    modules = [path for package in ("coordinator", "streaming") for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(modules) > 100, "the modules must be found"
    assert [odd for path in modules for odd in odd_names(path)] == []


def test_odd_names_are_found(tmp_path: Path) -> None:
    """Every kind of definition is searched."""
    text = "class Vitals:\n  told: int\n  def take(self, news): self._bell = lambda asked: 1\n\nBLAME, KINDS = 1, 2\n"
    found = {name for _, name in definitions(ast.parse(text)) if name.strip("_") in ODD}
    assert found == {"Vitals", "told", "take", "news", "_bell", "asked", "KINDS"}
