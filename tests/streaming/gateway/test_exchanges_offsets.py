"""Commits, fetches and deletions of offsets: the requests to the coordinator, and the form of the responses."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest

from coordinator.base.errors import ErrorCode
from coordinator.messages.fields import NO_TOPIC
from coordinator.messages.requests import TopicPartitions
from coordinator.messages.responses import (
    CommittedPartition,
    DeletedPartition,
    ErrorAnswer,
    FetchedOffset,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
)
from streaming.gateway.exchanges import SERVED
from streaming.gateway.protocol.topic_ids import id_of, id_text
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.parts import fact_of
from tests.streaming.gateway.wiring import FakeGateway, ask, decoded

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


def test_a_commit_is_sent_without_its_unknown_partitions():
    """S143: only the gateway has the metadata to find unknown partitions. The response keeps the request's order."""
    asking = ask(commit(("t", [0, 3, -1]), ("nowhere", [0]), ("u", [2]), ("t", [1])), 9)
    assert [(o.topic, o.partition) for o in asking.requests[0].offsets] == [("t", 0), ("u", 2), ("t", 1)]
    too_large = CommittedPartition("u", 2, **ended(ErrorCode.OFFSET_METADATA_TOO_LARGE))
    stored = CommittedPartition("t", 0, **OK), too_large, CommittedPartition("t", 1, **OK)
    response = asking.response_to(OffsetCommitAnswer(request_id="1", partitions=stored))
    expected = [("t", [(0, 0), (3, 3), (-1, 3)]), ("nowhere", [(0, 3)]), ("u", [(2, 12)]), ("t", [(1, 0)])]
    assert codes(response.topics) == expected


@pytest.mark.parametrize("topics", [[], [("t", [])], [("nowhere", [0]), ("t", [3])]])
def test_a_commit_without_a_known_partition_is_not_sent(topics: list[Named]):
    """protocol.md 3.6: such a request has no effect on the group."""
    asking = ask(commit(*topics, generation_id_or_member_epoch=7), 9)
    assert (asking.requests, codes(asking.response_to().topics)) == (
        [],
        [(t, [(p, 3) for p in some]) for t, some in topics],
    )


@pytest.mark.parametrize(("version", "retention_ms"), [(2, 60_000), (4, 60_000), (5, -1), (9, -1)])
def test_older_clients_may_set_the_retention_of_an_offset(version: int, retention_ms: int):
    asking = ask(commit(("t", [0]), retention_time_ms=60_000), version)
    assert asking.requests[0].offsets[0].retention_ms == retention_ms


@pytest.mark.parametrize(("version", "code"), [(8, 22), (9, 69)])
def test_a_missing_group_is_a_wrong_generation_for_older_clients(version: int, code: int):
    """S143: an unknown partition keeps its own error."""
    asking = ask(commit(("t", [0, 9])), version)
    response = asking.response_to(ErrorAnswer(request_id="1", **ended(ErrorCode.GROUP_ID_NOT_FOUND)))
    assert codes(response.topics) == [("t", [(0, code), (9, 3)])]


def test_a_partition_without_an_answer_has_an_error():
    asking = ask(commit(("t", [0, 1])), 9)
    response = asking.response_to(OffsetCommitAnswer(request_id="1", partitions=(CommittedPartition("t", 0, **OK),)))
    assert codes(response.topics) == [("t", [(0, 0), (1, -1)])]


def test_a_commit_names_the_partitions_that_must_exist():
    wanted = SERVED[OffsetCommitRequest.API_KEY].topics_named
    message = decoded(commit(("t", [4, 1]), ("u", []), ("t", [2]), ("v", [-7])), 9)
    assert wanted(message, FakeGateway()) == {"t": 5, "u": 1, "v": 1}


# -- fetching ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 8))
def test_fetched_offsets_have_the_order_of_the_request(version: int):
    asking = ask(fetch(("t", [0, 1]), ("u", []), ("t", [1])), version)
    assert asking.requests[0].topics == (
        TopicPartitions("t", (0, 1)),
        TopicPartitions("u", ()),
        TopicPartitions("t", (1,)),
    )
    found = FetchedOffset("t", 0, 5), FetchedOffset("t", 1), FetchedOffset("t", 1)
    response = asking.response_to(OffsetFetchAnswer(request_id="1", partitions=found))
    assert offsets(response.topics) == [("t", [(0, 5), (1, -1)]), ("u", []), ("t", [(1, -1)])]


