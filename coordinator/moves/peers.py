"""The records of other coordinators: which are believed, and what handles them (moving.md 1, 2.3)."""

from collections.abc import Iterator

from coordinator.base.access import ANONYMOUS, CLUSTER_NAME, UNKNOWN_HOST, Operation, Resource
from coordinator.messages.events import AccessDenied
from coordinator.messages.move_requests import AdoptGroup, AdoptSlots, PeerRecord
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Received
from coordinator.moves import slot_target, source, target
from coordinator.moves.custody import MoveStore


def received_from_peer(store: MoveStore, received: Received, record: PeerRecord) -> Iterator[Output]:
    """Handle a record of another coordinator. One that is not believed changes nothing, and is an event."""
    at_ms = received.at_ms
    doubt = received.doubt
    if doubt is None and record.source not in store.config.peers:
        doubt = f"{record.source} is no peer of this coordinator"
    if doubt is not None:
        yield _denied(record, at_ms, doubt)
    elif isinstance(record, AdoptSlots):
        yield from _about_slots(store, record, at_ms)
    elif record.to != store.config.prefix:
        yield from store.ignored(record, at_ms, f"it is meant for {record.to}")
    elif not store.is_of_this_shard(record.group_id):
        yield from store.ignored(record, at_ms, "the name belongs to another shard")
    elif isinstance(record, AdoptGroup):
        yield from target.adopt(store, record, at_ms)
    else:
        yield from source.answered(store, record, at_ms)


def _about_slots(store: MoveStore, record: AdoptSlots, at_ms: int) -> Iterator[Output]:
    if record.to == store.config.prefix:
        yield from slot_target.adopt_slots(store, record, at_ms)
    else:
        yield slot_target.ignored(store, record, at_ms, f"it is meant for {record.to}")


def _denied(record: PeerRecord, at_ms: int, why: str) -> AccessDenied:
    return AccessDenied(
        group_id=None,
        version=None,
        at_ms=at_ms,
        generation_id=None,
        principal=ANONYMOUS,
        client_id=record.source,
        client_host=UNKNOWN_HOST,
        request=str(type(record).__struct_config__.tag),
        operation=Operation.ALTER,
        resource=Resource.CLUSTER,
        names=(CLUSTER_NAME,),
        why=why,
    )
