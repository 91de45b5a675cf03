"""Offset commits and offset fetches of a member of the consumer protocol: their generation is the member's epoch.

    STALE_MEMBER_EPOCH   a commit is sent again with the newest epoch, if the member still owns all its partitions;
                         a fetch is sent again with the newest epoch
    UNKNOWN_MEMBER_ID    a commit fails; a fetch is sent again. The next heartbeat shows whether the membership is lost

Kafka's client sends automatic commits again, and raises an error for others. Here the partitions decide: the newest
epoch would be accepted for partitions that another member owns by now.

Source: Kafka's CommitRequestManager, OffsetCommitRequestState and OffsetFetchRequestState; KIP-848.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from msgspec import structs

from coordinator.base.errors import ErrorCode
from coordinator.member.consumer_config import ConsumerProtocolConfig, Partitions
from coordinator.member.effects import CommitEnded, Effect, FetchEnded
from coordinator.member.member import RETRY, action
from coordinator.member.pending_requests import Call, PendingRequests
from coordinator.member.requests import Sent
from coordinator.messages.requests import OffsetCommit, OffsetFetch, OffsetToCommit, TopicPartitions
from coordinator.messages.responses import AnyAnswer, OffsetCommitAnswer, OffsetFetchAnswer

STALE, UNKNOWN = ErrorCode.STALE_MEMBER_EPOCH.number, ErrorCode.UNKNOWN_MEMBER_ID.number


class Membership(Protocol):
    """The part of a member that its commits and fetches need."""

    config: ConsumerProtocolConfig
    owned: Partitions

    @property
    def generation_id(self) -> int:
        """The member's epoch; -1 without one."""


class Offsets:
    """The commits and fetches of one member."""

    def __init__(self, member: Membership, prefix: str) -> None:
        self._member, self._calls = member, PendingRequests(member.config, prefix)
        self.has_doubts = False
        """Whether the last response had an error about the member's epoch or its id."""

    @property
    def due_ms(self) -> int:
        """The time at which `send_due` next has something to send."""
        return self._calls.due_ms

    def send_due(self, now_ms: int) -> list[Sent | CommitEnded]:
        """Return the requests that are due again, and the ends of commits that are too old for that."""
        due = self._calls.send_due(now_ms)
        return [self._identified(each) if isinstance(each, OffsetFetch) else each for each in due]

    def give_up(self, ticket: str) -> None:
        """Stop waiting for a commit or a fetch."""
        self._calls.give_up(ticket)

    def commit(self, offsets: tuple[OffsetToCommit, ...], now_ms: int) -> tuple[str, list[Sent | Effect]]:
        """Commit offsets. Return the ticket of `CommitEnded`, and the actions. Without an epoch the commit fails."""
        ticket = self._calls.next_id()
        if self._member.generation_id < 0:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            return ticket, [CommitEnded(ticket, error.number, error.name)]
        request = OffsetCommit(
            **self._common(ticket),
            generation_id=self._member.generation_id,
            member_id=self._member.config.member_id,
            group_instance_id=self._member.config.group_instance_id,
            offsets=offsets,
        )
        return ticket, [*self._calls.make(request, now_ms)]

    def fetch(self, topics: tuple[TopicPartitions, ...] | None, now_ms: int) -> tuple[str, list[Sent | Effect]]:
        """Request committed offsets, of all partitions if `topics` is None; `FetchEnded` carries the ticket."""
        ticket = self._calls.next_id()
        request = self._identified(OffsetFetch(**self._common(ticket), topics=topics, require_stable=True))
        return ticket, [*self._calls.make(request, now_ms)]

    def _common(self, request_id: str) -> dict[str, Any]:
        config = self._member.config
        return {
            "request_id": request_id,
            "reply_to": config.reply_to,
            "group_id": config.group_id,
            "client_id": config.client_id,
            "client_host": config.client_host,
        }

    def _identified(self, request: OffsetFetch) -> OffsetFetch:
        """Return a fetch with the member's id and epoch; with neither while it has no epoch."""
        epoch = self._member.generation_id
        member_id = self._member.config.member_id if epoch >= 0 else None
        return structs.replace(request, member_id=member_id, generation_id=epoch)

    # -- responses -----------------------------------------------------------------------------------------------------

    def receive(self, answer: AnyAnswer, now_ms: int) -> list[Effect]:
        """Handle the response to a commit or a fetch; ignore all others."""
        call = self._calls.end(answer.request_id or "")
        self.has_doubts = call is not None and self._doubts(answer)
        if call is None:
            return []
        if isinstance(call.request, OffsetCommit):
            return self._committed(call, call.request, answer, now_ms)
        if isinstance(call.request, OffsetFetch):
            return self._fetched(call, answer, now_ms)
        return []

    def _doubts(self, answer: AnyAnswer) -> bool:
        partitions = answer.partitions if isinstance(answer, OffsetCommitAnswer) else ()
        return any(each.code in (STALE, UNKNOWN) for each in (answer, *partitions))

    def _committed(self, call: Call, request: OffsetCommit, answer: AnyAnswer, now_ms: int) -> list[Effect]:
        partitions = answer.partitions if isinstance(answer, OffsetCommitAnswer) else ()
        failed = next((p for p in partitions if p.code), answer)
        epoch = self._member.generation_id
        if failed.code == STALE and request.generation_id != epoch >= 0 and self._owns(request.offsets):
            call.request = structs.replace(request, generation_id=epoch)
            self._calls.retry(call, now_ms)
            return []
        if failed.code and action(OffsetCommit, failed.code) is RETRY:
            self._calls.retry(call, now_ms)
            return []
        return [CommitEnded(call.ticket, failed.code, failed.error, partitions)]

    def _owns(self, offsets: Iterable[OffsetToCommit]) -> bool:
        owned = {(each.topic, each.partition) for each in self._member.owned}
        return all((each.topic, each.partition) in owned for each in offsets)

    def _fetched(self, call: Call, answer: AnyAnswer, now_ms: int) -> list[Effect]:
        if answer.code in (STALE, UNKNOWN) or (answer.code and action(OffsetFetch, answer.code) is RETRY):
            self._calls.retry(call, now_ms)
            return []
        partitions = answer.partitions if isinstance(answer, OffsetFetchAnswer) else ()
        return [FetchEnded(call.ticket, answer.code, answer.error, partitions)]
