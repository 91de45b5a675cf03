"""What is known of topics, and when it is looked at again, over an admin client that is made up."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.errors import ClusterAuthorizationFailedError, KafkaTimeoutError, NodeNotReadyError

from streaming.client import topics as module
from streaming.client.topics import Topic, TopicWatch
from tests.system.waiting import HANG_S


class FakeAdmin:
    """A cluster of two brokers; a test says what topics there are, and what goes wrong."""

    DEFAULT_CONFIG = KafkaAdminClient.DEFAULT_CONFIG

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.made = 0
        self.config: dict[str, object] = {}
        self.asked: list[list[str] | None] = []
        self.troubles: list[Exception] = []
        self.racks: dict[int, str | None] = {1: "north", 2: "south"}
        self.may_describe_cluster = True
        self.is_closed = False
        self.topics: dict[str, list[list[int]]] = {"t": [[1, 2], [2]], "u": [[1]]}

    def __call__(self, **config: object) -> "FakeAdmin":
        self.made += 1
        self.config = config
        return self

    def describe_topics(self, names: Sequence[str] | None) -> list[dict[str, Any]]:
        with self.changed:
            self.asked.append(None if names is None else list(names))
            self.changed.notify_all()
        if self.troubles:
            raise self.troubles.pop(0)
        return [self._describe(name) for name in (self.topics if names is None else names)]

    def _describe(self, name: str) -> dict[str, Any]:
        replicas = self.topics.get(name)
        partitions = [{"partition_index": n, "replica_nodes": nodes} for n, nodes in enumerate(replicas or [])]
        return {
            "name": name, "error_code": 3 * (replicas is None), "is_internal": name.startswith("__"),
            "partitions": partitions[::-1],
        }  # fmt: skip

    def describe_cluster(self) -> dict[str, Any]:
        if not self.may_describe_cluster:
            raise ClusterAuthorizationFailedError
        return {"brokers": [{"broker_id": node, "rack": rack} for node, rack in self.racks.items()]}

    def close(self) -> None:
        self.is_closed = True

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(is_so, HANG_S), self.asked


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    admin = FakeAdmin()
    monkeypatch.setattr(module, "KafkaAdminClient", admin)
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    return admin


@pytest.fixture
def watch(admin: FakeAdmin) -> Iterator[TopicWatch]:
    """One that does not look again by itself for an hour."""
    watch = TopicWatch({"bootstrap_servers": "here", "metadata_max_age_ms": 3_600_000, "group_id": "g"})
    yield watch
    watch.close()


def topic(*racks: str) -> Topic:
    return Topic(tuple(frozenset(each.split()) for each in racks))


def test_it_asks_for_what_is_wanted_and_for_nothing_else(admin: FakeAdmin, watch: TopicWatch) -> None:
    """A cluster may have a hundred thousand topics. Partitions are in order, with their replicas' racks (KIP-881)."""
    watch.ask("me", ["t"])
    snapshot = watch.wait(["t"], HANG_S)
    assert admin.asked == [["t"]]
    assert snapshot.topics == {"t": topic("north south", "south")}
    assert snapshot.known == {"t"}
    assert not snapshot.knows(["t", "u"])


def test_nobody_is_connected_to_before_somebody_asks(admin: FakeAdmin, watch: TopicWatch) -> None:
    assert admin.made == 0
    watch.ask("me", [])
    watch.ask("me", ["t"])
    watch.wait(["t"], HANG_S)
    assert admin.made == 1
    assert admin.config == {"bootstrap_servers": "here", "metadata_max_age_ms": 3_600_000}
    assert [] not in admin.asked


def test_a_pattern_needs_all_of_them(admin: FakeAdmin, watch: TopicWatch) -> None:
    admin.topics["__internal"] = [[1]]
    watch.ask("me", ["t"])
    watch.wait(["t"], HANG_S)
    watch.ask("another", None)
    snapshot = watch.wait(["whatever"], HANG_S)
    assert admin.asked == [["t"], None]
    assert {name: each.is_internal for name, each in snapshot.topics.items()} == {
        "t": False, "u": False, "__internal": True,
    }  # fmt: skip


def test_a_topic_that_nobody_asked_about_before_is_looked_at_at_once(admin: FakeAdmin, watch: TopicWatch) -> None:
    """A leader waits for it, and the group for the leader. What others ask about is looked at with it."""
    watch.ask("me", ["t"])
    watch.wait(["t"], HANG_S)
    watch.ask("another", ["u"])
    snapshot = watch.wait(["u", "t"], HANG_S)
    assert admin.asked == [["t"], ["t", "u"]]
    assert set(snapshot.topics) == {"t", "u"}


