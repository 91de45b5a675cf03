"""Tallies of what is run by hand and takes hours: each run adds to a file in `docs/tallies`, which is kept.

A tally is one JSON object: `totals` by kind, and `runs`, a line each. A run that is cut short adds what it has come to.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Counts = Mapping[str, int]


def add(file: Path, run: Mapping[str, Any], counts: Mapping[str, Counts]) -> None:
    """Add a run to a tally.

    Args:
        run: What tells it from others, as its seed and how long it took.
        counts: What it came to, by kind; they are added to the totals.
    """
    told = json.loads(file.read_text()) if file.exists() else {"totals": {}, "runs": []}
    for kind, found in counts.items():
        total = told["totals"].setdefault(kind, {})
        for name, count in found.items():
            total[name] = total.get(name, 0) + count
    told["runs"].append({"date": datetime.now(UTC).date().isoformat(), **run, "counts": counts})
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".new")
    beside.write_text(_text(told))
    beside.replace(file)


def _text(told: Mapping[str, Any]) -> str:
    """Write each total and each run on a line of its own, for people and for `git diff`."""
    totals = ",\n".join(
        f"    {json.dumps(kind)}: {json.dumps(told['totals'][kind])}" for kind in sorted(told["totals"])
    )
    runs = ",\n".join(f"    {json.dumps(run)}" for run in told["runs"])
    return f'{{\n  "totals": {{\n{totals}\n  }},\n  "runs": [\n{runs}\n  ]\n}}\n'
