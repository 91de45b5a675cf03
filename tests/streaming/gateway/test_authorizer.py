"""Every request to a broker, in every version: the coordinator's topics are refused, and other topics pass."""

import contextlib
import random
import uuid
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kafka.protocol.admin import ElectLeadersRequest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest

from coordinator.base.binary import Malformed
from streaming.gateway.protocol.api import Handling
from streaming.gateway.protocol.frames import BadFrame, with_length
from streaming.gateway.protocol.messages import decode, encode, read_header
from streaming.gateway.relay.authorizer import Authorizer, Judged
from streaming.gateway.relay.fetch_sessions import FetchSessions
from streaming.gateway.relay.large_produce import LargeProduce
from streaming.gateway.relay.relayed_apis import RELAYED
from streaming.gateway.relay.required_acls import CLUSTER_NAME
from streaming.gateway.security.acls import AccessLists, Client
from streaming.gateway.server.apis import APIS
from tests.streaming.gateway.wiring import frame_of, message_of

OWN, DATA, OTHER = "kept.requests", "data", "other"
IDS = {name: uuid.UUID(int=number) for number, name in enumerate((OWN, DATA, OTHER), 1)}
ANA = Client("User:CN=ana", "127.0.0.1")

OFFERED = {key: api for key, api in APIS.items() if api.handling in (Handling.RELAYED, Handling.REWRITTEN)}
OF_TOPICS = (1, 2, 19, 20, 21, 23, 24, 27, 32, 33, 34, 35, 37, 43, 44, 45, 46, 61)
"""The APIs whose requests name topics, without Produce and Metadata."""

CASES = [(key, version) for key in OF_TOPICS for version in range(APIS[key].first, APIS[key].last + 1)]
TOPIC_CONFIG, REFUSED, CLUSTER_REFUSED = 2, 29, 31
PREFERRED, UNCLEAN = 0, 1


def asked(key: int, version: int, name: str) -> bytes:
    """Return a request of an API in which every topic name and topic id is that of `name`."""
    values = {"string": name, "bytes": b"x", "bool": True, "uuid": IDS[name], "float64": 1.0}

    def leaf(field: Any) -> Any:
        if field.name == "resource_type":
            return TOPIC_CONFIG
        if field.name in ("session_id", "session_epoch"):
            return -1 if field.name == "session_epoch" else 0
        if field.name == "replica_id":
            return -1
        if field.name == "name" and version == APIS[20].last and key == 20:
            return None  # the topic is given by its id
        return values.get(field.type, 1)

    return frame_of(message_of(RELAYED[key].request, version, leaf, lambda _: 2), version)


def knowing(authorizer: Authorizer) -> Authorizer:
    """Return the authorizer after it has read a broker's response to Metadata."""
    made = MetadataResponse.MetadataResponseTopic
    found = MetadataResponse(version=12, topics=[made(name=name, topic_id=each) for name, each in IDS.items()])
    judged = judge(authorizer, frame_of(MetadataRequest(version=12, topics=None), 12))
    assert judged.alters
    judged.alters(found)
    return authorizer


def judge(authorizer: Authorizer, frame: bytes, client: Client = ANA, sessions: FetchSessions | None = None) -> Judged:
    return authorizer.judge(read_header(frame), frame, client, sessions or FetchSessions())


def codes(answer: Any) -> set[int]:
    found: set[int] = set()

    def walk(value: Any) -> None:
        for name, each in value.items() if isinstance(value, dict) else enumerate(value):
            if str(name).endswith("error_code") and each:
                found.add(each)
            elif isinstance(each, dict | list):
                walk(each)

    walk(answer.to_dict())
    return found


def lists(*rights: tuple[str, ResourceType, str]) -> AccessLists:
    """Return access lists that allow ana these operations."""
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AccessLists(
        AclBinding(kind, name, literal, ANA.principal, "*", AclOperation[operation], allow)
        for operation, kind, name in rights
    )


def test_every_relayed_api_has_a_row():
    assert OFFERED.keys() | {10} == RELAYED.keys()


@pytest.mark.parametrize(("key", "version"), CASES)
def test_the_coordinators_topics_are_refused_in_every_version(key: int, version: int):
    authorizer = knowing(Authorizer({OWN}))
    frame = asked(key, version, OWN)
    if RELAYED[key].refused is None:
        with pytest.raises(BadFrame, match=OWN):
            judge(authorizer, frame)
        return
    judged = judge(authorizer, frame)
    assert judged.frame is None
    assert judged.answer is not None
    assert codes(judged.answer) & {REFUSED, CLUSTER_REFUSED}
    assert encode(judged.answer, read_header(frame))


