"""Groups of every stock client move to another coordinator and back. None of their members loses a partition."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from streaming.embedded import Broker
from streaming.gateway import Gateway
from tests.clients import go_programs
from tests.clients.kinds import KINDS
from tests.clients.play import Play, Venue, playing
from tests.clients.worker import Worker
from tests.system.conftest import Service
from tests.system.moving import Run, move, start_pair
from tests.tiers import NIGHTLY

pytestmark = list(NIGHTLY)

RECORDS = 5


@pytest.fixture
def pair(run_service: Run, broker: Broker, tmp_path: Path) -> tuple[Service, Service]:
    return start_pair(run_service, broker.bootstrap_servers, tmp_path, ("stock-moves-from", "stock-moves-to"))


@pytest.fixture
def gateway(pair: tuple[Service, Service]) -> Iterator[Gateway]:
    settings = pair[0].settings.model_copy(update={"peers": (), "gateway_port": 0})
    with Gateway(settings) as gateway:
        yield gateway


class Pair:
    """Two members of one kind. They share a topic of four partitions."""

    def __init__(self, play: Play, members: tuple[Worker, Worker]) -> None:
        self._play, self._members = play, members
        self._rebalances: list[list[object]] = []

    def settle(self) -> None:
        """Wait until both members own partitions and read them."""
        self._play.until_shared(self._play.name, *self._members)
        self._rebalances = self._changes()
        self.read_on()

    def read_on(self) -> None:
        """Produce records, and wait until they are read and, where the client obeys, committed."""
        self._play.produce(self._play.name, RECORDS)
        for member in self._members:
            self._play.until_read(member)
            if member.kind.obeys:
                member.order("commit")
        ends = dict(self._play.ends())
        for member in self._members:
            self._play.until(lambda m=member: m.committed == {place: ends[place[1]] for place in m.owned})

    def check(self) -> None:
        """Check that no member has lost or got a partition since, and that each record was read once."""
        assert self._changes() == self._rebalances, (self._play.name, *map(repr, self._members))
        for member in self._members:
            for place in member.owned:
                assert member.read[place] == list(range(len(member.read[place]))), (member, place)

    def _changes(self) -> list[list[object]]:
        return [list(member.events_of("assigned", "revoked", "lost")) for member in self._members]


def test_no_stock_client_notices_a_move(
    pair: tuple[Service, Service], gateway: Gateway, broker: Broker, tmp_path: Path
) -> None:
    """moving.md 0, decision 11, and 3.3: 14 and 16 end sessions of some clients, so none of them may see these."""
    go_programs.build(tmp_path)
    a, b = pair[0].settings, pair[1].settings
    venue = Venue(broker.bootstrap_servers, gateway.bootstrap_servers, tmp_path)
    with ExitStack() as stack:
        pairs = []
        for kind in KINDS:
            play = stack.enter_context(playing(venue, f"moves-{kind}".replace(" ", "-").replace(",", "")))
            play.topic(partitions=4)
            pairs.append(Pair(play, (play.start(kind), play.start(kind))))
        for each in pairs:
            each.settle()
        for source, target in ((a, b), (b, a)):
            move(source, target, "--all", "--yes")
            for each in pairs:
                each.read_on()
                each.check()
