"""Tests of the metrics of policies, read as Prometheus reads them."""

from msgspec import structs

from streaming.views.metrics.policies import CAUSES, HOW, POLICIES
from tests.streaming.views.deploy import DEPLOY, RECORD
from tests.streaming.views.test_metrics import ScrapedViews


def test_metrics_of_policies() -> None:
    """policies.md 3.4: seats that passed on, how long nobody owned them, and the effect of policies now."""
    shown = ScrapedViews()
    shown.group("h")
    shown.add_record(structs.replace(RECORD, group_id="g", version=shown._next("g")))
    for event in DEPLOY:
        shown._add(structs.replace(event, group_id="g", version=shown._next("g")))
    figures = shown.scraped()
    now = {
        name: figures[f"groupcoord_views_{name}", "g"]
        for name in ("seats_vacant", "standing_by", "quarantined", "frozen")
    }
    assert now == {"seats_vacant": 1, "standing_by": 1, "quarantined": 1, "frozen": 1}
    assert {how: figures["groupcoord_views_seats_taken_total", "g", how] for how in HOW} == dict.fromkeys(HOW, 1)
    held = {key[:1:-1]: value for key, value in figures.items() if key[0] == "groupcoord_views_rebalances_held_total"}
    assert held.keys() == {(policy, cause) for policy in POLICIES for cause in CAUSES}
    assert {key: value for key, value in held.items() if value} == {
        ("succession", "member_left"): 2, ("succession", "member_joined"): 1, ("freeze", "session_expired"): 1,
        ("freeze", "member_joined"): 1, ("freeze", "member_left"): 1,
    }  # fmt: skip
    unowned = "groupcoord_views_seat_unowned_seconds"
    assert (figures[f"{unowned}_count", "g"], figures[f"{unowned}_sum", "g"]) == (3, 64.4)
    assert figures[f"{unowned}_bucket", "g", "5.0"] == 2
    assert not any(key[0].startswith(unowned) and key[1:2] == ("h",) for key in figures), (
        "no policy has an effect there"
    )
