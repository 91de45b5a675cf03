"""Frames of clients: a valid message is read with its values, and an invalid one is refused."""

from contextlib import suppress
from struct import pack
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.consumer.group import HeartbeatResponse, JoinGroupRequest, LeaveGroupRequest, OffsetFetchRequest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from coordinator.base.binary import Malformed
from streaming.gateway.protocol.messages import ELEMENTS_MAX, Header, decode, read_header
from streaming.gateway.protocol.schemas import structure_of
from streaming.kafka.structures import Field
from tests.streaming.gateway.wiring import (
    CLIENT_ID,
    CORRELATION_ID,
    KINDS,
    decoded,
    frame_of,
    message_of,
    named,
    read_by_client,
    sample,
)

every_kind = pytest.mark.parametrize(("kind", "version"), KINDS, ids=named)

drawn_alike = settings(max_examples=300, derandomize=True, deadline=None)

LEAVES = {
    "string": st.text(),
    "bytes": st.binary(),
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uuid": st.uuids(),
}


@st.composite
def any_message(draw: Any) -> tuple[Any, int]:
    """Draw a message of any kind and version. A nullable field may be null."""
    kind, version = draw(st.sampled_from(KINDS))

    def or_null(field: Field, values: st.SearchStrategy[Any]) -> Any:
        return draw(st.none() | values if field.is_nullable else values)

    message = message_of(
        kind,
        version,
        leaf=lambda field: or_null(field, LEAVES[field.type]),
        length=lambda field: or_null(field, st.integers(0, 3)),
    )
    return message, version


def flexible(kind: Any, version: int, body: bytes) -> tuple[Any, bytes, Header]:
    """Return a given body with the header of a flexible version."""
    frame = pack(">hhih", kind.API_KEY, version, CORRELATION_ID, -1) + b"\0" + body
    return kind, frame, read_header(frame)


# -- messages of clients -----------------------------------------------------------------------------------------------


@drawn_alike
@given(any_message())
def test_reads_what_kafka_python_writes(drawn: tuple[Any, int]):
    message, version = drawn
    frame = frame_of(message, version)
    header = read_header(frame)
    assert header == (message.API_KEY, version, CORRELATION_ID, CLIENT_ID)
    expected = type(message).decode(frame, version=version, header=True)
    assert as_data(decode(type(message), frame, header).to_dict(json=False)) == as_data(expected.to_dict(json=False))


def as_data(value: Any) -> Any:
    """Return the fields of a message with each UUID as its bytes, as the gateway reads it."""
    match value:
        case dict():
            return {name: as_data(each) for name, each in value.items()}
        case list():
            return [as_data(each) for each in value]
    return value.bytes if isinstance(value, UUID) else value


def test_a_client_id_is_optional():
    header = Header(12, 4, CORRELATION_ID, None)
    assert read_header(pack(">hhih", *header[:3], -1)) == header


def test_unknown_tags_are_skipped():
    """KIP-482: a newer client may send tags that the gateway does not know."""
    tags = b"\x02" + b"\x05\x03abc" + b"\x81\x01\x00"
    frame = pack(">hhih", DescribeGroupsRequest.API_KEY, 5, CORRELATION_ID, 0) + tags + b"\x02\x02g\x01" + tags
    message = decode(DescribeGroupsRequest, frame, read_header(frame))
    assert (message.groups, message.include_authorized_operations) == (["g"], True)


def test_bytes_after_a_message_are_ignored():
    message = sample(LeaveGroupRequest, 5)
    frame = frame_of(message, 5)
    assert decode(LeaveGroupRequest, frame + b"more", read_header(frame)) == decoded(message, 5)


# -- invalid messages --------------------------------------------------------------------------------------------------


@every_kind
def test_a_message_that_ends_early_is_malformed(kind: Any, version: int):
    frame = frame_of(sample(kind, version), version)
    header = read_header(frame)
    for end in range(len(frame)):
        with pytest.raises(Malformed, match="ends too early"):
            decode(kind, frame[:end], header)


@pytest.mark.parametrize("end", range(8 + 2 + len(CLIENT_ID)))
def test_a_header_that_ends_early_is_malformed(end: int):
    with pytest.raises(Malformed, match="ends too early"):
        read_header(frame_of(sample(LeaveGroupRequest, 0), 0)[:end])


@every_kind
def test_null_is_accepted_only_in_nullable_fields(kind: Any, version: int):
    """kafka-python reads null in every field, so requests could get values that their types do not allow."""
    fields = [field for field in structure_of(kind, version).fields if field.type in ("string", "bytes", "array")]
    for field in fields:
        message = sample(kind, version)
        setattr(message, field.name, None)
        if field.is_nullable:
            assert getattr(decoded(message, version), field.name) is None
        else:
            with pytest.raises(Malformed, match="null"):
                decoded(message, version)


