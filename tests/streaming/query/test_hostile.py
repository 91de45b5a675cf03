"""Records that mean harm, at the parser and the operator: each is answered or set aside, and no neighbour notices."""

import json
import logging
import random
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest

from coordinator.config import Config
from coordinator.hashing import shard_of
from coordinator.limits import RECORD_BYTES_MAX
from coordinator.outputs import AnyEvent, GroupRecord, JoinedMember, OffsetRecord
from coordinator.phases import Phase
from coordinator.requests import Heartbeat, JoinGroup, Protocol, Request, Unreadable
from streaming.cli.main import fit_for_a_terminal
from streaming.client.plans import make_plan, resolve
from streaming.gateway import Gateway
from streaming.query.operator import ShardOperator
from streaming.views.words import Gap, to_line
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
    """Draw an object that looks like a request: right fields and wrong ones, in any mixture."""
    value: dict[str, Any] = {"kind": draw(st.sampled_from(KINDS) | anything)}
    for name in draw(st.lists(st.sampled_from(FIELDS), unique=True, max_size=14)):
        is_fitting = name in FITTING and draw(st.integers(0, 3))
        value[name] = FITTING[name] if is_fitting else draw(anything)
    text = json.dumps(value, ensure_ascii=draw(st.booleans()))
    return text.encode(errors="surrogatepass")


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Draw a request with some of its bytes changed, taken out or doubled."""
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
def test_whatever_the_record_holds_is_a_request_or_says_why_not(value: bytes | None) -> None:
    """I6, F "Requests": never an exception; and a request that is taken can be written again."""
    read = decode_request(value)
    if isinstance(read, Unreadable):
        assert read.why
        assert (read.request_id is None) == (read.reply_to is None)
        (read.reply_to or "").encode()
    else:
        assert decode_request(encode_request(read)) == read


@given(st.binary(max_size=100) | st.builds(lambda value: json.dumps(value).encode(), anything))
def test_no_bytes_are_more_than_a_wrong_key(key: bytes) -> None:
    """Keys and values of the output topics raise ValueError where they are no such thing, and nothing else."""
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


def neighbours(rows: pd.DataFrame) -> list[tuple[Any, ...]]:
    """What group `g` and its inbox were told, topic by topic: which topic comes first tells nothing."""
    rows = rows.sort_values("topic", kind="stable")
    kept = rows[[key is not None and bytes(key) in (b"mine", b'["group","g"]', b"g") for key in rows["key"]]]
    return [tuple(row) for row in kept[["topic", "partition", "key", "value", "version"]].itertuples(index=False)]


def own(request: Request, offset: int, at_ms: int) -> Record:
    value = json.dumps({**json.loads(encode_request(request)), "reply_to": "mine"}).encode()
    return HOME, offset, at_ms, value


def names_the_neighbour(value: bytes | None) -> bool:
    """Tell whether a record asks something of group `g`, or for an answer to its inbox."""
    request = decode_request(value)
    return getattr(request, "group_id", None) == "g" or request.reply_to == "mine"


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(hostile.filter(lambda value: not names_the_neighbour(value)), min_size=1, max_size=25), st.randoms())
def test_a_batch_with_any_mix_of_hostile_rows_is_answered_and_neighbours_notice_nothing(
    values: list[bytes | None], chance: random.Random
) -> None:
    """I6, I17, I19, I22, F "Requests": the same bytes for group `g` with them as without; outputs bounded."""
    ours = [join("g", "join"), beat("stranger", group_id="g"), join("g", "again"), beat("m", "last", "g")]
    places = sorted(chance.sample(range(len(values) + len(ours)), len(ours)))
    mine = [own(request, place, 1_000 + place) for request, place in zip(ours, places, strict=True)]
    others = iter(values)
    theirs = [(HOME, n, 1_000 + n, next(others)) for n in range(len(values) + len(ours)) if n not in places]
    alone, together = spark(), spark()
    for world in (alone, together):
        world.batch(1_000, [own(join("g", "first"), 0, 900)])
    expected = neighbours(alone.batch(2_000, mine))
    rows = together.batch(2_000, [*theirs, *mine])
    assert neighbours(rows) == expected
    later = [neighbours(world.batch(3_000, [own(join("g", "late"), 99, 2_900)])) for world in (alone, together)]
    assert later[0] == later[1]
    assert neighbours(alone.batch(60_000, [])) == neighbours(together.batch(60_000, []))
    written = rows["value"].dropna()
    asked_bytes = sum(len(value or b"") for value in values)
    assert sum(map(len, written)) < 50_000 + 4 * asked_bytes
    assert all(len(value) <= RECORD_BYTES_MAX for value in written)
    assert len(rows) < 40 + 8 * len(values)
    later = together.batch(60_000, [])
    assert all(topic is None or topic in TOPICS for topic in {*rows["topic"], *later["topic"]}), (
        "no topic of a client's"
    )


def test_a_request_as_large_as_a_record_can_be_gets_a_short_answer() -> None:
    """I22: 8 MiB in one field's value, and in one field's name."""
    large = "x" * (RECORD_BYTES_MAX - 500)
    for fields in ({"member_id": large}, {large: 1}, {"kind": large}):
        value = json.dumps({**json.loads(encode_request(beat("m"))), **fields}).encode()
        rows = spark().batch(2_000, [(HOME, 0, 1_000, value)])
        (reply,) = rows[rows["topic"] == "replies"]["value"]
        assert len(reply) < 1_000, len(reply)


# -- ids, wherever they are displayed ----------------------------------------------------------------------------------


def evil(kind: Any) -> Any:
    """Make a value of a type with `EVIL` wherever there can be text."""
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
def test_no_record_moves_the_cursor_of_who_watches(kind: type) -> None:
    """I23, F "Hostile": `coordinator watch`, whatever text is in a record."""
    assert str(to_line(evil(kind), 1)).isprintable()


def test_no_reply_moves_the_cursor_of_who_asks() -> None:
    """I23: `coordinator request` on a terminal; what it prints is JSON still."""
    reply = {"group_id": EVIL, "members": [{"client_id": EVIL, "client_host": "größe 消费者"}]}
    written = fit_for_a_terminal(json.dumps(reply, indent=2, ensure_ascii=False))
    assert all(line.isprintable() for line in written.split("\n"))
    assert json.loads(written) == reply
    assert "größe 消费者" in written


def test_no_id_becomes_a_line_of_a_gateways_log_or_a_label_of_its_metrics(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """I23, F "Hostile": log-line and metric-label injection, by group, member and client ids."""
    caplog.set_level(logging.DEBUG, "streaming.gateway")
    with connect(gateway.bootstrap_servers, client_id=EVIL) as wire:
        assert wire.call(joining(EVIL)).error_code == 79
        assert wire.call(heartbeat(EVIL, EVIL)).error_code == 25
        wire.raw(b"\x7f\xff\xff\xff" + EVIL.encode())
        assert wire.is_hung_up()
    assert any("is refused" in record.getMessage() for record in caplog.records)
    assert all(record.getMessage().isprintable() for record in caplog.records if record.name.startswith("streaming"))
    assert "pwned" not in generate_latest(gateway.metrics.registry).decode()


def test_no_id_becomes_a_line_of_a_leaders_log(caplog: pytest.LogCaptureFixture) -> None:
    """I23: who leads logs the ids of members that others have started."""
    make_plan(resolve(["range"])[0], [JoinedMember(EVIL, None, b"")], lambda topic: ())
    (record,) = caplog.records
    assert record.getMessage().isprintable()
