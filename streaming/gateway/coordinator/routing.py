"""The coordinators of a gateway: its own one, and those to which groups have moved (moving.md 3.2).

A request that a coordinator refuses with a redirection goes to the coordinator that the redirection names, with the
same request id and another mailbox. Its client does not notice. Only a refused request goes elsewhere: one without an
answer may still be handled. A request for which no coordinator is found is without an answer, as with a coordinator
that is down.

Commits of one client for one group keep their order: while the group may not have reached the coordinator, the first
one is sent, and the later ones wait. Otherwise a later one could reach the group before it, and it would set the offset
back.

Each coordinator has its own client of the brokers, which is opened at the first redirection there.
"""

import asyncio
import bisect
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from msgspec import structs

from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import shard_of
from coordinator.messages.heartbeats import AnyHeartbeat, Heartbeat
from coordinator.messages.requests import JoinGroup, OffsetCommit, Request
from coordinator.messages.responses import AnyAnswer, ErrorAnswer, JoinGroupAnswer, RebalanceNotice
from streaming.config.peers import PEERS_MAX
from streaming.config.settings import Settings
from streaming.errors import UserError
from streaming.gateway.coordinator.batching import HeartbeatBatcher
from streaming.gateway.coordinator.client import CoordinatorClient
from streaming.gateway.coordinator.outstanding import OutstandingHeartbeats
from streaming.wire.coordinator_cache import CoordinatorCache, RetryDecision
from streaming.wire.inbox import OnAnswer
from streaming.wire.records import encode_request

log = logging.getLogger(__name__)

FIRST_WAIT_MS, WAIT_MS_MAX = 50, 1_000
"""The time until a request is sent again that no coordinator serves yet: it doubles with each try."""

AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE

NOT_THERE = ErrorAnswer(request_id=None, error=ErrorCode.NOT_COORDINATOR.name, code=ErrorCode.NOT_COORDINATOR.number)
"""What a coordinator that cannot be used would answer."""

COORDINATORS_MAX = PEERS_MAX + 1
"""The coordinators of one gateway. Groups at further ones are without an answer."""

KEPT_BYTES_MAX = 64 * 2**20
"""The bytes of all requests that are kept until they are answered. Beyond it a request is not kept. If its group has
moved, its client gets the error, and sends it again."""


class ShardAddress(NamedTuple):
    """The coordinator and the shard of a group."""

    prefix: str
    shard: int


@dataclass(eq=False)
class _Sent:
    """A request that is not answered yet.

    Args:
        number: Orders the requests of this gateway.
        request: None if it is not kept.
        at: The prefix of the one coordinator that it is for; None if it follows its group.
        kept_bytes: The bytes of its record; 0 if it is not kept.
        tries: How often it was refused since the last new redirection, that one included.
        timer: Sends it again.
    """

    number: int
    group_id: str
    request_id: str
    request: Request | None
    callback: OnAnswer
    at: str | None = None
    kept_bytes: int = 0
    tries: int = 0
    timer: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class _Commits:
    """The commits of one client for one group in transit. The first one is sent until it is served."""

    first: _Sent
    later: list[_Sent] = field(default_factory=list)


@dataclass(eq=False)
class _Mailbox:
    """The mailboxes of one owner at the coordinators, by their prefixes. The owner knows the first one's name only."""

    tell: Callable[[RebalanceNotice], object]
    names: dict[str, str] = field(default_factory=dict)


