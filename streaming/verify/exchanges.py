"""Requests and their responses: each request has one response of its kind, and acknowledged commits are kept and
fetched.

Replies are kept for minutes, so only the latest requests can be judged, at most `REQUESTS_MAX`. The requests of one
partition are handled in order, so a fetch of an offset returns every earlier commit.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import shard_of
from coordinator.base.states import Phase
from coordinator.messages.requests import (
    DeleteGroup,
    JoinGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Request,
    SyncGroup,
    TxnOffsetCommit,
    Unreadable,
    Wake,
)
from coordinator.messages.responses import AnyAnswer, OffsetCommitAnswer, OffsetFetchAnswer
from streaming.verify.findings import Finding, Kind
from streaming.verify.published import Published
from streaming.verify.transactions import Transactions
from streaming.verify.watched import Watched
from streaming.views.text import escape
from streaming.wire.records import decode_answer, decode_request

REQUESTS_MAX = 200_000
"""The number of requests, and of replies, that are compared: the latest ones."""

PARKED_MS_MAX = 3_600_000
"""Longer than the longest time that a valid request is parked."""

NONE = ErrorCode.NONE.number
Asker = tuple[str, str]
"""A mailbox and a request id."""

PARKED = (JoinGroup, SyncGroup)
"""Requests that may be parked."""


class ReceivedReply(Struct, frozen=True):
    """A reply: its response, and the record that holds it."""

    answer: AnyAnswer
    value: bytes
    place: str
    at_ms: int


class SentRequest(NamedTuple):
    """A request, while its response is looked for."""

    partition: int
    offset: int
    at_ms: int
    request: Request | Unreadable
    place: str


class Exchanges:
    """A comparison of requests with replies. Call `replies`, then `asked` for each partition, then `end`.

    Args:
        wanted: The groups to check; None for all.
        settling_ms: A request that was written less than this before the newest reply may still be without a response.
    """

    def __init__(self, wanted: Collection[str] | None, settling_ms: int) -> None:
        self._wanted, self._settling_ms = wanted, settling_ms
        self._heard: dict[Asker, list[ReceivedReply]] = {}
        self._requests: Counter[Asker] = Counter()
        self._open: list[SentRequest] = []
        self._replies_from_ms: list[float] = []  # by partition
        self._requests_from_ms = self._newest_ms = -math.inf
        self._handled: dict[int, int] = {}
        self.requests = self.commits = 0

    # -- replies -------------------------------------------------------------------------------------------------------

    def replies(self, records: Iterable[Any], *, is_cut: bool) -> Iterator[Finding]:
        """Store the replies of the next partition, each once.

        Args:
            is_cut: Whether earlier replies of the partition are not read.
        """
        from_ms = math.inf if is_cut else -math.inf
        for record in records:
            from_ms = min(from_ms, record.timestamp)
            self._newest_ms = max(self._newest_ms, record.timestamp)
            place = f"{record.topic}-{record.partition}@{record.offset}"
            try:
                inbox, answer = (record.key or b"").decode(), decode_answer(record.value or b"")
            except ValueError as error:
                yield Finding(Kind.UNREADABLE, None, place, escape(str(error))[:500])
                continue
            if answer.request_id is None:
                continue  # a notice
            heard = self._heard.setdefault((inbox, answer.request_id), [])
            if all(earlier.value != record.value for earlier in heard):
                heard.append(ReceivedReply(answer, record.value, place, record.timestamp))
        self._replies_from_ms.append(from_ms)

    # -- requests ------------------------------------------------------------------------------------------------------

    def judge(self, records: Iterable[Any], published: Published, *, is_cut: bool) -> Iterator[Finding]:
        """Judge one partition's requests, in order, against the records that its groups have published."""
        groups, transactions = published.groups, Transactions()
        committed: dict[tuple[str, str, int], int] = {}
        from_ms = math.inf if is_cut else -math.inf
        for record in records:
            from_ms = min(from_ms, record.timestamp)
            request = decode_request(record.value)
            if isinstance(request, Wake) or request.request_id is None or request.reply_to is None:
                continue
            asker = request.reply_to, request.request_id
            self._requests[asker] += 1
            heard = self._heard.get(asker, [])
            place = f"{record.topic}-{record.partition}@{record.offset}"
            if not isinstance(request, Unreadable):
                transactions.add(request, heard[0].answer if len(heard) == 1 else None, record.timestamp, place)
            if self._wanted is not None and _group_id(request) not in self._wanted:
                continue
            self.requests += 1
            sent = SentRequest(record.partition, record.offset, record.timestamp, request, place)
            if not heard:
                self._open.append(sent)
            elif not isinstance(request, PARKED):
                self._handled[record.partition] = record.offset
            yield from self._fits(sent, heard)
            yield from self._judge_offsets(sent, heard, groups, committed)
        yield from self._judge_transactions(transactions, published, from_ms)
        self._open = [sent for sent in self._open if not self._is_excused(sent, groups)]
        self._requests_from_ms = max(self._requests_from_ms, from_ms)

    def end(self) -> Iterator[Finding]:
        """Yield the findings that are certain only after all partitions have been read."""
        for sent in self._open:
            kind = _kind(sent.request)
            text = f"a {kind} request has no response, and later requests have one"
            yield Finding(Kind.NEVER_ANSWERED, _group_id(sent.request), sent.place, text)
        for (inbox, request_id), heard in self._heard.items():
            times = self._requests[inbox, request_id]
            who = f"{escape(request_id)} of {escape(inbox)}"
            if heard[0].at_ms <= self._requests_from_ms + PARKED_MS_MAX:
                continue  # the request may be older than the requests that were read
            if not times and self._wanted is None:
                yield Finding(Kind.ANSWERS_NOBODY, None, heard[0].place, f"no request was found for the reply to {who}")
            elif 0 < times < len(heard):
                text = f"{who} was sent {times} times and has {len(heard)} different responses"
                yield Finding(Kind.ANSWERED_TWICE, None, heard[-1].place, text)

    def _fits(self, sent: SentRequest, heard: list[ReceivedReply]) -> Iterator[Finding]:
        """Check the kind of each response. An `error` may replace any response that is too large."""
        for each in heard:
            kind, said = _kind(sent.request), str(type(each.answer).__struct_config__.tag)
            if said not in (kind, "error"):
                yield Finding(
                    Kind.ANSWERS_NOBODY, _group_id(sent.request), each.place, f"a {said} response to a {kind} request"
                )

    def _is_excused(self, sent: SentRequest, groups: Mapping[str, Watched]) -> bool:
        """Return whether a request without a response may have had one, or may still get one."""
        settled_ms = self._newest_ms - self._settling_ms
        inbox = shard_of(sent.request.reply_to or "", len(self._replies_from_ms))
        if not self._replies_from_ms[inbox] < sent.at_ms <= settled_ms:
            return True
        if sent.offset > self._handled.get(sent.partition, -1):
            return True
        if not isinstance(sent.request, PARKED):
            return False
        group = groups.get(sent.request.group_id)
        if group is None or group.latest is None:
            return False
        is_calm = group.latest.state in (Phase.STABLE, Phase.EMPTY) and group.latest.since_ms <= settled_ms
        return not is_calm

    # -- offsets -------------------------------------------------------------------------------------------------------

    def _judge_offsets(
        self,
        sent: SentRequest,
        heard: list[ReceivedReply],
        groups: Mapping[str, Watched],
        committed: dict[tuple[str, str, int], int],
    ) -> Iterator[Finding]:
        """Track committed offsets, and check that they are published and fetched.

        Args:
            committed: By group, topic and partition, the offset of the latest acknowledged commit before this request.
        """
        request, answer = sent.request, heard[0].answer if len(heard) == 1 else None
        if isinstance(request, Unreadable):
            return
        group = groups.get(request.group_id)
        if isinstance(request, OffsetCommit):
            for commit in request.offsets:
                committed.pop((request.group_id, commit.topic, commit.partition), None)
            if isinstance(answer, OffsetCommitAnswer):
                yield from self._acknowledged(sent, request, answer, group, committed)
        elif isinstance(request, TxnOffsetCommit):  # it takes effect when its transaction ends, if at all
            for commit in request.offsets:
                committed.pop((request.group_id, commit.topic, commit.partition), None)
        elif isinstance(request, OffsetDelete | DeleteGroup):
            for place in [place for place in committed if place[0] == request.group_id]:
                del committed[place]
        elif isinstance(request, OffsetFetch) and isinstance(answer, OffsetFetchAnswer):
            for fetched in answer.partitions:
                place = request.group_id, fetched.topic, fetched.partition
                expected = committed.get(place, fetched.offset)
                if fetched.code == NONE and fetched.offset != expected and not _is_forgotten(group, *place[1:]):
                    text = f"{expected} is committed for {escape(fetched.topic)}-{fetched.partition},"
                    yield Finding(
                        Kind.COMMIT_LOST, request.group_id, heard[0].place, f"{text} and {fetched.offset} was fetched"
                    )

    def _acknowledged(
        self,
        sent: SentRequest,
        request: OffsetCommit,
        answer: OffsetCommitAnswer,
        group: Watched | None,
        committed: dict[tuple[str, str, int], int],
    ) -> Iterator[Finding]:
        for commit, ended in zip(request.offsets, answer.partitions, strict=False):
            if ended.code != NONE:
                continue
            self.commits += 1
            committed[request.group_id, commit.topic, commit.partition] = commit.offset
            published = group.committed.get((commit.topic, commit.partition)) if group else None
            is_there = published is not None and published.at_ms >= sent.at_ms
            if not is_there and sent.at_ms <= self._newest_ms - self._settling_ms:
                text = (
                    f"{commit.offset} was acknowledged for {escape(commit.topic)}-{commit.partition},"
                    " and neither it nor a later offset is published"
                )
                yield Finding(Kind.COMMIT_LOST, request.group_id, sent.place, text)

    def _judge_transactions(
        self, transactions: Transactions, published: Published, from_ms: float
    ) -> Iterator[Finding]:
        """Check the commits inside the transactions of one shard.

        Args:
            from_ms: The time of the oldest request that was read; minus infinity if none is gone.
        """
        settled_ms = self._newest_ms - self._settling_ms
        for commit, ended_ms in transactions.kept():
            group_id, topic, partition = commit.key
            if ended_ms > settled_ms or (group := published.groups.get(group_id)) is None:
                continue
            latest = group.committed.get((topic, partition))
            if latest is None or latest.at_ms < commit.at_ms:
                text = (
                    f"{commit.offset} was committed in a transaction for {escape(topic)}-{partition},"
                    " and neither it nor a later offset is published"
                )
                yield Finding(Kind.COMMIT_LOST, group_id, commit.where, text)
        for commit in transactions.never(from_ms):
            if published.offsets.has(*commit.key, commit.offset, commit.at_ms):
                group_id, topic, partition = commit.key
                text = f"{commit.offset} for {escape(topic)}-{partition} is published, and its transaction was aborted"
                yield Finding(Kind.ABORTED_KEPT, group_id, commit.where, text)


def _kind(request: Request | Unreadable) -> str:
    return "malformed" if isinstance(request, Unreadable) else str(type(request).__struct_config__.tag)


def _group_id(request: Request | Unreadable) -> str | None:
    return None if isinstance(request, Unreadable) else request.group_id


def _is_forgotten(group: Watched | None, topic: str, partition: int) -> bool:
    """Return whether the last record of an offset is a tombstone or missing, perhaps since before it was fetched."""
    published = group.committed.get((topic, partition)) if group else None
    return published is None or published.offset is None
