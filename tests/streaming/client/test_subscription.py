"""Tests of a consumer's subscription by names and by a pattern."""

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import IllegalStateError

from streaming.client.subscription import Subscription
from streaming.client.topics import Topic
from streaming.kafka.patterns import WholeName

RACKS = (frozenset[str](),)


def subscription(*, excludes_internal: bool = True) -> Subscription:
    seen = {"orders": Topic(RACKS), "orders-old": Topic(RACKS), "__orders": Topic(RACKS, is_internal=True)}
    watch: Any = SimpleNamespace(snapshot=SimpleNamespace(topics=seen))
    return Subscription(watch, excludes_internal=excludes_internal)


def test_named_topics_are_subscribed_even_if_they_are_unknown() -> None:
    s = subscription()
    assert not s
    s.replace(["orders", "unseen"], None, None)
    assert s
    assert s.topics() == {"orders", "unseen"}
    assert (s.has("unseen"), s.has("orders-old")) == (True, False)


def test_a_pattern_matches_the_beginning_of_known_topics() -> None:
    s = subscription()
    s.replace((), "orders", None)
    assert str(s) == "subscribed to the pattern orders"
    assert s.topics() == {"orders", "orders-old"}


def test_internal_topics_match_a_pattern_only_if_they_are_included() -> None:
    for excludes_internal, topics in ((True, set()), (False, {"__orders"})):
        s = subscription(excludes_internal=excludes_internal)
        s.replace((), "__", None)
        assert s.topics() == topics


def test_names_and_a_pattern_exclude_each_other_until_the_subscription_is_cleared() -> None:
    s = subscription()
    s.replace(["orders"], None, None)
    with pytest.raises(IllegalStateError):
        s.replace((), "orders", None)
    assert s.topics() == {"orders"}
    s.clear()
    assert (bool(s), s.topics()) == (False, frozenset())
    s.replace((), "orders", None)
    with pytest.raises(IllegalStateError):
        s.replace(["orders"], None, None)


@pytest.mark.parametrize(
    ("topics", "pattern", "listener", "error"),
    [
        ("orders", None, None, TypeError),
        (["orders"], None, print, TypeError),
        ((), print, None, TypeError),
        ((), None, None, ValueError),
        (["or/ders"], None, None, ValueError),
    ],
)
def test_wrong_arguments_change_nothing(topics: Any, pattern: Any, listener: Any, error: type[Exception]) -> None:
    s = subscription()
    with pytest.raises(error):
        s.replace(topics, pattern, listener)
    assert not s


# -- the consumer protocol ---------------------------------------------------------------------------------------------


def test_a_pattern_of_the_consumer_protocol_matches_whole_names() -> None:
    """KIP-848: RE2; another expression than those of Python."""
    s = Subscription(subscription()._watch, excludes_internal=True, compiled=WholeName)
    s.replace((), "orders", None)
    assert (str(s), s.topics()) == ("subscribed to the pattern orders", {"orders"})
    s.replace((), ".*orders.*", None)
    assert s.topics() == {"orders", "orders-old"}
    with pytest.raises(ValueError, match="does not compile"):
        s.replace((), "(?=orders)", None)
    assert s.topics() == {"orders", "orders-old"}
