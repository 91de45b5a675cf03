"""The client: members of groups, over the coordinator's topics."""

from streaming.client.asynchronous import AsyncGroupConsumer, AsyncGroupMember
from streaming.client.consumer import GroupConsumer
from streaming.client.member import GroupMember
from streaming.client.transport import Transport
from streaming.errors import NoAnswer, NoCoordinator

__all__ = [
    "AsyncGroupConsumer",
    "AsyncGroupMember",
    "GroupConsumer",
    "GroupMember",
    "NoAnswer",
    "NoCoordinator",
    "Transport",
]
