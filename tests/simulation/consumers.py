"""Members of the consumer protocol, as Java's client behaves (next-generation.md 9.1, 9.2).

UNSUBSCRIBED  left; may subscribe again
JOINING       heartbeats with epoch 0 and all fields
FOLLOWING     heartbeats in the interval; an assignment is taken up after a while, and then acknowledged
WAITING       fenced, refused or not polling; joins again later
"""

from enum import Enum, auto
from random import Random
from typing import NamedTuple

from msgspec import UNSET

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.member.requests import MemberConfig
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, OwnedPartitions
from coordinator.messages.requests import OffsetCommit, OffsetFetch, OffsetToCommit, Request
from coordinator.messages.responses import AnyAnswer, AssignedTopic, AssignmentNotice, ConsumerGroupHeartbeatAnswer
from tests.simulation.cluster import Cluster

TOPICS = (("t",), ("t", "u"), ("u",), ("t", "v"), ())
PATTERNS = ("^t.*", "^.*", "^none.*")
ASSIGNORS = (None, None, "uniform", "range")
REVOCATION_MS_MAX = 8_000
"""The longest time that a consumer's callbacks take."""

BACKOFF_MS = 500
RESTART_MS_MAX = 20_000
"""The longest time after which a process with a fatal error is started again."""

FENCED = {ErrorCode.UNKNOWN_MEMBER_ID.number, ErrorCode.FENCED_MEMBER_EPOCH.number}
RETRIED = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.number, ErrorCode.COORDINATOR_NOT_AVAILABLE.number}

Place = tuple[str, int]


class State(Enum):
    """The state of a process."""

    UNSUBSCRIBED = auto()
    JOINING = auto()
    FOLLOWING = auto()
    WAITING = auto()


class _Sent(NamedTuple):
    """The request without an answer, and when it was sent."""

    request: ConsumerGroupHeartbeat
    at_ms: int