class Coordinators:
    """The senders of requests to all coordinators. The event loop calls all methods except `list_topics` and `close`.

    Attributes:
        outstanding: The heartbeats of members of the consumer protocol that have no answer.
        batchers: The heartbeats that are sent together.

    Args:
        settings: The settings of the gateway's own coordinator.
        loop: The event loop that gets the answers.
        open_client: Opens a sender; see `CoordinatorClient`.

    Raises:
        BrokerUnreachable: No broker answers.
        NoCoordinator: The coordinator's topics do not exist.
    """

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        open_client: Callable[..., CoordinatorClient] = CoordinatorClient,
    ) -> None:
        self._settings, self._loop, self._open_client = settings, loop, open_client
        self._cache = CoordinatorCache(settings.topic_prefix, settings.peers)
        self.outstanding = OutstandingHeartbeats()
        self._home = self._opened(settings.topic_prefix)
        self._clients = {settings.topic_prefix: self._home}
        self._opening: dict[str, list[_Sent]] = {}
        self._sent: dict[str, _Sent] = {}
        self._kept_bytes = 0
        self._numbers = itertools.count()
        self._commits: dict[tuple[str, str], _Commits] = {}
        self._mailboxes: dict[str, _Mailbox] = {}
        self.batchers = HeartbeatBatchers(self._cache, self._clients)

    def _opened(self, prefix: str) -> CoordinatorClient:
        settings = self._settings.model_copy(update={"topic_prefix": prefix})
        return self._open_client(settings, self._loop, self.outstanding, self.send)

    @property
    def shard_addresses(self) -> list[ShardAddress]:
        """All shards of the gateway's own coordinator, then those of each other one that groups have reached."""
        prefixes = [self._cache.home, *sorted(self._cache.reached())]
        return [ShardAddress(prefix, shard) for prefix in prefixes for shard in range(self._clients[prefix].shards)]

    def list_topics(self, timeout: float) -> Any:
        """Request all brokers and topics, and wait for the response, as confluent-kafka's `Producer.list_topics`."""
        return self._home.list_topics(timeout)

    # -- for connections -----------------------------------------------------------------------------------------------

    def open_inbox(self, tell: Callable[[RebalanceNotice], object] = lambda _: None) -> str:
        """Open a mailbox with a new name, and return the name.

        Args:
            tell: Called with each notice that comes to the mailbox, from any coordinator.
        """
        mailbox = self._home.open_inbox(tell)
        self._mailboxes[mailbox] = _Mailbox(tell, {self._cache.home: mailbox})
        return mailbox

    def close_inbox(self, mailbox: str) -> None:
        """Unregister the callback for notices that come to a mailbox."""
        for prefix, name in self._names_of(mailbox):
            self._clients[prefix].close_inbox(name)
        self._mailboxes.pop(mailbox, None)

    def _names_of(self, mailbox: str) -> list[tuple[str, str]]:
        opened = self._mailboxes.get(mailbox)
        return list(opened.names.items()) if opened is not None else [(self._cache.home, mailbox)]

    def request_id(self) -> str:
        """Return a new request id. Nobody can guess it, not even from all other request ids."""
        return self._home.request_id()

    def shard_address_of(self, group_id: str) -> ShardAddress:
        """Return the coordinator and the shard of a group, as far as they are known."""
        prefix = self._cache.of(group_id, 1)
        if prefix not in self._clients:
            prefix = self._cache.home
        return ShardAddress(prefix, shard_of(group_id, self._clients[prefix].shards))

    def may_have_moved(self, group_id: str) -> bool:
        """Return whether a group may have been at another coordinator a moment ago.

        A group that has come back from a peer is at home again, and a gateway may have heard of neither move.
        """
        return bool(self._settings.peers) or self._cache.knows(group_id)

    def send(self, request: Request, callback: OnAnswer, shard: int | None = None, at: str | None = None) -> None:
        """Append a request to the log of its group's coordinator. Call `callback` with the answer, if one comes.

        Args:
            shard: The shard that the request is for; without it the request goes to the shard of its group.
            at: The prefix of the one coordinator that the request is for: it does not follow its group. A request for a
                shard is by default for the gateway's own coordinator.
        """
        if shard is not None:
            prefix = at or self._cache.home
            self._clients[prefix].send(self._addressed(request, prefix), callback, shard)
            return
        sent = _Sent(next(self._numbers), request.group_id, request.request_id, request, callback, at)
        self._sent[sent.request_id] = sent
        if isinstance(request, OffsetCommit) and self._must_wait(sent, request):
            return
        self._send(sent, request)

    def forget(self, mailbox: str, request_ids: Iterable[str]) -> None:
        """Stop the delivery of answers to these requests of a mailbox."""
        ids = list(request_ids)
        for request_id in ids:
            if (sent := self._sent.get(request_id)) is not None:
                self._end(sent)
        for prefix, name in self._names_of(mailbox):
            self._clients[prefix].forget(name, ids)

    @property
    def waiting(self) -> int:
        """The number of requests without an answer, those that wait for the next tick included."""
        between = sum(sent.timer is not None for sent in self._sent.values()) + sum(map(len, self._opening.values()))
        return between + sum(client.waiting for client in self._clients.values())

    # -- the way of a request ------------------------------------------------------------------------------------------

    def _send(self, sent: _Sent, request: Request) -> None:
        prefix = sent.at or self._cache.of(sent.group_id, sent.tries)
        if (client := self._clients.get(prefix)) is not None:
            self._store(sent, client.send(self._addressed(request, prefix), partial(self._heard, sent, prefix)))
            return
        if not self._store_or_refuse(sent, request):
            return
        waiting = self._opening.setdefault(prefix, [])
        waiting.append(sent)
        if len(waiting) == 1:
            self._loop.create_task(self._open(prefix))

    def _store(self, sent: _Sent, record_bytes: int) -> None:
        if sent.kept_bytes:
            return
        if self._kept_bytes + record_bytes > KEPT_BYTES_MAX:
            sent.request = None
        else:
            sent.kept_bytes = record_bytes
            self._kept_bytes += record_bytes

    def _store_or_refuse(self, sent: _Sent, request: Request) -> bool:
        """Keep a request that cannot be sent now, and return True; answer it with an error if there is no room."""
        self._store(sent, len(encode_request(request)))
        if sent.request is None:
            self._end(sent)
            sent.callback(ErrorAnswer(request_id=sent.request_id, error=AWAY.name, code=AWAY.number), 0)
        return sent.request is not None

    def _end(self, sent: _Sent) -> None:
        if self._sent.pop(sent.request_id, None) is not None:
            self._kept_bytes -= sent.kept_bytes
        if sent.timer is not None:
            sent.timer.cancel()
            sent.timer = None
        if isinstance(sent.request, OffsetCommit):
            self._continue_after(sent, sent.request)

    def _must_wait(self, sent: _Sent, request: OffsetCommit) -> bool:
        """Return whether a commit waits for an earlier one of its client, or cannot be kept."""
        sender = _client_of(request)
        if sender not in self._commits and not self._cache.is_in_transit(request.group_id):
            return False
        commits = self._commits.setdefault(sender, _Commits(sent))
        if commits.first is sent:
            return False
        if self._store_or_refuse(sent, request):
            bisect.insort(commits.later, sent, key=lambda each: each.number)
        return True

    def _continue_after(self, sent: _Sent, request: OffsetCommit) -> None:
        """Send the commits that waited for a refused one, in their order."""
        commits = self._commits.get(_client_of(request))
        if commits is None or commits.first is not sent:
            return
        del self._commits[_client_of(request)]
        for each in commits.later:
            if each.request is not None and self._sent.get(each.request_id) is each:
                self._send(each, each.request)

    def _addressed(self, request: Request, prefix: str) -> Request:
        """Return a request with the name that its mailbox has at a coordinator."""
        if (opened := self._mailboxes.get(request.reply_to)) is None:
            return request
        if (name := opened.names.get(prefix)) is None:
            name = opened.names[prefix] = self._clients[prefix].open_inbox(opened.tell)
        return request if name == request.reply_to else structs.replace(request, reply_to=name)

    def _heard(self, sent: _Sent, by: str, answer: AnyAnswer, size: int) -> None:
        if self._sent.get(sent.request_id) is not sent:
            return  # nobody waits for it
        decision, request = self._cache.record(sent.group_id, by, answer), sent.request
        if decision is RetryDecision.DONE or request is None or sent.at is not None:
            sent.callback(answer, size)
            self._end(sent)
            return
        if isinstance(request, OffsetCommit) and self._must_wait(sent, request):
            return
        if isinstance(request, JoinGroup) and isinstance(answer, JoinGroupAnswer) and not request.member_id:
            request = sent.request = structs.replace(request, member_id=answer.member_id)
        self._follow(sent, request, decision)

    def _follow(self, sent: _Sent, request: Request, decision: RetryDecision) -> None:
        if decision is RetryDecision.SEND_LATER:
            self._go_later(sent, request)
            return
        sent.tries = 1 if decision is RetryDecision.SEND_NOW else max(sent.tries, 1)
        self._send(sent, request)

    def _go_later(self, sent: _Sent, request: Request) -> None:
        sent.tries += 1
        wait_ms = min(FIRST_WAIT_MS << min(max(sent.tries - 2, 0), 10), WAIT_MS_MAX)
        sent.timer = self._loop.call_later(wait_ms / 1_000, self._try_again, sent, request)

    def _try_again(self, sent: _Sent, request: Request) -> None:
        sent.timer = None
        self._send(sent, request)

    async def _open(self, prefix: str) -> None:
        try:
            if len(self._clients) >= COORDINATORS_MAX:
                raise UserError(f"A gateway serves groups of {COORDINATORS_MAX} coordinators at most.")
            self._clients[prefix] = await asyncio.to_thread(self._opened, prefix)
        except UserError as error:
            log.warning("the coordinator %r, which may have groups, cannot be used: %s", prefix, error)
        for sent in self._opening.pop(prefix):
            if sent.request is None or self._sent.get(sent.request_id) is not sent:
                continue
            if prefix in self._clients:
                self._send(sent, sent.request)
            else:
                self._follow(sent, sent.request, self._cache.record(sent.group_id, prefix, NOT_THERE))

    # -- brokers that cannot be reached; see `reach` ----------------------------------------------------------------

    @property
    def clients(self) -> Mapping[str, CoordinatorClient]:
        """The senders by the prefixes of their coordinators; the gateway's own one is the first."""
        return self._clients

    def mailboxes_moved(self, prefix: str) -> None:
        """Open new mailboxes at a coordinator whose sender reads another partition now, each when it is next used."""
        for opened in self._mailboxes.values():
            if (name := opened.names.pop(prefix, None)) is not None:
                self._clients[prefix].close_inbox(name)

    def is_lost(self, group_id: str) -> bool:
        """Return whether nothing can be written to a group's shard."""
        if not any(client.lost_shards for client in self._clients.values()):
            return False
        prefix, shard = self.shard_address_of(group_id)
        return shard in self._clients[prefix].lost_shards

    # -- availability of the coordinators ------------------------------------------------------------------------------

    def silence_s(self) -> float:
        """Return the seconds since the last answer to this gateway; infinite before the first answer."""
        return min(client.silence_s() for client in list(self._clients.values()))

    async def heard(self, within_s: float) -> bool:
        """Wait for any answer of the gateway's own coordinator. Return whether one has come within that time."""
        return await self._home.heard(within_s)

    def close(self) -> None:
        """Send the remaining requests, and stop. Any thread may call this."""
        for client in list(self._clients.values()):
            client.close()


