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

    def tell(self, change: Change[TopicPartition]) -> None:
        """Call the listener."""

    def keep(self, owned: frozenset[TopicPartition]) -> None:
        """Store the partitions that are owned from now on."""


@contextmanager
def told_all(owner: Listening, changes: Iterable[Change[TopicPartition]]) -> Iterator[None]:
    """Report all changes, run the block, and only then raise the first error of a listener."""
    errors = [error for change in changes if (error := _tell(owner, change)) is not None]
    errors.sort(key=lambda error: isinstance(error, Exception))  # ctrl-C must not be lost among other errors
    yield
    for error in errors:
        raise error


def _tell(owner: Listening, change: Change[TopicPartition]) -> BaseException | None:
    failed: BaseException | None = None
    if change.call is ListenerCall.ASSIGNED:
        owner.keep(change.owned)
    try:
        owner.tell(change)
    except Exception as error:
        failed = KafkaError(f"User rebalance callback {change.call.value} throws an error")
        failed.__cause__ = error
    except BaseException as interrupt:  # neither the round nor revoking may wait for that
        failed = interrupt
    if change.call is not ListenerCall.ASSIGNED:
        owner.keep(change.owned)
    return failed