@pytest.mark.parametrize(("key", "version"), CASES)
def test_requests_for_other_topics_are_unchanged(key: int, version: int):
    frame = asked(key, version, DATA)
    assert judge(knowing(Authorizer({OWN})), frame).frame == frame


@pytest.mark.parametrize(("key", "version"), CASES)
def test_a_request_that_ends_early_is_not_relayed(key: int, version: int):
    frame = asked(key, version, DATA)
    authorizer = knowing(Authorizer({OWN}))
    for end in range(10, len(frame) - 1):
        with pytest.raises(Malformed):
            judge(authorizer, frame[:end])


@pytest.mark.parametrize(("key", "version"), [case for case in CASES if case[0] in (1, 2, 19, 20, 21, 23, 32, 37, 61)])
def test_a_request_is_relayed_only_with_the_right_to_its_topic(key: int, version: int):
    """The gateway checks the rights, because the brokers see its own principal."""
    frame = asked(key, version, DATA)
    nothing = knowing(Authorizer({OWN}, lambda: lists()))
    assert judge(nothing, frame).frame is None
    needed = {
        (need.operation, need.name)
        for need in RELAYED[key].required_acls(
            decode(RELAYED[key].request, frame, read_header(frame)), nothing._ids.name
        )
    }
    ((operation, _),) = needed
    allowed = lists((operation.name, ResourceType.TOPIC, DATA))
    assert judge(knowing(Authorizer({OWN}, lambda: allowed)), frame).frame == frame
    other = lists((operation.name, ResourceType.TOPIC, OTHER))
    assert judge(knowing(Authorizer({OWN}, lambda: other)), frame).frame is None


@pytest.mark.parametrize("key", sorted(OFFERED.keys() - {3, 38, 39, 40, 41, 60, 64}))
def test_no_request_is_relayed_for_a_client_without_rights(key: int):
    frame = produce(9, DATA) if key == 0 else asked(key, APIS[key].last, DATA)
    with contextlib.suppress(BadFrame):
        assert judge(Authorizer({OWN}, lambda: lists()), frame).frame is None


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("election_type", "is_relayed"), [(PREFERRED, True), (UNCLEAN, False)])
def test_only_preferred_leaders_are_elected_for_all_partitions(version: int, election_type: int, is_relayed: bool):
    """Java's `electLeaders` sends null for all partitions. An unclean election could cost the coordinator records."""
    message = ElectLeadersRequest(version=version, election_type=election_type, topic_partitions=None, timeout_ms=1)
    frame = frame_of(message, version)
    assert judge(Authorizer({OWN}), frame).frame == (frame if is_relayed else None)
    assert judge(Authorizer({OWN}, lambda: lists()), frame).frame is None


@pytest.mark.parametrize("key", [38, 39, 40, 41])
def test_no_delegation_token_is_made_with_the_gateways_principal(key: int):
    frame = bytes([0, key, 0, 1, 0, 0, 0, 1, 255, 255])
    everything = lists(*(("ALL", kind, name) for kind, name in ((ResourceType.BROKER, CLUSTER_NAME),)))
    with pytest.raises(BadFrame):
        judge(Authorizer({OWN}, lambda: everything), frame)
    assert judge(Authorizer({OWN}), frame).frame == frame


# -- metadata ----------------------------------------------------------------------------------------------------------


def relayed_metadata(judged: Judged, version: int) -> Any:
    assert judged.frame is not None
    return MetadataRequest.decode(judged.frame, version=version, header=True)


@pytest.mark.parametrize("version", range(14))
def test_a_metadata_request_is_relayed_without_the_coordinators_topics(version: int):
    made = MetadataRequest.MetadataRequestTopic
    names = [made(name=name, topic_id=uuid.UUID(int=0)) for name in (DATA, OWN)]
    judged = judge(Authorizer({OWN}), frame_of(MetadataRequest(version=version, topics=names), version))
    assert [each.name for each in relayed_metadata(judged, version).topics] == [DATA]
    found = MetadataResponse(version=version, topics=[MetadataResponse.MetadataResponseTopic(name=DATA)])
    assert judged.alters
    judged.alters(found)
    assert {each.name: each.error_code for each in found.topics} == {DATA: 0, OWN: REFUSED}


@pytest.mark.parametrize("version", range(14))
def test_a_metadata_request_for_other_topics_is_unchanged(version: int):
    made = MetadataRequest.MetadataRequestTopic
    names = [made(name=DATA, topic_id=uuid.UUID(int=0))]
    frame = frame_of(MetadataRequest(version=version, topics=names), version)
    assert judge(Authorizer({OWN}), frame).frame == frame


