"""One member between two threads: the transport's thread brings responses and time, its owner's thread polls.

The pure member decides. The driver holds the lock around it, sends its requests, and keeps the effects that only the
owner can handle, in order, until the owner takes them.
"""

import logging
import typing
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from kafka.errors import KafkaError, RetriableError

from coordinator.member.effects import CommitEnded, Failed, FetchEnded, Left
from coordinator.member.member import Member, MemberState
from coordinator.member.requests import MemberConfig
from coordinator.messages.fields import BaseRequest
from coordinator.messages.requests import Assignment, OffsetToCommit, Protocol, TopicPartitions
from coordinator.messages.responses import AnyAnswer
from streaming.client.transport import Transport
from streaming.moments import monotonic_ms

log = logging.getLogger(__name__)


class AnyMember(typing.Protocol):
    """A member's state machine, of either protocol."""

    @property
    def is_leaving(self) -> bool:
        """True while `Left` is still to come."""

    @property
    def deadline_ms(self) -> int:
        """The time at which `advance` next has an action."""

    def subscribe(self, why: str) -> Sequence[Any]:
        """Join at the next `poll`."""

    def poll(self, now_ms: int) -> Sequence[Any]:
        """Record that the owner is alive."""

    def commit(self, offsets: tuple[OffsetToCommit, ...], now_ms: int) -> tuple[str, Sequence[Any]]:
        """Commit offsets. Return the ticket of `CommitEnded`."""

    def fetch(self, topics: tuple[TopicPartitions, ...] | None, now_ms: int) -> tuple[str, Sequence[Any]]:
        """Request committed offsets. Return the ticket of `FetchEnded`."""

    def give_up(self, ticket: str) -> None:
        """Stop waiting for a commit or a fetch."""

    def leave(self, reason: str, now_ms: int) -> Sequence[Any]:
        """End the membership."""

    def advance(self, now_ms: int) -> Sequence[Any]:
        """Return the actions that are due."""

    def receive(self, answer: AnyAnswer, now_ms: int) -> Sequence[Any]:
        """Handle a response or a notice."""


M = TypeVar("M", bound=AnyMember)


