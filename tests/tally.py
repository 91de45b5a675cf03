"""Tallies of the runs that are started by hand and take hours. Each run adds to a file in `docs/tallies`.

A tally is one JSON object with `totals` by kind, and `runs`, one line each. A run that is cut short adds its counts so
far.
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
        run: The run's own fields, such as its seed and its duration.
            counts: The run's counts, by kind. They are added to the totals.
    """
    tally = json.loads(file.read_text()) if file.exists() else {"totals": {}, "runs": []}
    for kind, found in counts.items():
        total = tally["totals"].setdefault(kind, {})
        for name, count in found.items():
            total[name] = total.get(name, 0) + count
    tally["runs"].append({"date": datetime.now(UTC).date().isoformat(), **run, "counts": counts})
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".new")
    beside.write_text(_text(tally))
    beside.replace(file)


def _text(tally: Mapping[str, Any]) -> str:
    """Return the tally as JSON, with each total and each run on its own line, for readers and for `git diff`."""
    totals = ",\n".join(
        f"    {json.dumps(kind)}: {json.dumps(tally['totals'][kind])}" for kind in sorted(tally["totals"])
    )
    runs = ",\n".join(f"    {json.dumps(run)}" for run in tally["runs"])
    return f'{{\n  "totals": {{\n{totals}\n  }},\n  "runs": [\n{runs}\n  ]\n}}\n'
