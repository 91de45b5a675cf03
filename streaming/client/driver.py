"""One member between two threads: the transport's, which brings answers and time, and its owner's, which polls.

The pure `Member` decides; the driver holds the lock around it, sends what it wants sent, and keeps what only the owner
can do until the owner takes it, in the order in which it came up.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from kafka.errors import KafkaError, RetriableError

from coordinator.effects import CommitEnded, Effect, Failed, FetchEnded, Left
from coordinator.member import Member, Todo
from coordinator.member_config import MemberConfig
from coordinator.outputs import AnyAnswer
from coordinator.requests import Asked, Assignment, OffsetToCommit, Protocol, TopicPartitions
from streaming.client.transport import Transport
from streaming.moments import monotonic_ms

log = logging.getLogger(__name__)


class Driver:
    """A member of a group, ready to be polled by its owner's thread.

    Args:
        config: Who the member is; its `reply_to` and `client_host` are the transport's to know.
    """

    def __init__(self, transport: Transport, config: MemberConfig) -> None:
        self._transport = transport
        self._changed = threading.Condition()
        self._effects: deque[Effect] = deque()
        with self._changed:
            self._prefix = transport.register(self)
            self.member = Member(config, self._prefix, monotonic_ms())

    # -- the owner's thread --------------------------------------------------------------------------------------------

    def subscribe(self, why: str = "subscribed") -> None:
        """Want to be a member, or to be one with another subscription."""
        self._do(lambda now_ms: self.member.subscribe(why))

    def request_rejoin(self, why: str) -> None:
        """Join again at the next poll."""
        self._do(lambda now_ms: self.member.request_rejoin(why))

    def poll(self) -> Effect | None:
        """Say that the owner is alive, and take the next thing there is for it to do."""
        self._do(self.member.poll)
        with self._changed:
            return self._effects.popleft() if self._effects else None

    def join(self, protocols: Iterable[Protocol]) -> None:
        """Go on after `PrepareToJoin`."""
        self._do(lambda now_ms: self.member.join(tuple(protocols), now_ms))

    def plan(self, generation_id: int, assignments: Iterable[Assignment]) -> None:
        """Go on after `MakePlan`."""
        self._do(lambda now_ms: self.member.plan(generation_id, assignments, now_ms))

    def fail_to_plan(self, generation_id: int) -> None:
        """Go on after a `MakePlan` that came to nothing."""
        self._do(lambda now_ms: self.member.fail_to_plan(generation_id, now_ms))

    def commit(self, offsets: tuple[OffsetToCommit, ...]) -> str:
        """Send a commit; returns the ticket of its `CommitEnded`."""
        with self._changed:
            ticket, todos = self.member.commit(offsets, monotonic_ms())
            self._take(todos)
        return ticket

    def fetch(self, topics: tuple[TopicPartitions, ...] | None) -> str:
        """Ask for committed offsets; returns the ticket of its `FetchEnded`."""
        with self._changed:
            ticket, todos = self.member.fetch(topics, monotonic_ms())
            self._take(todos)
        return ticket

    def leave(self, reason: str, wait_s: float) -> bool:
        """Be a member no longer. Tells whether the coordinator has said so within the time."""
        with self._changed:
            self._take(self.member.leave(reason, monotonic_ms()))
            is_leaving = self.member.is_leaving
        return not is_leaving or self._await(lambda e: isinstance(e, Left), wait_s) is not None

    def ended(self, ticket: str, wait_s: float) -> CommitEnded | FetchEnded | None:
        """Wait for the end of a commit or a fetch; after the time, it is waited for no longer."""
        effect = self._await(lambda e: isinstance(e, CommitEnded | FetchEnded) and e.ticket == ticket, wait_s)
        if effect is None:
            with self._changed:
                self.member.give_up(ticket)
        return effect  # type: ignore[return-value]

    def take_ended(self) -> list[CommitEnded | FetchEnded]:
        """Take the ends of commits and fetches that are there, and leave the rest."""
        with self._changed:
            ended = [effect for effect in self._effects if isinstance(effect, CommitEnded | FetchEnded)]
            self._effects = deque(effect for effect in self._effects if effect not in ended)
            return ended

    def wait(self, wait_s: float) -> None:
        """Return when there is something to do for the owner, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._effects, wait_s)

    def close(self) -> None:
        """Hear no more."""
        self._transport.unregister(self._prefix)

    def _await(self, is_it: Callable[[Effect], bool], wait_s: float) -> Effect | None:
        """Take one effect out of the row, as soon as it is there."""
        with self._changed:
            found = self._changed.wait_for(lambda: next(filter(is_it, self._effects), None), wait_s)
            if found is not None:
                self._effects.remove(found)
            return found

    # -- the transport's thread ----------------------------------------------------------------------------------------

    def receive(self, answer: AnyAnswer) -> None:
        """Take an answer to one of this member's requests, or a notice."""
        self._do(lambda now_ms: self.member.receive(answer, now_ms))

    def advance(self) -> None:
        """Do what is due by now: heartbeats above all."""
        with self._changed:
            now_ms = monotonic_ms()
            if self.member.deadline_ms <= now_ms:
                self._take(self.member.advance(now_ms))

    # -- either --------------------------------------------------------------------------------------------------------

    def _do(self, step: Callable[[int], list[Todo]]) -> None:
        with self._changed:
            self._take(step(monotonic_ms()))

    def _take(self, todos: list[Todo]) -> None:
        """Send requests, in the order in which the member wants them in the log; keep the rest for the owner."""
        for todo in todos:
            if not isinstance(todo, Asked):
                self._tell(todo)
                continue
            try:
                self._transport.send(todo)
            except RetriableError as error:
                log.warning("not sent, to be tried again: %s", error)
            except KafkaError as error:  # too large, or not allowed: no use in trying again
                self._tell(Failed(getattr(error, "errno", None) or -1, type(error).__name__, str(error)))

    def _tell(self, effect: Effect) -> None:
        self._effects.append(effect)
        self._changed.notify_all()
