"""The facts about topics: which are known, when they are requested, and that requests are joined."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from coordinator.messages.consumer_requests import TopicFact
from coordinator.messages.fields import NO_TOPIC
from streaming.errors import BrokerUnreachable
from streaming.gateway.members import topics as module
from streaming.gateway.members.topics import Topics
from streaming.gateway.protocol.topic_ids import id_of, id_text
from tests.streaming.gateway.parts import FakeCluster, fact_of
from tests.system.waiting import HANG_S


class Brokers:
    """Brokers that describe topics. A test may hold their response back."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.asked: list[list[str]] = []
        self.ids: dict[str, str] = {}
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.is_away = False

    def describe(self, names: Sequence[str], ids: Sequence[bytes]) -> dict[str, TopicFact]:
        self.asked.append([*sorted(names), *map(id_text, ids)])
        assert self.may_answer.wait(HANG_S)
        if self.is_away:
            raise BrokerUnreachable.at("here")
        facts = {name: self._with_its_id(fact_of(name, self.cluster.topics.get(name))) for name in names}
        existing = [self._with_its_id(fact_of(*topic)) for topic in self.cluster.topics.items()]
        return facts | {fact.topic: fact for fact in existing if fact.topic_id in map(id_text, ids)}

    def _with_its_id(self, fact: TopicFact) -> TopicFact:
        return replace(fact, topic_id=self.ids[fact.topic]) if fact.topic_id and fact.topic in self.ids else fact


def bytes_of(fact: TopicFact) -> bytes:
    assert fact.topic_id is not None
    return id_of(fact.topic_id).bytes


def run(scenario: Callable[[Brokers, Topics], Awaitable[None]]) -> None:
    async def main() -> None:
        brokers = Brokers()
        await scenario(brokers, Topics(brokers.cluster, brokers.describe))  # type: ignore[arg-type]

    asyncio.run(main())


def test_facts_are_known_after_a_request():
    async def scenario(brokers: Brokers, topics: Topics) -> None:
        assert not topics.are_known(["t"])
        await topics.learn(["t", "nowhere"])
        assert topics.are_known(["t"])
        assert topics.facts_of(["nowhere", "t", "never"]) == (fact_of("nowhere", None), fact_of("t", 3))

    run(scenario)


@pytest.mark.parametrize(("age_s", "known"), [(0, ["t"]), (29, ["t"]), (31, [])])
def test_old_facts_are_not_known(monkeypatch: pytest.MonkeyPatch, age_s: float, known: list[str]):
    """A topic that did not exist a moment ago may exist now."""

    async def scenario(brokers: Brokers, topics: Topics) -> None:
        await topics.learn(["t", "nowhere"])
        now_s = module.time.monotonic() + age_s
        monkeypatch.setattr(module.time, "monotonic", lambda: now_s)
        assert [name for name in ("t", "nowhere") if topics.are_known([name])] == known

    run(scenario)


def test_requests_at_the_same_time_are_joined():
    """However many subscriptions wait, one request runs and one waits."""

    async def scenario(brokers: Brokers, topics: Topics) -> None:
        brokers.may_answer.clear()
        first = asyncio.create_task(topics.learn(["t"]))
        while not brokers.asked:
            await asyncio.sleep(0)
        others = [asyncio.create_task(topics.learn([f"u{number}"])) for number in range(100)]
        await asyncio.sleep(0)
        brokers.may_answer.set()
        await asyncio.gather(first, *others)
        assert brokers.asked == [["t"], sorted(f"u{number}" for number in range(100))]
        await topics.learn(["later"])
        assert brokers.asked[2:] == [["later"]]

    run(scenario)


def test_the_old_facts_stay_while_no_broker_answers():
    async def scenario(brokers: Brokers, topics: Topics) -> None:
        await topics.learn(["t"])
        brokers.is_away = True
        await topics.learn(["t", "u"])
        assert topics.facts_of(["t", "u"]) == (fact_of("t", 3),)

    run(scenario)


def test_old_facts_suffice_and_are_requested_again_in_the_background(monkeypatch: pytest.MonkeyPatch):
    """A heartbeat that waited for brokers that are away would come too late. A topic may have been created since."""

    async def scenario(brokers: Brokers, topics: Topics) -> None:
        await topics.learn(["t", "nowhere"])
        assert topics.are_sufficient(["t"])
        assert not topics.are_sufficient(["t", "nowhere"])
        now_s = module.time.monotonic() + module.METADATA_AGE_S + 1
        monkeypatch.setattr(module.time, "monotonic", lambda: now_s)
        brokers.may_answer.clear()
        assert topics.are_sufficient(["t"])
        assert not topics.are_known(["t"])
        assert not topics.are_sufficient(["t", "nowhere"])
        assert not topics.are_sufficient(["t", "never"])
        brokers.may_answer.set()
        await topics.learn(["t"])
        assert topics.are_known(["t"])
        assert brokers.asked[1] == ["t"]

    run(scenario)


