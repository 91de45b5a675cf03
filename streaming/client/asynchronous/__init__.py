"""The client for asyncio: the members of `streaming.client`, each on a thread of its own behind an event loop."""

from streaming.client.asynchronous.consumer import AsyncGroupConsumer
from streaming.client.asynchronous.member import AsyncGroupMember

__all__ = ["AsyncGroupConsumer", "AsyncGroupMember"]
