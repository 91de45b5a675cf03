"""The page of policies has every setting, with its default and its bounds, and an example that is accepted."""

import re
from pathlib import Path

from msgspec import inspect

from coordinator.base.limits import FREEZE_WINDOWS_MAX, POLICIES_MAX, POLICY_ASSIGNORS_MAX
from coordinator.base.policies import Freeze, Policy, Quarantine, Settle, Succession
from streaming.administration.policy_files import policies_in
from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "policies.md"


def test_the_table_has_every_setting_with_its_default_and_its_bounds() -> None:
    rows = [
        f"| `{kind.__name__.lower()}.{field.name}` | {field.default} | {field.type.ge} to {field.type.le} |"
        for kind in (Succession, Settle, Freeze, Quarantine)
        for field in inspect.type_info(kind).fields
        if isinstance(field.type, inspect.IntType)
    ]
    rows += ["| `freeze.until` | | 72 hours ahead |", f"| `freeze.windows` | | {FREEZE_WINDOWS_MAX} windows |"]
    assignors = ", ".join(Policy(name="g").assignors)
    rows.append(f"| `assignors` | {assignors} | {POLICY_ASSIGNORS_MAX} names |")
    page = PAGE.read_text()
    assert [row for row in rows if row not in page] == []
    assert len(re.findall(r"^\| `(?:succession|settle|freeze|quarantine)\.|^\| `assignors`", page, re.M)) == len(rows)
    assert f"at most {POLICIES_MAX} entries" in page


def test_the_example_is_accepted(tmp_path: Path) -> None:
    (example,) = (block.code for block in blocks(PAGE) if "[[policies]]" in block.code)
    (file := tmp_path / "policies.toml").write_text(example)
    assert [policy.name for policy in policies_in(file, now_ms=0)] == ["billing-", "orders", "*"]