class MemberDriver(ABC, Generic[M]):
    """A member of a group that its owner's thread polls.

    Args:
        make: Makes the member from the beginning of its request ids and the present time.
        patience_ms: The time after which an error is logged if the brokers accept no request.
    """

    def __init__(self, transport: Transport, make: Callable[[str, int], M], patience_ms: int) -> None:
        self._transport = transport
        self._changed = transport.condition()
        self._effects: deque[Any] = deque()
        with self._changed:
            self._prefix = transport.register(self, patience_ms)
            self.member = make(self._prefix, monotonic_ms())

    @property
    @abstractmethod
    def is_in_group(self) -> bool:
        """True from the first request to join until the membership ends."""

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """True while the member follows its assignment and no rebalance is in progress for it."""

    @property
    def prefix(self) -> str:
        """The beginning of the ids of this member's requests."""
        return self._prefix

    @property
    def is_at_rest(self) -> bool:
        """True while the member is settled and its owner has no effect to handle and none to wait for."""
        with self._changed:
            return self.is_settled and not self._effects and not self.is_rejoining

    @property
    @abstractmethod
    def is_rejoining(self) -> bool:
        """True if the member joins again at its next poll."""

    @property
    @abstractmethod
    def may_commit(self) -> bool:
        """True while the coordinator accepts commits of this member."""

    # -- the owner's thread --------------------------------------------------------------------------------------------

    def subscribe(self, why: str = "subscribed") -> None:
        """Request to join, or to join again with another subscription, at the next poll."""
        self._do(lambda now_ms: self.member.subscribe(why))

    def poll(self) -> Any:
        """Note that the owner is alive, and return the next effect for it; None without one."""
        self._do(self.member.poll)
        with self._changed:
            return self._effects.popleft() if self._effects else None

    def commit(self, offsets: tuple[OffsetToCommit, ...]) -> str:
        """Send a commit. Return the ticket of its `CommitEnded`."""
        with self._changed:
            ticket, actions = self.member.commit(offsets, monotonic_ms())
            self._perform_all(actions)
        return ticket

    def fetch(self, topics: tuple[TopicPartitions, ...] | None) -> str:
        """Send a request for committed offsets. Return the ticket of its `FetchEnded`."""
        with self._changed:
            ticket, actions = self.member.fetch(topics, monotonic_ms())
            self._perform_all(actions)
        return ticket

    def leave(self, reason: str, wait_s: float) -> bool:
        """Leave the group. Return whether the coordinator has confirmed it within the time."""
        with self._changed:
            self._perform_all(self.member.leave(reason, monotonic_ms()))
            is_leaving = self.member.is_leaving
        return not is_leaving or self._await(lambda e: isinstance(e, Left), wait_s) is not None

    def ended(self, ticket: str, wait_s: float) -> CommitEnded | FetchEnded | None:
        """Wait for the end of a commit or a fetch, and return it. After the time, give it up and return None."""
        effect = self._await(lambda e: isinstance(e, CommitEnded | FetchEnded) and e.ticket == ticket, wait_s)
        if effect is None:
            with self._changed:
                self.member.give_up(ticket)
        ended: CommitEnded | FetchEnded | None = effect
        return ended

    def take_ended(self) -> list[CommitEnded | FetchEnded]:
        """Remove and return the ends of commits and fetches. The other effects stay."""
        with self._changed:
            ended = [effect for effect in self._effects if isinstance(effect, CommitEnded | FetchEnded)]
            self._effects = deque(effect for effect in self._effects if effect not in ended)
            return ended

    def wait(self, wait_s: float) -> None:
        """Wait until the owner has an effect to handle, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._effects, wait_s)

    def close(self) -> None:
        """Stop receiving responses."""
        self._transport.unregister(self._prefix)

    def _await(self, is_it: Callable[[Any], bool], wait_s: float) -> Any:
        """Remove one effect from the queue as soon as it is there, and return it; None after the time."""
        with self._changed:
            found = self._changed.wait_for(lambda: next(filter(is_it, self._effects), None), wait_s)
            if found is not None:
                self._effects.remove(found)
            return found

    # -- the transport's thread ----------------------------------------------------------------------------------------

    def receive(self, answer: AnyAnswer) -> None:
        """Handle a response to one of this member's requests, or a notice."""
        self._do(lambda now_ms: self.member.receive(answer, now_ms))

    def advance(self) -> None:
        """Send what is due by now: heartbeats above all."""
        with self._changed:
            now_ms = monotonic_ms()
            if self.member.deadline_ms <= now_ms:
                self._perform_all(self.member.advance(now_ms))

    # -- either --------------------------------------------------------------------------------------------------------

    def _do(self, step: Callable[[int], Sequence[Any]]) -> None:
        with self._changed:
            self._perform_all(step(monotonic_ms()))

    def _perform_all(self, actions: Iterable[Any]) -> None:
        """Send the requests in the member's order, and keep the other effects for the owner."""
        for action in actions:
            if isinstance(action, BaseRequest):
                self._send(action)
            else:
                self._notify(action)

    def _send(self, request: Any) -> None:
        try:
            self._transport.send(request)
        except RetriableError as error:
            log.warning("a request was not sent and is retried: %s", error)
        except KafkaError as error:  # too large, or not allowed: a retry would fail too
            self._notify(Failed(getattr(error, "errno", None) or -1, type(error).__name__, str(error)))

    def _notify(self, effect: object) -> None:
        self._effects.append(effect)
        self._changed.notify_all()


class Driver(MemberDriver[Member]):
    """A member that uses the classic protocol.

    Args:
        config: The member's identity; its `reply_to` and `client_host` are those of the transport.
    """

    def __init__(self, transport: Transport, config: MemberConfig) -> None:
        super().__init__(transport, lambda prefix, now_ms: Member(config, prefix, now_ms), config.session_timeout_ms)

    @property
    def is_in_group(self) -> bool:
        """True from the first request to join until the membership ends."""
        return self.member.state is not MemberState.UNJOINED

    @property
    def is_settled(self) -> bool:
        """True while the member is STABLE."""
        return self.member.state is MemberState.STABLE

    @property
    def is_rejoining(self) -> bool:
        """True if the member joins again at its next poll."""
        return self.member.rejoin_needed

    @property
    def may_commit(self) -> bool:
        """True while the member is STABLE."""
        return self.is_settled

    def request_rejoin(self, why: str) -> None:
        """Request to join again at the next poll."""
        self._do(lambda now_ms: self.member.request_rejoin(why))

    def join(self, protocols: Iterable[Protocol]) -> None:
        """Send a JoinGroup request, after `PrepareToJoin`."""
        self._do(lambda now_ms: self.member.join(tuple(protocols), now_ms))

    def plan(self, generation_id: int, assignments: Iterable[Assignment]) -> None:
        """Send the assignments, after `MakePlan`."""
        self._do(lambda now_ms: self.member.plan(generation_id, assignments, now_ms))

    def fail_to_plan(self, generation_id: int) -> None:
        """Report that no assignments could be computed, after `MakePlan`."""
        self._do(lambda now_ms: self.member.fail_to_plan(generation_id, now_ms))
