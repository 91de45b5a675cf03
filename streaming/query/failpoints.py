"""Where a test stops the operator: a worker that reaches a point in a shard's call sends itself a signal.

    SHARDS_FAILPOINT="SIGSTOP called 1,3 /a/folder"     shards 1 and 3 stop before anything is read

| point | what has happened by then |
| --- | --- |
| `called` | nothing: no row is read, no state |
| `stepped` | the shard has taken the batch; neither its state nor what it says has left the worker |
| `yielded` | what it says is on its way to Kafka; its state is not written |

It happens once for each shard: the worker leaves a file in the folder, named for the shard and holding its process id,
and whoever finds that file there goes on. Nothing of this exists where the variable is not set.
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
"""Called with each point that a shard reaches; None unless a test has asked for it."""
