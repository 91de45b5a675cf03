"""The MAC of records between coordinators, and the operator that checks and writes them (moving.md 1)."""

from typing import Literal

import msgspec
import pytest
from msgspec.structs import replace

from coordinator.base.config import Config
from coordinator.base.limits import ELSEWHERE_MAX, MOVE_PART_BYTES
from coordinator.base.slots import bitmap_of
from coordinator.messages.events import AccessDenied, Rejected
from coordinator.messages.move_events import GroupArrived, SlotsAdopted
from coordinator.messages.move_requests import (
    AdoptGroup,
    AdoptSlots,
    Elsewhere,
    GroupAdopted,
    ReleaseGroup,
    ReleaseSlots,
)
from coordinator.messages.outputs import ToPeer
from coordinator.messages.requests import Received, Unreadable
from streaming.kafka.peers import PART_RECORD_BYTES
from streaming.query.operator.operator import ShardOperator
from streaming.wire.peering import WRONG, Peering
from streaming.wire.records import OutputTopics, decode_event, decode_request, encode_request, pack
from streaming.wire.signing import Signing
from tests.streaming.query.fake_spark import FakeSpark

KEY = b"a key of at least 32 bytes, yes!"
A = Peering(KEY, "A.requests", {"B": "B.requests"})
B = Peering(KEY, "B.requests", {"A": "A.requests", "C": "C.requests"})
RECORD = GroupAdopted(group_id="g", move_id="B/0/7", number=5, source="A", to="B", adopted_ms=9)
SLOTS = AdoptSlots(
    source="A", to="B", number=5, offset=7, slots=bitmap_of(range(512)), from_shard=1, from_partitions=4, to_shard=3,
    to_partitions=6, part=1, parts=1, elsewhere=(Elsewhere("g", 4, "A"), Elsewhere("h", 0, "C")),
)  # fmt: skip


def received(value: bytes | None, peering: Peering = B) -> Received:
    return peering.received(Received(1, 1_000, decode_request(value), None, len(value or b"")), value)


def test_a_record_is_trusted_by_its_target_alone():
    value = A.signed(RECORD)
    assert received(value) == Received(1, 1_000, RECORD, None, len(value))
    for other in (Peering(KEY, "C.requests", {}), Peering(KEY[::-1], "B.requests", {})):
        assert received(value, other).doubt == WRONG


def test_a_record_about_slots_is_trusted_by_its_target_alone():
    value = A.signed(SLOTS)
    assert received(value) == Received(1, 1_000, SLOTS, None, len(value))
    assert received(value, Peering(KEY, "C.requests", {})).doubt == WRONG
    assert received(value.replace(b'["g",4,"A"]', b'["g",5,"A"]')).doubt == WRONG


@pytest.mark.parametrize(("names", "is_read"), [(ELSEWHERE_MAX, True), (ELSEWHERE_MAX + 1, False)])
def test_a_record_about_slots_has_a_bounded_number_of_names(names: int, is_read: bool):
    value = A.signed(replace(SLOTS, elsewhere=(Elsewhere("g", 1, "A"),) * names))
    assert isinstance(received(value).request, AdoptSlots if is_read else Unreadable)


def test_a_repeat_has_equal_bytes():
    assert A.signed(RECORD) == A.signed(RECORD)


@pytest.mark.parametrize("at", range(0, len(A.signed(RECORD)), 7))
def test_a_changed_byte_is_detected(at: int):
    value = bytearray(A.signed(RECORD))
    value[at] ^= 1
    changed = received(bytes(value))
    assert changed.doubt == WRONG or isinstance(changed.request, Unreadable)


def test_a_signature_of_a_gateway_is_no_mac():
    value = encode_request(RECORD)
    signed = Signing((KEY,), "B.requests").signed(ReleaseGroup(request_id="1", reply_to="i", group_id="g", to="B"), 0)
    signature = signed.rsplit(b"\n", 1)[1]
    assert received(value + b"\n" + signature).doubt == WRONG


@pytest.mark.parametrize("value", [None, b"", b"{}", encode_request(RECORD), b'{"kind":"group_adopted"}\n' + b"=" * 56])
def test_a_record_without_a_mac_is_no_record_of_a_peer(value: bytes | None):
    assert isinstance(received(value).request, Unreadable)


def test_a_request_is_left_as_it_is():
    value = encode_request(ReleaseGroup(request_id="1", reply_to="i", group_id="g", to="B"))
    assert received(value).doubt is None
    assert received(value).request == decode_request(value)


def test_records_for_a_peer_name_no_partition_and_have_the_group_as_their_key():
    topics = OutputTopics("r", "g", "e", "q", A)
    (written,) = pack([ToPeer(RECORD)], topics, 3)
    assert (written.topic, written.partition, written.keys) == ("B.requests", None, [b"g"])
    assert written.values == [A.signed(RECORD)]


