"""Tests of the metadata hash, and of which topics a changed hash means.

The hashes were recorded beside a broker of 4.4.0: a group of the consumer protocol subscribed to ta, tb and tc, while
its topics were changed and the broker was started again with a rack.
"""

from collections.abc import Iterable, Mapping

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordinator.messages.observed_events import TopicChange
from streaming.observe.operator import TopicsOfEpoch
from streaming.observe.state import HashChange
from streaming.observe.tally import Observed
from streaming.observe.topic_history import SEEN_MAX, Described, TopicHistory, group_hash, hashes_by_count, topic_hash
from streaming.observe.topic_naming import (
    LOOK_EVERY_S,
    TRY_FOR_S,
    WRITE_AGAIN_S,
    SeenTopic,
    TopicNaming,
    Written,
)
from tests.streaming.observe.test_watch import progress, tally

TA, TB, TB_2, TC = (
    "Hj8M9DktQqOw382EUHEjUA", "HNLMXDFVQDePOK2ZyRK3qg", "ubA6NFe1SqKKlmTnO2kGyw", "PpaIU5_ORGennzVMvLqh9w",
)  # fmt: skip

Topics = Mapping[str, tuple[str, int, str]]
"""By name, the id, the partition count and the rack of the only broker."""

RECORDED: list[tuple[Topics, int]] = [
    ({"ta": (TA, 4, ""), "tb": (TB, 4, "")}, -6084589732707274904),
    ({"ta": (TA, 6, ""), "tb": (TB, 4, "")}, 5721050247052264031),
    ({"ta": (TA, 6, "")}, -3203574969591021822),
    ({"ta": (TA, 6, ""), "tb": (TB_2, 4, "")}, -4287175549803764052),
    ({"ta": (TA, 6, ""), "tb": (TB_2, 8, "")}, 7506816714668033123),
    ({"ta": (TA, 6, ""), "tb": (TB_2, 8, ""), "tc": (TC, 4, "")}, -2519596556697680835),
    ({"ta": (TA, 6, ""), "tb": (TB_2, 9, ""), "tc": (TC, 4, "")}, -4965370818945817451),
    ({"ta": (TA, 6, "rack-a"), "tb": (TB_2, 9, "rack-a"), "tc": (TC, 4, "rack-a")}, 8091066172899417839),
    ({"ta": (TA, 8, "rack-a"), "tb": (TB_2, 9, "rack-a"), "tc": (TC, 4, "rack-a")}, 2362820973395409189),
]

CHANGES = [
    (TopicChange("ta", "partitions", 4, 6),),
    (TopicChange("tb", "deleted", 4, None),),
    (TopicChange("tb", "made", None, 4),),
    (TopicChange("tb", "partitions", 4, 8),),
    (TopicChange("tc", "made", None, 4),),
    (TopicChange("tb", "partitions", 8, 9),),
    (TopicChange("ta", "racks", 6, 6), TopicChange("tb", "racks", 9, 9), TopicChange("tc", "racks", 4, 4)),
    (TopicChange("ta", "partitions", 6, 8),),
]

NAMES = ["ta", "tb", "tc"]


def described(topics: Topics) -> dict[str, Described | None]:
    """Return the description of all three topics."""
    found: dict[str, Described | None] = dict.fromkeys(NAMES)
    for name, (topic_id, count, rack) in topics.items():
        found[name] = Described(topic_id, [[rack] if rack else []] * count)
    return found


def history(*seen: Topics) -> TopicHistory:
    """Return the history of the three topics, seen one time after the other."""
    made = TopicHistory()
    for topics in seen:
        for name, each in described(topics).items():
            made.record(name, each)
    return made


def change(number: int, before: int | None = None) -> HashChange:
    """Return the change to a recorded hash from the one before it, or from another one."""
    first = RECORDED[number - 1 if before is None else before][1]
    return HashChange("g", number + 2, first, RECORDED[number][1], NAMES, NAMES)


# -- the hash ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("topics", "recorded"), RECORDED)
def test_recorded_hash_is_recomputed(topics: Topics, recorded: int) -> None:
    hashes = [
        topic_hash(topic_id, name, [[rack] if rack else []] * count)
        for name, (topic_id, count, rack) in sorted(topics.items())
    ]
    assert group_hash(hashes) == recorded


def test_group_without_topics_has_no_hash() -> None:
    assert group_hash([]) == 0


