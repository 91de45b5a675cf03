"""What can go wrong that the user can put right.

    UserError
    ├── JavaMissing          no Java, or one that is too old
    ├── JarsUnavailable      a jar cannot be fetched, or is not the one we locked
    ├── PortTaken            another program listens where we were told to
    ├── BrokerFailed         the embedded broker did not start
    ├── BrokerUnreachable    nobody answers at the bootstrap servers
    ├── TopicRefused         the brokers would not create or show a topic
    └── TopicMismatch        a topic is there, but not as the coordinator needs it

The text of each is one sentence that says what is wrong and what to do; the command line prints it and exits non-zero.
"""

from typing import Self


class UserError(Exception):
    """A sentence that tells the user what is wrong and what to do."""


class JavaMissing(UserError):
    """There is no Java to run, or it is too old."""


class JarsUnavailable(UserError):
    """A jar cannot be fetched, or is not the one that the lock names."""


class PortTaken(UserError):
    """Another program listens on the port that the broker was told to use."""


class BrokerFailed(UserError):
    """The embedded broker did not start."""


class BrokerUnreachable(UserError):
    """No broker answered in time."""

    @classmethod
    def at(cls, servers: object, why: object = "") -> Self:
        """Say so of brokers, and why where that is known."""
        return cls(
            f"No Kafka broker answers at {servers}{f' ({why})' if why else ''}:"
            f" start one there, or correct bootstrap_servers and the security settings."
        )


class TopicRefused(UserError):
    """The brokers refused to create or to show one of the coordinator's topics."""


class TopicMismatch(UserError):
    """A topic exists, but is not as the coordinator needs it."""