def test_what_is_known_is_not_looked_at_again_before_its_time(admin: FakeAdmin, watch: TopicWatch) -> None:
    watch.ask("me", ["t", "u"])
    watch.wait(["t"], HANG_S)
    watch.ask("me", ["u"])
    watch.ask("another", ["t"])
    assert watch.wait(["t", "u"], HANG_S).knows(["t", "u"])
    watch.ask("another", ["later"])
    watch.wait(["later"], HANG_S)
    assert admin.asked[:2] == [["t", "u"], ["later", "u"]]


def test_what_nobody_asks_about_any_more_is_left_out(admin: FakeAdmin, watch: TopicWatch) -> None:
    watch.ask("me", ["t"])
    watch.wait(["t"], HANG_S)
    watch.forget("me")
    watch.forget("nobody")
    watch.ask("another", ["u"])
    assert set(watch.wait(["u"], HANG_S).topics) == {"u"}


def test_it_looks_again_when_what_it_knows_is_old(admin: FakeAdmin) -> None:
    """S08: a topic that grows is seen within `metadata_max_age_ms`."""
    watch = TopicWatch({"metadata_max_age_ms": 10})
    watch.ask("me", ["t"])
    watch.wait(["t"], HANG_S)
    admin.topics["t"].append([1])
    seen = len(admin.asked)
    admin.wait_until(lambda: len(admin.asked) >= seen + 3)
    assert len(watch.snapshot.topics["t"].racks) == 3
    watch.close()


def test_it_knows_that_a_topic_is_not_there(admin: FakeAdmin, watch: TopicWatch) -> None:
    """Which is an answer, too: nobody waits for it."""
    watch.ask("me", ["no such"])
    snapshot = watch.wait(["no such"], HANG_S)
    assert snapshot.topics == {}
    assert snapshot.knows(["no such"])


def test_what_is_not_there_yet_is_looked_for_again_soon(admin: FakeAdmin, watch: TopicWatch) -> None:
    """Whoever subscribes before the topic is made does not wait for the age of what is known."""
    watch.ask("me", ["later"])
    watch.wait(["later"], HANG_S)
    admin.topics["later"] = [[1]]
    seen = len(admin.asked)
    admin.wait_until(lambda: len(admin.asked) >= seen + 1)
    watch.ask("me", ["later", "t"])
    assert set(watch.wait(["later", "t"], HANG_S).topics) == {"later", "t"}


@pytest.mark.parametrize("trouble", [NodeNotReadyError("away"), OSError("no route"), ZeroDivisionError("a bug")])
def test_it_keeps_on_after_an_error(admin: FakeAdmin, watch: TopicWatch, trouble: Exception) -> None:
    """Whatever it is: members must hear of new partitions."""
    admin.troubles = [trouble, trouble]
    watch.ask("me", ["t"])
    assert watch.wait(["t"], HANG_S).topics
    assert admin.asked == [["t"]] * 3


def test_who_may_not_ask_for_racks_plans_without(admin: FakeAdmin, watch: TopicWatch) -> None:
    admin.may_describe_cluster = False
    watch.ask("me", ["t"])
    assert watch.wait(["t"], HANG_S).topics == {"t": topic("", "")}


def test_a_broker_without_a_rack_is_nowhere(admin: FakeAdmin, watch: TopicWatch) -> None:
    admin.racks[2] = None
    watch.ask("me", ["t"])
    assert watch.wait(["t"], HANG_S).topics == {"t": topic("north", "")}


def test_who_waits_for_too_long_is_told_so(admin: FakeAdmin, watch: TopicWatch) -> None:
    """A KafkaError that is retriable: a leader tries again, and its owner does not hear of it."""
    with pytest.raises(KafkaTimeoutError, match="within 0 s") as raised:
        watch.wait(["t"], 0)
    assert raised.value.retriable


def test_closing_ends_the_looking(admin: FakeAdmin, watch: TopicWatch) -> None:
    watch.ask("me", ["t"])
    watch.wait(["t"], HANG_S)
    watch.close()
    assert admin.is_closed
    assert watch._thread is not None
    assert not watch._thread.is_alive()
    watch.close()


def test_closing_does_not_wait_for_brokers_that_are_away(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 3_600.0)
    admin.troubles = [NodeNotReadyError("away")]
    watch = TopicWatch({})
    watch.ask("me", ["t"])
    admin.wait_until(lambda: bool(admin.asked))
    watch.close()
    assert watch._thread is not None
    assert not watch._thread.is_alive()


def test_what_was_never_asked_is_closed_as_well(admin: FakeAdmin) -> None:
    TopicWatch({}).close()
    assert admin.made == 0
