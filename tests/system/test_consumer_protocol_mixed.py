"""Members of the classic protocol and of the consumer protocol (KIP-848) share one group.

Each test names the check of the specification's section 11 that it is.
"""

import subprocess
from collections.abc import Iterator

import pytest

from coordinator.messages.requests import ListGroups
from streaming.administration.shards import list_groups
from streaming.client.transport import Transport
from streaming.embedded import Broker
from streaming.gateway import Gateway
from tests.clients import java
from tests.clients.kinds import LIBRDKAFKA, LIBRDKAFKA_848, Kind
from tests.clients.play import Play, Venue, playing
from tests.clients.worker import Worker
from tests.system.asking import TOLD_BY_THE_TRANSPORT
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long

PARTITIONS = 8


@pytest.fixture
def play(
    broker: Broker, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Play]:
    venue = Venue(broker.bootstrap_servers, gateway.bootstrap_servers, tmp_path_factory.mktemp("mixed"))
    with playing(venue, f"mixed-{request.node.name}".replace("[", "-").rstrip("]")) as play:
        yield play


def type_of(transport: Transport, group_id: str) -> str:
    """Return the group's type as lists of groups show it."""
    listed = list_groups(transport, ListGroups(**TOLD_BY_THE_TRANSPORT))
    return next(str(group.type) for group in listed.groups if group.group_id == group_id)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_mixed_group_shares_its_topic(play: Play, transport: Transport, assignor: str) -> None:
    """Check 10: two members of the consumer protocol and a classic one are one group, and it has no leader."""
    topic = play.topic(partitions=6, records=2)
    classic = play.start(LIBRDKAFKA, assignor=assignor)
    play.until_shared(topic, classic)
    assert type_of(transport, play.name) == "classic"
    others = [play.start(LIBRDKAFKA_848) for _ in range(2)]
    play.until_shared(topic, classic, *others)
    wait_until(lambda: [len(worker.owned) for worker in (classic, *others)] == [2, 2, 2])
    assert type_of(transport, play.name) == "consumer"
    play.produce(topic, 3)
    for worker in (classic, *others):
        play.until_read(worker)


@pytest.mark.nightly
def test_kafkas_tool_shows_which_members_are_upgraded(play: Play, broker: Broker, gateway: Gateway) -> None:
    """Check 10: kafka-consumer-groups prints the column UPGRADED for the groups of both coordinators."""
    topic = play.topic(partitions=6)
    crews = {}
    for address in (gateway.bootstrap_servers, broker.bootstrap_servers):
        classic = play.start(LIBRDKAFKA, bootstrap=address, client_id="classic")
        play.until_shared(topic, classic)
        others = [play.start(LIBRDKAFKA_848, bootstrap=address, client_id="upgraded") for _ in range(2)]
        crews[address] = [classic, *others]
    for address, crew in crews.items():
        play.until_shared(topic, *crew)
        wait_until(lambda crew=crew: [len(worker.owned) for worker in crew] == [2, 2, 2])
        wait_until(lambda address=address: has_settled(described(address, play.name)))
        shown = upgraded(described(address, play.name))
        assert shown == [("CLIENT-ID", "UPGRADED"), ("classic", "false"), *[("upgraded", "true")] * 2]


def described(address: str, group_id: str) -> str:
    """Return the table of a group's members that Kafka's own tool prints."""
    asked = ("--describe", "--group", group_id, "--members", "--verbose")
    command = java.run(java.CONSUMER_GROUPS, "--bootstrap-server", address, *asked)
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=True).stdout


def upgraded(printed: str) -> list[tuple[str, str]]:
    """Return the client id and the last column of each line of a table of members."""
    lines = (line.split() for line in printed.splitlines() if line.strip())
    return sorted((words[3], words[-1]) for words in lines)


def has_settled(printed: str) -> bool:
    """Return whether each member has its target's epoch and partitions, in a table of members."""
    head, *rows = (line.split() for line in printed.splitlines() if line.strip())
    if not rows:
        return False
    columns = [dict(zip(head, row, strict=False)) for row in rows]
    return all(
        (c["CURRENT-EPOCH"], c["CURRENT-ASSIGNMENT"]) == (c["TARGET-EPOCH"], c["TARGET-ASSIGNMENT"]) for c in columns
    )


@pytest.mark.nightly
def test_rolling_upgrade_and_downgrade(play: Play, transport: Transport) -> None:
    """Check 11: no committed record is read again, none is lost, and the first and the last member change the type."""
    topic = play.topic(partitions=PARTITIONS, records=2)
    crew = [play.start(LIBRDKAFKA) for _ in range(4)]
    everybody = list(crew)
    play.until_shared(topic, *crew)
    for to, before, after in ((LIBRDKAFKA_848, "classic", "consumer"), (LIBRDKAFKA, "consumer", "classic")):
        assert type_of(transport, play.name) == before
        for place in range(len(crew)):
            _replace(play, topic, crew, place, to)
            everybody.append(crew[place])
            is_last = place == len(crew) - 1
            assert type_of(transport, play.name) == (after if is_last else "consumer")
    for partition in play.partitions(topic):
        read = [offset for worker in everybody for offset in worker.read[partition]]
        assert read == list(range(len(read))), f"{partition} is not read in order, each record once: {read}"


def _replace(play: Play, topic: str, crew: list[Worker], place: int, kind: Kind) -> None:
    """Replace a member by one of another kind, when all records are read and committed."""
    play.produce(topic, 2)
    for worker in crew:
        play.until_read(worker)
        worker.order("commit")
        play.until(lambda worker=worker: all(worker.committed.get(p) == worker.read[p][-1] + 1 for p in worker.owned))
    crew[place].close()
    crew[place] = play.start(kind)
    wait_until(lambda: is_balanced(crew))
    play.until_shared(topic, *crew)


def is_balanced(crew: list[Worker]) -> bool:
    """Return whether no partition will move any more: the shares differ by one at most, and each is owned."""
    shares = [len(worker.owned) for worker in crew]
    return sum(shares) == PARTITIONS and max(shares) - min(shares) <= 1
