"""What a consumer tells of the topics that it subscribes to, as the brokers' metadata have them."""

from typing import Any

import pytest

from coordinator.member.consumer_config import Wanted
from coordinator.messages.consumer_requests import TopicFact
from streaming.client.consumer_protocol.participant import SubscribedTopics
from streaming.client.member import resource_id
from streaming.client.subscription import Subscription
from streaming.client.topics import Snapshot, Topic
from streaming.kafka.patterns import WholeName

T, U = resource_id("t"), resource_id("u")
NO_RACK = frozenset[str]()


class Watch:
    """A watch whose snapshot a test sets."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.questions: list[tuple[Any, int]] = []

    def ask(self, who: object, names: Any, age_ms: int) -> None:
        self.questions.append((names, age_ms))

    def forget(self, who: object) -> None:
        self.questions.clear()

    def reads(self, known: set[str] | None, unclear: tuple[str, ...] = (), **topics: tuple[str, int]) -> None:
        seen = {name: Topic((NO_RACK,) * count, topic_id=topic_id) for name, (topic_id, count) in topics.items()}
        self.snapshot = Snapshot(seen, None if known is None else frozenset(known), frozenset(unclear))


@pytest.fixture
def watch() -> Watch:
    return Watch()


def subscribed(watch: Any, *names: str, pattern: str | None = None) -> SubscribedTopics:
    subscription = Subscription(watch, excludes_internal=True, compiled=WholeName)
    subscription.replace(names, pattern, None)
    return SubscribedTopics(subscription, watch, 5_000)


def test_a_subscription_waits_until_its_topics_were_read(watch: Watch) -> None:
    topics = subscribed(watch, "t", "missing")
    assert topics.wanted(frozenset()) is None
    assert watch.questions == [({"t", "missing"}, 5_000)]
    watch.reads({"t", "missing"}, t=(T, 4))
    facts = {"missing": TopicFact("missing"), "t": TopicFact("t", T, 4)}
    assert topics.wanted(frozenset()) == Wanted(("missing", "t"), facts=facts)
    assert len(watch.questions) == 1


def test_the_same_object_is_returned_until_something_changes(watch: Watch) -> None:
    """A poll every few milliseconds must not cost a comparison of all topics."""
    topics = subscribed(watch, "t")
    watch.reads({"t"}, t=(T, 4))
    first = topics.wanted(frozenset())
    assert topics.wanted(frozenset()) is first
    watch.reads({"t"}, t=(T, 5))
    second = topics.wanted(frozenset())
    assert second is not None
    assert second.facts == {"t": TopicFact("t", T, 5)}


def test_topics_that_the_coordinator_asks_for_are_read_as_well(watch: Watch) -> None:
    topics = subscribed(watch, "t")
    watch.reads({"t"}, t=(T, 1))
    assert topics.wanted(frozenset({"u"})) is None
    assert watch.questions[-1][0] == {"t", "u"}
    watch.reads({"t", "u"}, t=(T, 1), u=(U, 2))
    wanted = topics.wanted(frozenset({"u"}))
    assert wanted is not None
    assert (wanted.names, sorted(wanted.facts)) == (("t",), ["t", "u"])


def test_a_pattern_reads_all_topics_and_has_the_facts_of_those_that_match(watch: Watch) -> None:
    topics = subscribed(watch, pattern="t.*")
    watch.reads({"t"}, t=(T, 1))
    assert topics.wanted(frozenset()) is None
    assert watch.questions == [(None, 5_000)]
    watch.reads(None, t=(T, 1), u=(U, 2))
    assert topics.wanted(frozenset()) == Wanted((), "t.*", ("t",), {"t": TopicFact("t", T, 1)})


def test_a_topic_whose_state_the_brokers_do_not_know_at_present_is_not_told_as_gone(watch: Watch) -> None:
    topics = subscribed(watch, pattern="t.*")
    watch.reads(None, ("t2",), t=(T, 1))
    assert topics.wanted(frozenset()) == Wanted((), "t.*", ("t", "t2"), {"t": TopicFact("t", T, 1)})


def test_a_subscription_that_is_forgotten_is_asked_anew(watch: Watch) -> None:
    topics = subscribed(watch, "t")
    watch.reads({"t"}, t=(T, 1))
    topics.wanted(frozenset())
    topics.forget()
    assert watch.questions == []
    topics.wanted(frozenset())
    assert len(watch.questions) == 1