def test_hashes_of_fewer_partitions_are_those_of_a_smaller_topic() -> None:
    racks = [["b", "a"], ["a"], ["c", "c"]]
    assert list(hashes_by_count(TA, "ta", racks)) == [(n, topic_hash(TA, "ta", racks[:n])) for n in (2, 1)]
    assert topic_hash(TA, "ta", [["a", "b"]]) == topic_hash(TA, "ta", [["b", "a"]])
    assert topic_hash(TA, "ta", [["a", "a"]]) != topic_hash(TA, "ta", [["a"]])


@pytest.mark.parametrize("topic_id", ["", "AAAA", "Hj8M9DktQqOw382EUHEj"])
def test_id_that_is_none_has_no_hash(topic_id: str) -> None:
    with pytest.raises(ValueError, match="is not the id of a topic"):
        topic_hash(topic_id, "ta", [])


# -- the changed topics ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(1, len(RECORDED)))
def test_topic_of_each_change_is_named(number: int) -> None:
    seen = history(RECORDED[number - 1][0], RECORDED[number][0])
    assert seen.explain(change(number)) == CHANGES[number - 1]


def test_topic_that_is_made_anew_has_another_id() -> None:
    seen = history(RECORDED[1][0], RECORDED[3][0])
    assert seen.explain(change(3, before=1)) == (TopicChange("tb", "made_anew", 4, 4),)


def test_two_changes_at_once_are_both_named() -> None:
    """A topic grows and another one is deleted in one epoch."""
    seen = history(RECORDED[0][0], RECORDED[2][0])
    assert seen.explain(change(2, before=0)) == (
        TopicChange("ta", "partitions", 4, 6), TopicChange("tb", "deleted", 4, None),
    )  # fmt: skip


@pytest.mark.parametrize("number", [1, 4, 6, 8])
def test_fewer_partitions_before_are_found_without_having_been_seen(number: int) -> None:
    """An observer that has just been started has seen the topics only as they are now."""
    assert history(RECORDED[number][0]).explain(change(number)) == CHANGES[number - 1]


def test_change_of_long_ago_is_named_from_what_was_seen() -> None:
    seen = history(*(topics for topics, _ in RECORDED[:4]))
    assert seen.explain(change(1)) == CHANGES[0]


@pytest.mark.parametrize("number", [2, 3, 7])
def test_topics_that_were_not_seen_are_never_guessed(number: int) -> None:
    """A deleted topic has an id that nobody knows; other racks could be any."""
    seen = history(RECORDED[number][0])
    assert seen.explain(change(number)) == (CHANGES[2] if number == 3 else None)


def test_metadata_that_is_not_the_coordinators_names_nothing() -> None:
    assert history(RECORDED[0][0]).explain(change(1)) is None
    assert TopicHistory().explain(change(1)) is None


def test_only_topics_that_are_subscribed_before_and_since_have_changed() -> None:
    """A member subscribes to tb as well, while ta grows."""
    seen = history({"ta": (TA, 4, "")}, RECORDED[1][0])
    (fact,) = [each for each in seen.seen("ta")[:1] if each is not None]
    grown = HashChange("g", 3, group_hash([fact.hash]), RECORDED[1][1], ["ta"], ["ta", "tb"])
    assert seen.explain(grown) == (TopicChange("ta", "partitions", 4, 6),)


def test_what_was_seen_is_bounded() -> None:
    seen = TopicHistory()
    for count in range(1, SEEN_MAX + 3):
        assert seen.record("ta", Described(TA, [[]] * count))
        assert not seen.record("ta", Described(TA, [[]] * count))
    assert [each.partitions for each in seen.seen("ta") if each] == list(range(3, SEEN_MAX + 3))
    assert seen.record("ta", None)
    assert seen.seen("ta")[-1] is None
    again = TopicHistory()
    again.restore("ta", seen.seen("ta"))
    assert again.seen("ta") == seen.seen("ta")


# -- the thread --------------------------------------------------------------------------------------------------------


class Brokers:
    """The topics as brokers show them, and the records that they have."""

    def __init__(self, topics: Topics) -> None:
        self.topics, self.written = topics, list[Written]()
        self.requests: list[list[str]] = []
        self.is_silent = False

    def describe(self, names: Iterable[str]) -> dict[str, Described | None]:
        self.requests.append(list(names))
        return {name: each for name, each in described(self.topics).items() if name in self.requests[-1]}

    def read(self) -> list[SeenTopic]:
        return list({each.topic: each for each in self.written if isinstance(each, SeenTopic)}.values())

    def write(self, records: Iterable[Written]) -> None:
        if self.is_silent:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self.written += records

    @property
    def answers(self) -> list[TopicsOfEpoch]:
        return [each for each in self.written if isinstance(each, TopicsOfEpoch)]