@pytest.mark.parametrize("version", range(1, 8))
def test_topics_without_partitions_are_listed(version: int):
    response = ask(fetch(("t", []), ("u", [])), version).response_to(OffsetFetchAnswer(request_id="1"))
    assert offsets(response.topics) == [("t", []), ("u", [])]


@pytest.mark.parametrize("version", range(2, 8))
def test_a_fetch_without_topics_returns_all_offsets(version: int):
    asking = ask(OffsetFetchRequest(group_id="g", topics=None), version)
    found = FetchedOffset("t", 0, 5), FetchedOffset("t", 1, 6), FetchedOffset("u", 0, 7)
    response = asking.response_to(OffsetFetchAnswer(request_id="1", partitions=found))
    assert (asking.requests[0].topics, offsets(response.topics)) == (None, [("t", [(0, 5), (1, 6)]), ("u", [(0, 7)])])


@pytest.mark.parametrize(
    ("version", "in_each", "of_all"), [(1, [("t", [(0, 42), (1, 42)])], 0), (2, [], 42), (7, [], 42)]
)
def test_a_failed_fetch_has_the_error_form_of_its_version(version: int, in_each: list[Any], of_all: int):
    """As in Kafka, the error is in each partition before version 2, and once, without topics, from version 2 on."""
    asking = ask(fetch(("t", [0, 1])), version)
    response = asking.response_to(ErrorAnswer(request_id="1", **ended(ErrorCode.INVALID_REQUEST)))
    assert (codes(response.topics), response.error_code) == (in_each, of_all)
    assert offsets(response.topics) == [(t, [(p, -1) for p, _ in some]) for t, some in in_each]


@pytest.mark.parametrize("version", [8, 9])
def test_a_fetch_of_many_groups_is_one_request_per_group(version: int):
    """KIP-709: an error of one group does not affect the others."""
    asking = ask(fetch_of(g=[("t", [0, 1])], h=None, broken=[("t", [0])]), version)
    assert [(r.group_id, r.topics is None) for r in asking.requests] == [("g", False), ("h", True), ("broken", False)]
    assert len({request.request_id for request in asking.requests}) == 3
    response = asking.response_to(
        OffsetFetchAnswer(request_id="1", partitions=(FetchedOffset("t", 0, 5), FetchedOffset("t", 1))),
        OffsetFetchAnswer(request_id="2", partitions=(FetchedOffset("u", 2, 7),)),
        ErrorAnswer(request_id="3", **ended(ErrorCode.INVALID_GROUP_ID)),
    )
    found = [(group.group_id, group.error_code, offsets(group.topics)) for group in response.groups]
    assert found == [("g", 0, [("t", [(0, 5), (1, -1)])]), ("h", 0, [("u", [(2, 7)])]), ("broken", 24, [])]


def test_a_fetch_of_no_groups_sends_no_request():
    asking = ask(OffsetFetchRequest(groups=[]), 8)
    assert (asking.requests, asking.response_to().groups) == ([], [])


@pytest.mark.parametrize(("version", "is_passed_on"), [(6, False), (7, True), (9, True)])
def test_stable_offsets_can_be_required(version: int, is_passed_on: bool):
    groups = [_FETCH_OF_MANY(group_id="g", topics=None)]
    asking = ask(OffsetFetchRequest(group_id="g", topics=None, groups=groups, require_stable=True), version)
    assert asking.requests[0].require_stable is is_passed_on


# -- by the ids of topics (KIP-848) ------------------------------------------------------------------------------------

T, U, GONE = (id_of(fact_of(topic, 1).topic_id or "") for topic in ("t", "u", "gone"))


def commit_by_id(*topics: tuple[UUID, list[int]]) -> Any:
    one = _COMMIT.OffsetCommitRequestPartition
    named = [
        _COMMIT(
            topic_id=t, partitions=[one(partition_index=p, committed_offset=5, committed_metadata="") for p in some]
        )
        for t, some in topics
    ]
    return OffsetCommitRequest(group_id="g", topics=named)


