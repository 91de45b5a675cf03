"""The source of a move: it releases a name, and loses its custody or gets it back by the answer (moving.md 2.2)."""

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import MOVE_PART_BYTES, MOVE_PARTS_MAX, SENT_MAX
from coordinator.classic.rebalance import refuse_join, refuse_sync
from coordinator.common.events import event
from coordinator.common.refusals import refusal
from coordinator.messages.group_records import GroupKey, OffsetKey, Published
from coordinator.messages.move_events import GroupMoved, GroupReleased, GroupTakenBack
from coordinator.messages.move_requests import AdoptionRefused, GroupAdopted, ReleaseGroup, TakeBack
from coordinator.messages.outputs import Output
from coordinator.messages.responses import ReleaseGroupAnswer, Reply, TakeBackAnswer
from coordinator.moves import drain, transfer
from coordinator.moves.custody import FOREIGN, Custody, MoveStore
from coordinator.moves.resume import lacks_addresses, remove_addresses, resume
from coordinator.state.classic_group import Group, Parked
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.move_state import Arrived, Away, Sent

AnyGroup = Group | ConsumerGroup


def release(store: MoveStore, request: ReleaseGroup, context: Context) -> Iterator[Output]:
    """Release a name to another coordinator. The reply comes with its answer.

    A name that is in transit to the same coordinator is sent again. A group with open transactions is drained first.

    Replies with:
        NOT_COORDINATOR: another coordinator has the name.
        INVALID_REQUEST: the name cannot be released now; later: the move was refused, or superseded.
    """
    group_id = request.group_id
    yield from end_drain(store, group_id, context.now_ms)
    custody = store.custody_of(group_id)
    if custody in (Custody.AWAY, Custody.FOREIGN):
        refused = refusal(ReleaseGroupAnswer, request, ErrorCode.NOT_COORDINATOR, FOREIGN)
        yield store.redirected(refused, group_id)
        return
    if (why := _why_not(store, request)) is not None:
        yield refusal(ReleaseGroupAnswer, request, ErrorCode.INVALID_REQUEST, why)
    elif custody is Custody.IN_TRANSIT:
        yield from _send_again(store, request)
    elif drain.has_open_transactions(store, group_id):
        yield from drain.begin(store, request, context)
    else:
        yield from _release(store, request, context.offset, context.now_ms)


def end_drain(store: MoveStore, group_id: str, at_ms: int) -> Iterator[Output]:
    """Release a name whose open transactions have ended, or refuse its release if it has waited for too long."""
    draining = store.draining.get(group_id)
    if draining is None:
        return
    is_open = drain.has_open_transactions(store, group_id)
    if is_open and at_ms < draining.until_ms:
        return
    del store.draining[group_id]
    why = drain.TOO_LONG if is_open else _why_not(store, draining.request)
    if why is None:
        yield from _release(store, draining.request, draining.offset, at_ms)
    else:
        yield refusal(ReleaseGroupAnswer, draining.request, ErrorCode.INVALID_REQUEST, why)


def _why_not(store: MoveStore, request: ReleaseGroup) -> str | None:
    """Return a sentence with the reason why a name may not be released; None if it may."""
    config, sent = store.config, store.moves.sent
    if request.to == config.prefix:
        return f"{request.to} is this coordinator itself"
    if request.to not in config.peers:
        return f"{request.to} is no peer of this coordinator"
    if (before := sent.get(request.group_id)) is not None:
        if before.to != request.to:
            return f"the group is in transit to {before.to} already"
        number = before.number
    else:
        number = store.number_of(request.group_id)
        under_way = store.draining.get(request.group_id)
        if under_way is not None and under_way.request.to != request.to:
            return f"the group moves to {under_way.request.to} when its open transactions have ended"
        if under_way is None and len(sent) + len(store.draining) >= SENT_MAX:
            return f"{SENT_MAX} groups of this shard are in transit already"
    if request.last_move is not None and request.last_move != number:
        return f"the number of the group is {number}, not {request.last_move}"
    return None


