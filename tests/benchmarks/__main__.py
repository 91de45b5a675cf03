"""All benchmarks, one after the other, except the two that take long: `steady` and `scaling`."""

from tests.benchmarks import (
    assignors,
    bench,
    big_group,
    capacity,
    gateway,
    heartbeats,
    idle,
    next_rebalance,
    next_storm,
    operator,
    page,
    rebalance,
    recovery,
    rest,
    server_assignors,
    silent,
    together,
    views,
)

if __name__ == "__main__":
    bench.main(
        operator.measure,
        together.measure,
        assignors.measure,
        server_assignors.measure,
        views.measure,
        page.measure,
        rest.measure,
        idle.measure,
        silent.measure,
        big_group.measure,
        recovery.measure,
        rebalance.measure,
        next_rebalance.measure,
        next_storm.measure,
        gateway.measure,
        heartbeats.measure,
        capacity.measure,
    )
