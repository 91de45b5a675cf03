"""All benchmarks, one after the other, except the two that take long: `steady` and `scaling`."""

from tests.benchmarks import (
    assignors,
    bench,
    big_group,
    capacity,
    gateway,
    heartbeats,
    idle,
    operator,
    page,
    rebalance,
    recovery,
    rest,
    silent,
    together,
    views,
)

if __name__ == "__main__":
    bench.main(
        operator.measure,
        together.measure,
        assignors.measure,
        views.measure,
        page.measure,
        rest.measure,
        idle.measure,
        silent.measure,
        big_group.measure,
        recovery.measure,
        rebalance.measure,
        gateway.measure,
        heartbeats.measure,
        capacity.measure,
    )