@pytest.mark.parametrize("version", range(4, 14))
def test_metadata_creates_no_topic_without_the_right_to_create(version: int):
    made = MetadataRequest.MetadataRequestTopic
    names = [made(name=DATA, topic_id=uuid.UUID(int=0))]
    frame = frame_of(MetadataRequest(version=version, topics=names, allow_auto_topic_creation=True), version)
    sees = ("DESCRIBE", ResourceType.TOPIC, DATA)
    judged = judge(Authorizer({OWN}, lambda: lists(sees)), frame)
    assert relayed_metadata(judged, version).allow_auto_topic_creation is False
    for makes in (("CREATE", ResourceType.TOPIC, DATA), ("CREATE", ResourceType.BROKER, CLUSTER_NAME)):
        judged = judge(Authorizer({OWN}, lambda makes=makes: lists(sees, makes)), frame)
        assert judged.frame == frame


def test_authorized_operations_of_the_gateway_are_not_returned():
    request = MetadataRequest(version=10, topics=None, include_topic_authorized_operations=True,
                              include_cluster_authorized_operations=True)  # fmt: skip
    left = relayed_metadata(judge(Authorizer({OWN}, lambda: lists()), frame_of(request, 10)), 10)
    assert (left.topics, left.include_topic_authorized_operations) == (None, False)
    assert left.include_cluster_authorized_operations is False


# -- produce -----------------------------------------------------------------------------------------------------------


def produce(version: int, *names: str, acks: int = -1, size: int = 100, transactional_id: str | None = None) -> bytes:
    kind = ProduceRequest.TopicProduceData
    each = [
        kind(name=name, partition_data=[kind.PartitionProduceData(index=n, records=bytes(size)) for n in range(2)])
        for name in names
    ]
    request = ProduceRequest(
        version=version, transactional_id=transactional_id, acks=acks, timeout_ms=1, topic_data=each
    )
    return frame_of(request, version)


@pytest.mark.parametrize("version", range(3, 10))
def test_a_produce_is_refused_as_a_whole_and_other_topics_get_a_retriable_error(version: int):
    judged = judge(Authorizer({OWN}), produce(version, DATA, OWN))
    assert judged.frame is None
    found = {
        topic["name"]: {p["error_code"] for p in topic["partition_responses"]}
        for topic in judged.answer.to_dict()["responses"]  # type: ignore[union-attr]
    }
    assert found == {DATA: {6}, OWN: {REFUSED}}
    frame = produce(version, DATA, OTHER)
    assert judge(Authorizer({OWN}), frame) == Judged(frame)


def test_a_produce_without_acknowledgement_has_no_response():
    assert judge(Authorizer({OWN}), produce(9, DATA, acks=0)).has_answer is False
    with pytest.raises(BadFrame):
        judge(Authorizer({OWN}), produce(9, OWN, acks=0))


def test_a_transactional_produce_needs_the_right_to_its_id():
    frame = produce(9, DATA, transactional_id="tx")
    writes = ("WRITE", ResourceType.TOPIC, DATA)
    assert codes(judge(Authorizer({OWN}, lambda: lists(writes)), frame).answer) == {53}
    both = lists(writes, ("WRITE", ResourceType.TRANSACTIONAL_ID, "tx"))
    assert judge(Authorizer({OWN}, lambda: both), frame).frame == frame


@pytest.mark.parametrize("version", [3, 8, 9])
@pytest.mark.parametrize("place", range(3))
def test_a_refused_large_produce_is_never_relayed_completely(version: int, place: int):
    """This holds for any sizes of its pieces."""
    chance = random.Random(version * 10 + place)
    names = [DATA, OTHER, "third"]
    names[place] = OWN
    frame = produce(version, *names, size=5_000)
    for _ in range(50):
        passed = bytearray()
        with pytest.raises(BadFrame, match=OWN):
            _copy(frame, version, chance, passed)
        assert len(passed) < len(frame)


@pytest.mark.parametrize("version", [3, 8, 9])
def test_a_large_produce_is_relayed_unchanged(version: int):
    chance = random.Random(version)
    frame = produce(version, DATA, OTHER, size=5_000)
    for _ in range(50):
        passed = bytearray()
        _copy(frame, version, chance, passed)
        assert passed == with_length(frame)


@pytest.mark.parametrize("version", [3, 8, 9])
def test_a_truncated_large_produce_is_not_relayed_completely(version: int):
    frame = produce(version, DATA, OTHER, size=5_000)
    for end in (100, 5_100, len(frame) - 4):
        passed = bytearray()
        with pytest.raises(BadFrame):
            _copy(frame[:end], version, random.Random(end), passed)
        assert len(passed) < end + 4


