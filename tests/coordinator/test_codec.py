"""The stored state: decoding returns what was encoded, or raises `CorruptState` (I18, F8)."""

import zlib
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.base.errors import CorruptState
from coordinator.base.states import Phase
from coordinator.messages.requests import Protocol
from coordinator.state import codec, hot_state_codec
from coordinator.state import member_index as member_index_module
from coordinator.state.classic_group import Delay, Group, HotState, Member, Parked, Round
from coordinator.state.codec import RemovedGroup, ShardSnapshot, Stored
from coordinator.state.encoding import inflate
from coordinator.state.group import Offset, Session
from coordinator.state.member_index import MemberIndex, MemberIndexCache
from tests.coordinator.scenario import Scenario

STORED = Path(__file__).parent / "states" / f"codec-{codec.VERSION}.bin"
"""A state with all that a shard can keep, and its contents as JSON beside it."""


@pytest.fixture(scope="module")
def state() -> bytes:
    """A shard with parked requests, assignments, offsets, a pending id and a second group."""
    s = Scenario.stable("a", "b").commit("a", {("t", 0): 5}, metadata="ü")
    s.join("c", require_known_member_id=True).join("d").join("a").join("e", group_id="h")
    return s.shard.to_bytes()


def test_groups_are_decoded_as_encoded(state: bytes):
    """S43, I18: groups are decoded as they were encoded."""
    s = Scenario()
    again = s.new_shard(state)
    assert again.to_bytes() == state
    assert again.group_ids == ("g", "h")
    g = again.group("g")
    assert [len(x) for x in (g.members, g.hot_state.pending, g.offsets)] == [3, 1, 1]
    assert sum(m.awaiting_join is not None for m in g.members.values()) == 2


