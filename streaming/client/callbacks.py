"""The calls of an owner's listener, and what holds when one of them fails.

The rebalance does not wait for a failed listener: all changes are reported, and the first error is raised behind them.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from kafka import TopicPartition
from kafka.errors import KafkaError

from coordinator.member.owned_partitions import Change, ListenerCall


class Listening(Protocol):
    """The part of a participant's owner that changes of owned partitions concern."""

    def notify(self, change: Change[TopicPartition]) -> None:
        """Call the listener."""

    def keep_owned(self, owned: frozenset[TopicPartition]) -> None:
        """Store the partitions that are owned from now on."""


@contextmanager
def notify_all(owner: Listening, changes: Iterable[Change[TopicPartition]]) -> Iterator[None]:
    """Report all changes, run the block, and only then raise the first error of a listener."""
    errors = [error for change in changes if (error := _notify(owner, change)) is not None]
    errors.sort(key=lambda error: isinstance(error, Exception))  # ctrl-C must not be lost among other errors
    yield
    for error in errors:
        raise error


def _notify(owner: Listening, change: Change[TopicPartition]) -> BaseException | None:
    failed: BaseException | None = None
    if change.call is ListenerCall.ASSIGNED:
        owner.keep_owned(change.owned)
    try:
        owner.notify(change)
    except Exception as error:
        failed = KafkaError(f"User rebalance callback {change.call.value} throws an error")
        failed.__cause__ = error
    except BaseException as interrupt:  # neither the round nor revoking may wait for that
        failed = interrupt
    if change.call is not ListenerCall.ASSIGNED:
        owner.keep_owned(change.owned)
    return failed
