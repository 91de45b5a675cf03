"""The brokers that a gateway reaches, and so the shards to which it can write, and its mailboxes.

A broker may be cut off from one gateway alone: its leaders do not move then, because all others reach it. So the
gateway asks each broker that leads a partition of requests or of replies for its versions, every `LOOK_S`. That needs
no rights.

    a broker is silent for    then
    AVOIDED_S                 its groups get another port of the gateway, and a mailbox there moves to another broker
    LOST_S                    its shards are lost: their groups' clients are sent to other gateways, and the gateway is
                              not ready if they are a third of all

A broker that has failed for all is silent too, but its leaders have moved before `LOST_S`. A partition without a leader
is not lost: no other gateway could do more.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

log = logging.getLogger(__name__)

LOOK_S = 2.0
ASK_WAIT_S = 2.0

AVOIDED_S = 5.0

LOST_S = 15.0
"""Longer than the 9 s after which a cluster declares a broker dead, with the election and its news: when a broker fails
for all gateways, none of them sends its clients away. Shorter than a session of 45 s by the time that clients need."""

LEADERS_AGE_S = 30.0
"""The age of the known leaders after which they are requested again, while all brokers answer."""

NO_LEADER = -1


class Leaders(NamedTuple):
    """The brokers that lead each partition of requests and of replies of a coordinator; `NO_LEADER` for none."""

    requests: Sequence[int]
    replies: Sequence[int]


class Mail(Protocol):
    """The part of `CoordinatorClient` that this module uses."""

    leaders: Leaders
    mailbox_partition: int

    def learn_leaders(self) -> None:
        """Request the leaders from the brokers, and wait. The old ones remain if none answers."""

    def lose(self, shards: Iterable[int]) -> None:
        """Set the shards to which nothing can be written."""

    async def move_mailbox(self, partitions: Sequence[int]) -> bool:
        """Move the mailbox to the first of these partitions that answers. Return whether it has moved."""


class Reaching:
    """The brokers of one gateway.

    Args:
        mails: Returns the senders to all coordinators, by their prefixes; the gateway's own one is the first.
        ask: Asks a broker for its versions; raises OSError if it does not answer.
        avoid: Called with the brokers that are to be avoided, if they have changed.
        moved: Called with the prefix of a coordinator at which the mailbox has moved.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        mails: Callable[[], Mapping[str, Mail]],
        ask: Callable[[int], Awaitable[object]],
        avoid: Callable[[frozenset[int]], object],
        moved: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mails, self._ask, self._avoid, self._moved, self._clock = mails, ask, avoid, moved, clock
        self._heard_s: dict[int, float] = {}
        self._learned_s = float("-inf")
        self._avoided = frozenset[int]()
        self._reasons: Sequence[str] = ()

    def silent_s(self, broker: int) -> float:
        """Return the seconds since a broker last answered; 0.0 for one that was not asked yet."""
        now_s = self._clock()
        return now_s - self._heard_s.get(broker, now_s)

    def not_ready_reasons(self) -> Sequence[str]:
        """Return the reasons why other gateways can serve clients better. Any thread may call this."""
        return self._reasons

    async def run(self) -> None:
        """Check the brokers, for ever."""
        while True:
            try:
                await self.check_brokers()
            except Exception:
                log.exception("the brokers could not be checked; the next try is in %s s", LOOK_S)
            await asyncio.sleep(LOOK_S)

    async def check_brokers(self) -> None:
        """Check each broker that leads a partition, and act on the changes."""
        if self._avoided or self._clock() - self._learned_s > LEADERS_AGE_S:
            await asyncio.gather(*(asyncio.to_thread(mail.learn_leaders) for mail in self._mails().values()))
            self._learned_s = self._clock()
        leaders = {leader for mail in self._mails().values() for part in mail.leaders for leader in part}
        await asyncio.gather(*(self._hear(broker) for broker in leaders - {NO_LEADER}))
        self._heard_s = {broker: self._heard_s[broker] for broker in leaders if broker in self._heard_s}
        avoided = frozenset(broker for broker in self._heard_s if self.silent_s(broker) >= AVOIDED_S)
        if avoided != self._avoided:
            if avoided:
                log.warning("the brokers that lead partitions and do not answer this gateway: %s", sorted(avoided))
            else:
                log.warning("the leaders of all partitions answer this gateway")
            self._avoided = avoided
            self._avoid(avoided)
        for prefix, mail in list(self._mails().items()):
            mail.lose(self._shards_lost(mail))
            await self._move_if_silent(prefix, mail)
        self._reasons = self._find_reasons()

    async def _hear(self, broker: int) -> None:
        self._heard_s.setdefault(broker, self._clock())
        try:
            await asyncio.wait_for(self._ask(broker), ASK_WAIT_S)
        except (OSError, EOFError, ValueError) as error:
            log.info("broker %s does not answer: %r", broker, error)
        else:
            self._heard_s[broker] = self._clock()

    def _shards_lost(self, mail: Mail) -> set[int]:
        return {shard for shard, leader in enumerate(mail.leaders.requests) if self.silent_s(leader) >= LOST_S}

    async def _move_if_silent(self, prefix: str, mail: Mail) -> None:
        replies = mail.leaders.replies
        if replies[mail.mailbox_partition] not in self._avoided:
            return
        others = [n for n, leader in enumerate(replies) if leader != NO_LEADER and leader not in self._avoided]
        if await mail.move_mailbox(others):
            self._moved(prefix)

    def _find_reasons(self) -> Sequence[str]:
        mail = next(iter(self._mails().values()))
        mailbox_leader = mail.leaders.replies[mail.mailbox_partition]
        reasons = []
        if self.silent_s(mailbox_leader) >= LOST_S:
            reasons.append(f"no responses can be read: {self._silence_of([mailbox_leader])}")
        lost, shards = self._shards_lost(mail), len(mail.leaders.requests)
        if lost and len(lost) >= shards // 3:  # one broker of three leads 5 of 16
            silent = sorted({mail.leaders.requests[shard] for shard in lost})
            reasons.append(f"{len(lost)} of {shards} shards cannot be written: {self._silence_of(silent)}")
        return reasons

    def _silence_of(self, brokers: Sequence[int]) -> str:
        return ", ".join(
            f"broker {broker} has not answered this gateway for {self.silent_s(broker):.0f} s" for broker in brokers
        )