class Consumer:
    """A process that is a member of a group of the consumer protocol.

    Attributes:
        member_id: Made by the process; another one after it was started again.
        owned: The partitions that it uses, by topic id.
        acknowledges: False for a process that never gives partitions up.
    """

    def __init__(self, config: MemberConfig, number: int, chance: Random, cluster: Cluster, now_ms: int) -> None:
        self.config, self.number, self.chance, self.cluster = config, number, chance, cluster
        self.asleep_until_ms = self.idle_until_ms = self.due_ms = 0
        self.comes_back = chance.random() < 0.8
        self.acknowledges = chance.random() < 0.9
        self.inbox = config.reply_to
        self.state, self.epoch = State.JOINING, 0
        self.owned: dict[str, tuple[int, ...]] = {}
        self.assignor = chance.choice(ASSIGNORS)
        self._count = self._life = 0
        self.member_id = self._new_id()
        self.names: tuple[str, ...] = ()
        self.regex = ""
        self._choose()
        self._sent: _Sent | None = None
        self._target: dict[str, tuple[int, ...]] | None = None
        self._topic_of: dict[str, str] = {}
        self._beat_ms, self._ready_ms, self._again_ms = now_ms, NEVER_MS, NEVER_MS
        self._interval_ms = 1_000
        self._is_full = self._owes = self._has_chosen = False
        self._asked: tuple[str, ...] = ()

    def _new_id(self) -> str:
        self._life += 1
        return f"{self.config.client_id}.{self.number}.life {self._life}"

    def _choose(self) -> None:
        """Choose topics, or a pattern."""
        self.names, self.regex = self.chance.choice(TOPICS), ""
        if self.chance.random() < 0.2:
            self.regex = self.chance.choice(PATTERNS)
            self.names = () if self.chance.random() < 0.7 else self.names
        self._has_chosen = True

    @property
    def is_subscribed(self) -> bool:
        return self.state is not State.UNSUBSCRIBED

    # -- turns ---------------------------------------------------------------------------------------------------------

    def turn(self, now_ms: int) -> list[Request]:
        """Return the requests that are due."""
        sent: list[Request] = []
        chance, is_polling = self.chance, self.idle_until_ms <= now_ms
        if self.state is State.UNSUBSCRIBED and self.comes_back:
            self.subscribe(now_ms)
        elif self.state is State.WAITING and self._again_ms <= now_ms and is_polling:
            self._join(now_ms)
        if self._sent is not None and now_ms >= self._sent.at_ms + self.config.request_timeout_ms:
            self._sent, self._is_full, self._beat_ms = None, True, now_ms
        if self._target is not None and self._ready_ms <= now_ms and is_polling:
            self.owned, self._target, self._ready_ms = self._target, None, NEVER_MS
            self._owes, self._beat_ms = True, now_ms
        if self._is_stale(now_ms):
            sent += self._give_up(now_ms)
        if self.state in (State.JOINING, State.FOLLOWING) and self._sent is None and self._beat_ms <= now_ms:
            sent.append(self._beat(now_ms))
        elif self.state is State.FOLLOWING and self._sent is None and chance.random() < 0.05:
            sent.append(self._again(now_ms))
        if self.state is State.FOLLOWING and chance.random() < 0.1:
            sent.append(self._commit() if chance.random() < 0.8 else self._fetch())
        self._set_due(now_ms)
        return sent

    def _set_due(self, now_ms: int) -> None:
        times = [self._ready_ms if self.idle_until_ms <= now_ms else max(self._ready_ms, self.idle_until_ms)]
        if self._sent is not None:
            times.append(self._sent.at_ms + self.config.request_timeout_ms)
        elif self.state in (State.JOINING, State.FOLLOWING):
            times.append(self._beat_ms)
        if self.state is State.WAITING:
            times.append(max(self._again_ms, self.idle_until_ms))
        if self.idle_until_ms > now_ms:
            times.append(self.idle_until_ms)
        self.due_ms = min(times)

    def _is_stale(self, now_ms: int) -> bool:
        """Return whether the process does not poll for longer than `max_poll_interval_ms`."""
        return self.state is State.FOLLOWING and self.idle_until_ms - now_ms > self.config.max_poll_interval_ms

    def _give_up(self, now_ms: int) -> list[Request]:
        """Leave, and join again with the next poll."""
        sent = self.leave(now_ms)
        self.state, self._again_ms = State.WAITING, self.idle_until_ms
        return sent

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    def _join(self, now_ms: int) -> None:
        self.state, self.epoch, self._beat_ms = State.JOINING, 0, now_ms
        self._sent = None
        self._lose()

    def _lose(self) -> None:
        """Drop all partitions."""
        self.owned, self._target, self._ready_ms, self._owes = {}, None, NEVER_MS, False

    def _beat(self, now_ms: int) -> ConsumerGroupHeartbeat:
        joins = self.epoch == 0
        is_full, tells = joins or self._is_full, joins or self._is_full or self._has_chosen
        known = self.cluster.matching(self.regex, now_ms) if self.regex and tells else None
        says_owned = is_full or (self._owes and self.acknowledges)
        names = (*self.names, *(known or ()), *self._asked) if tells else ()
        request = ConsumerGroupHeartbeat(
            **self._ids(),
            member_id=self.member_id,
            member_epoch=self.epoch,
            group_instance_id=self.config.group_instance_id,
            rebalance_timeout_ms=self.config.max_poll_interval_ms if is_full else -1,
            subscribed_topic_names=self.names if tells else None,
            subscribed_topic_regex=self.regex if tells else None,
            server_assignor=self.assignor if is_full else None,
            topic_partitions=self._owned_partitions() if says_owned else None,
            topics=self.cluster.facts(names, now_ms),
            regex_topics=known,
        )
        self._sent = _Sent(request, now_ms)
        self._is_full = self._has_chosen = False
        self._owes = self._owes and not says_owned
        self._beat_ms = now_ms + self._interval_ms
        return request

    def _again(self, now_ms: int) -> ConsumerGroupHeartbeat:
        """Send a heartbeat as a gateway does that holds the member's answer (10.6); its answer counts."""
        request = ConsumerGroupHeartbeat(
            **self._ids(),
            member_id=self.member_id,
            member_epoch=self.epoch,
            again=True,
        )
        self._sent = _Sent(request, now_ms)
        return request

    def _owned_partitions(self) -> tuple[OwnedPartitions, ...]:
        return tuple(OwnedPartitions(topic_id, numbers) for topic_id, numbers in self.owned.items())

    def _ids(self) -> dict[str, str]:
        self._count += 1
        return {
            "request_id": f"{self.config.client_id}.{self.number}.consumer {self._count}",
            "reply_to": self.inbox,
            "group_id": self.config.group_id,
            "client_id": self.config.client_id,
            "client_host": self.config.client_host,
        }

    def hear(self, answer: AnyAnswer, now_ms: int) -> list[Request]:
        """Handle an answer from the mailbox; return the requests to send."""
        sent: list[Request] = []
        if isinstance(answer, AssignmentNotice) and answer.member_id == self.member_id:
            if self._sent is None and self.state is State.FOLLOWING and self.chance.random() < 0.5:
                sent.append(self._again(now_ms))
            else:
                self._beat_ms = min(self._beat_ms, now_ms)
        elif self._sent is not None and answer.request_id == self._sent.request.request_id:
            if isinstance(answer, ConsumerGroupHeartbeatAnswer):
                sent = self._heard(answer, self._sent.request, now_ms)
            else:
                self._sent, self._is_full = None, True
        self._set_due(now_ms)
        return sent

    def _heard(
        self, answer: ConsumerGroupHeartbeatAnswer, request: ConsumerGroupHeartbeat, now_ms: int
    ) -> list[Request]:
        self._sent = None
        asked = () if answer.ask is UNSET else answer.ask.topics
        if answer.code in FENCED:
            self._lose()
            self.state, self._again_ms = State.WAITING, now_ms + self.chance.randrange(BACKOFF_MS)
        elif answer.code in RETRIED:
            self._asked, self._is_full, self._beat_ms = asked, True, now_ms + BACKOFF_MS
        elif answer.code:
            self._die(now_ms)
        elif request.member_epoch >= 0:
            self.state, self.epoch, self._asked = State.FOLLOWING, answer.member_epoch, ()
            self._interval_ms = answer.heartbeat_interval_ms
            if answer.assignment is not None:
                self._assigned(answer.assignment, now_ms)
            if answer.ask is not UNSET:
                resolver = (self.member_id, self.regex) if answer.ask.regexes else None
                return [self.cluster.told(self.config.group_id, now_ms, asked, resolver)]
        return []

    def _assigned(self, assignment: tuple[AssignedTopic, ...], now_ms: int) -> None:
        target = {each.topic_id: each.partitions for each in assignment}
        self._topic_of.update({each.topic_id: each.topic for each in assignment})
        places = {(t, n) for t, numbers in self.owned.items() for n in numbers}
        revokes = not places <= {(t, n) for t, numbers in target.items() for n in numbers}
        self._target = target
        self._ready_ms = now_ms + (int(REVOCATION_MS_MAX * self.chance.random() ** 3) if revokes else 0)

    def _die(self, now_ms: int) -> None:
        """Stop with a fatal error; a new process is started later."""
        self._lose()
        self.member_id = self._new_id()
        self.state, self._again_ms = State.WAITING, now_ms + self.chance.randrange(RESTART_MS_MAX)

    # -- the owner -----------------------------------------------------------------------------------------------------

    def leave(self, now_ms: int) -> list[Request]:
        """Unsubscribe. A static member goes away for a while, or for good."""
        if self.state is not State.FOLLOWING:
            self._sent = None
            self.state = State.UNSUBSCRIBED if self.state is State.JOINING else self.state
            return []
        is_static = self.config.group_instance_id is not None
        farewell = ConsumerGroupHeartbeat(
            **self._ids(),
            member_id=self.member_id,
            member_epoch=-2 if is_static and self.chance.random() < 0.7 else -1,
            group_instance_id=self.config.group_instance_id,
        )
        self._lose()
        self.state, self._sent = State.UNSUBSCRIBED, None
        return [farewell]

    def subscribe(self, now_ms: int) -> list[Request]:
        """Subscribe to other topics, or join again."""
        if self.chance.random() < 0.5:
            self._choose()
        if self.state is State.UNSUBSCRIBED:
            self._join(now_ms)
        self.due_ms = min(self.due_ms, now_ms)
        return []

    def make_up(self, now_ms: int) -> list[Request]:
        """Behave well from now on."""
        self.acknowledges = True
        self._is_full = self._is_full or self.state is State.FOLLOWING
        return []

    # -- offsets -------------------------------------------------------------------------------------------------------

    def _commit(self) -> OffsetCommit:
        """Commit a partition that the process uses, or one that it does not."""
        own = [(self._topic_of[t], n) for t, numbers in self.owned.items() for n in numbers]
        topic, number = self.chance.choice(own or [("t", 0)])
        epoch = max(self.epoch - (self.chance.random() < 0.1), 0)
        return OffsetCommit(
            **self._ids(),
            member_id=self.member_id,
            generation_id=epoch,
            offsets=(OffsetToCommit(topic, number, self._count),),
        )

    def _fetch(self) -> OffsetFetch:
        ids = self._ids()
        is_stable = self._count % 2 == 0
        return OffsetFetch(**ids, member_id=self.member_id, generation_id=self.epoch, require_stable=is_stable)