def _copy(frame: bytes, version: int, chance: random.Random, passed: bytearray) -> None:
    authorizer = Authorizer({OWN})
    copy = LargeProduce(version, len(frame), lambda read: authorizer.judge_piece(read, ANA), passed.extend)
    stream = with_length(frame)
    while stream:
        size = chance.randrange(4, 3_000) if len(stream) == len(frame) + 4 else chance.randrange(1, 3_000)
        copy(stream[:size])
        stream = stream[size:]


# -- fetch sessions ----------------------------------------------------------------------------------------------------


def fetch(version: int, *names: str, session_id: int = 0, epoch: int = 0) -> bytes:
    kind = FetchRequest.FetchTopic
    part = kind.FetchPartition(partition=0, fetch_offset=0, log_start_offset=0, partition_max_bytes=1)
    topics = [kind(topic=name, topic_id=IDS[name], partitions=[part]) for name in names]
    request = FetchRequest(
        version=version, replica_id=-1, max_wait_ms=1, min_bytes=0, max_bytes=1, isolation_level=0,
        session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    return frame_of(request, version)


def answered(version: int, session_id: int) -> memoryview:
    frame = encode(FetchResponse(version=version, session_id=session_id, responses=[]), read_header(fetch(version)))
    return memoryview(frame[4:] + bytes(20))


@pytest.mark.parametrize("version", range(7, 15))
def test_a_fetch_session_belongs_to_one_connection(version: int):
    authorizer, sessions = knowing(Authorizer({OWN})), FetchSessions()
    judged = judge(authorizer, fetch(version, DATA), sessions=sessions)
    assert judged.reads
    assert not judged.reads(answered(version, 55)[:8])
    assert judged.reads(answered(version, 55))
    more = fetch(version, OTHER, session_id=55, epoch=1)
    assert judge(authorizer, more, sessions=sessions).frame == more
    for elsewhere in (
        judge(authorizer, more),
        judge(authorizer, fetch(version, session_id=56, epoch=1), sessions=sessions),
    ):
        assert elsewhere.frame is None
        assert elsewhere.answer.to_dict()["error_code"] == 70  # type: ignore[union-attr]


@pytest.mark.parametrize("epoch", [0, -1])
@pytest.mark.parametrize("version", range(7, 15))
def test_a_full_fetch_names_its_topics_and_ends_no_session_of_another_connection(version: int, epoch: int):
    """On a new connection, franz-go ends its last session and requests a new one, in the same request."""
    authorizer, sessions = knowing(Authorizer({OWN})), FetchSessions()
    judged = judge(authorizer, fetch(version, DATA, session_id=55, epoch=epoch), sessions=sessions)
    assert judged.frame == fetch(version, DATA, epoch=epoch)
    assert judge(authorizer, fetch(version, OWN, session_id=55, epoch=epoch), sessions=sessions).frame is None
    begun = judge(authorizer, fetch(version, DATA), sessions=sessions)
    assert begun.reads
    begun.reads(answered(version, 55))
    own = fetch(version, DATA, session_id=55, epoch=epoch)
    assert judge(authorizer, own, sessions=sessions).frame == own


@pytest.mark.parametrize("version", range(7, 15))
def test_a_revoked_right_ends_the_session(version: int):
    """An incremental fetch names no topics, so the earlier topics of its session are checked again."""
    reads = [lists(("READ", ResourceType.TOPIC, DATA), ("READ", ResourceType.TOPIC, OTHER))]
    authorizer, sessions = knowing(Authorizer({OWN}, lambda: reads[0])), FetchSessions()
    judged = judge(authorizer, fetch(version, DATA), sessions=sessions)
    assert judged.reads
    judged.reads(answered(version, 55))
    more = fetch(version, OTHER, session_id=55, epoch=1)
    assert judge(authorizer, more, sessions=sessions).frame == more
    again = fetch(version, session_id=55, epoch=2)
    assert judge(authorizer, again, sessions=sessions).frame == again
    for left in (DATA, OTHER):
        reads[0] = lists(("READ", ResourceType.TOPIC, left))
        judged = judge(authorizer, again, sessions=sessions)
        assert judged.frame is None
        assert judged.answer.to_dict()["error_code"] == 70  # type: ignore[union-attr]


@pytest.mark.parametrize("version", [13, 14])
def test_a_topic_with_an_unknown_id_is_not_fetched(version: int):
    """It could be the coordinator's topic. The client then requests metadata, and the gateway reads the id from it."""
    frame = fetch(version, DATA)
    judged = judge(Authorizer({OWN}), frame)
    assert judged.frame is None
    assert codes(judged.answer) == {100}
    assert judge(knowing(Authorizer({OWN})), frame).frame == frame
    assert codes(judge(knowing(Authorizer({OWN})), fetch(version, OWN)).answer) == {REFUSED}