def test_records_about_slots_name_the_partition_of_a_shard():
    (written,) = pack([ToPeer(SLOTS, 3)], OutputTopics("r", "g", "e", "q", A), 1)
    assert (written.topic, written.partition, written.keys) == ("B.requests", 3, [b""])


def test_the_largest_part_fits_into_the_room_that_the_start_demands():
    part = AdoptGroup(
        group_id="g" * 249, move_id="m" * 500, number=2**53, source="A" * 200, to="B", released_ms=2**53, home=True,
        part=64, parts=64, codec=255, bytes=2**25, crc=2**32 - 1, state=bytes(MOVE_PART_BYTES),
    )  # fmt: skip
    assert len(A.signed(part)) < PART_RECORD_BYTES < 1_000_000


class Side:
    """One operator, and its log."""

    def __init__(self, prefix: str, peer: str, peering: Peering | None, access: Literal["open", "rules"] = "open"):
        config = Config(
            prefix=prefix, peers=(peer,) if peering else (), peer_partitions={peer: 1}, access=access,
            slots="all" if prefix == "A" else "none",
        )  # fmt: skip
        topics = OutputTopics("r", "g", "e", "q", peering)
        signing = Signing((KEY,), f"{prefix}.requests") if access == "rules" else None
        self.spark = FakeSpark(ShardOperator(1, b"a secret of some length", config, topics, signing, peering))
        self.offset = 0

    def reads(self, now_ms: int, *values: bytes) -> dict[str, list[bytes]]:
        """Run a batch with these records. Return the values that it writes, by topic."""
        log = [(0, self.offset + place, now_ms, value) for place, value in enumerate(values)]
        self.offset += len(values)
        rows = self.spark.batch(now_ms, log)
        written: dict[str, list[bytes]] = {}
        for row in rows[rows["topic"].notna()].itertuples():
            written.setdefault(row.topic, []).append(row.value)
        return written


COMMIT = (
    b'{"kind":"offset_commit","request_id":"2","reply_to":"i","group_id":"g",'
    b'"offsets":[{"topic":"t","partition":0,"offset":5}]}'
)


def test_a_group_moves_from_one_operator_to_another():
    """B's operator reads the record of A's, which reads the answer; state and records are bytes between the batches."""
    a, b = Side("A", "B", A), Side("B", "A", B)
    release = encode_request(ReleaseGroup(request_id="1", reply_to="op", group_id="g", to="B"))
    (adopt,) = a.reads(1_000, COMMIT, release)["B.requests"]
    arrived = b.reads(1_200, adopt)
    assert [type(decode_event(value)) for value in arrived["e"]] == [GroupArrived]
    (answer,) = arrived["A.requests"]
    (reply,) = a.reads(1_400, answer)["r"]
    assert (msgspec.json.decode(reply)["kind"], msgspec.json.decode(reply)["error"]) == ("release_group", "NONE")
    (refused,) = a.reads(1_500, COMMIT)["r"]
    assert msgspec.json.decode(refused)["moved"] == {"to": "B", "number": 1_000_000, "of": "name"}
    (accepted,) = b.reads(1_600, COMMIT)["r"]
    assert msgspec.json.decode(accepted)["error"] == "NONE"


@pytest.mark.parametrize("access", ["open", "rules"])
def test_slots_move_from_one_operator_to_another(access: Literal["open", "rules"]):
    """The MAC alone is the right to send slots, whether B has access rules or not."""
    a, b = Side("A", "B", A), Side("B", "A", B, access)
    every = bitmap_of(range(1_024))
    release = encode_request(ReleaseSlots(request_id="1", reply_to="op", to="B", slots=every, made_ms=1_000))
    written = a.reads(1_000, COMMIT, release)
    assert msgspec.json.decode(written["r"][1])["listed"] == 1
    (adopt,) = written["B.requests"]
    wrong = Peering(KEY[::-1], "A.requests", {"B": "B.requests"}).signed(received(adopt).request)
    assert [type(decode_event(value)) for value in b.reads(1_100, wrong)["e"]] == [AccessDenied]
    assert [type(decode_event(value)) for value in b.reads(1_200, adopt)["e"]] == [SlotsAdopted]


@pytest.mark.parametrize(
    ("peering", "event"), [(Peering(KEY[::-1], "B.requests", {"A": "A.requests"}), AccessDenied), (None, Rejected)]
)
def test_a_record_that_is_not_trusted_is_an_event(peering: Peering | None, event: type):
    written = Side("B", "A", peering).reads(1_000, A.signed(RECORD))
    assert [type(decode_event(value)) for value in written["e"]] == [event]
    assert list(written) == ["e"]