def _client_of(request: Request) -> tuple[str, str]:
    """Return the mailbox of a request's client, and the group: the commits of both keep their order."""
    return request.reply_to, request.group_id


class HeartbeatBatchers:
    """The heartbeats that are sent together, for all coordinators: see `HeartbeatBatcher`."""

    def __init__(self, cache: CoordinatorCache, clients: dict[str, CoordinatorClient]) -> None:
        self._cache, self._clients = cache, clients
        home = clients[cache.home].batcher
        self.tick_ms, self.until_tick_ms = home.tick_ms, home.until_tick_ms

    def add(self, heartbeat: AnyHeartbeat, callback: OnAnswer, ticks: int = 1) -> None:
        """Send a heartbeat at a tick, and call `callback` with its answer."""
        self._of(heartbeat).add(heartbeat, callback, ticks)

    def add_prompt(self, heartbeat: Heartbeat, callback: OnAnswer) -> None:
        """Send a heartbeat in the event loop's next turn, and call `callback` with its answer."""
        self._of(heartbeat).add_prompt(heartbeat, callback)

    def _of(self, heartbeat: AnyHeartbeat) -> HeartbeatBatcher:
        client = self._clients.get(self._cache.of(heartbeat.group_id))
        return (client or self._clients[self._cache.home]).batcher

    def send_prompt(self) -> None:
        """Send the heartbeats that may not wait."""
        for client in self._clients.values():
            client.batcher.send_prompt()

    def send_now(self, heartbeat: AnyHeartbeat) -> None:
        """Send a heartbeat in a record of its own, if it still waits for a tick."""
        for client in self._clients.values():
            client.batcher.send_now(heartbeat)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Deliver no answers to these heartbeats."""
        ids = list(request_ids)
        for client in self._clients.values():
            client.batcher.forget(ids)
