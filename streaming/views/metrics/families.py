"""The form of a metric of groups: its name, its labels, and the function that reads it from a group."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client.core import HistogramMetricFamily, Metric

from streaming.views.state.group import GroupView
from streaming.views.state.lag import Ends

Labels = tuple[str, ...]
Sample = tuple[Labels, float]
Figure = Callable[[GroupView, Ends], Iterable[Sample]]


class Family(NamedTuple):
    """A metric: its name, its help text, its labels besides the group, and the function that reads it."""

    name: str
    help: str
    labels: Labels
    of: Figure


class Histogram(NamedTuple):
    """A histogram: its name, its help text, the upper bounds of its buckets, and the function that reads it.

    Args:
        of: Returns the counts of the buckets, one more than there are bounds, and the sum of all values.
    """

    name: str
    help: str
    bounds_ms: tuple[int, ...]
    of: Callable[[GroupView], tuple[list[int], int]]


def one_value(figure: Callable[[GroupView], float | None]) -> Figure:
    """Return the figure of a metric without labels."""

    def of(group: GroupView, ends: Ends) -> Iterable[Sample]:
        value = figure(group)
        return () if value is None else (((), value),)

    return of


def by_label(figure: Callable[[GroupView], Mapping[str, float]]) -> Figure:
    """Return the figure of a metric with one label."""

    def of(group: GroupView, ends: Ends) -> Iterable[Sample]:
        return (((name,), value) for name, value in figure(group).items())

    return of


def histogram(family: Histogram, groups: Iterable[GroupView]) -> Metric:
    """Return a histogram of some groups."""
    metric = HistogramMetricFamily(family.name, family.help, labels=("group",))
    for group in groups:
        counts, sum_ms = family.of(group)
        reached, buckets = 0, []
        for bound_ms, count in zip((*family.bounds_ms, None), counts, strict=True):
            reached += count
            buckets.append(("+Inf" if bound_ms is None else str(bound_ms / 1_000), reached))
        metric.add_metric((group.group_id,), buckets, sum_ms / 1_000)
    return metric
