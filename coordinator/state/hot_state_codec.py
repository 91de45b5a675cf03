"""The encoding of the hot state: the part of a group that a heartbeat reads and changes.

Member ids are in the rest of the group alone, whose member index names them in the order of the sessions. Fields of
policies are at the end, and are left out while no policy has to act.
"""

import msgspec
from msgspec import Struct

from coordinator.base.errors import CorruptState
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Phase
from coordinator.state.classic_group import HotState
from coordinator.state.consumer_group import ConsumerHotState
from coordinator.state.consumer_member import MemberSession
from coordinator.state.encoding import ENCODER, decode
from coordinator.state.group import Session
from coordinator.state.member_index import MemberIndex, MemberIndexCache


class _Written(Struct, array_like=True):
    """A hot state as it is written. Sessions and instances are whole only if they differ from the member index."""

    phase: Phase
    generation_id: int
    now_ms: int
    sessions: list[Session] | dict[str, Session]
    pending: dict[str, Session]
    joins_ms: int
    syncs_ms: int
    offsets_ms: int
    earliest_ms: int
    extended: bool
    back_ms: int
    instances: dict[str, str] | None
    publish_ms: int


class _WrittenWithPolicies(_Written, array_like=True):
    """A hot state of a group in which a policy has to act. A called member is its place among the sessions."""

    policy_ms: int = NEVER_MS
    called: list[int] = []


class _ConsumerWritten(Struct, array_like=True):
    """A hot state of the consumer protocol as it is written. Its ids and instances are those of the member index."""

    phase: Phase
    group_epoch: int
    now_ms: int
    sessions: list[MemberSession]
    assignment_epoch: int
    unsettled: int
    revocations: dict[str, Session]
    joins: dict[str, Session]
    syncs: dict[str, Session]
    plan_ms: int
    offsets_ms: int
    earliest_ms: int
    back_ms: int
    publish_ms: int
    asks: bool


class _ConsumerWrittenWithPolicies(_ConsumerWritten, array_like=True):
    """The hot state of a group of the consumer protocol in which a policy has to act."""

    policy_ms: int = NEVER_MS
    is_frozen: bool = False


class _Phased(Struct, array_like=True):
    """The beginning of a `_Written`; later fields are skipped."""

    phase: Phase


_decoder = msgspec.msgpack.Decoder(_WrittenWithPolicies)
_phased_decoder = msgspec.msgpack.Decoder(_Phased)
_consumer_decoder = msgspec.msgpack.Decoder(_ConsumerWrittenWithPolicies)


def encode_hot_state(
    hot_state: HotState | ConsumerHotState, rest: bytes, member_indexes: MemberIndexCache | None = None
) -> bytes:
    """Encode the part of a group that a heartbeat changes.

    Args:
        rest: The rest of the same group.
        member_indexes: A cache with the group's member index, so that the member index is not read from `rest`.
    """
    known = (MemberIndexCache() if member_indexes is None else member_indexes).of(rest)
    if isinstance(hot_state, ConsumerHotState):
        return _encode_consumer_hot_state(hot_state, known)
    written = (
        hot_state.phase,
        hot_state.generation_id,
        hot_state.now_ms,
        list(hot_state.sessions.values()) if list(hot_state.sessions) == known.member_ids else hot_state.sessions,
        hot_state.pending,
        hot_state.joins_ms,
        hot_state.syncs_ms,
        hot_state.offsets_ms,
        hot_state.earliest_ms,
        hot_state.extended,
        hot_state.back_ms,
        None if hot_state.instances == known.instances else hot_state.instances,
        hot_state.publish_ms,
    )
    if hot_state.policy_ms == NEVER_MS and not hot_state.called:
        return ENCODER.encode(_Written(*written))
    called = [place for place, member_id in enumerate(hot_state.sessions) if member_id in hot_state.called]
    return ENCODER.encode(_WrittenWithPolicies(*written, hot_state.policy_ms, called))


def _encode_consumer_hot_state(hot_state: ConsumerHotState, known: MemberIndex) -> bytes:
    assert list(hot_state.sessions) == known.member_ids, "the rest was encoded after the members have changed"
    written = (
        hot_state.phase,
        hot_state.group_epoch,
        hot_state.now_ms,
        list(hot_state.sessions.values()),
        hot_state.assignment_epoch,
        hot_state.unsettled,
        hot_state.revocations,
        hot_state.joins,
        hot_state.syncs,
        hot_state.plan_ms,
        hot_state.offsets_ms,
        hot_state.earliest_ms,
        hot_state.back_ms,
        hot_state.publish_ms,
        hot_state.asks,
    )
    if hot_state.policy_ms == NEVER_MS and not hot_state.is_frozen:
        return ENCODER.encode(_ConsumerWritten(*written))
    return ENCODER.encode(_ConsumerWrittenWithPolicies(*written, hot_state.policy_ms, hot_state.is_frozen))


def decode_classic_hot_state(data: bytes, rest: bytes, member_indexes: MemberIndexCache) -> HotState:
    written = decode(_decoder, data)
    sessions, instances = written.sessions, written.instances
    if isinstance(sessions, list):
        member_ids = member_indexes.of(rest).member_ids
        if len(sessions) != len(member_ids):
            raise CorruptState(f"a group of {len(member_ids)} members has {len(sessions)} sessions")
        sessions = dict(zip(member_ids, sessions, strict=True))
    if instances is None:
        instances = dict(member_indexes.of(rest).instances)
    called = frozenset(written.called)
    return HotState(
        written.phase,
        written.generation_id,
        written.now_ms,
        sessions,
        written.pending,
        written.joins_ms,
        written.syncs_ms,
        written.offsets_ms,
        written.earliest_ms,
        written.extended,
        written.back_ms,
        instances,
        written.publish_ms,
        written.policy_ms,
        {member_id: None for place, member_id in enumerate(sessions) if place in called} if called else {},
    )


def decode_consumer_hot_state(data: bytes, known: MemberIndex) -> ConsumerHotState:
    written = decode(_consumer_decoder, data)
    if len(written.sessions) != len(known.member_ids):
        raise CorruptState(f"a group of {len(known.member_ids)} members has {len(written.sessions)} sessions")
    return ConsumerHotState(
        written.phase,
        written.group_epoch,
        written.now_ms,
        dict(zip(known.member_ids, written.sessions, strict=True)),
        written.assignment_epoch,
        written.unsettled,
        written.revocations,
        written.joins,
        written.syncs,
        written.plan_ms,
        written.offsets_ms,
        written.earliest_ms,
        written.back_ms,
        dict(known.instances),
        written.publish_ms,
        written.asks,
        written.policy_ms,
        written.is_frozen,
    )


def decode_phase(data: bytes) -> Phase:
    """Decode only the phase from the bytes that `encode_hot_state` wrote."""
    return decode(_phased_decoder, data).phase
