"""Tests of the watch over topics with a stand-in for the admin client: known topics, and the times of requests."""

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
    """A cluster of two brokers; a test sets its topics and its errors."""

    DEFAULT_CONFIG = KafkaAdminClient.DEFAULT_CONFIG

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.made = 0
        self.config: dict[str, object] = {}
        self.requested: list[list[str] | None] = []
        self.errors: list[Exception] = []
        self.racks: dict[int, str | None] = {1: "north", 2: "south"}
        self.may_describe_cluster = True
        self.is_closed = False
        self.ids: dict[str, str] = {}
        self.codes: dict[str, int] = {}
        self.topics: dict[str, list[list[int]]] = {"t": [[1, 2], [2]], "u": [[1]]}

    def __call__(self, **config: object) -> "FakeAdmin":
        self.made += 1
        self.config = config
        return self

    def describe_topics(self, names: Sequence[str] | None) -> list[dict[str, Any]]:
        with self.changed:
            self.requested.append(None if names is None else list(names))
            self.changed.notify_all()
        if self.errors:
            raise self.errors.pop(0)
        return [self._describe(name) for name in (self.topics if names is None else names)]

    def _describe(self, name: str) -> dict[str, Any]:
        replicas = self.topics.get(name)
        partitions = [{"partition_index": n, "replica_nodes": nodes} for n, nodes in enumerate(replicas or [])]
        return {
            "name": name, "error_code": self.codes.get(name, 3 * (replicas is None)),
            "is_internal": name.startswith("__"), "partitions": partitions[::-1], "topic_id": self.ids.get(name),
        }  # fmt: skip

    def describe_cluster(self) -> dict[str, Any]:
        if not self.may_describe_cluster:
            raise ClusterAuthorizationFailedError
        return {"brokers": [{"broker_id": node, "rack": rack} for node, rack in self.racks.items()]}

    def close(self) -> None:
        self.is_closed = True

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(is_so, HANG_S), self.requested


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    admin = FakeAdmin()
    monkeypatch.setattr(module, "KafkaAdminClient", admin)
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    return admin


@pytest.fixture
def watch(admin: FakeAdmin) -> Iterator[TopicWatch]:
    """Yield a watch that repeats its requests only after an hour."""
    watch = TopicWatch({"bootstrap_servers": "here", "metadata_max_age_ms": 3_600_000, "group_id": "g"})
    yield watch
    watch.close()


def topic(*racks: str) -> Topic:
    return Topic(tuple(frozenset(each.split()) for each in racks))


def test_only_the_wanted_topics_are_requested(admin: FakeAdmin, watch: TopicWatch) -> None:
    """A cluster may have a hundred thousand topics. Partitions are in order, with their replicas' racks (KIP-881)."""
    watch.ask("me", ["t"])
    snapshot = watch.wait(["t"], HANG_S)
    assert admin.requested == [["t"]]
    assert snapshot.topics == {"t": topic("north south", "south")}
    assert snapshot.known == {"t"}
    assert not snapshot.knows(["t", "u"])


def test_no_connection_is_made_before_the_first_request(admin: FakeAdmin, watch: TopicWatch) -> None:
    assert admin.made == 0
    watch.ask("me", [])
    watch.ask("me", ["t"])
    watch.wait(["t"], HANG_S)
    assert admin.made == 1
    given = {"bootstrap_servers": "here", "metadata_max_age_ms": 3_600_000}
    assert admin.config.items() > given.items()
    assert "group_id" not in admin.config
    assert [] not in admin.requested


def test_a_pattern_requests_all_topics(admin: FakeAdmin, watch: TopicWatch) -> None:
    admin.topics["__internal"] = [[1]]
    watch.ask("me", ["t"])
    watch.wait(["t"], HANG_S)
    watch.ask("another", None)
    snapshot = watch.wait(["whatever"], HANG_S)
    assert admin.requested == [["t"], None]
    assert {name: each.is_internal for name, each in snapshot.topics.items()} == {
        "t": False, "u": False, "__internal": True,
    }  # fmt: skip


def test_a_new_topic_is_requested_at_once(admin: FakeAdmin, watch: TopicWatch) -> None:
    """A leader waits for the topic, and the group for the leader. One request has the topics of all callers."""
    watch.ask("me", ["t"])
    watch.wait(["t"], HANG_S)
    watch.ask("another", ["u"])
    snapshot = watch.wait(["u", "t"], HANG_S)
    assert admin.requested == [["t"], ["t", "u"]]
    assert set(snapshot.topics) == {"t", "u"}


def test_a_known_topic_is_not_requested_before_the_metadata_age(admin: FakeAdmin, watch: TopicWatch) -> None:
    watch.ask("me", ["t", "u"])
    watch.wait(["t"], HANG_S)
    watch.ask("me", ["u"])
    watch.ask("another", ["t"])
    assert watch.wait(["t", "u"], HANG_S).knows(["t", "u"])
    watch.ask("another", ["later"])
    watch.wait(["later"], HANG_S)
    assert admin.requested[:2] == [["t", "u"], ["later", "u"]]


def test_an_unwanted_topic_is_not_requested_again(admin: FakeAdmin, watch: TopicWatch) -> None:
    watch.ask("me", ["t"])
    watch.wait(["t"], HANG_S)
    watch.forget("me")
    watch.forget("nobody")
    watch.ask("another", ["u"])
    assert set(watch.wait(["u"], HANG_S).topics) == {"u"}