def test_old_facts_are_known_while_no_broker_answers(monkeypatch: pytest.MonkeyPatch):
    """Only a topic without any facts waits for the brokers then."""

    async def scenario(brokers: Brokers, topics: Topics) -> None:
        await topics.learn(["t", "nowhere"])
        now_s = module.time.monotonic() + module.METADATA_AGE_S + 1
        monkeypatch.setattr(module.time, "monotonic", lambda: now_s)
        brokers.is_away = True
        await topics.learn(["t"])
        assert topics.are_known(["t", "nowhere"])
        assert topics.are_sufficient(["t", "nowhere"])
        assert not topics.are_sufficient(["never"])
        assert topics.id_of("t") == fact_of("t", 3).topic_id
        brokers.is_away = False
        await topics.learn(["never"])
        assert topics.are_known(["t"])
        assert not topics.are_known(["nowhere"])
        now_s += module.METADATA_AGE_S + 1
        assert not topics.are_known(["t"])

    run(scenario)


def test_the_stored_facts_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "FACTS_MAX", 2)

    async def scenario(brokers: Brokers, topics: Topics) -> None:
        await topics.learn(["a", "b"])
        assert len(topics.facts_of(["a", "b"])) == 2
        await topics.learn(["c"])
        assert topics.facts_of(["a", "b", "c"]) == (fact_of("c", None),)

    run(scenario)


def test_a_pattern_matches_what_the_client_may_see():
    async def scenario(brokers: Brokers, topics: Topics) -> None:
        brokers.cluster.topics = {"a1": 1, "a2": 1, "b": 1}
        both = [("a.*", lambda topic: topic != "a2"), ("a.*", lambda topic: True), ("a(", bool)]
        one, all_, wrong = await topics.resolve(both)
        assert (one.topics, all_.topics, wrong.topics) == (("a1",), ("a1", "a2"), ())
        assert wrong.error
        brokers.cluster.topics = {"a3": 1}
        assert [found.topics for found in await topics.resolve(both)] == [("a3",), ("a3",), ()]

    run(scenario)


def test_patterns_do_not_block_the_event_loop():
    """The loop serves all connections of the gateway; a thread matches the patterns."""

    async def scenario(brokers: Brokers, topics: Topics) -> None:
        brokers.cluster.topics = {"a": 1}
        is_seen = threading.Event()

        def may_see(topic: str) -> bool:
            return is_seen.wait(HANG_S)

        resolving = asyncio.create_task(topics.resolve([("a", may_see)]))
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert not resolving.done()
        is_seen.set()
        assert [found.topics for found in await resolving] == [("a",)]

    run(scenario)


def test_a_pattern_that_matches_too_many_topics_is_refused_by_a_sentence(monkeypatch: pytest.MonkeyPatch):
    """The coordinator could not read the request, and the client would not hear why."""
    monkeypatch.setattr(module, "SUBSCRIBED_NAMES_MAX", 2)

    async def scenario(brokers: Brokers, topics: Topics) -> None:
        brokers.cluster.topics = {"a1": 1, "a2": 1, "a3": 1}
        some, all_ = await topics.resolve([("a[12]", bool), ("a.", bool)])
        assert (some.topics, some.error, all_.topics) == (("a1", "a2"), None, ())
        assert all_.error == "the pattern matches 3 topics, and 2 are the maximum"

    run(scenario)


def test_all_topics_are_described_for_a_part_of_the_time(monkeypatch: pytest.MonkeyPatch):
    """In a large cluster that takes long, and any client may send unknown ids. Requests meanwhile wait for the end."""

    async def scenario(brokers: Brokers, topics: Topics) -> None:
        clock = SimpleNamespace(now_s=0.0)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
        brokers.may_answer.clear()
        first, second = (asyncio.create_task(topics.learn_all()) for _ in range(2))
        while not brokers.asked:
            await asyncio.sleep(0.001)
        clock.now_s = 3.0
        brokers.may_answer.set()
        await asyncio.gather(first, second)
        for clock.now_s, asked in [(4.5, 1), (3 + 3 * module.REST_PART - 0.1, 1), (3 + 3 * module.REST_PART, 2)]:
            await topics.learn_all()
            assert len(brokers.asked) == asked

    run(scenario)


