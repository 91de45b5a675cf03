"""What is examined, and what a check finds."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from streaming.config.settings import Settings
from streaming.kafka.any_broker import AnyBroker, metadata_request
from streaming.kafka.brokers import Brokers, check_brokers
from streaming.kafka.topics import Topic, directory_layout, layout, lease_layout, observed_layout

CLIENT_ID = "coordinator-doctor"


OF_CHECKPOINT = frozenset({"requests", "groups", "events"})
"""The roles of the topics whose ids a checkpoint keeps."""


class Level(StrEnum):
    """What a finding means."""

    OK = "OK"
    WARNING = "WARNING"  # it works, and somebody should look at it
    WRONG = "WRONG"  # it does not work, or it loses something


class Finding(NamedTuple):
    """One line of the result.

    Args:
        remedy: A sentence with what to do; empty if nothing is to be done, or if the text says it.
    """

    level: Level
    text: str
    remedy: str = ""


def ok(text: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(Level.OK, text)


def warning(text: str, remedy: str) -> Finding:
    """Return a finding that somebody should look at."""
    return Finding(Level.WARNING, text, remedy)


def wrong(text: str, remedy: str = "") -> Finding:
    """Return a finding that has to be mended."""
    return Finding(Level.WRONG, text, remedy)


class Wanted(NamedTuple):
    """A topic of the coordinator.

    Args:
        role: The topic's name in its layout.
        is_needed: Whether the settings need it. Other topics are checked if they exist.
    """

    role: str
    topic: Topic
    is_needed: bool


@dataclass(frozen=True)
class Case:
    """The objects to examine. What several checks need is asked for once.

    Args:
        health: The health addresses, each `http://HOST:PORT` or `https://HOST:PORT`.
        log: A file with the log of a process.
    """

    settings: Settings
    health: tuple[str, ...] = ()
    log: Path | None = None

    @cached_property
    def wanted(self) -> tuple[Wanted, ...]:
        """The topics of the coordinator and of the observer."""
        return tuple(_wanted(self.settings))

    @cached_property
    def kafka(self) -> dict[str, Any]:
        """The arguments of kafka-python's clients. They contain the password."""
        return {**self.settings.kafka_client_arguments(), "client_id": CLIENT_ID}

    @cached_property
    def brokers(self) -> Brokers:
        """The state of the brokers."""
        return check_brokers(self.kafka, [each.topic.name for each in self.wanted if each.is_needed])

    @cached_property
    def described(self) -> dict[str, Any]:
        """The brokers' descriptions of all wanted topics, by name; none if no broker answers.

        Raises:
            KafkaError: The brokers have stopped to answer.
        """
        if not self.brokers.answering:
            return {}
        with self.any_broker() as brokers:
            return brokers.describe_topics([each.topic.name for each in self.wanted])

    def any_broker(self) -> AnyBroker:
        """Return the connections to the brokers. Those that do not answer are asked last."""
        brokers = AnyBroker(self.kafka)
        brokers.ask_each(lambda _: metadata_request(()))
        return brokers


def _wanted(settings: Settings) -> Iterator[Wanted]:
    for role, topic in layout(settings)._asdict().items():
        yield Wanted(role, topic, is_needed=True)
    for role, topic in lease_layout(settings)._asdict().items():
        yield Wanted(role, topic, is_needed=settings.stand_by)
    if settings.directory is not None:
        for role, topic in directory_layout(settings)._asdict().items():
            yield Wanted(role, topic, is_needed=True)
    if settings.observe_prefix != settings.topic_prefix:
        observing = settings.model_copy(update={"topic_prefix": settings.observe_prefix})
        for role, topic in observed_layout(observing)._asdict().items():
            yield Wanted(role, topic, is_needed=False)