def test_topics_are_requested_again_after_the_metadata_age(admin: FakeAdmin) -> None:
    """S08: new partitions of a topic are noticed within `metadata_max_age_ms`."""
    watch = TopicWatch({"metadata_max_age_ms": 10})
    watch.ask("me", ["t"])
    watch.wait(["t"], HANG_S)
    admin.topics["t"].append([1])
    seen = len(admin.requested)
    admin.wait_until(lambda: len(admin.requested) >= seen + 3)
    assert len(watch.snapshot.topics["t"].racks) == 3
    watch.close()


def test_a_missing_topic_is_known_as_missing(admin: FakeAdmin, watch: TopicWatch) -> None:
    """A missing topic is known as missing, and `wait` returns."""
    watch.ask("me", ["no such"])
    snapshot = watch.wait(["no such"], HANG_S)
    assert snapshot.topics == {}
    assert snapshot.knows(["no such"])


def test_a_missing_topic_is_requested_again_soon(admin: FakeAdmin, watch: TopicWatch) -> None:
    """A consumer that subscribes before the topic is created does not wait for the metadata age."""
    watch.ask("me", ["later"])
    watch.wait(["later"], HANG_S)
    admin.topics["later"] = [[1]]
    seen = len(admin.requested)
    admin.wait_until(lambda: len(admin.requested) >= seen + 1)
    watch.ask("me", ["later", "t"])
    assert set(watch.wait(["later", "t"], HANG_S).topics) == {"later", "t"}


@pytest.mark.parametrize("error", [NodeNotReadyError("away"), OSError("no route"), ZeroDivisionError("a bug")])
def test_requests_continue_after_an_error(admin: FakeAdmin, watch: TopicWatch, error: Exception) -> None:
    """This holds for every error, as members must learn of new partitions."""
    admin.errors = [error, error]
    watch.ask("me", ["t"])
    assert watch.wait(["t"], HANG_S).topics
    assert admin.requested == [["t"]] * 3


def test_topics_have_no_racks_without_the_right_to_describe_the_cluster(admin: FakeAdmin, watch: TopicWatch) -> None:
    admin.may_describe_cluster = False
    watch.ask("me", ["t"])
    assert watch.wait(["t"], HANG_S).topics == {"t": topic("", "")}


def test_a_broker_without_a_rack_adds_no_rack(admin: FakeAdmin, watch: TopicWatch) -> None:
    admin.racks[2] = None
    watch.ask("me", ["t"])
    assert watch.wait(["t"], HANG_S).topics == {"t": topic("north", "")}


def test_waiting_for_too_long_raises_a_retriable_error(admin: FakeAdmin, watch: TopicWatch) -> None:
    """The error is a retriable KafkaError: a leader retries, and its owner gets no error."""
    with pytest.raises(KafkaTimeoutError, match="within 0 s") as raised:
        watch.wait(["t"], 0)
    assert raised.value.retriable


def test_closing_stops_the_thread(admin: FakeAdmin, watch: TopicWatch) -> None:
    watch.ask("me", ["t"])
    watch.wait(["t"], HANG_S)
    watch.close()
    assert admin.is_closed
    assert watch._thread is not None
    assert not watch._thread.is_alive()
    watch.close()


def test_closing_does_not_wait_for_unreachable_brokers(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 3_600.0)
    admin.errors = [NodeNotReadyError("away")]
    watch = TopicWatch({})
    watch.ask("me", ["t"])
    admin.wait_until(lambda: bool(admin.requested))
    watch.close()
    assert watch._thread is not None
    assert not watch._thread.is_alive()


def test_an_unused_watch_can_be_closed(admin: FakeAdmin) -> None:
    TopicWatch({}).close()
    assert admin.made == 0


# -- for the consumer protocol -----------------------------------------------------------------------------------------


def test_the_shortest_age_of_all_members_counts(admin: FakeAdmin, watch: TopicWatch) -> None:
    """The watch waits for an hour when the member of the consumer protocol comes."""
    watch.ask("classic", ["t"])
    watch.wait(["t"], HANG_S)
    watch.ask("new", ["t"], age_ms=10)
    seen = len(admin.requested)
    admin.wait_until(lambda: len(admin.requested) >= seen + 3)
    watch.forget("new")


def test_topics_have_their_ids_as_kafka_prints_them(admin: FakeAdmin, watch: TopicWatch) -> None:
    admin.ids["t"] = "fb7fffff-ffff-ffff-ffff-fffffffffff0"
    watch.ask("me", ["t", "u"])
    topics = watch.wait(["t", "u"], HANG_S).topics
    assert (topics["t"].topic_id, topics["u"].topic_id) == ("-3__________________8A", "")


@pytest.mark.parametrize(("code", "is_unclear"), [(0, False), (3, False), (17, False), (29, False), (5, True)])
def test_an_error_that_may_pass_does_not_mean_that_a_topic_is_gone(
    admin: FakeAdmin, watch: TopicWatch, code: int, is_unclear: bool
) -> None:
    """The group would revoke its partitions."""
    admin.codes["t"] = code
    watch.ask("me", ["t"])
    assert ("t" in watch.wait(["t"], HANG_S).unclear) is is_unclear
