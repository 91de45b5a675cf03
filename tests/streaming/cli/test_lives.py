"""The commands about the history of a group read the topics of each coordinator that its moves name."""

from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.messages.move_events import GroupReleased
from streaming.cli.groups import history
from streaming.config.peers import PEERS_MAX
from streaming.errors import NoCoordinator, NotFound
from streaming.views import GroupView, Views


class Topics:
    """The views by prefix, which `folded` returns. Each group names the prefixes of its moves."""

    def __init__(self, **named: tuple[str, ...]) -> None:
        self.named, self.read = named, list[str]()

    def folded(self, settings: Any, group_ids: list[str]) -> Views:
        self.read.append(prefix := settings.topic_prefix)
        if prefix not in self.named:
            raise NoCoordinator.without(f"{prefix}.groups", "broker:9092")
        if prefix == "empty":
            return Views()
        group = GroupView("g", 0)
        for to in self.named[prefix]:
            fields = {"group_id": "g", "version": 1, "at_ms": 1, "generation_id": 1}
            group.add(GroupReleased(**fields, to=to, move_id=to, number=1, bytes=1), 1_000_000)
        return Views(groups={"g": group})


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Topics:
    topics = Topics()
    monkeypatch.setattr(history, "folded", topics.folded)
    return topics


def whole() -> GroupView:
    def renamed(topic_prefix: str) -> Any:
        return SimpleNamespace(topic_prefix=topic_prefix, model_copy=lambda update: renamed(**update))

    return history.whole(renamed("a"), "g").group


def test_each_coordinator_is_read_once(topics: Topics) -> None:
    topics.named = {"a": ("b", "empty"), "b": ("a", "c"), "c": ("a",), "empty": ()}
    assert len(whole().events) == 5
    assert topics.read == ["a", "b", "empty", "c"]


def test_a_coordinator_whose_topics_are_gone_is_left_out(topics: Topics, capsys: pytest.CaptureFixture[str]) -> None:
    topics.named = {"a": ("gone",)}
    assert len(whole().events) == 1
    assert capsys.readouterr().err.startswith("The history of g at gone is left out. ")


@pytest.mark.parametrize(("others", "read"), [(PEERS_MAX, PEERS_MAX + 1), (PEERS_MAX + 1, PEERS_MAX + 1)])
def test_the_coordinators_have_a_bound(topics: Topics, others: int, read: int) -> None:
    prefixes = [f"p{number}" for number in range(others)]
    topics.named = {"a": tuple(prefixes), **dict.fromkeys(prefixes, ())}
    whole()
    assert len(topics.read) == read


def test_a_group_without_a_history_here_is_not_found(topics: Topics) -> None:
    topics.named = {"a": ()}
    with pytest.raises(NotFound):
        whole()
