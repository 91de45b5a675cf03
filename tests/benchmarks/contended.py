"""Joins and leaves beside busy processes, two for each core: ours and Kafka's own coordinator, range.

The groups, the joins, the leaves and the pauses are those of `rebalance`. Members, broker and coordinator share the
cores with the busy processes.

The busy processes start after the warm-up and end with the last leave. A coordinator on a busy machine has usually run
for hours, and its JVM has compiled what it runs. Beside the busy processes, the same number of joins would end before
that, so the compilation would be measured, and most of it would be ours: our coordinator has a JVM of its own, and
Kafka's has the broker's. Both coordinators warm up on quiet cores with the same joins. The first minutes after a start
on a busy machine are not measured.
"""

import argparse

from tests.benchmarks import bench
from tests.benchmarks.figures import Figures
from tests.benchmarks.rebalance import KAFKA, OURS, Times, compared, joins_and_leaves, running
from tests.busy import BUSY_PER_CORE, CORES, busy_processes


def measure(options: argparse.Namespace) -> Figures:
    """Measure joins and leaves of a fourth member on a busy machine."""
    with running() as settings:
        return figures(joins_and_leaves(settings, (OURS, KAFKA), options.repeats, busy_processes()))


def figures(times: Times) -> Figures:
    """Return the figures of `rebalance` under names of their own, and the number of busy processes."""
    found = {**compared(times), "busy_processes": BUSY_PER_CORE * CORES}
    return {f"contended_{name}": value for name, value in found.items()}


if __name__ == "__main__":
    bench.main(measure)
