"""The client's side: members of groups, over the coordinator's topics."""

from streaming.client.consumer import GroupConsumer
from streaming.client.errors import NoAnswer, NoCoordinator
from streaming.client.member import GroupMember
from streaming.client.transport import Transport

__all__ = ["GroupConsumer", "GroupMember", "NoAnswer", "NoCoordinator", "Transport"]