class Naming:
    """The thread's work, done by hand."""

    def __init__(self, brokers: Brokers) -> None:
        self.observed, self.now_s = Observed(), 0.0
        self.brokers = brokers
        self.thread = TopicNaming(brokers.describe, brokers.read, brokers.write, self.observed, lambda: self.now_s)

    def batch(self, *changes: HashChange, topics: Iterable[str] = ()) -> bool:
        """End a batch, and look. Return whether an answer is missing."""
        self.observed.handle(progress(tally(5, hash_changes=list(changes), topics=list(topics))))
        return self.thread.update()


def test_changed_topic_is_written_for_its_partition() -> None:
    brokers = Brokers(RECORDED[0][0])
    naming = Naming(brokers)
    assert not naming.batch(topics=NAMES)
    brokers.topics = RECORDED[1][0]
    assert not naming.batch(change(1))
    assert brokers.answers == [TopicsOfEpoch(5, "g", 3, RECORDED[1][1], CHANGES[0])]
    assert not naming.batch(change(1))
    assert len(brokers.answers) == 1, "the next batch has not read it yet"
    naming.now_s = WRITE_AGAIN_S
    naming.batch(change(1))
    assert len(brokers.answers) == 2


def test_metadata_that_comes_later_is_waited_for() -> None:
    """A broker may learn of the change after the group's coordinator has."""
    brokers = Brokers(RECORDED[0][0])
    naming = Naming(brokers)
    assert naming.batch(change(1))
    assert brokers.answers == []
    brokers.topics, naming.now_s = RECORDED[1][0], TRY_FOR_S - 1
    assert not naming.batch(change(1))
    assert [each.changes for each in brokers.answers] == [CHANGES[0]]


def test_topics_that_stay_unknown_are_answered_once() -> None:
    brokers = Brokers({})
    naming = Naming(brokers)
    assert naming.batch(change(1))
    naming.now_s = TRY_FOR_S
    assert not naming.batch(change(1))
    assert brokers.answers == [TopicsOfEpoch(5, "g", 3, RECORDED[1][1], ())]


def test_what_was_seen_survives_the_process() -> None:
    """A topic is deleted while no observer runs."""
    brokers = Brokers(RECORDED[1][0])
    Naming(brokers).batch(topics=NAMES)
    brokers.topics = RECORDED[2][0]
    assert not Naming(brokers).batch(change(2))
    assert [each.changes for each in brokers.answers] == [CHANGES[1]]


def test_topics_are_looked_at_again_after_a_while() -> None:
    brokers = Brokers(RECORDED[0][0])
    naming = Naming(brokers)
    for topics in (["ta", "tb"], [], ["tc"]):
        naming.batch(topics=topics)
    naming.now_s = LOOK_EVERY_S
    naming.batch()
    assert brokers.requests == [["ta", "tb"], ["tc"], ["ta", "tb", "tc"]]


def test_answer_that_brokers_do_not_take_is_written_later() -> None:
    brokers = Brokers(RECORDED[1][0])
    naming = Naming(brokers)
    brokers.is_silent = True
    for _ in range(2):
        with pytest.raises(KafkaException):
            naming.batch(change(1))
    brokers.is_silent = False
    naming.batch(change(1))
    assert len(brokers.answers) == 1
    assert {each.topic for each in brokers.read()} == set(NAMES)


def test_topics_of_batches_wake_the_thread() -> None:
    observed = Observed()
    observed.handle(progress(tally(0)))
    assert not observed.has_topics.is_set()
    observed.handle(progress(tally(0, topics=["ta"]), tally(1, topics=["tb"])))
    assert observed.has_topics.is_set()
    assert (observed.new_topics(), observed.new_topics()) == ({"ta", "tb"}, set())


def test_change_is_searched_again_only_if_topics_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of long ago has many changes that nobody can name any more."""
    brokers, searched = Brokers(RECORDED[0][0]), list[HashChange]()
    naming = Naming(brokers)
    explain = naming.thread._history.explain
    monkeypatch.setattr(naming.thread._history, "explain", lambda each: (searched.append(each), explain(each))[1])
    for _ in range(3):
        assert naming.batch(change(1))
    assert len(searched) == 1
    brokers.topics = RECORDED[1][0]
    assert not naming.batch(change(1))
    assert len(searched) == 2
