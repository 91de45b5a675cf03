"""Commits, fetches and deletions of offsets: what is asked, and in which shape clients hear of it."""

from collections.abc import Iterable
from typing import Any

import pytest
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from kafka.protocol.producer.transaction import AddOffsetsToTxnRequest, TxnOffsetCommitRequest

from coordinator.errors import ErrorCode
from coordinator.outputs import (
    CommittedPartition,
    DeletedPartition,
    ErrorAnswer,
    FetchedOffset,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
)
from coordinator.requests import TopicPartitions
from streaming.gateway.exchanges import SERVED
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.wiring import ask, decoded

OK = ended(ErrorCode.NONE)

_COMMIT = OffsetCommitRequest.OffsetCommitRequestTopic
_FETCH, _FETCH_OF_MANY = OffsetFetchRequest.OffsetFetchRequestTopic, OffsetFetchRequest.OffsetFetchRequestGroup
_DELETE = OffsetDeleteRequest.OffsetDeleteRequestTopic

Named = tuple[str, list[int]]


def commit(*topics: Named, **fields: Any) -> Any:
    one = _COMMIT.OffsetCommitRequestPartition
    named = [
        _COMMIT(name=t, partitions=[one(partition_index=p, committed_offset=5, committed_metadata="") for p in some])
        for t, some in topics
    ]
    return OffsetCommitRequest(group_id="g", topics=named, **fields)


def forget(*topics: Named) -> Any:
    one = _DELETE.OffsetDeleteRequestPartition
    named = [_DELETE(name=t, partitions=[one(partition_index=p) for p in some]) for t, some in topics]
    return OffsetDeleteRequest(group_id="g", topics=named)


def fetch(*topics: Named) -> Any:
    return OffsetFetchRequest(group_id="g", topics=[_FETCH(name=t, partition_indexes=some) for t, some in topics])


def fetch_of(**groups: list[Named] | None) -> Any:
    one = _FETCH_OF_MANY.OffsetFetchRequestTopics
    named = {
        group: None if topics is None else [one(name=t, partition_indexes=some) for t, some in topics]
        for group, topics in groups.items()
    }
    return OffsetFetchRequest(groups=[_FETCH_OF_MANY(group_id=g, topics=topics) for g, topics in named.items()])


def codes(topics: Iterable[Any]) -> list[tuple[str, list[tuple[int, int]]]]:
    return [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in topics]


def offsets(topics: Iterable[Any]) -> list[tuple[str, list[tuple[int, int]]]]:
    return [(t.name, [(p.partition_index, p.committed_offset) for p in t.partitions]) for t in topics]


# -- committing --------------------------------------------------------------------------------------------------------


def test_a_commit_to_unknown_partitions_is_asked_of_the_rest():
    """S143: what there is, only who sees the cluster's metadata can say; the answer is in the request's order."""
    asking = ask(commit(("t", [0, 3, -1]), ("nowhere", [0]), ("u", [2]), ("t", [1])), 9)
    assert [(o.topic, o.partition) for o in asking.requests[0].offsets] == [("t", 0), ("u", 2), ("t", 1)]
    too_large = CommittedPartition("u", 2, **ended(ErrorCode.OFFSET_METADATA_TOO_LARGE))
    stored = CommittedPartition("t", 0, **OK), too_large, CommittedPartition("t", 1, **OK)
    said = asking.hears(OffsetCommitAnswer(request_id="1", partitions=stored))
    expected = [("t", [(0, 0), (3, 3), (-1, 3)]), ("nowhere", [(0, 3)]), ("u", [(2, 12)]), ("t", [(1, 0)])]
    assert codes(said.topics) == expected


@pytest.mark.parametrize("topics", [[], [("t", [])], [("nowhere", [0]), ("t", [3])]])
def test_a_commit_without_a_known_partition_is_not_asked(topics: list[Named]):
    """protocol.md 3.6: the group is not touched, whatever else the request says."""
    asking = ask(commit(*topics, generation_id_or_member_epoch=7), 9)
    assert (asking.requests, codes(asking.hears().topics)) == ([], [(t, [(p, 3) for p in some]) for t, some in topics])


