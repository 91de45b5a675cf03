"""Hostile bytes at the codec, which raises only `CorruptState`, and floods at the core, which has bounds."""

import random
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.base import limits
from coordinator.base.config import Config
from coordinator.base.errors import CorruptState, ErrorCode
from coordinator.base.states import Phase
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.outputs import Output
from coordinator.messages.requests import JoinGroup, LeaveGroup, Leaving, Protocol, Received, Request
from coordinator.messages.responses import JoinGroupAnswer, Reply
from coordinator.shard.shard import Shard
from coordinator.state import codec
from tests.coordinator.scenario import Scenario
from tests.coordinator.waking import wake

MIB = 2**20
CONFIG = Config(group_initial_rebalance_delay_ms=0, group_max_size=50)


@pytest.fixture(scope="module")
def state() -> bytes:
    s = Scenario.stable("a", "b").commit("a", {("t", 0): 5}, metadata="ü")
    s.join("c", require_known_member_id=True).join("d").join("a").join("e", group_id="h")
    return s.shard.to_bytes()


def read_all(data: bytes) -> None:
    """Decode a shard's state and every group in it, as a batch with requests to all groups does."""
    shard = Shard(0, 1, bytes(16), CONFIG, data)
    for group_id in shard.group_ids:
        shard.group(group_id)


def sealed(body: bytes) -> bytes:
    """Return bytes with a right checksum, which damage never has; a forger or another program might write them."""
    return bytes([codec.VERSION]) + zlib.crc32(body, zlib.crc32(bytes([codec.VERSION]))).to_bytes(4, "big") + body


@contextmanager
def within(seconds: float, megabytes: float) -> Iterator[None]:
    tracemalloc.start()
    began = time.monotonic()
    yield
    took, (_, peak) = time.monotonic() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < seconds, took
    assert peak < megabytes * MIB, peak


# -- the codec ---------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=2_000))
def test_no_bytes_are_accepted_without_their_checksum(data: bytes):
    """F8, I23: no other exception is raised, and nothing is decoded."""
    with pytest.raises(CorruptState):
        read_all(data)


@given(st.data())
def test_no_damaged_state_is_accepted(state: bytes, data: st.DataObject):
    """F8: bytes are changed, removed, inserted or swapped, anywhere."""
    at = data.draw(st.integers(0, len(state) - 1))
    length = data.draw(st.integers(0, 40))
    damaged = state[:at] + data.draw(st.binary(max_size=40)) + state[at + length :]
    if damaged != state:
        with pytest.raises(CorruptState):
            read_all(damaged)


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_no_flipped_bit_is_accepted(state: bytes, at: int, bit: int):
    """F8: this holds even if the flipped value would be valid."""
    damaged = bytearray(state)
    damaged[at % len(state)] ^= 1 << bit
    with pytest.raises(CorruptState):
        read_all(bytes(damaged))


