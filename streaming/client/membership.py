"""The member of a `GroupConsumer` or a `GroupMember`, with the protocol that `group_protocol` names."""

from typing import Any, Protocol

from streaming.client.config import ClientConfig
from streaming.client.consumer_protocol.participant import (
    ConsumerProtocolDriver,
    ConsumerProtocolParticipant,
    Subscriber,
)
from streaming.client.driver import Driver, MemberDriver
from streaming.client.participant import Owner, Participant, TakesPart
from streaming.client.transport import Transport


class AnyOwner(Owner, Subscriber, Protocol):
    """An owner of participants of both protocols."""


def membership(
    config: ClientConfig, transport: Transport, protocol_type: str, owner: AnyOwner
) -> tuple[MemberDriver[Any], TakesPart]:
    """Return a member and its participation in the group, for an owner.

    Args:
        protocol_type: The type of the group, with the classic protocol.
    """
    if config.uses_consumer_protocol:
        driver = ConsumerProtocolDriver(transport, config.consumer_protocol_member(transport))
        return driver, ConsumerProtocolParticipant(driver, owner)
    classic = Driver(transport, config.member(transport, protocol_type))
    return classic, Participant(classic, config.strategies, owner, config.group.get("client_rack") or None)