def _send_again(store: MoveStore, request: ReleaseGroup) -> Iterator[Output]:
    sent = store.moves.sent[request.group_id]
    again = Parked(request.request_id, request.reply_to)
    if sent.operator != again:
        yield _answer(sent, ErrorCode.INVALID_REQUEST, drain.SUPERSEDED)
    sent.operator, sent.unwritten = again, 1


def _release(store: MoveStore, request: ReleaseGroup, offset: int, at_ms: int) -> Iterator[Output]:
    group_id, groups = request.group_id, store.groups
    group, removed = groups.open(group_id), groups.removed_groups.get(group_id)
    now_ms = at_ms if group is None else max(at_ms, group.hot_state.now_ms)
    number = max(store.number_of(group_id) + 1, store.config.fencing_token_floor, now_ms * 1_000)
    sent = Sent(
        to=request.to,
        move_id=f"{store.config.prefix}/{store.shard.partition}/{offset}",
        number=number,
        released_ms=at_ms,
        state=b"",
        operator=Parked(request.request_id, request.reply_to),
    )
    if group is not None:
        group.hot_state.now_ms = now_ms
        sent.state = transfer.encode(_without_addresses(group, number))
    elif removed is not None:
        sent.state = transfer.encode(transfer.Tombstone(removed.generation_id, removed.token))
    else:
        sent.state = transfer.encode(transfer.Nothing())
    if (parts := transfer.parts_of(sent.state)) > MOVE_PARTS_MAX:
        why = f"the state of the group takes {parts} parts of {MOVE_PART_BYTES} bytes; {MOVE_PARTS_MAX} are allowed"
        yield refusal(ReleaseGroupAnswer, request, ErrorCode.INVALID_REQUEST, why)
        return
    store.moves.sent[group_id] = sent
    if group is not None:
        yield from _redirect_parked(store, group)
        yield event(GroupReleased, group, now_ms, **_of_move(sent), bytes=len(sent.state))
    store.record_end(group_id, now_ms)
    store.moves.guests.pop(group_id, None)
    groups.remove(group_id)


def _without_addresses(group: AnyGroup, number: int) -> transfer.Living:
    """Return the group as it is sent: with the token of the move, and with the version at which this side ends."""
    copy = transfer.group_of(transfer.living(group))
    copy.token = number
    copy.version = group.version + 1 + _last_records(group)
    remove_addresses(copy)
    return transfer.living(copy)


def _last_records(group: AnyGroup) -> int:
    """Return the number of events and tombstones that the source publishes once the group has moved."""
    return 2 + sum(1 for _ in group.all_offsets())


def _redirect_parked(store: MoveStore, group: AnyGroup) -> Iterator[Output]:
    """Answer the parked joins and syncs of a group that was released."""
    if isinstance(group, ConsumerGroup):
        return  # its joins and syncs are answered at once
    for member in group.members.values():
        if (join := member.awaiting_join) is not None:
            refused = refuse_join(join, ErrorCode.NOT_COORDINATOR, member.member_id)
            yield store.redirected(refused, group.group_id)
        if (sync := member.awaiting_sync) is not None:
            yield store.redirected(refuse_sync(sync, ErrorCode.NOT_COORDINATOR), group.group_id)


def _of_move(sent: Sent) -> dict[str, Any]:
    return {"to": sent.to, "move_id": sent.move_id, "number": sent.number}


def _answer(sent: Sent, error: ErrorCode = ErrorCode.NONE, why: str | None = None) -> Reply:
    """Return the reply to the operator that has released a name."""
    answer = ReleaseGroupAnswer(
        request_id=sent.operator.request_id,
        error=error.name,
        code=error.number,
        error_message=UNSET if why is None else why,
        move_id=sent.move_id,
        number=sent.number,
    )
    return Reply(sent.operator.reply_to, answer)


# -- the answer of the target ------------------------------------------------------------------------------------------