@pytest.mark.parametrize(("version", "retention_ms"), [(2, 60_000), (4, 60_000), (5, -1), (9, -1)])
def test_older_clients_may_say_how_long_an_offset_is_kept(version: int, retention_ms: int):
    asking = ask(commit(("t", [0]), retention_time_ms=60_000), version)
    assert asking.requests[0].offsets[0].retention_ms == retention_ms


@pytest.mark.parametrize(("version", "code"), [(8, 22), (9, 69)])
def test_a_missing_group_is_a_wrong_generation_to_older_clients(version: int, code: int):
    """S143: and an unknown partition stays unknown."""
    asking = ask(commit(("t", [0, 9])), version)
    said = asking.hears(ErrorAnswer(request_id="1", **ended(ErrorCode.GROUP_ID_NOT_FOUND)))
    assert codes(said.topics) == [("t", [(0, code), (9, 3)])]


def test_what_nobody_says_is_stored_is_not():
    asking = ask(commit(("t", [0, 1])), 9)
    said = asking.hears(OffsetCommitAnswer(request_id="1", partitions=(CommittedPartition("t", 0, **OK),)))
    assert codes(said.topics) == [("t", [(0, 0), (1, -1)])]


def test_names_the_partitions_that_there_must_be():
    wanted = SERVED[OffsetCommitRequest.API_KEY].topics_named
    message = decoded(commit(("t", [4, 1]), ("u", []), ("t", [2]), ("v", [-7])), 9)
    assert wanted(message) == {"t": 5, "u": 1, "v": 1}


# -- fetching ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 8))
def test_fetched_offsets_stand_as_they_were_asked_for(version: int):
    asking = ask(fetch(("t", [0, 1]), ("u", []), ("t", [1])), version)
    assert asking.requests[0].topics == (
        TopicPartitions("t", (0, 1)),
        TopicPartitions("u", ()),
        TopicPartitions("t", (1,)),
    )
    found = FetchedOffset("t", 0, 5), FetchedOffset("t", 1), FetchedOffset("t", 1)
    said = asking.hears(OffsetFetchAnswer(request_id="1", partitions=found))
    assert offsets(said.topics) == [("t", [(0, 5), (1, -1)]), ("u", []), ("t", [(1, -1)])]


@pytest.mark.parametrize("version", range(1, 8))
def test_topics_without_partitions_are_listed(version: int):
    said = ask(fetch(("t", []), ("u", [])), version).hears(OffsetFetchAnswer(request_id="1"))
    assert offsets(said.topics) == [("t", []), ("u", [])]


@pytest.mark.parametrize("version", range(2, 8))
def test_all_offsets_are_fetched_where_no_topics_are_named(version: int):
    asking = ask(OffsetFetchRequest(group_id="g", topics=None), version)
    found = FetchedOffset("t", 0, 5), FetchedOffset("t", 1, 6), FetchedOffset("u", 0, 7)
    said = asking.hears(OffsetFetchAnswer(request_id="1", partitions=found))
    assert (asking.requests[0].topics, offsets(said.topics)) == (None, [("t", [(0, 5), (1, 6)]), ("u", [(0, 7)])])


@pytest.mark.parametrize(
    ("version", "in_each", "of_all"), [(1, [("t", [(0, 42), (1, 42)])], 0), (2, [], 42), (7, [], 42)]
)
def test_a_failed_fetch_says_so_in_the_form_of_its_version(version: int, in_each: list[Any], of_all: int):
    """As a running Kafka answers: for each partition at first, from version 2 on once, without any topics."""
    asking = ask(fetch(("t", [0, 1])), version)
    said = asking.hears(ErrorAnswer(request_id="1", **ended(ErrorCode.INVALID_REQUEST)))
    assert (codes(said.topics), said.error_code) == (in_each, of_all)
    assert offsets(said.topics) == [(t, [(p, -1) for p, _ in some]) for t, some in in_each]


