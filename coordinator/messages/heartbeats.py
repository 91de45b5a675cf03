"""Heartbeats of the classic protocol, and the heartbeats of many members of both protocols in one record.

A heartbeat needs no response at once. So a process that serves many members gathers their heartbeats, and sends one
record for each shard instead of one for each member. Of the consumer protocol, a record has only bare heartbeats: the
response to a member at rest has no more than a code.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Annotated, Any, Self

from msgspec import Meta

from coordinator.base import limits
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.fields import BaseRequest, Host, Id, Int32, Name


class Heartbeat(BaseRequest, frozen=True, kw_only=True, omit_defaults=True, tag="heartbeat"):
    """Renew a session, and ask whether to rejoin. It is the most frequent request, so defaults are not written."""

    generation_id: Int32
    member_id: Id
    group_instance_id: Id | None = None


AnyHeartbeat = Heartbeat | ConsumerGroupHeartbeat
"""A heartbeat of either protocol. In a record of many, those of the consumer protocol are bare."""

_Column = Meta(max_length=limits.HEARTBEATS_MAX)


class Heartbeats(BaseRequest, frozen=True, kw_only=True, omit_defaults=True, tag="heartbeats"):
    """Heartbeats of members of any groups of one shard; the record's partition selects the shard.

    Each heartbeat is checked and answered like a record of its own. A sender uses it for the members that it serves.
    Of the columns, the first four have one entry for each heartbeat. Each other one does too, or it is empty: then the
    heartbeats have no instance id, they are of the classic protocol, and the client's id, host and principal are those
    of the record.

    Args:
        generation_ids: The member epochs of members of the consumer protocol.
        consumers: Whether a heartbeat is one of the consumer protocol.
    """

    group_id: str = ""
    request_ids: Annotated[tuple[Id, ...], _Column]
    groups: Annotated[tuple[str, ...], _Column]
    generation_ids: Annotated[tuple[Int32, ...], _Column]
    member_ids: Annotated[tuple[Id, ...], _Column]
    group_instance_ids: Annotated[tuple[Id | None, ...], _Column] = ()
    client_ids: Annotated[tuple[Name, ...], _Column] = ()
    client_hosts: Annotated[tuple[Host, ...], _Column] = ()
    principals: Annotated[tuple[Id | None, ...], _Column] = ()
    consumers: Annotated[tuple[bool, ...], _Column] = ()

    @classmethod
    def of(cls, heartbeats: Sequence[AnyHeartbeat], **fields: Any) -> Self:
        """Return the record of several heartbeats.

        Args:
            heartbeats: Those of the consumer protocol are bare.
            fields: The request id and the mailbox of the record.
        """
        consumers = tuple(isinstance(each, ConsumerGroupHeartbeat) for each in heartbeats)
        instance_ids = tuple(each.group_instance_id for each in heartbeats)
        principals = tuple(each.principal for each in heartbeats)
        return cls(
            **fields,
            request_ids=tuple(each.request_id for each in heartbeats),
            groups=tuple(each.group_id for each in heartbeats),
            generation_ids=tuple(map(_generation_of, heartbeats)),
            member_ids=tuple(each.member_id for each in heartbeats),
            group_instance_ids=instance_ids if any(each is not None for each in instance_ids) else (),
            client_ids=tuple(each.client_id for each in heartbeats),
            client_hosts=tuple(each.client_host for each in heartbeats),
            principals=principals if any(each is not None for each in principals) else (),
            consumers=consumers if any(consumers) else (),
        )

    @property
    def is_even(self) -> bool:
        """True if each column has an entry for each heartbeat, or may be empty and is."""
        rows = len(self.request_ids)
        required = (self.groups, self.generation_ids, self.member_ids)
        optional = (self.group_instance_ids, self.client_ids, self.client_hosts, self.principals, self.consumers)
        return all(len(c) == rows for c in required) and all(len(c) in (0, rows) for c in optional)

    def each(self) -> Iterator[AnyHeartbeat]:
        """Yield the heartbeats, in their order."""
        rows = len(self.request_ids)
        columns = zip(
            self.request_ids,
            self.groups,
            self.generation_ids,
            self.member_ids,
            self.group_instance_ids or repeat(None, rows),
            self.client_ids or repeat(self.client_id, rows),
            self.client_hosts or repeat(self.client_host, rows),
            self.principals or repeat(self.principal, rows),
            self.consumers or repeat(False, rows),
            strict=True,
        )
        for request_id, group_id, number, member_id, instance_id, client_id, host, principal, is_consumer in columns:
            if is_consumer:
                yield ConsumerGroupHeartbeat(
                    request_id=request_id,
                    reply_to=self.reply_to,
                    group_id=group_id,
                    client_id=client_id,
                    client_host=host,
                    principal=principal,
                    member_id=member_id,
                    group_instance_id=instance_id,
                    member_epoch=number,
                )
            else:
                yield Heartbeat(
                    request_id=request_id,
                    reply_to=self.reply_to,
                    group_id=group_id,
                    client_id=client_id,
                    client_host=host,
                    principal=principal,
                    member_id=member_id,
                    group_instance_id=instance_id,
                    generation_id=number,
                )


def _generation_of(heartbeat: AnyHeartbeat) -> int:
    if isinstance(heartbeat, Heartbeat):
        return heartbeat.generation_id
    assert heartbeat.is_bare, "a record of many has no other heartbeats of the consumer protocol"
    return heartbeat.member_epoch