def answered(store: MoveStore, record: GroupAdopted | AdoptionRefused, at_ms: int) -> Iterator[Output]:
    """End the custody of a name that was adopted, or serve the group again if the move was refused."""
    sent = store.moves.sent.get(record.group_id)
    if sent is None or (sent.move_id, sent.to) != (record.move_id, record.source):
        yield from store.ignored(record, at_ms, "no such move waits for an answer")
    elif isinstance(record, GroupAdopted):
        yield from _end(store, record.group_id, at_ms)
    else:
        yield from take_back_sent(store, record.group_id, at_ms, record.reason, record.why)


def _end(store: MoveStore, group_id: str, at_ms: int) -> Iterator[Output]:
    """Note that a name is away, and write the tombstones of its records."""
    sent = store.moves.sent.pop(group_id)
    carried = transfer.read(sent.state)
    if isinstance(carried, transfer.Living):
        group = transfer.group_of(carried)
        group.version -= _last_records(group)
        at_ms = max(at_ms, group.hot_state.now_ms)
        yield event(GroupMoved, group, at_ms, **_of_move(sent))
        yield from _tombstones(group)
    store.moves.away[group_id] = Away(sent.to, sent.number, at_ms)
    yield _answer(sent)


def _tombstones(group: AnyGroup) -> Iterator[Output]:
    """Yield the tombstones of a group's records. Each has the time of its record, and a higher version.

    If the group comes back, its records have these times again. A later tombstone would seem to be newer than they are.
    """
    dated: list[tuple[GroupKey | OffsetKey, int]] = [
        (("offset", group.group_id, topic, partition), offset.commit_timestamp_ms)
        for topic, partition, offset in group.all_offsets()
    ]
    for key, at_ms in (*dated, (("group", group.group_id), group.since_ms)):
        yield Published(group.group_id, key, None, group.next_version(), at_ms)


def take_back(store: MoveStore, request: TakeBack, context: Context) -> Iterator[Output]:
    """Serve a group again whose target cannot adopt it any more, as the operator's evidence shows.

    Replies with:
        INVALID_REQUEST: no such move waits for an answer; or the target may have adopted the group.
    """
    sent, evidence = store.moves.sent.get(request.group_id), request.evidence
    if sent is None or (sent.move_id, sent.number) != (request.move_id, request.number):
        why = "no such move waits for an answer"
    elif evidence.parts_before >= transfer.parts_of(sent.state) and not evidence.target_is_lost:
        why = "all parts of the move stand before its cancel, so its target may have adopted the group"
    else:
        yield from take_back_sent(store, request.group_id, context.now_ms, "taken_back", "an operator took it back")
        yield Reply(request.reply_to, TakeBackAnswer(request_id=request.request_id))
        return
    yield refusal(TakeBackAnswer, request, ErrorCode.INVALID_REQUEST, why)


def take_back_sent(store: MoveStore, group_id: str, at_ms: int, reason: str, why: str) -> Iterator[Output]:
    """Serve a name again that is in transit. Its group is as it was at the release, except for times and addresses."""
    sent = store.moves.sent.pop(group_id)
    carried = transfer.read(sent.state)
    if isinstance(carried, transfer.Living):
        group = transfer.group_of(carried)
        group.version -= _last_records(group)
        resume(group, at_ms, store.noticed_ms, store.config)
        store.groups.put(group)
        store.moves.arrived[group_id] = Arrived(sent.move_id, sent.number, at_ms, lacks_addresses(group))
        yield event(GroupTakenBack, group, group.hot_state.now_ms, **_of_move(sent), reason=reason)
    elif isinstance(carried, transfer.Tombstone):
        store.groups.add_tombstone(group_id, carried.generation_id, sent.number, at_ms)
    if not store.owns(group_id):
        store.moves.guests[group_id] = sent.number
    yield _answer(sent, ErrorCode.INVALID_REQUEST, f"{reason}: {why}")
