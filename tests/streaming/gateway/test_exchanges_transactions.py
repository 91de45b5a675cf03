"""AddOffsetsToTxn and TxnOffsetCommit: the requests to the coordinator, and the form of the responses."""

from typing import Any

import pytest
from kafka.protocol.producer.transaction import AddOffsetsToTxnRequest

from coordinator.base.errors import ErrorCode
from coordinator.messages.requests import CheckAccess, TxnOffsetCommit
from coordinator.messages.responses import CheckAccessAnswer, CommittedPartition, ErrorAnswer, TxnOffsetCommitAnswer
from streaming.gateway.coordinator.transaction_writer import Written
from streaming.gateway.exchanges import SERVED
from streaming.gateway.exchanges.exchange import Exchange
from streaming.gateway.exchanges.transactions import add_offsets, commit_offsets
from streaming.gateway.protocol.definitions import TxnOffsetCommitRequest
from streaming.gateway.protocol.topic_ids import id_of
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.parts import fact_of
from tests.streaming.gateway.wiring import FakeAsker, FakeGateway, decoded

OK = ended(ErrorCode.NONE)
VERSIONS = range(7)
BY_ID = 6
HAS_MEMBER = 3
"""From this version on, a commit names its member and generation (KIP-447)."""


TOPIC_IDS = {"t": fact_of("t", 3).topic_id, "nowhere": fact_of("nowhere", 3).topic_id}


def commit(version: int, *topics: tuple[str, list[int]]) -> Any:
    kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    one = kind.TxnOffsetCommitRequestPartition
    named = [
        kind(
            **({"name": name} if version < BY_ID else {"topic_id": id_of(TOPIC_IDS[name])}),
            partitions=[
                one(partition_index=p, committed_offset=5, committed_leader_epoch=2, committed_metadata="m")
                for p in some
            ],
        )
        for name, some in topics
    ]
    message = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=7,
        producer_epoch=3,
        generation_id_or_member_epoch=4,
        member_id="m",
        group_instance_id="i",
        topics=named,
    )
    return decoded(message, version)


def exchange(message: Any, written: Written, place: FakeGateway | None = None) -> Exchange:
    return commit_offsets(message, FakeAsker(), place or FakeGateway(), written)


def codes(response: Any) -> list[tuple[str, list[tuple[int, int]]]]:
    names = {id_of(topic_id): name for name, topic_id in TOPIC_IDS.items()}
    return [
        (t.name or names[t.topic_id], [(p.partition_index, p.error_code) for p in t.partitions])
        for t in response.topics
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_has_the_place_of_its_record(version: int):
    """KIP-98, KIP-447: before version 3, a commit names no member."""
    asked = exchange(commit(version, ("t", [0, 9]), ("nowhere", [0])), Written(0, 41))
    (request,) = [question.request for question in asked.requests]
    assert isinstance(request, TxnOffsetCommit)
    member = ("m", 4, "i") if version >= HAS_MEMBER else ("", -1, None)
    assert (request.member_id, request.generation_id, request.group_instance_id) == member
    assert (request.place, request.producer_id, request.producer_epoch) == (41, 7, 3)
    assert [(o.topic, o.partition, o.offset, o.metadata) for o in request.offsets] == [("t", 0, 5, "m")]
    done = (CommittedPartition("t", 0, **OK),)
    response = asked.respond([TxnOffsetCommitAnswer(request_id="1", partitions=done)])
    missing = 3 if version < BY_ID else 100
    assert codes(response) == [("t", [(0, 0), (9, 3)]), ("nowhere", [(0, missing)])]


@pytest.mark.parametrize("error", [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_of_newer_versions_is_an_illegal_generation_before(version: int, error: ErrorCode):
    """KIP-1319."""
    asked = exchange(commit(version, ("t", [0])), Written(0, 41))
    done = (CommittedPartition("t", 0, **ended(error)),)
    response = asked.respond([TxnOffsetCommitAnswer(request_id="1", partitions=done)])
    code = error.number if version >= BY_ID else ErrorCode.ILLEGAL_GENERATION.number
    assert codes(response) == [("t", [(0, code)])]


def test_an_error_of_the_coordinator_is_in_each_partition():
    asked = exchange(commit(3, ("t", [0, 1])), Written(0, 41))
    response = asked.respond([ErrorAnswer(request_id="1", **ended(ErrorCode.INVALID_REQUEST))])
    assert codes(response) == [("t", [(0, 42), (1, 42)])]


@pytest.mark.parametrize(("of_brokers", "code"), [(15, 15), (47, 47), (90, 47)])
def test_a_commit_without_a_record_is_not_sent(of_brokers: int, code: int):
    """A broker that adds the partition itself tells a fenced producer that its epoch is an older one."""
    asked = exchange(commit(3, ("t", [0]), ("nowhere", [0])), Written(of_brokers))
    assert (asked.requests, codes(asked.respond([]))) == ((), [("t", [(0, code)]), ("nowhere", [(0, code)])])


@pytest.mark.parametrize(("version", "code"), [(3, 48), (4, 120)])
def test_a_commit_outside_of_the_transaction_can_be_aborted(version: int, code: int):
    """KIP-890: INVALID_TXN_STATE is TRANSACTION_ABORTABLE for clients that know it."""
    asked = exchange(commit(version, ("t", [0])), Written(48))
    assert codes(asked.respond([])) == [("t", [(0, code)])]


def test_a_commit_of_missing_partitions_alone_is_not_sent():
    asked = exchange(commit(3, ("nowhere", [0])), Written(0, 41))
    assert (asked.requests, codes(asked.respond([]))) == ((), [("nowhere", [(0, 3)])])


def test_a_client_without_rights_does_not_learn_which_topics_are_missing():
    asked = exchange(commit(3, ("nowhere", [0])), Written(0, 41), FakeGateway(has_rules=True))
    (question,) = asked.requests
    assert isinstance(question.request, CheckAccess)
    response = asked.respond([CheckAccessAnswer(request_id="1", allowed=(True, False))])
    assert codes(response) == [("nowhere", [(0, 29)])]


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("code", [0, 47])
def test_offsets_are_added_with_the_brokers_result(version: int, code: int):
    message = decoded(
        AddOffsetsToTxnRequest(transactional_id="x", producer_id=7, producer_epoch=3, group_id="g"), version
    )
    asked = add_offsets(message, FakeAsker(), FakeGateway(), Written(code))
    assert (asked.requests, asked.respond([]).error_code) == ((), code)


def test_both_requests_are_prepared_at_the_brokers():
    kinds = (AddOffsetsToTxnRequest, TxnOffsetCommitRequest)
    assert {key for key, served in SERVED.items() if served.prepare} == {kind.API_KEY for kind in kinds}