@pytest.mark.parametrize("version", [8, 9])
def test_many_groups_are_many_questions(version: int):
    """KIP-709: one group's error leaves the others alone."""
    asking = ask(fetch_of(g=[("t", [0, 1])], h=None, broken=[("t", [0])]), version)
    assert [(r.group_id, r.topics is None) for r in asking.requests] == [("g", False), ("h", True), ("broken", False)]
    assert len({request.request_id for request in asking.requests}) == 3
    said = asking.hears(
        OffsetFetchAnswer(request_id="1", partitions=(FetchedOffset("t", 0, 5), FetchedOffset("t", 1))),
        OffsetFetchAnswer(request_id="2", partitions=(FetchedOffset("u", 2, 7),)),
        ErrorAnswer(request_id="3", **ended(ErrorCode.INVALID_GROUP_ID)),
    )
    found = [(group.group_id, group.error_code, offsets(group.topics)) for group in said.groups]
    assert found == [("g", 0, [("t", [(0, 5), (1, -1)])]), ("h", 0, [("u", [(2, 7)])]), ("broken", 24, [])]


def test_no_groups_are_no_questions():
    asking = ask(OffsetFetchRequest(groups=[]), 8)
    assert (asking.requests, asking.hears().groups) == ([], [])


@pytest.mark.parametrize(("version", "is_passed_on"), [(6, False), (7, True), (9, True)])
def test_stable_offsets_can_be_required(version: int, is_passed_on: bool):
    groups = [_FETCH_OF_MANY(group_id="g", topics=None)]
    asking = ask(OffsetFetchRequest(group_id="g", topics=None, groups=groups, require_stable=True), version)
    assert asking.requests[0].require_stable is is_passed_on


# -- forgetting --------------------------------------------------------------------------------------------------------


def test_a_deletion_of_unknown_partitions_is_asked_of_the_rest():
    """S33: unknown ones are said in their places."""
    asking = ask(forget(("t", [0, 3]), ("nowhere", [0]), ("u", [1])), 0)
    assert asking.requests[0].topics == (
        TopicPartitions("t", (0,)),
        TopicPartitions("nowhere", ()),
        TopicPartitions("u", (1,)),
    )
    subscribed = DeletedPartition("t", 0, **ended(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
    said = asking.hears(OffsetDeleteAnswer(request_id="1", partitions=(subscribed, DeletedPartition("u", 1, **OK))))
    assert codes(said.topics) == [("t", [(0, 86), (3, 3)]), ("nowhere", [(0, 3)]), ("u", [(1, 0)])]


@pytest.mark.parametrize("error", [ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP])
def test_what_the_group_refuses_goes_before_unknown_partitions(error: ErrorCode):
    """protocol.md 3.9: so the group is asked even where no partition is known."""
    asking = ask(forget(("nowhere", [0])), 0)
    said = asking.hears(OffsetDeleteAnswer(request_id="1", **ended(error)))
    assert (said.error_code, said.topics) == (error.number, [])


# -- in transactions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_offsets_of_a_transaction_are_refused(version: int):
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    one = topic.TxnOffsetCommitRequestPartition
    partitions = [one(partition_index=p, committed_offset=5, committed_metadata=None) for p in (0, 1)]
    request = TxnOffsetCommitRequest(
        transactional_id="x", group_id="g", topics=[topic(name="t", partitions=partitions)]
    )
    asking = ask(request, version)
    assert (asking.requests, codes(asking.hears().topics)) == ([], [("t", [(0, 35), (1, 35)])])


@pytest.mark.parametrize("version", range(5))
def test_a_transaction_takes_no_groups_offsets(version: int):
    asking = ask(AddOffsetsToTxnRequest(transactional_id="x", group_id="g"), version)
    assert (asking.requests, asking.hears().error_code) == ([], 35)
