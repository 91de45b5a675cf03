"""The encoding of vitals: the part of a group that a heartbeat reads and changes.

Member ids are in the rest of the group alone, whose roster names them in the order of the sessions. Fields of policies
are at the end, and are left out while no policy has to act.
"""

import msgspec
from msgspec import Struct

from coordinator.base.errors import CorruptState
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Phase
from coordinator.state.classic_group import Vitals
from coordinator.state.consumer_group import ConsumerVitals
from coordinator.state.consumer_member import Pulse
from coordinator.state.encoding import ENCODER, decode
from coordinator.state.group import Session
from coordinator.state.member_index import Roster, Rosters


class _Pulse(Struct, array_like=True):
    """Vitals as they are written. Sessions and instances are written whole only if they differ from the roster."""

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


class _SeatedPulse(_Pulse, array_like=True):
    """Vitals of a group in which a policy has to act. A called member is written as its place among the sessions."""

    seats_ms: int = NEVER_MS
    called: list[int] = []


class _ConsumerPulse(Struct, array_like=True):
    """Vitals of the consumer protocol as they are written. Their ids and instances are those of the roster."""

    phase: Phase
    group_epoch: int
    now_ms: int
    sessions: list[Pulse]
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


class _HeldConsumerPulse(_ConsumerPulse, array_like=True):
    """Vitals of a group of the consumer protocol in which a policy has to act."""

    seats_ms: int = NEVER_MS
    is_frozen: bool = False


class _Phased(Struct, array_like=True):
    """The beginning of a `_Pulse`; later fields are skipped."""

    phase: Phase


_pulse_decoder = msgspec.msgpack.Decoder(_SeatedPulse)
_phased_decoder = msgspec.msgpack.Decoder(_Phased)
_consumer_pulse_decoder = msgspec.msgpack.Decoder(_HeldConsumerPulse)


def encode_vitals(vitals: Vitals | ConsumerVitals, rest: bytes, rosters: Rosters | None = None) -> bytes:
    """Encode the part of a group that a heartbeat changes.

    Args:
        rest: The rest of the same group.
        rosters: A cache with the group's roster, so that the roster is not read from `rest`.
    """
    known = (Rosters() if rosters is None else rosters).of(rest)
    if isinstance(vitals, ConsumerVitals):
        return _encode_consumer_vitals(vitals, known)
    pulse = (
        vitals.phase,
        vitals.generation_id,
        vitals.now_ms,
        list(vitals.sessions.values()) if list(vitals.sessions) == known.member_ids else vitals.sessions,
        vitals.pending,
        vitals.joins_ms,
        vitals.syncs_ms,
        vitals.offsets_ms,
        vitals.earliest_ms,
        vitals.extended,
        vitals.back_ms,
        None if vitals.instances == known.instances else vitals.instances,
        vitals.publish_ms,
    )
    if vitals.seats_ms == NEVER_MS and not vitals.called:
        return ENCODER.encode(_Pulse(*pulse))
    called = [place for place, member_id in enumerate(vitals.sessions) if member_id in vitals.called]
    return ENCODER.encode(_SeatedPulse(*pulse, vitals.seats_ms, called))


def _encode_consumer_vitals(vitals: ConsumerVitals, known: Roster) -> bytes:
    assert list(vitals.sessions) == known.member_ids, "the rest was encoded after the members have changed"
    pulse = (
        vitals.phase,
        vitals.group_epoch,
        vitals.now_ms,
        list(vitals.sessions.values()),
        vitals.assignment_epoch,
        vitals.unsettled,
        vitals.revocations,
        vitals.joins,
        vitals.syncs,
        vitals.plan_ms,
        vitals.offsets_ms,
        vitals.earliest_ms,
        vitals.back_ms,
        vitals.publish_ms,
        vitals.asks,
    )
    if vitals.seats_ms == NEVER_MS and not vitals.is_frozen:
        return ENCODER.encode(_ConsumerPulse(*pulse))
    return ENCODER.encode(_HeldConsumerPulse(*pulse, vitals.seats_ms, vitals.is_frozen))


def decode_classic_vitals(data: bytes, rest: bytes, rosters: Rosters) -> Vitals:
    pulse = decode(_pulse_decoder, data)
    sessions, instances = pulse.sessions, pulse.instances
    if isinstance(sessions, list):
        member_ids = rosters.of(rest).member_ids
        if len(sessions) != len(member_ids):
            raise CorruptState(f"a group of {len(member_ids)} members has {len(sessions)} sessions")
        sessions = dict(zip(member_ids, sessions, strict=True))
    if instances is None:
        instances = dict(rosters.of(rest).instances)
    called = frozenset(pulse.called)
    return Vitals(
        pulse.phase,
        pulse.generation_id,
        pulse.now_ms,
        sessions,
        pulse.pending,
        pulse.joins_ms,
        pulse.syncs_ms,
        pulse.offsets_ms,
        pulse.earliest_ms,
        pulse.extended,
        pulse.back_ms,
        instances,
        pulse.publish_ms,
        pulse.seats_ms,
        {member_id: None for place, member_id in enumerate(sessions) if place in called} if called else {},
    )


def decode_consumer_vitals(data: bytes, known: Roster) -> ConsumerVitals:
    pulse = decode(_consumer_pulse_decoder, data)
    if len(pulse.sessions) != len(known.member_ids):
        raise CorruptState(f"a group of {len(known.member_ids)} members has {len(pulse.sessions)} sessions")
    return ConsumerVitals(
        pulse.phase,
        pulse.group_epoch,
        pulse.now_ms,
        dict(zip(known.member_ids, pulse.sessions, strict=True)),
        pulse.assignment_epoch,
        pulse.unsettled,
        pulse.revocations,
        pulse.joins,
        pulse.syncs,
        pulse.plan_ms,
        pulse.offsets_ms,
        pulse.earliest_ms,
        pulse.back_ms,
        dict(known.instances),
        pulse.publish_ms,
        pulse.asks,
        pulse.seats_ms,
        pulse.is_frozen,
    )


def decode_phase(data: bytes) -> Phase:
    """Decode only the phase from the bytes that `encode_vitals` wrote."""
    return decode(_phased_decoder, data).phase