def fetch_by_id(topics: list[tuple[UUID, list[int]]] | None) -> Any:
    one = _FETCH_OF_MANY.OffsetFetchRequestTopics
    named = None if topics is None else [one(topic_id=t, partition_indexes=some) for t, some in topics]
    return OffsetFetchRequest(groups=[_FETCH_OF_MANY(group_id="g", topics=named)])


def codes_by_id(topics: Iterable[Any]) -> list[tuple[UUID, list[tuple[int, int]]]]:
    return [(t.topic_id, [(p.partition_index, p.error_code) for p in t.partitions]) for t in topics]


def test_a_commit_by_id_names_the_topic_and_stores_its_id():
    """next-generation.md 6.3: unknown ids have error 100, unknown partitions error 3, and the rest is committed."""
    asking = ask(commit_by_id((T, [0, 7]), (GONE, [0, 1]), (U, [2])), 10)
    stored = [(o.topic, o.partition, o.topic_id) for o in asking.requests[0].offsets]
    assert stored == [("t", 0, id_text(T.bytes)), ("u", 2, id_text(U.bytes))]
    done = CommittedPartition("t", 0, **OK), CommittedPartition("u", 2, **OK)
    response = asking.response_to(OffsetCommitAnswer(request_id="1", partitions=done))
    assert codes_by_id(response.topics) == [(T, [(0, 0), (7, 3)]), (GONE, [(0, 100), (1, 100)]), (U, [(2, 0)])]


def test_a_commit_to_unknown_ids_alone_is_not_sent():
    for rules in (False, True):
        asking = ask(commit_by_id((GONE, [0])), 10, place=FakeGateway(has_rules=rules))
        assert (asking.requests, codes_by_id(asking.response_to().topics)) == ([], [(GONE, [(0, 100)])])


@pytest.mark.parametrize("knows_ids", [False, True])
def test_a_commit_by_name_has_the_topics_id_if_it_is_known(knows_ids: bool):
    asking = ask(commit(("t", [0])), 9, place=FakeGateway(knows_ids=knows_ids))
    assert asking.requests[0].offsets[0].topic_id == (id_text(T.bytes) if knows_ids else None)


def test_the_ids_of_a_commit_are_those_that_it_must_know():
    served = SERVED[OffsetCommitRequest.API_KEY]
    message = decoded(commit_by_id((T, [4]), (GONE, [8])), 10)
    assert served.topic_ids(message) == {T.bytes, GONE.bytes}
    assert served.topics_named(message, FakeGateway()) == {"t": 5}
    assert served.topic_ids(decoded(commit(("t", [1])), 9)) == set()


def test_offsets_are_fetched_by_id():
    """An unknown id has error 100 for each partition; the group is asked all the same, as in Kafka."""
    asking = ask(fetch_by_id([(GONE, [4]), (T, [0, 1])]), 10)
    assert asking.requests[0].topics == (TopicPartitions("t", (0, 1), id_text(T.bytes)),)
    found = FetchedOffset("t", 0, 5), FetchedOffset("t", 1)
    (group,) = asking.response_to(OffsetFetchAnswer(request_id="1", partitions=found)).groups
    assert codes_by_id(group.topics) == [(GONE, [(4, 100)]), (T, [(0, 0), (1, 0)])]
    assert [p.committed_offset for t in group.topics for p in t.partitions] == [-1, 5, -1]
    (group,) = asking.response_to(ErrorAnswer(request_id="1", **ended(ErrorCode.STALE_MEMBER_EPOCH))).groups
    assert (group.error_code, group.topics) == (113, [])


LATER = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
]


@pytest.mark.parametrize("error", LATER)
def test_a_fetch_that_may_succeed_later_has_an_error_for_each_partition(error: ErrorCode):
    """librdkafka 5586: it never repeats a fetch with one of these errors alone, and so reads nothing any more."""
    answer = ErrorAnswer(request_id="1", **ended(error))
    (group,) = ask(fetch_of(g=[("t", [0, 1]), ("u", [2])]), 9).response_to(answer).groups
    assert (group.error_code, codes(group.topics)) == (0, [("t", [(0, 88), (1, 88)]), ("u", [(2, 88)])])
    (group,) = ask(fetch_by_id([(GONE, [4]), (T, [0])]), 10).response_to(answer).groups
    assert (group.error_code, codes_by_id(group.topics)) == (0, [(GONE, [(4, 100)]), (T, [(0, 88)])])
    for version, expected in ((7, (0, [("t", [(0, 88), (1, 88)])])), (6, (error.number, []))):
        said = ask(fetch(("t", [0, 1])), version).response_to(answer)
        assert (said.error_code, codes(said.topics)) == expected


