"""What is said of real groups of the broker's own coordinator: the walkthroughs, from the broker to the sentences."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from streaming.cli.groups.history import timeline_lines
from streaming.cli.groups.show import folded
from streaming.embedded import Broker
from streaming.observe.observer import Observer
from streaming.views import GroupView, Views
from streaming.views.api import answers
from streaming.views.sentences.records import to_line
from streaming.views.sentences.why import Why, why
from streaming.wire.records import decode_event
from tests.system.kafka_groups import KafkaGroup, kafka_group
from tests.system.reading import Reader
from tests.system.waiting import HANG_S, wait_until

MODERN = {"group.protocol": "consumer"}
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
NUMBER = r"[0-9a-f]{4}"
AT = r"\d\d:\d\d:\d\d\.\d{3}"


class Shown:
    """A group of Kafka's coordinator, as the commands read it."""

    def __init__(self, observer: Observer, group_id: str) -> None:
        self._settings, self.group_id = observer.settings, group_id

    def views(self) -> Views:
        return folded(self._settings, [self.group_id])

    def group(self) -> GroupView:
        return self.views().groups[self.group_id]

    def await_why(self, is_wanted: Callable[[Why], object]) -> Why:
        """Wait until the last rebalance is as wanted, and return its explanation."""
        told: list[Why | None] = []

        def look() -> bool:
            views = self.views()
            group = views.groups.get(self.group_id)
            told[:] = [why(group) if group is not None else None]
            return bool(told[0] is not None and is_wanted(told[0]))

        wait_until(look, account=lambda: told)
        assert told[0] is not None
        return told[0]

    def told(self) -> list[str]:
        """Return the texts of the group's events, also after its end."""
        events = Reader(self._settings, self.group_id).events()
        return [to_line(decode_event(msgspec.json.encode(event)), 0).text for event in events]

    def lines(self) -> list[str]:
        """Return the texts of the timeline; none before the observer has published the group."""
        views = self.views()
        group = views.groups.get(self.group_id)
        return [] if group is None else [line.text for line in timeline_lines(answers.timeline(views, group))]


@contextmanager
def shown(broker: Broker, observer: Observer, name: str) -> Iterator[tuple[KafkaGroup, Shown]]:
    with kafka_group(broker.bootstrap_servers, name) as group:
        yield group, Shown(observer, group.group_id)


def test_members_that_join_leave_and_are_killed(broker: Broker, observer: Observer) -> None:
    """Walkthroughs 2 to 6."""
    with shown(broker, observer, "walk-clicks") as (group, seen):
        ana = group.join("ana").await_owned(0, 1, 2, 3)
        bo = group.join("bo").await_owned(2, 3)
        told = seen.await_why(lambda each: each.generation_id == 2)
        assert re.fullmatch(
            rf"walk-clicks rebalanced to generation 2, whose plan came at {AT}; it began after {AT}, Kafka does not"
            r" record when: 2 partitions changed hands among 2 members\.",
            told.what,
        )
        assert re.fullmatch(r"bo-[0-9a-f]{4} at /127.0.0.1 joined\.", told.who)
        assert told.advice.startswith("Unavoidable: ")
        bo.commit(2, 1)
        bo.close()
        told = seen.await_why(lambda each: each.generation_id == 3)
        assert re.fullmatch(
            r"bo-[0-9a-f]{4} at /127.0.0.1 left: it committed [\d.]+ m?s before and its session is 6\.0 s, so it did"
            r" not expire\.",
            told.who,
        )
        cy = group.join("cy").await_owned(2, 3)
        cy.kill()
        ana.await_owned(0, 1, 2, 3)
        told = seen.await_why(lambda each: each.generation_id == 5)
        assert "left or was expired: Kafka does not record which." in told.who
        assert (told.cause, told.is_avoidable) == ("member_gone", None)
        assert not any("joins " in line for line in seen.lines())
        asked = answers.owner(seen.views(), seen.group(), group.topic, 3, told.at_ms - 1)
        assert asked.owner is not None
        assert (asked.owner.client_id, asked.owner.because) == ("cy", "gone")


