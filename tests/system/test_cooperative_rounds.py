"""Cooperative groups of stock clients through the gateway: both rounds of a rebalance are told as one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.cli.groups.show import folded
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.gateway import Gateway
from streaming.query.coordinator import Coordinator
from streaming.views import GroupView
from streaming.views.history.rebalances import rebalances
from streaming.views.sentences.why import Why, explain
from streaming.views.text import brief
from tests.clients import go_programs
from tests.clients.kinds import FRANZ_GO, JAVA, KAFKA_PYTHON, LIBRDKAFKA, SARAMA, Kind
from tests.clients.play import Play, Venue, playing
from tests.system.waiting import wait_until

COOPERATIVE = (LIBRDKAFKA, JAVA, KAFKA_PYTHON, FRANZ_GO, SARAMA)
PARTITIONS = 4


@pytest.fixture
def play(broker: Broker, gateway: Gateway, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Play]:
    kind = request.getfixturevalue("kind")
    if kind in (FRANZ_GO, SARAMA):
        go_programs.build(tmp_path)
    venue = Venue(broker.bootstrap_servers, gateway.bootstrap_servers, tmp_path)
    with playing(venue, f"rounds-{kind.name.lower()}") as play:
        yield play


def group_of(settings: Settings, play: Play) -> GroupView:
    return folded(settings, [play.name]).groups[play.name]


def explained(group: GroupView) -> list[Why]:
    return [explain(group, each) for each in rebalances(group.events)]


def _marks(kind: Kind) -> list[pytest.MarkDecorator]:
    """Return the marks of a test: one client runs always, one in the long tests, and the others each night."""
    if kind is LIBRDKAFKA:
        return []
    return [pytest.mark.long] if kind is JAVA else [pytest.mark.long, pytest.mark.nightly]


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=_marks(kind)) for kind in COOPERATIVE],
    ids=str,
)
def test_rounds_of_a_cooperative_rebalance_are_one_rebalance(play: Play, coordinator: Coordinator, kind: Kind) -> None:
    """Some clients give no reason for the second round, and one of two members leads: the coordinator names the round.

    librdkafka gives no reasons; Java and franz-go each have their own.
    """
    topic = play.topic(partitions=PARTITIONS, records=1)
    ana = play.start(kind, assignor="cooperative-sticky")
    play.until_shared(topic, ana)
    bo = play.start(kind, assignor="cooperative-sticky")
    play.until_shared(topic, ana, bo)

    def is_settled() -> bool:
        group = group_of(coordinator.settings, play)
        owned = [sum(map(len, (member.assigned or {}).values())) for member in group.members]
        return group.state.value == "Stable" and owned == [PARTITIONS // 2] * 2

    wait_until(is_settled, account=lambda: group_of(coordinator.settings, play).events)
    group = group_of(coordinator.settings, play)
    causes = [each.cause for each in explained(group)]
    assert causes == ["member_joined", "member_joined"], group.events
    second = explained(group)[1]
    gave, got = _name(group, ana.name), _name(group, bo.name)
    assert second.details == [f"It went on: 2 partitions that {gave} gave up were given to {got}."]
    assert not second.flapping
    assert [each.generations for each in rebalances(group.events)] == [[1], [2, 3]]


def _name(group: GroupView, client_id: str) -> str:
    (member,) = (member for member in group.members if member.client_id == client_id)
    return brief(member.member_id)