def named(value: object) -> object:
    """Name the fields of a stored value by their places alone."""
    if isinstance(value, msgspec.Struct):
        return {name: named(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {str(key): named(each) for key, each in value.items()}
    return [named(each) for each in value] if isinstance(value, list | tuple) else value


def all_fields(state: bytes) -> str:
    """Return all contents of a state as JSON."""
    kept = codec.decode_shard(state)
    told = named(kept) | {
        "groups": {group_id: named(codec.decode_group(stored)) for group_id, stored in kept.groups.items()},
        "access": named(codec.decode_access(kept.access)),
        "policies": named(codec.decode_policies(kept.policies)),
    }
    return msgspec.json.format(msgspec.json.encode(told)).decode() + "\n"


def test_a_stored_state_is_read():
    """I18: the bytes were written once; a field in another place would be read as another field."""
    assert all_fields(STORED.read_bytes()) == STORED.with_suffix(".json").read_text()


def test_a_stored_state_is_written_with_equal_bytes():
    """The bytes that DEFLATE makes depend on the library, so those inside are compared."""
    state = STORED.read_bytes()
    assert Scenario().new_shard(state).to_bytes() == state
    for stored in codec.decode_shard(state).groups.values():
        group = codec.decode_group(stored)
        rest = codec.encode_rest(group)
        assert hot_state_codec.encode_hot_state(group.hot_state, rest) == stored.hot_state
        assert inflate(rest) == inflate(stored.rest)


def test_every_flipped_bit_is_detected(state: bytes):
    """F8, promises.md 2: a state with one flipped bit is refused."""
    for at in range(len(state)):
        for bit in (1, 128):
            damaged = bytearray(state)
            damaged[at] ^= bit
            with pytest.raises(CorruptState):
                Scenario().new_shard(bytes(damaged))


def test_every_truncation_is_detected(state: bytes):
    """F8: torn and empty files are refused."""
    for length in range(len(state)):
        with pytest.raises(CorruptState):
            Scenario().new_shard(state[:length])


def test_bytes_after_the_end_are_detected(state: bytes):
    with pytest.raises(CorruptState):
        Scenario().new_shard(state + b"\x00")


@pytest.mark.parametrize("version", [0, 1, codec.VERSION - 1, codec.VERSION + 1, 255])
def test_another_version_is_refused_by_name(state: bytes, version: int):
    """design.md 8: the error names the version."""
    with pytest.raises(CorruptState, match=f"version {version}; this code reads {codec.VERSION}$"):
        Scenario().new_shard(bytes([version]) + state[1:])


def test_hot_state_of_another_group_are_refused(state: bytes):
    """Sessions are stored in the order of the members, so their number must be equal."""
    groups = codec.decode_shard(state).groups
    with pytest.raises(CorruptState, match="members has"):
        codec.decode_hot_state(msgspec.structs.replace(groups["g"], rest=groups["h"].rest))


def test_a_cache_of_rosters_changes_nothing(state: bytes):
    """A task may run in any worker: its cache has the group's present member index, an earlier one, or none."""
    s = Scenario.stable("a", "b").leave("a")
    read = []
    for is_empty in (True, False, True):
        if is_empty:
            s.member_indexes = MemberIndexCache()
        s.new_shard(state).group("g")
        read.append(s.new_shard(s.shard.to_bytes()).group("g"))
    assert read[0] == read[1] == read[2]


def test_a_cache_of_rosters_is_bounded_by_its_bytes():
    """I22: each commit changes the stored group, which is the key of the cache; the old key is never used again."""
    member_indexes, s = MemberIndexCache(bytes_max=5_000), Scenario.stable("a", "b")
    for offset in range(50):
        s.commit("a", {("t", 0): offset})
        rest = codec.decode_shard(s.shard.to_bytes()).groups["g"].rest
        assert member_indexes.of(rest).member_ids == list(s.group.members)
    assert 4_000 < member_indexes.bytes <= 5_000
    assert member_indexes.of(rest) is member_indexes.of(rest), "the latest member index stays"


def rest_of(number: int, size_bytes: int = 2**20) -> bytes:
    """Return a key whose size with its member index, which has no member, is `size_bytes`."""
    return b"%d" % number + bytes(size_bytes - member_index_module.MEMBER_INDEX_BYTES - len(str(number)))


def test_a_cache_of_rosters_is_filled_to_its_bound_and_no_further():
    """I22: up to the bound every member index stays; beyond it the least recently used member indexes are dropped."""
    member_indexes, kept = (
        MemberIndexCache(),
        [MemberIndex([], {}) for _ in range(member_index_module.CACHE_BYTES_MAX // 2**20)],
    )
    for number, roster in enumerate(kept):
        member_indexes.put(rest_of(number), roster)
    assert member_indexes.bytes == member_index_module.CACHE_BYTES_MAX
    assert all(member_indexes.of(rest_of(number)) is roster for number, roster in enumerate(kept))
    smallest = rest_of(-1, member_index_module.MEMBER_INDEX_BYTES + 2)
    member_indexes.put(smallest, MemberIndex([], {}))
    assert (
        member_indexes.bytes == member_index_module.CACHE_BYTES_MAX - 2**20 + member_index_module.MEMBER_INDEX_BYTES + 2
    ), "one member index is dropped"
    assert member_indexes.of(rest_of(1)) is kept[1]
    with pytest.raises(CorruptState):
        member_indexes.of(rest_of(0))  # it was dropped, so the bytes are decoded, and they are not a group


def test_a_roster_beyond_the_bound_stays_alone():
    """Otherwise every heartbeat would decompress the hot state of a very large group."""
    member_indexes, large = MemberIndexCache(bytes_max=1_000), MemberIndex([], {})
    member_indexes.put(rest_of(0, 900), MemberIndex([], {}))
    member_indexes.put(rest_of(1, 5_000), large)
    assert member_indexes.bytes == 5_000
    assert member_indexes.of(rest_of(1, 5_000)) is large


def test_a_shard_reads_a_member_index_once(monkeypatch: pytest.MonkeyPatch):
    """Heartbeats of later batches find the member index in the cache of the shard."""
    s = Scenario.stable("a", "b")
    state, cache, read = s.shard.to_bytes(), MemberIndexCache(), []
    real = member_index_module._read_member_index
    monkeypatch.setattr(member_index_module, "_read_member_index", lambda rest, of=real: (
        read.append(rest), of(rest))[1])  # fmt: skip
    for _ in range(3):
        s.member_indexes = cache
        s.new_shard(state).group("g")
    assert len(read) == 1
    s.member_indexes = MemberIndexCache()
    s.new_shard(state).group("g")
    assert len(read) == 2, "another cache does not contain the member index"


def test_invalid_bytes_with_a_right_checksum_are_refused():
    written = bytes([codec.VERSION]), msgspec.msgpack.encode({"g": "no group"})
    checksum = zlib.crc32(b"".join(written)).to_bytes(4, "big")
    with pytest.raises(CorruptState, match="cannot be read"):
        codec.decode_shard(checksum.join(written))


@pytest.mark.parametrize("part", ["hot_state", "rest"])
@pytest.mark.parametrize("nonsense", [b"", b"\xc1", b"\x91\xc3", zlib.compress(b"\xc1"), zlib.compress(b"\x91\xc3")])
def test_invalid_bytes_of_a_group_are_detected_when_it_is_decoded(state: bytes, part: str, nonsense: bytes):
    """The checksum is right, the contents are not, for example those of another version."""
    stored = msgspec.structs.replace(codec.decode_shard(state).groups["g"], **{part: nonsense})
    with pytest.raises(CorruptState):
        Scenario().new_shard(codec.encode_shard(ShardSnapshot({"g": stored}))).group("g")


def test_a_new_shard_has_no_groups_and_can_be_encoded():
    s = Scenario()
    assert s.new_shard(s.new_shard().to_bytes()).group_ids == ()


def test_equal_offers_take_little_space():
    """design.md 8: twenty members of one application take hardly more space than one, whatever their subscriptions."""
    metadata = b"".join(sha256(bytes([n, m])).digest() for n in range(20) for m in range(15))
    s = Scenario(delay_ms=3_000)
    for n in range(20):
        s.join(f"c{n}", protocols_as_they_are=(Protocol("range", metadata),))
    assert len(s.shard.to_bytes()) < 2 * len(metadata)
    assert all(m.protocols[0].metadata == metadata for m in s.group.members.values())


def test_a_heartbeat_copies_the_rest_of_the_group():
    """design.md 8: a heartbeat changes few bytes, and the rest is copied."""
    s = Scenario.stable("a", "b")
    before = codec.decode_shard(s.shard.to_bytes()).groups["g"]
    s.at(1_000).heartbeat("a")
    after = codec.decode_shard(s.shard.to_bytes()).groups["g"]
    assert after.rest == before.rest
    assert after.hot_state != before.hot_state


# -- random groups, also ones that no conversation reaches -------------------------------------------------------------

texts, blobs, flags = st.text(max_size=5), st.binary(max_size=5), st.booleans()
int32s, int64s = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
maybe_texts, maybe_parked = st.none() | texts, st.none() | st.builds(Parked, texts, texts)
sessions = st.dictionaries(texts, st.builds(Session, int64s, int32s, flags), max_size=3)
hot_states = st.builds(
    HotState,
    phase=st.sampled_from(Phase),
    generation_id=int32s,
    now_ms=int64s,
    sessions=sessions,
    pending=sessions,
    joins_ms=int64s,
    syncs_ms=int64s,
    offsets_ms=int64s,
    earliest_ms=int64s,
    extended=flags,
    back_ms=int64s,
    instances=st.dictionaries(texts, texts, max_size=2),
)
offers = st.lists(st.builds(Protocol, texts, blobs), max_size=2).map(tuple)
members = st.builds(
    Member,
    member_id=texts,
    group_instance_id=maybe_texts,
    client_id=texts,
    client_host=texts,
    reply_to=texts,
    rebalance_timeout_ms=int32s,
    protocols=offers,
    assignment=blobs,
    is_new=flags,
    owes_sync=flags,
    awaiting_join=maybe_parked,
    awaiting_sync=maybe_parked,
    made_by=maybe_parked,
    fencing_token=int64s,
)
offsets = st.builds(Offset, int64s, int32s, texts, int64s, st.none() | int64s)
groups = st.builds(
    Group,
    hot_state=hot_states,
    group_id=texts,
    since_ms=int64s,
    version=int64s,
    protocol_type=maybe_texts,
    protocol_name=maybe_texts,
    leader_id=maybe_texts,
    members=st.lists(members, max_size=3).map(lambda ms: {m.member_id: m for m in ms}),
    joins_parked=int32s,
    syncs_owed=int32s,
    supporters=st.dictionaries(texts, int32s, max_size=3),
    delay=st.none() | st.builds(Delay, int64s, int64s),
    newcomers=flags,
    round=st.none() | st.builds(Round, int64s, int64s, st.dictionaries(texts, blobs, max_size=2)),
    subscribed_topics=st.none() | st.lists(texts, max_size=3).map(tuple),
    offsets=st.dictionaries(texts, st.dictionaries(int32s, offsets, max_size=2), max_size=2),
    token=int64s,
)
stored = st.builds(Stored, int64s, int32s, blobs, blobs, texts, flags)


@given(groups)
def test_every_group_is_decoded_as_encoded(group: Group):
    """I18: every group is decoded as it was encoded."""
    rest = codec.encode_rest(group)
    written = Stored(0, 0, hot_state_codec.encode_hot_state(group.hot_state, rest), rest, "", False)
    assert codec.decode_hot_state(written) == group.hot_state
    assert codec.decode_group(written) == group


removed_groups = st.dictionaries(texts, st.builds(RemovedGroup, int64s, int32s, int64s, int64s), max_size=2)


@given(st.builds(ShardSnapshot, st.dictionaries(texts, stored, max_size=4), removed_groups))
def test_every_shard_is_decoded_as_encoded(shard: ShardSnapshot):
    """I18: every shard is decoded as it was encoded."""
    assert codec.decode_shard(codec.encode_shard(shard)) == shard


@given(st.binary(max_size=60))
def test_no_other_bytes_are_accepted(data: bytes):
    with pytest.raises(CorruptState):
        codec.decode_shard(data)


def test_hot_state_is_stored_separately():
    group = Group(hot_state=HotState(generation_id=7), group_id="g", since_ms=0)
    assert codec.decode_rest(codec.encode_rest(group), HotState()).generation_id == 0