@pytest.mark.parametrize("error", LATER)
def test_a_fetch_of_all_offsets_names_no_partition_for_an_error(error: ErrorCode):
    answer = ErrorAnswer(request_id="1", **ended(error))
    (group,) = ask(fetch_of(g=None), 9).response_to(answer).groups
    assert (group.error_code, group.topics) == (error.number, [])


@pytest.mark.parametrize("version", [2, 9, 10])
def test_all_offsets_are_those_of_the_topics_that_exist_now(version: int):
    """R1: those of a missing topic are left out, and those of an earlier topic of the name."""
    messages = {2: OffsetFetchRequest(group_id="g", topics=None), 9: fetch_of(g=None), 10: fetch_by_id(None)}
    asking = ask(messages[version], version, place=FakeGateway(knows_ids=True))
    assert asking.requests[0].topics is None
    found = (
        FetchedOffset("gone", 0, 7),
        FetchedOffset("t", 0, 5, topic_id="of an earlier topic t"),
        FetchedOffset("t", 1, 6, topic_id=id_text(T.bytes)),
        FetchedOffset("t", 2, 7),
    )
    response = asking.response_to(OffsetFetchAnswer(request_id="1", partitions=found))
    (topic,) = response.groups[0].topics if version > 2 else response.topics
    assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [(1, 6), (2, 7)]


def test_a_fetch_by_name_asks_for_the_topic_that_has_the_name_now():
    """R1: the coordinator returns no offset of an earlier topic, nor of one that does not exist."""
    asking = ask(fetch_of(g=[("t", [0]), ("gone", [1])]), 9, place=FakeGateway(knows_ids=True))
    assert asking.requests[0].topics == (
        TopicPartitions("t", (0,), id_text(T.bytes)),
        TopicPartitions("gone", (1,), NO_TOPIC),
    )


def test_a_fetch_of_all_offsets_needs_all_ids():
    served = SERVED[OffsetFetchRequest.API_KEY]
    assert served.topic_ids(decoded(fetch_by_id(None), 10)) is None
    assert served.topic_ids(decoded(fetch_by_id([(T, [0])]), 10)) == {T.bytes}
    assert served.topic_ids(decoded(fetch_of(g=None), 9)) is None
    by_name = decoded(fetch_of(g=[("t", [0])]), 9)
    assert (served.topic_ids(by_name), served.topics_fetched(by_name, FakeGateway())) == (set(), {"t"})


# -- deleting ----------------------------------------------------------------------------------------------------------


def test_a_deletion_is_sent_without_its_unknown_partitions():
    """S33: unknown partitions are reported at their places in the response."""
    asking = ask(forget(("t", [0, 3]), ("nowhere", [0]), ("u", [1])), 0)
    assert asking.requests[0].topics == (
        TopicPartitions("t", (0,)),
        TopicPartitions("nowhere", ()),
        TopicPartitions("u", (1,)),
    )
    subscribed = DeletedPartition("t", 0, **ended(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
    response = asking.response_to(
        OffsetDeleteAnswer(request_id="1", partitions=(subscribed, DeletedPartition("u", 1, **OK)))
    )
    assert codes(response.topics) == [("t", [(0, 86), (3, 3)]), ("nowhere", [(0, 3)]), ("u", [(1, 0)])]


@pytest.mark.parametrize("error", [ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP])
def test_an_error_of_the_group_precedes_unknown_partitions(error: ErrorCode):
    """protocol.md 3.9: so the request is sent even if all partitions are unknown."""
    asking = ask(forget(("nowhere", [0])), 0)
    response = asking.response_to(OffsetDeleteAnswer(request_id="1", **ended(error)))
    assert (response.error_code, response.topics) == (error.number, [])
