"""What can go wrong that the user can put right.

    UserError
    ├── JavaMissing          no Java, or one that is too old
    ├── JarsUnavailable      a jar cannot be fetched, or is not the one we locked
    ├── PortTaken            another program listens where we were told to
    ├── BrokerFailed         the embedded broker did not start
    ├── BrokerUnreachable    nobody answers at the bootstrap servers
    ├── TopicRefused         the brokers would not create or show a topic
    ├── RightMissing         the brokers do not let us do what we have to
    ├── TopicMismatch        a topic is there, but not as the coordinator needs it
    ├── NoCoordinator        the coordinator's topics are not there
    ├── NoAnswer             it did not answer in time (also a TimeoutError)
    └── NotFound             no such group, member or partition

What the coordinator answers to a consumer's own calls is raised as kafka-python's `kafka.errors`.

The text of each is one sentence that says what is wrong and what to do; the command line prints it and exits with its
`exit_code`.
"""

from enum import IntEnum
from typing import Self


class Exit(IntEnum):
    """What a process ends with. A supervisor starts it again after `FAILED`, and not after `NEEDS_A_PERSON`."""

    DONE = 0
    FAILED = 1  # another start may go better: brokers are away, a process of Spark's has ended, a port is taken
    USAGE = 2  # no such command or flag; Click's own number
    NOT_FOUND = 3  # what was asked about is not there: a script may tell that from a failure
    NEEDS_A_PERSON = 78  # every start would end so, or do harm; the number is EX_CONFIG of sysexits.h
    INTERRUPTED = 130  # Ctrl-C before there was anything to stop; the shells' number


class UserError(Exception):
    """A sentence that tells the user what is wrong and what to do."""

    exit_code = Exit.FAILED


class JavaMissing(UserError):
    """There is no Java to run, or it is too old."""

    exit_code = Exit.NEEDS_A_PERSON


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

    exit_code = Exit.NEEDS_A_PERSON


class RightMissing(UserError):
    """The brokers do not let our user do with our topics what it has to."""

    exit_code = Exit.NEEDS_A_PERSON


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


class NotFound(UserError):
    """There is no such group, member or partition."""

    exit_code = Exit.NOT_FOUND
