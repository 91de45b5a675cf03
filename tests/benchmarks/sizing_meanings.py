"""The meanings of the figures of `coordinator size`: its costs, and its predictions beside measured loads."""

from collections.abc import Mapping

from streaming.sizing.costs import COSTS
from tests.benchmarks.meaning import Meaning

RATIO_MAX = 1.3
LOADS = {"small": "3 % of the members", "medium": "30 %", "large": "all of them"}

SIZING: Mapping[str, Meaning] = {
    **{f"cost_{name}": Meaning(f"{cost.description}, {cost.unit}") for name, cost in COSTS.items()},
    **{
        f"size_{what}_ratio": Meaning(
            f"{says}: predicted to measured or the reverse, the worst of three loads", RATIO_MAX
        )
        for what, says in {
            "p50": "request to response, half of them",
            "cores": "the coordinator's use of the cores",
            "state": "bytes of the state",
        }.items()
    },
    **{
        f"size_{load}_{what}_{kind}": Meaning(f"{where}: {says}, {kind}")
        for load, where in LOADS.items()
        for what, says in {"p50_ms": "p50, ms", "cores": "cores used", "state_mb": "state, MB"}.items()
        for kind in ("predicted", "measured")
    },
    **{
        f"size_{load}_cores_left": Meaning(f"{where}: cores that the other processes leave")
        for load, where in LOADS.items()
    },
}