def test_a_cooperative_rebalance_is_one(broker: Broker, observer: Observer) -> None:
    """Walkthrough 8."""
    with shown(broker, observer, "walk-coop") as (group, seen):
        group.join("ana", **COOPERATIVE).await_owned(0, 1, 2, 3)
        group.join("bo", **COOPERATIVE)
        told = seen.await_why(lambda each: each.generation_id == 3)
        (sentence,) = told.details
        passed = rf"It went on: 2 partitions that ana-{NUMBER} gave up were given to bo-{NUMBER}\."
        assert re.fullmatch(passed, sentence)
        assert told.cause == "member_joined"


@pytest.mark.long
def test_a_static_member_that_restarts_is_no_rebalance(broker: Broker, observer: Observer) -> None:
    """Walkthrough 7."""
    with shown(broker, observer, "walk-static") as (group, seen):
        till = group.join("till", **{"group.instance.id": "till-1"}).await_owned(0, 1, 2, 3)
        till.kill()
        group.join("till", **{"group.instance.id": "till-1"}).await_owned(0, 1, 2, 3)
        wait_until(lambda: any("till-1 restarted" in line for line in seen.lines()), account=seen.lines)
        assert why(seen.group()) is not None
        assert len(answers.timeline(seen.views(), seen.group()).rebalances) == 1


def test_a_group_of_the_consumer_protocol_has_durations_and_epochs(broker: Broker, observer: Observer) -> None:
    """Walkthrough 9."""
    with shown(broker, observer, "walk-modern") as (group, seen):
        group.join("ana", **MODERN).await_owned(0, 1, 2, 3)
        bo = group.join("bo", **MODERN)
        told = seen.await_why(lambda each: each.what.endswith(": 2 partitions changed hands among 2 members."))
        took = rf"walk-modern rebalanced at {AT} for [\d.]+ m?s, to group epoch {told.generation_id}: .*"
        assert re.fullmatch(took, told.what)
        assert re.fullmatch(r"bo-\S{4} at /127.0.0.1 joined\.", told.who)
        assert told.details[0].startswith(f"Group epoch {told.generation_id} at ")
        bo.close()
        told = seen.await_why(lambda each: each.cause == "member_gone")
        assert re.match(r"bo-\S{4} at /127.0.0.1 left or was expired: Kafka does not record which", told.who)
        assert told.is_avoidable is None


@pytest.mark.long
def test_a_group_that_is_converted_goes_on(broker: Broker, observer: Observer) -> None:
    """Walkthrough 10."""
    with shown(broker, observer, "walk-moving") as (group, seen):
        group.join("c1").await_owned(0, 1, 2, 3)
        c3 = group.join("c3", **MODERN)
        wait_until(lambda: len(c3.owned) == 2, account=lambda: c3.assignments)
        told = seen.await_why(lambda each: each.cause == "protocol_upgraded")
        became = r"c3-\S{4} joined with group\.protocol=consumer, and the group became one of the new protocol"
        assert re.match(became, told.who)
        c3.close()
        told = seen.await_why(lambda each: each.cause == "protocol_downgraded")
        assert told.who.startswith("The last member of the new protocol is gone, and the group became a classic one")
        assert not any("deleted" in line for line in seen.lines())
        first = seen.group().events[0]
        assert first.at_ms < told.at_ms, "the history goes on"


@pytest.mark.long
def test_offsets_that_are_committed_by_hand(broker: Broker, observer: Observer) -> None:
    """Walkthrough 11: nobody is said to have committed them, and a deletion is told."""
    with shown(broker, observer, "walk-by-hand") as (group, seen):
        committed = [TopicPartition(group.topic, number, 17) for number in (0, 1)]
        by_hand = ConsumerGroupTopicPartitions(group.group_id, committed)
        group.admin.alter_consumer_group_offsets([by_hand])[group.group_id].result(HANG_S)
        wait_until(lambda: group.group_id in seen.views().groups and len(answers.offsets(seen.group(), {})) == 2)
        rows = answers.offsets(seen.group(), {})
        assert {(row.committed_offset, row.committed_by) for row in rows} == {(17, None)}
        group.admin.delete_topics([group.topic])[group.topic].result(HANG_S)
        wait_until(lambda: any("offsets forgotten" in line for line in seen.told()), account=seen.told)
        why = "the topic was deleted, or an operator deleted them"
        assert f"2 offsets forgotten ({group.topic} 0-1): {why}" in seen.told()