@given(st.data())
def test_nearly_right_bytes_with_a_checksum_are_read_or_refused(state: bytes, data: st.DataObject):
    """The checksum is right, the contents are nearly right: the result is CorruptState or a shard."""
    body = bytearray(state[5:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_all(sealed(bytes(body)))
    except CorruptState:
        return


@given(st.binary(max_size=500))
def test_any_bytes_with_a_checksum_are_read_or_refused(body: bytes):
    try:
        read_all(sealed(body))
    except CorruptState:
        return


def test_too_deep_nesting_is_refused():
    with pytest.raises(CorruptState):
        codec.decode_shard(sealed(b"\x93\x80\x80" + b"\x91" * 100_000 + b"\xc0"))


@pytest.mark.parametrize(
    "announced", [b"\xdf\xff\xff\xff\xff", b"\x91\xdf\xff\xff\xff\xff", b"\x92\x80\xdf\xff\xff\xff\xff"]
)
@pytest.mark.parametrize("rest", [b"", b"\xa1g" * 1_000])
def test_counts_beyond_the_data_take_no_memory(announced: bytes, rest: bytes):
    """A map announces four thousand million entries."""
    with within(1, 1), pytest.raises(CorruptState):
        read_all(sealed(announced + rest))


def test_a_bomb_without_its_checksum_is_never_decompressed(state: bytes):
    """The rest of a group has 64 MiB of zeros in 64 KB."""
    stored = codec.decode_shard(state).groups["g"]
    bomb = codec.encode_shard(
        codec.ShardSnapshot({"g": codec.Stored(0, 1, stored.hot_state, zlib.compress(bytes(64 * MIB), 9), "", False)})
    )
    flipped = bomb[:-1] + bytes([bomb[-1] ^ 1])
    with within(1, 2), pytest.raises(CorruptState):
        read_all(flipped)


# -- floods ------------------------------------------------------------------------------------------------------------


class Flood:
    """One shard and its clients, with one request or many requests in a batch."""

    def __init__(self, config: Config = CONFIG) -> None:
        self.shard, self._config = Shard(0, 1, bytes(16), config), config
        self.now_ms, self._offset = 1_000, 0

    def batch(self, requests: list[Request]) -> list[Output]:
        received = []
        for request in requests:
            received.append(Received(self._offset, self.now_ms, request))
            self._offset += 1
        outputs = self.shard.step(received or [wake(self.now_ms)], self.now_ms)
        self.shard = Shard(0, 1, bytes(16), self._config, self.shard.to_bytes())
        return outputs

    def passes(self, ms: int) -> list[Output]:
        self.now_ms += ms
        return self.batch([])


def joining(number: int, group_id: str = "g", member_id: str = "", *, known: bool = False) -> JoinGroup:
    return JoinGroup(
        request_id=f"r{number}", reply_to="in", group_id=group_id, member_id=member_id, session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000, protocol_type="x", protocols=(Protocol("p"),), require_known_member_id=known,
    )  # fmt: skip


def answers(outputs: list[Output]) -> list[JoinGroupAnswer]:
    return [o.answer for o in outputs if isinstance(o, Reply) and isinstance(o.answer, JoinGroupAnswer)]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_member_flood_is_bounded(at_once: bool):
    """I22, F "member floods": `group_max_size`; a later member gets GROUP_MAX_SIZE_REACHED, and is not stored."""
    flood = Flood()
    joins = [joining(number) for number in range(500)]
    outputs = flood.batch(joins) if at_once else [o for join in joins for o in flood.batch([join])]
    refused = [a for a in answers(outputs) if a.code == ErrorCode.GROUP_MAX_SIZE_REACHED.number]
    assert len(refused) >= 500 - CONFIG.group_max_size - 1
    groups = [o.record for o in outputs if isinstance(o, Published) and isinstance(o.record, GroupRecord)]
    assert max(len(g.members) for g in groups if g.state in (Phase.COMPLETING, Phase.STABLE)) <= CONFIG.group_max_size
    assert flood.shard.members < 2 * CONFIG.group_max_size, (
        "while joins are collected, members that have not joined yet count, too"
    )
    assert len(outputs) < 4 * len(joins), "a refused request causes its response and no other output"


def test_a_flood_does_not_change_a_full_group():
    """I22: once the joins are over, no new member gets in, and no member is notified of a rebalance."""
    flood = Flood(Config(group_initial_rebalance_delay_ms=100, group_max_size=50))
    flood.batch([joining(number) for number in range(50)])
    begun = flood.passes(100 + CONFIG.clock_slack_ms) + flood.passes(100 + CONFIG.clock_slack_ms)
    assert [a.error for a in answers(begun)] == ["NONE"] * 50
    outputs = flood.batch([joining(number) for number in range(50, 500)])
    assert {a.error for a in answers(outputs)} == {"GROUP_MAX_SIZE_REACHED"}
    assert len(outputs) == 450
    assert flood.shard.members == 50


def test_unused_pending_ids_expire_within_a_session():
    """I22, KIP-394: a join that is retried without its id keeps no id for longer than its session timeout."""
    flood = Flood()
    outputs = flood.batch([joining(number, known=True) for number in range(5_000)])
    assert {a.error for a in answers(outputs)} == {"MEMBER_ID_REQUIRED"}
    full = len(flood.shard.to_bytes())
    assert full < 5_000 * 70
    flood.passes(6_000 + CONFIG.clock_slack_ms + CONFIG.late_notice_ms)
    flood.passes(6_000 + CONFIG.clock_slack_ms)
    group = flood.shard.group("g")
    assert group is None or not group.hot_state.pending
    assert len(flood.shard.to_bytes()) < 300


def test_groups_without_members_and_offsets_are_forgotten():
    """I22: a group does not know the number of groups. Groups without members and offsets are removed soon."""
    flood = Flood()
    flood.batch([joining(number, f"group-{number}", known=True) for number in range(10_000)])
    assert len(flood.shard.group_ids) == 10_000
    assert len(flood.shard.to_bytes()) < 10_000 * 350
    flood.passes(6_000 + CONFIG.clock_slack_ms)
    flood.passes(CONFIG.empty_group_retention_ms + CONFIG.late_notice_ms)
    flood.passes(CONFIG.empty_group_retention_ms)
    assert not flood.shard.group_ids
    flood.passes(limits.ENDED_MS)
    assert flood.shard.is_blank


def test_the_number_of_stored_tombstones_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """I22, I2: the generations of the last forgotten groups are stored, however many there were."""
    monkeypatch.setattr("coordinator.state.store.REMOVED_GROUPS_MAX", 100)
    flood = Flood()
    for number in range(0, 1_000, 50):
        names = [f"group-{n}" for n in range(number, number + 50)]
        joined = answers(flood.batch([joining(0, name) for name in names]))
        flood.batch(
            [
                LeaveGroup(request_id="l", reply_to="in", group_id=name, members=(Leaving(answer.member_id),))
                for name, answer in zip(names, joined, strict=True)
            ]
        )
        flood.passes(CONFIG.empty_group_retention_ms + CONFIG.clock_slack_ms + CONFIG.late_notice_ms)
    assert not flood.shard.group_ids
    assert len(codec.decode_shard(flood.shard.to_bytes()).removed_groups) == 100
    assert limits.REMOVED_GROUPS_MAX == 10_000


def test_requests_to_unknown_groups_store_nothing():
    """I22: guessed ids, old generations, heartbeat floods."""
    flood, chance = Flood(), random.Random(1)
    beats = [
        Heartbeat(request_id=str(n), reply_to="in", group_id=f"g{chance.random()}", generation_id=n, member_id="m")
        for n in range(5_000)
    ]
    outputs = flood.batch(beats)
    assert {o.answer.error for o in outputs if isinstance(o, Reply)} == {"UNKNOWN_MEMBER_ID"}
    assert len(outputs) == 5_000
    assert flood.shard.is_blank