def test_a_null_element_is_malformed():
    with pytest.raises(Malformed, match="null"):
        decoded(DescribeGroupsRequest(groups=["g", None]), 3)


def test_text_that_is_not_utf_8_is_malformed():
    message = JoinGroupRequest(version=9, group_id="\0\0", protocols=[])
    frame = frame_of(message, 9).replace(b"\x03\0\0", b"\x03\xc3\x28")
    with pytest.raises(Malformed, match="JoinGroupRequest, version 9, cannot be read: a string in it is not UTF-8"):
        decode(JoinGroupRequest, frame, read_header(frame))


@pytest.mark.parametrize("version", [-1, 10, 2**15 - 1])
def test_an_unknown_version_is_malformed(version: int):
    with pytest.raises(Malformed, match="the version does not exist"):
        decode(JoinGroupRequest, bytes(99), Header(11, version, 0, None))


@drawn_alike
@given(st.sampled_from(KINDS), st.binary(max_size=200))
def test_garbage_is_read_or_malformed(kind_and_version: tuple[Any, int], garbage: bytes):
    kind, version = kind_and_version
    with suppress(Malformed):
        read_header(garbage)
    with suppress(Malformed):
        decode(kind, garbage, Header(kind.API_KEY, version, 0, None))


@drawn_alike
@given(any_message(), st.data())
def test_a_damaged_message_is_read_or_malformed(drawn: tuple[Any, int], data: st.DataObject):
    message, version = drawn
    frame = bytearray(frame_of(message, version))
    header = read_header(bytes(frame))
    frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Malformed):
        decode(type(message), bytes(frame), header)


# -- messages that are made to take long -------------------------------------------------------------------------------

LARGE = 2**20

HOSTILE = {
    "a number without an end": (DescribeGroupsRequest, 5, b"\xff" * LARGE, "does not end"),
    "a text without an end": (JoinGroupRequest, 9, b"\xff" * LARGE, "does not end"),
    "more elements than bytes": (DescribeGroupsRequest, 5, b"\xff\xff\xff\xff\x07", "elements"),
    "empty elements": (DescribeGroupsRequest, 5, b"\x81\x80\x40" + b"\x01" * LARGE, "elements"),
    "topics of many empty partitions": (
        OffsetFetchRequest,
        6,
        b"\x02g" + b"\x65" + 100 * (b"\x02t" + b"\xe9\x07" + bytes(4 * 1_000) + b"\0"),
        "elements",
    ),
    "tags": (DescribeGroupsRequest, 5, b"\x01\0" + b"\x80\x80\x20" + b"\x05\0" * LARGE, "elements"),
    "tags of each element": (
        LeaveGroupRequest,
        5,
        b"\x02g\x83\x01" + 130 * (b"\x01\0\0" + b"\xe8\x07" + b"\x05\0" * 1_000),
        "elements",
    ),
}


@pytest.mark.parametrize(("kind", "version", "body", "why"), HOSTILE.values(), ids=HOSTILE)
def test_a_costly_frame_is_refused_quickly(kind: Any, version: int, body: bytes, why: str):
    """kafka-python needs more than half a minute for each of the first two, and almost a second for the others."""
    with pytest.raises(Malformed, match=why):
        decode(*flexible(kind, version, body))


def test_the_largest_message_is_read():
    topic = OffsetFetchRequest.OffsetFetchRequestTopic
    topics = [topic(name=f"t{number}", partition_indexes=[number]) for number in range(ELEMENTS_MAX // 2)]
    assert decoded(OffsetFetchRequest(group_id="g", topics=topics), 7).topics[-1].name == "t9999"


# -- messages of the gateway -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_clients_read_the_gateways_responses(version: int):
    response = read_by_client(
        HeartbeatResponse(version=version, error_code=27), Header(12, version, CORRELATION_ID, None)
    )
    assert response == HeartbeatResponse(version=version, error_code=27)


@pytest.mark.parametrize("version", range(5))
def test_clients_read_api_versions_without_knowing_the_versions(version: int):
    """The header of an ApiVersions response has no tags in any version."""
    served = [ApiVersionsResponse.ApiVersion(api_key=12, min_version=0, max_version=4)]
    response = read_by_client(
        ApiVersionsResponse(version=version, api_keys=served), Header(18, version, CORRELATION_ID, None)
    )
    assert response.api_keys == served
    asked = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    assert decoded(asked, version).version == version
