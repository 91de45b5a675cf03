"""Cables between hosts are pulled: no acknowledged commit is lost, and no group rebalances without a need."""

import time
from collections.abc import Iterator

import pytest

from streaming.verify import verify
from tests.benchmarks.crowd import Crowd
from tests.benchmarks.members import members
from tests.cluster.beating import Beating
from tests.cluster.test_cluster import committed, rebalances
from tests.hosts.network import needs_network
from tests.hosts.site import WORKERS, Member, Site
from tests.system.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.long, pytest.mark.nightly]

GROUPS, EACH = 20, 5
SESSION_MS, INTERVAL_S = 30_000, 3.0

CABLES = {
    "driver and workers": (("driver",), WORKERS),
    "workers and brokers": (WORKERS, ("brokers",)),
    "driver and brokers": (("driver",), ("brokers",)),
    "gateway and brokers": (("gateway",), ("brokers",)),
}
PULLED_S = (5, 30, 120)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    needs_network()
    with Site(tmp_path_factory.mktemp("site")) as site:
        yield site


def test_pulled_cables_lose_nothing(site: Site) -> None:
    """A driver that ends is submitted again, as a supervisor does."""
    site.start_coordinator()
    site.service.await_ready()
    gateway = site.start_gateway()
    everybody = members(GROUPS, EACH)
    took: list[str] = []
    with Crowd(site.settings) as crowd, Member(gateway, site.settings.bootstrap_servers) as member:
        crowd.settle(everybody, SESSION_MS)
        with Beating(crowd, everybody, INTERVAL_S) as beating:
            beating.await_answers(HANG_S)
            member.await_commit()
            for name, (these, those) in CABLES.items():
                for pulled_s in PULLED_S:
                    site.network.pull(these, those)
                    ends_s = time.monotonic() + pulled_s
                    wait_until(lambda ends_s=ends_s: time.monotonic() > ends_s and site.supervise())  # type: ignore[misc]
                    site.network.plug(these, those)
                    served_s = await_served(site, beating, member)
                    took.append(f"{name}, {pulled_s} s: served after {served_s:.1f} s, submitted {site.supervise()}")
                    print(took[-1], flush=True)
        assert beating.longest_pause_s < SESSION_MS / 1_000, "the members themselves were silent for too long"
        assert beating.responses.refused == []
        assert committed(crowd, everybody) == beating.responses.acknowledged
        assert member.committed() >= member.acknowledged > 0
    site.service.stop()  # its exit code is that of Java's handler of the signal
    started = rebalances(site.settings)
    assert {group: n for group, n in started.items() if group.startswith("orders")} == {
        f"orders-{number:05}": 1 for number in range(GROUPS)
    }, "each group of members without a gateway rebalances once, when it is created"
    assert str(verify(site.settings, settling_ms=0)).startswith("Nothing found")


def await_served(site: Site, beating: Beating, member: Member) -> float:
    """Wait until every member is served; return the seconds."""
    begun_s = time.monotonic()
    before = member.acknowledged
    asked_s = begun_s

    def is_served() -> bool:
        site.supervise()
        return beating.is_answered(asked_s) and member.acknowledged > before + 1

    wait_until(is_served, account=lambda: site.service.log[-2_000:])
    return time.monotonic() - begun_s