def test_ids_are_converted_to_names_and_back(monkeypatch: pytest.MonkeyPatch):
    """A topic that was made anew has another id; the earlier one stands for no topic any more."""

    async def scenario(brokers: Brokers, topics: Topics) -> None:
        await topics.learn(["t", "nowhere"])
        before, after = bytes_of(fact_of("t", 3)), b"another id......"
        assert (topics.name_of(before), topics.name_of(after)) == ("t", None)
        assert (topics.id_of("t"), topics.id_of("nowhere"), topics.id_of("never")) == (id_text(before), NO_TOPIC, None)
        brokers.ids["t"] = id_text(after)
        await topics.learn(["t"])
        assert (topics.name_of(before), topics.name_of(after), topics.id_of("t")) == (None, "t", id_text(after))
        del brokers.cluster.topics["t"]
        await topics.learn(["t"])
        assert (topics.name_of(after), topics.id_of("t")) == (None, NO_TOPIC)

    run(scenario)


def test_an_old_id_is_not_given_to_commits(monkeypatch: pytest.MonkeyPatch):
    async def scenario(brokers: Brokers, topics: Topics) -> None:
        await topics.learn(["t"])
        now_s = module.time.monotonic() + module.METADATA_AGE_S + 1
        monkeypatch.setattr(module.time, "monotonic", lambda: now_s)
        assert topics.id_of("t") is None

    run(scenario)


def test_all_topics_are_described_once_a_second_at_most(monkeypatch: pytest.MonkeyPatch):
    """Requests with unknown ids, one after another, cost no more."""

    async def scenario(brokers: Brokers, topics: Topics) -> None:
        brokers.cluster.topics = {"a": 1, "b": 1}
        for _ in range(100):
            await topics.learn_all()
        assert brokers.asked == [["a", "b"]]
        now_s = module.time.monotonic() + module.REST_S_MIN + 0.1
        monkeypatch.setattr(module.time, "monotonic", lambda: now_s)
        await topics.learn_all()
        assert brokers.asked == [["a", "b"]] * 2

    run(scenario)


def test_the_age_of_facts_is_that_of_their_request(monkeypatch: pytest.MonkeyPatch):
    """A response that was on its way for long tells nothing about the moment at which it comes."""

    async def scenario(brokers: Brokers, topics: Topics) -> None:
        clock = SimpleNamespace(now_s=0.0)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
        brokers.may_answer.clear()
        learning = asyncio.create_task(topics.learn(["t"]))
        while not brokers.asked:
            await asyncio.sleep(0.001)
        clock.now_s = module.METADATA_AGE_S + 1
        brokers.may_answer.set()
        await learning
        assert not topics.are_known(["t"])

    run(scenario)


def test_more_partitions_than_are_known_are_asked_for():
    async def scenario(brokers: Brokers, topics: Topics) -> None:
        await topics.learn(["t", "nowhere"])
        wanted: list[tuple[dict[str, int], bool]] = [({"t": 3}, True), ({"t": 4}, False), ({"nowhere": 1}, False)]
        assert [topics.have(each) for each, _ in wanted] == [known for _, known in wanted]
        brokers.is_away = True
        await topics.learn(["t"])
        assert topics.are_brokers_silent
        assert [topics.have(each) for each, _ in wanted] == [known for _, known in wanted]

    run(scenario)


def test_a_topic_is_found_by_its_id():
    """Only that topic is described: an unknown id costs one small request, and not one for all topics."""

    async def scenario(brokers: Brokers, topics: Topics) -> None:
        t = bytes_of(fact_of("t", 3))
        await topics.learn([t, b"an unknown id..."])
        assert (topics.name_of(t), topics.name_of(b"an unknown id...")) == ("t", None)
        assert brokers.asked == [[id_text(t), id_text(b"an unknown id...")]]

    run(scenario)


def test_a_topic_that_a_client_sees_in_metadata_is_known():
    """It may be created, seen and used back to back (public reports, R7). A stored absence is no proof against it."""

    async def scenario(brokers: Brokers, topics: Topics) -> None:
        await topics.learn(["new"])
        topics.update({"new": fact_of("new", 1)})
        assert (topics.have({"new": 1}), topics.have({"new": 2})) == (True, False)
        topics.update({"new": fact_of("new", 2)})
        assert topics.have({"new": 2})
        topics.update({"new": fact_of("new", 1), "gone": fact_of("gone", None)})
        assert (topics.partitions_of("new"), brokers.asked) == (2, [["new"]])

    run(scenario)


def test_a_topic_that_metadata_show_with_another_id_is_asked_for():
    """The response may come from a broker that is behind the others, or the stored fact may be of a deleted topic."""

    async def scenario(brokers: Brokers, topics: Topics) -> None:
        await topics.learn(["t"])
        topics.update({"t": replace(fact_of("t", 3), topic_id=id_text(b"another id......"))})
        assert (topics.partitions_of("t"), topics.name_of(bytes_of(fact_of("t", 3)))) == (None, None)
        assert not topics.have({"t": 1})

    run(scenario)
