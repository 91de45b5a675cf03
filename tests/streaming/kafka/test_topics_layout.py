"""Tests of the five topics that the settings describe (design.md 2)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka.errors import InvalidReplicationFactorError, TopicAlreadyExistsError

from streaming.config.settings import Settings
from streaming.errors import TopicRefused
from streaming.kafka import topics
from streaming.kafka.acls import Role, commands
from streaming.kafka.topics import directory_layout, layout, lease_layout


def test_settings_with_which_acknowledged_records_may_be_lost_are_named() -> None:
    safe = {"unclean.leader.election.enable": "false", "min.insync.replicas": "2"}
    single, unclean = safe | {"min.insync.replicas": "1"}, safe | {"unclean.leader.election.enable": "true"}
    assert not list(topics.risks_of({"a": safe, "b": {}}, {"a": 3, "b": 3}))
    assert not list(topics.risks_of({"a": single}, {"a": 1})), "one copy is all that was asked for"
    (lost,) = topics.risks_of({"a": unclean, "b": unclean, "c": safe}, {"a": 3, "b": 1, "c": 3})
    assert lost.endswith("set unclean.leader.election.enable=false on a, b.")
    (alone,) = topics.risks_of({"a": single, "b": safe}, {"a": 2, "b": 3})
    assert alone.endswith("set min.insync.replicas=2 or more on a.")


def test_requests_groups_and_events_have_a_partition_for_each_shard() -> None:
    topics = layout(Settings(topic_prefix="mine", request_partitions=7, reply_partitions=3))
    assert [(topic.name, topic.partitions) for topic in topics] == [
        ("mine.requests", 7),
        ("mine.replies", 3),
        ("mine.groups", 7),
        ("mine.events", 7),
        ("mine.transactions", 7),
    ]


def test_cleanup_policies_and_retention_times() -> None:
    topics = layout(Settings())
    assert topics.requests.config["message.timestamp.type"] == "LogAppendTime"
    assert [(topic.config["cleanup.policy"], topic.config.get("retention.ms")) for topic in topics] == [
        ("delete", "86400000"),
        ("delete", "600000"),
        ("compact", None),
        ("delete", "604800000"),
        ("delete", "-1"),
    ]


def test_segments_close_within_the_retention_time() -> None:
    """Kafka deletes closed segments only, and by default closes a segment after seven days."""
    for topic in layout(Settings()):
        if int(topic.config.get("retention.ms", "-1")) >= 0:
            assert int(topic.config["segment.ms"]) <= int(topic.config["retention.ms"])


def test_lease_has_one_partition_whose_order_decides() -> None:
    [lease] = lease_layout(Settings(topic_prefix="mine"))
    assert (lease.name, lease.partitions, lease.config["cleanup.policy"]) == ("mine.lease", 1, "delete")
    assert int(lease.config["segment.ms"]) <= int(lease.config["retention.ms"])


@pytest.mark.parametrize("role", Role)
def test_processes_that_look_up_the_topics_of_groups_may_describe_them(role: Role) -> None:
    """The coordinator finds deleted topics, a gateway checks commits, the observer finds the names of topic ids."""
    printed = list(commands(role, "User:c", Settings()))
    is_printed = any(command.endswith("--operation Describe --topic '*'") for command in printed)
    assert is_printed is (role in (Role.COORDINATOR, Role.GATEWAY, Role.OBSERVER))


def test_coordinator_has_rights_to_the_lease_topic_only_with_the_setting() -> None:
    def printed(*, stand_by: bool) -> list[str]:
        return list(commands(Role.COORDINATOR, "User:c", Settings(stand_by=stand_by)))

    [added] = set(printed(stand_by=True)) - set(printed(stand_by=False))
    assert added.endswith("--operation Read --operation Write --operation DescribeConfigs --topic coordinator.lease")


def test_directory_has_one_partition_whose_order_decides_and_loses_no_record() -> None:
    [directory] = directory_layout(Settings(topic_prefix="mine", directory="all-of-us"))
    assert (directory.name, directory.partitions) == ("all-of-us.directory", 1)
    assert directory.config == {"cleanup.policy": "compact"}


def test_only_a_coordinator_that_may_be_the_founder_has_rights_to_the_directory(tmp_path: Path) -> None:
    (key := tmp_path / "key").write_text("x" * 32)

    def printed(to_create: bool = False, **fields: Any) -> list[str]:
        settings = Settings(peers=("b",), peer_key_file=str(key), **fields)
        return list(commands(Role.COORDINATOR, "User:c", settings, to_create=to_create))

    assert printed(directory="us", slots="none") == printed(slots="all")
    [added] = set(printed(directory="us")) - set(printed())
    assert added.endswith("--operation Read --operation Write --operation DescribeConfigs --topic us.directory")
    [to_create] = set(printed(True, directory="us")) - set(printed(True))
    assert to_create.endswith("--operation DescribeConfigs --operation Create --topic us.directory")


# -- the number of copies ----------------------------------------------------------------------------------------------


class Result(NamedTuple):
    name: str
    error_code: int
    error_message: str | None = None


class Response(NamedTuple):
    topics: list[Result]


class FewBrokers:
    """A stand-in for `AnyBroker`: brokers that have the first topic, and refuse more copies than brokers.

    Args:
        registered: The number of brokers, those included that do not run.
    """

    def __init__(self, running: int, registered: int) -> None:
        self.members, self._registered = list(range(running)), registered
        self.asked: list[tuple[int, int, str | None]] = []

    def ask(self, request: Callable[[], Any], *_: Any) -> Response:
        wanted = request().topics
        copies = wanted[0].replication_factor
        self.asked.append(
            (len(wanted), copies, {c.name: c.value for c in wanted[1].configs}.get("min.insync.replicas"))
        )
        error = InvalidReplicationFactorError.errno if copies > self._registered else 0
        first = Result(wanted[0].name, error or TopicAlreadyExistsError.errno)
        return Response([first, *(Result(topic.name, error) for topic in wanted[1:])])


@pytest.mark.parametrize(
    ("running", "registered", "asked", "number"),
    [
        (1, 1, [(5, 3, None), (5, 1, "1")], 1),
        (2, 2, [(5, 3, None), (5, 2, None)], 2),
        (2, 3, [(5, 3, None)], None),  # one of three brokers is down
        (3, 3, [(5, 3, None)], None),
    ],
)
def test_copies_that_nobody_has_set_follow_the_number_of_brokers(
    running: int, registered: int, asked: list[Any], number: int | None
) -> None:
    brokers, told = FewBrokers(running, registered), list[str]()
    topics._create(brokers, layout(Settings()), Settings(), told.append)  # type: ignore[arg-type]
    assert brokers.asked == asked
    assert told == ([] if number is None else [topics.FEWER_COPIES.format(number=number, wanted=3)])


def test_copies_that_somebody_has_set_are_obeyed() -> None:
    brokers, told = FewBrokers(1, 1), list[str]()
    settings = Settings(replication_factor=3)
    with pytest.raises(TopicRefused, match="set replication_factor to the number of brokers or less"):
        topics._create(brokers, layout(settings), settings, told.append)  # type: ignore[arg-type]
    assert (len(brokers.asked), told) == (1, [])
    assert "replication_factor" in settings.observing().model_fields_set, "the observer's topics too"
