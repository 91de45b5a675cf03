"""All benchmarks, one after the other."""

from tests.benchmarks import assignors, bench, gateway, heartbeats, operator, rebalance, rest

if __name__ == "__main__":
    bench.main(
        operator.measure, assignors.measure, rest.measure, rebalance.measure, gateway.measure, heartbeats.measure
    )
