"""Prometheus metrics of policies, of the groups on which a policy has had an effect."""

from collections.abc import Callable, Iterable
from itertools import product

from coordinator.messages.group_records import Hold
from streaming.views.metrics.families import Family, Figure, Histogram, Sample, by_label, one_value
from streaming.views.state.fields import known
from streaming.views.state.group import UNOWNED_MS, GroupView
from streaming.views.state.lag import Ends

HOW = ("took", "passed", "adopted")
"""The ways in which a seat is taken."""

POLICIES = ("succession", "settle", "freeze")
"""The policies that hold rebalances."""

CAUSES = ("member_joined", "member_left", "session_expired", "sync_overdue", "partitions_added")
"""The causes of rebalances that policies hold."""


def _of_hold(figure: Callable[[Hold], float]) -> Figure:
    """Return a figure of the effect that policies have now; 0 if they have none."""

    def of(group: GroupView) -> float:
        hold = known(group.record.hold) if group.record else None
        return figure(hold) if hold is not None else 0

    return one_value(of)


def _held(group: GroupView, _: Ends) -> Iterable[Sample]:
    counts = {**dict.fromkeys(product(POLICIES, CAUSES), 0), **group.tallied.held}
    return counts.items()


GAUGES: tuple[Family, ...] = (
    Family("groupcoord_views_seats_vacant", "Assignments of members that are gone, kept for others.", (),
           _of_hold(lambda hold: hold.vacant)),
    Family("groupcoord_views_standing_by", "Newcomers without partitions, which wait for a seat or a rebalance.", (),
           _of_hold(lambda hold: hold.standing_by)),
    Family("groupcoord_views_quarantined", "Members in quarantine.", (), _of_hold(lambda hold: hold.quarantined)),
    Family("groupcoord_views_frozen", "1 while a freeze holds a rebalance.", (),
           _of_hold(lambda hold: hold.frozen_until_ms is not None)),
)  # fmt: skip

COUNTERS: tuple[Family, ...] = (
    Family("groupcoord_views_seats_taken", "Seats that another member took.", ("how",),
           by_label(lambda g: {**dict.fromkeys(HOW, 0), **g.tallied.seats_taken})),
    Family("groupcoord_views_rebalances_held", "Causes of rebalances that policies held.", ("policy", "cause"), _held),
)  # fmt: skip

UNOWNED = Histogram(
    "groupcoord_views_seat_unowned_seconds", "Time without an owner of the seats that were taken.", UNOWNED_MS,
    lambda g: (g.tallied.unowned, g.tallied.unowned_ms),
)  # fmt: skip
