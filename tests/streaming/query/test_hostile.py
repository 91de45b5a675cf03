"""Tests of hostile records at the parser and the operator: each is answered or rejected, without effect on others."""

import json
import logging
import random
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest

from coordinator.base.config import Config
from coordinator.base.hashing import shard_of
from coordinator.base.limits import RECORD_BYTES_MAX
from coordinator.base.states import Phase
from coordinator.messages.events import AnyEvent
from coordinator.messages.group_records import GroupRecord, OffsetRecord
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import JoinGroup, Protocol, Request, Unreadable
from coordinator.messages.responses import JoinedMember
from streaming.cli.main import fit_for_a_terminal
from streaming.client.plans import make_plan, resolve
from streaming.gateway import Gateway
from streaming.query.operator.operator import ShardOperator
from streaming.views.sentences.records import Gap, to_line
from streaming.wire.records import (
    OutputTopics,
    Tombstone,
    decode_answer,
    decode_event,
    decode_group_key,
    decode_group_record,
    decode_request,
    encode_request,
)
from tests.streaming.query.fake_spark import FakeSpark, Record
from tests.system.test_gateway import heartbeat
from tests.system.test_gateway import join as joining
from tests.system.wire import connect

PARTITIONS = 4
TOPICS = OutputTopics("replies", "groups", "events", "requests")
EVIL = "\x1b]0;pwned\x07\r\n\u202e\u2028\x9b31m[red]<script>\"'../../etc/passwd\x00"

texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", EVIL, "g", "../g", "a" * 600, "a" * 10_000, "\ud7ff", "\ufffe", "{{7*7}}", "%s%n", "${jndi:x}"]
    ),
)
numbers = st.one_of(
    st.integers(),
    st.sampled_from([0, -1, 2**31, -(2**63), 2**64, 10**400, 1.5, 1e308, -0.0]),
    st.floats(allow_nan=False),
)
anything = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
KINDS = ["join_group", "sync_group", "heartbeat", "leave_group", "offset_commit", "offset_fetch", "describe_group",
         "list_groups", "offset_delete", "delete_group", "rebalance_group", "expel_member", "wake", "x"]  # fmt: skip
FIELDS = ["request_id", "reply_to", "group_id", "client_id", "client_host", "principal", "member_id", "generation_id",
          "group_instance_id", "session_timeout_ms", "rebalance_timeout_ms", "protocol_type", "protocols", "reason",
          "assignments", "members", "offsets", "topics", "states", "types", "topic", "partition"]  # fmt: skip
FITTING: dict[str, Any] = {
    "request_id": "r", "reply_to": "in", "group_id": "h", "member_id": "", "generation_id": 1, "protocol_type": "x",
    "session_timeout_ms": 6_000, "rebalance_timeout_ms": 6_000, "protocols": [{"name": "p"}],
    "members": [{"member_id": "m"}], "offsets": [{"topic": "t", "partition": 0, "offset": 5}],
    "topics": [{"topic": "t", "partitions": [0]}],
}  # fmt: skip


