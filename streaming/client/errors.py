"""What can go wrong between a client and the coordinator, for a person to read.

    UserError
    ├── NoCoordinator    the coordinator's topics are not there
    └── NoAnswer         it did not answer in time (also a TimeoutError)

What the coordinator answers to a consumer's own calls is raised as kafka-python's `kafka.errors`.
"""

from typing import Self

from streaming.errors import UserError


class NoCoordinator(UserError):
    """There are no topics to reach a coordinator by."""

    @classmethod
    def without(cls, topic: str, servers: object) -> Self:
        """Say so for want of one topic."""
        return cls(
            f"There is no topic {topic} at {servers}:"
            f" start the coordinator, which creates it, or correct the topic prefix."
        )


class NoAnswer(UserError, TimeoutError):
    """The request is in the log, and no answer came in time."""
