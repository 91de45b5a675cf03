"""All benchmarks, one after the other."""

from tests.benchmarks import bench, heartbeats, operator, rest

if __name__ == "__main__":
    bench.main(operator.measure, rest.measure, heartbeats.measure)