@st.composite
def shaped(draw: st.DrawFn) -> bytes:
    """Draw an object that looks like a request, with any mixture of right and wrong fields."""
    value: dict[str, Any] = {"kind": draw(st.sampled_from(KINDS) | anything)}
    for name in draw(st.lists(st.sampled_from(FIELDS), unique=True, max_size=14)):
        is_fitting = name in FITTING and draw(st.integers(0, 3))
        value[name] = FITTING[name] if is_fitting else draw(anything)
    text = json.dumps(value, ensure_ascii=draw(st.booleans()))
    return text.encode(errors="surrogatepass")


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Draw a request with some of its bytes changed, removed or repeated."""
    data = bytearray(encode_request(draw(st.sampled_from([beat("m"), join("h")]))))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 5))] = draw(st.binary(max_size=5))
    return bytes(data)


ODD = [
    None, b"", b"{", b"[]", b"null", b"NaN", b'{"kind":"\xff"}', b'{"x":' + b"[" * 100_000, b"[" * 100_000,
    b'{"kind":"heartbeat","request_id":"\\ud800","reply_to":"in","group_id":"g","generation_id":1,"member_id":"m"}',
    b'{"kind":"heartbeat","request_id":"1","reply_to":"\\udfff","group_id":"g","generation_id":1,"member_id":"m"}',
    b'{"kind":"heartbeat","request_id":"1","reply_to":"in","group_id":"\xed\xa0\x80","generation_id":1,"member_id":"m"}',
    b'{"kind":"heartbeat","request_id":"1","reply_to":"in","group_id":"g","generation_id":NaN,"member_id":"m"}',
    b'{"request_id":"1","reply_to":"in","kind":"' + b"k" * 100_000 + b'"}',
    b'{"request_id":"1","reply_to":"in","kind":"heartbeat","' + b"f" * 100_000 + b'":1}',
    b"\x80\x04\x95", b"\x1f\x8b\x08", b"PK\x03\x04",
]  # fmt: skip

hostile = st.one_of(st.sampled_from(ODD), st.binary(max_size=200), shaped(), mutated())


def beat(member_id: str, request_id: str = "beat", group_id: str = "h") -> Heartbeat:
    return Heartbeat(request_id=request_id, reply_to="in", group_id=group_id, generation_id=1, member_id=member_id)


def join(group_id: str, request_id: str = "join", **fields: Any) -> JoinGroup:
    return JoinGroup(
        request_id=request_id, reply_to="in", group_id=group_id, session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
        protocol_type="work", protocols=(Protocol("share"),), require_known_member_id=False, **fields,
    )  # fmt: skip


# -- the parser --------------------------------------------------------------------------------------------------------


@settings(max_examples=500)
@given(hostile)
def test_every_record_is_read_as_a_request_or_has_a_reason(value: bytes | None) -> None:
    """I6, F "Requests": the parser never raises, and a request that it accepts can be written again."""
    read = decode_request(value)
    if isinstance(read, Unreadable):
        assert read.why
        assert (read.request_id is None) == (read.reply_to is None)
        (read.reply_to or "").encode()
    else:
        assert decode_request(encode_request(read)) == read


@given(st.binary(max_size=100) | st.builds(lambda value: json.dumps(value).encode(), anything))
def test_any_bytes_are_read_or_raise_value_error(key: bytes) -> None:
    """The readers of keys and values of the output topics raise only ValueError."""
    for read in (decode_group_key, decode_answer, decode_event, lambda data: decode_group_record(data, data)):
        try:
            read(key)
        except ValueError:
            continue


# -- the operator ------------------------------------------------------------------------------------------------------


def spark() -> FakeSpark:
    config = Config(group_initial_rebalance_delay_ms=0)
    return FakeSpark(ShardOperator(PARTITIONS, b"a secret of some length", config, TOPICS))


HOME = shard_of("g", PARTITIONS)


def records_of_g(rows: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return the records of group `g` and of its mailbox, sorted by topic, as the order of topics means nothing."""
    rows = rows.sort_values("topic", kind="stable")
    kept = rows[[key is not None and bytes(key) in (b"mine", b'["group","g"]', b"g") for key in rows["key"]]]
    return [tuple(row) for row in kept[["topic", "partition", "key", "value", "version"]].itertuples(index=False)]


def own(request: Request, offset: int, at_ms: int) -> Record:
    value = json.dumps({**json.loads(encode_request(request)), "reply_to": "mine"}).encode()
    return HOME, offset, at_ms, value


def concerns_g(value: bytes | None) -> bool:
    """Return whether a record is a request to group `g`, or names its mailbox."""
    request = decode_request(value)
    return getattr(request, "group_id", None) == "g" or request.reply_to == "mine"


@settings(max_examples=60)
@given(st.lists(hostile.filter(lambda value: not concerns_g(value)), min_size=1, max_size=25), st.randoms())
def test_hostile_rows_of_a_batch_do_not_affect_another_group(values: list[bytes | None], chance: random.Random) -> None:
    """I6, I17, I19, I22, F "Requests": hostile rows change no byte for group `g`, and outputs are bounded."""
    ours = [join("g", "join"), beat("stranger", group_id="g"), join("g", "again"), beat("m", "last", "g")]
    places = sorted(chance.sample(range(len(values) + len(ours)), len(ours)))
    mine = [own(request, place, 1_000 + place) for request, place in zip(ours, places, strict=True)]
    others = iter(values)
    theirs = [(HOME, n, 1_000 + n, next(others)) for n in range(len(values) + len(ours)) if n not in places]
    alone, together = spark(), spark()
    for fake in (alone, together):
        fake.batch(1_000, [own(join("g", "first"), 0, 900)])
    expected = records_of_g(alone.batch(2_000, mine))
    rows = together.batch(2_000, [*theirs, *mine])
    assert records_of_g(rows) == expected
    later = [records_of_g(fake.batch(3_000, [own(join("g", "late"), 99, 2_900)])) for fake in (alone, together)]
    assert later[0] == later[1]
    assert records_of_g(alone.batch(60_000, [])) == records_of_g(together.batch(60_000, []))
    written = rows["value"].dropna()
    asked_bytes = sum(len(value or b"") for value in values)
    assert sum(map(len, written)) < 50_000 + 4 * asked_bytes
    assert all(len(value) <= RECORD_BYTES_MAX for value in written)
    assert len(rows) < 40 + 8 * len(values)
    later = together.batch(60_000, [])
    assert all(topic is None or topic in TOPICS for topic in {*rows["topic"], *later["topic"]}), (
        "no topic that a client chose"
    )


