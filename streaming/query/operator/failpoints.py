"""Failpoints: a test stops the operator at a point in a shard's call, where the worker sends itself a signal.

    SHARDS_FAILPOINT="SIGSTOP called 1,3 /a/folder"     shards 1 and 3 stop before they read anything

| point | the progress of the call at this point |
| --- | --- |
| `called` | no row and no state is read |
| `stepped` | the shard has handled the batch; neither its state nor its output has left the worker |
| `yielded` | its output is on the way to Kafka; its state is not written |

The signal comes once for each shard: the worker creates a file in the folder, named after the shard, that contains its
process id. A worker that finds this file continues without a signal. Without the variable, no failpoint exists.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

VARIABLE = "SHARDS_FAILPOINT"
POINTS = ("called", "stepped", "yielded")


def _failpoint(wanted: str | None) -> Callable[[str, int], None] | None:
    if wanted is None:
        return None
    signal_name, point, shards, folder = wanted.split(maxsplit=3)
    assert point in POINTS, f"{point} is none of {POINTS}"

    def reach(reached: str, shard: int) -> None:
        if reached != point or str(shard) not in shards.split(","):
            return
        try:
            with (Path(folder) / str(shard)).open("x") as marker:
                marker.write(str(os.getpid()))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.Signals[signal_name])

    return reach


reach = _failpoint(os.environ.get(VARIABLE))
"""Called with each point that a shard reaches; None unless a test has set the variable."""