def test_a_request_of_the_largest_size_gets_a_short_response() -> None:
    """I22: a request may have 8 MiB in a field's value or in a field's name."""
    large = "x" * (RECORD_BYTES_MAX - 500)
    for fields in ({"member_id": large}, {large: 1}, {"kind": large}):
        value = json.dumps({**json.loads(encode_request(beat("m"))), **fields}).encode()
        rows = spark().batch(2_000, [(HOME, 0, 1_000, value)])
        (reply,) = rows[rows["topic"] == "replies"]["value"]
        assert len(reply) < 1_000, len(reply)


# -- ids that are displayed --------------------------------------------------------------------------------------------


def evil(kind: Any) -> Any:
    """Return a value of a type with `EVIL` in every text field."""
    match get_origin(kind) or kind:
        case kind_of if kind_of is tuple:
            inner = get_args(kind)
            return (evil(inner[0]),) if inner[-1] is ... else tuple(map(evil, inner))
        case kind_of if kind_of is list:
            return [evil(get_args(kind)[0])]
        case kind_of if kind_of is dict:
            return {EVIL: [1]}
        case kind_of if kind_of is UnionType:
            return evil(next(each for each in get_args(kind) if each is not NoneType))
        case kind_of if kind_of is str:
            return EVIL
        case kind_of if kind_of is int:
            return 1
        case kind_of if kind_of is bytes:
            return EVIL.encode()
        case kind_of if kind_of is Phase:
            return Phase.STABLE
    return kind(**{name: evil(hint) for name, hint in get_type_hints(kind).items()})


@pytest.mark.parametrize("kind", [*get_args(AnyEvent), GroupRecord, OffsetRecord, Tombstone, Gap])
def test_a_watched_record_contains_no_control_characters(kind: type) -> None:
    """I23, F "Hostile": `coordinator watch` prints any text of a record without control characters."""
    assert str(to_line(evil(kind), 1)).isprintable()


def test_a_printed_reply_contains_no_control_characters() -> None:
    """I23: `coordinator request` prints a reply to a terminal without control characters, still as JSON."""
    reply = {"group_id": EVIL, "members": [{"client_id": EVIL, "client_host": "größe 消费者"}]}
    written = fit_for_a_terminal(json.dumps(reply, indent=2, ensure_ascii=False))
    assert all(line.isprintable() for line in written.split("\n"))
    assert json.loads(written) == reply
    assert "größe 消费者" in written


def test_no_id_adds_a_line_to_a_gateways_log_or_a_label_to_its_metrics(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """I23, F "Hostile": group, member and client ids cannot inject log lines or metric labels."""
    caplog.set_level(logging.DEBUG, "streaming.gateway")
    with connect(gateway.bootstrap_servers, client_id=EVIL) as wire:
        assert wire.call(joining(EVIL)).error_code == 79
        assert wire.call(heartbeat(EVIL, EVIL)).error_code == 25
        wire.raw(b"\x7f\xff\xff\xff" + EVIL.encode())
        assert wire.is_hung_up()
    assert any("is refused" in record.getMessage() for record in caplog.records)
    assert all(record.getMessage().isprintable() for record in caplog.records if record.name.startswith("streaming"))
    assert "pwned" not in generate_latest(gateway.metrics.registry).decode()


def test_no_id_adds_a_line_to_a_leaders_log(caplog: pytest.LogCaptureFixture) -> None:
    """I23: a leader logs the ids of members that other people started."""
    make_plan(resolve(["range"])[0], [JoinedMember(EVIL, None, b"")], lambda topic: ())
    (record,) = caplog.records
    assert record.getMessage().isprintable()
