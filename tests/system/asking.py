"""Raw requests about one group, as its members send them, and the responses to them."""

import threading
from concurrent.futures import Future
from typing import Any

from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
    Assignment,
    DescribeGroup,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    Request,
    SyncGroup,
)
from coordinator.messages.responses import AnyAnswer, FetchedOffset
from streaming.client.transport import Transport
from tests.system.waiting import HANG_S, wait_until

TOLD_BY_THE_TRANSPORT = {"request_id": "", "reply_to": ""}


class Asker:
    """A sender of requests about one group."""

    def __init__(self, transport: Transport, group_id: str) -> None:
        self.transport, self.group_id = transport, group_id

    def ask(self, request: Request, within_s: float = HANG_S) -> Any:
        return self.transport.ask(request, within_s)

    def begin(self, request: Request, within_s: float = HANG_S) -> "Future[AnyAnswer]":
        """Send a request without waiting: it may be parked, or its coordinator may be stopped and started again."""
        asked: Future[AnyAnswer] = Future()

        def wait() -> None:
            try:
                asked.set_result(self.ask(request, within_s))
            except BaseException as error:
                asked.set_exception(error)

        threading.Thread(target=wait, daemon=True).start()
        return asked

    def _about(self, member_id: str = "", **fields: Any) -> dict[str, Any]:
        return {**TOLD_BY_THE_TRANSPORT, "group_id": self.group_id, "member_id": member_id, **fields}

    def joining(self, member_id: str = "", client_id: str = "ana", **fields: Any) -> JoinGroup:
        wanted: dict[str, Any] = {
            "session_timeout_ms": 120_000,
            "rebalance_timeout_ms": 120_000,
            "protocol_type": "work",
            "protocols": (Protocol("share", b"all"),),
            "client_host": "/127.0.0.1",
            **fields,
        }
        return JoinGroup(**self._about(member_id, client_id=client_id, **wanted))

    def syncing(self, generation_id: int, member_id: str, plan: dict[str, bytes] | None = None) -> SyncGroup:
        assignments = tuple(Assignment(m, a) for m, a in (plan or {}).items())
        return SyncGroup(**self._about(member_id, generation_id=generation_id, assignments=assignments))

    def new_id(self, client_id: str = "ana", **fields: Any) -> str:
        """Request a member id (KIP-394) and return it."""
        answer = self.ask(self.joining(client_id=client_id, **fields))
        assert answer.error == "MEMBER_ID_REQUIRED", answer
        return str(answer.member_id)

    def alone(self, **fields: Any) -> tuple[str, int]:
        """Make a Stable group of one member, and return its member id and generation."""
        member_id = self.new_id(**fields)
        joined = self.ask(self.joining(member_id, **fields))
        assert joined.error == "NONE", joined
        synced = self.ask(self.syncing(joined.generation_id, member_id, {member_id: b"mine"}))
        assert (synced.error, synced.assignment) == ("NONE", b"mine")
        return member_id, joined.generation_id

    def heartbeat(self, generation_id: int, member_id: str, **fields: Any) -> Any:
        return self.ask(Heartbeat(**self._about(member_id, generation_id=generation_id, **fields)))

    def leaving(self, *member_ids: str, reason: str | None = None) -> LeaveGroup:
        members = tuple(Leaving(member_id, None, reason) for member_id in member_ids)
        return LeaveGroup(**TOLD_BY_THE_TRANSPORT, group_id=self.group_id, members=members)

    def leave(self, member_id: str, reason: str | None = None) -> Any:
        return self.ask(self.leaving(member_id, reason=reason))

    def commit(self, generation_id: int, member_id: str, offset: int, topic: str = "t", **fields: Any) -> Any:
        offsets = (OffsetToCommit(topic, 0, offset, **fields),)
        return self.ask(OffsetCommit(**self._about(member_id, generation_id=generation_id, offsets=offsets)))

    def fetch(self) -> dict[tuple[str, int], int]:
        return {(o.topic, o.partition): o.offset for o in self.administer(OffsetFetch).partitions}

    def fetch_stable(self) -> dict[tuple[str, int], int]:
        """Return the offsets as soon as no transaction is open."""
        found: list[FetchedOffset] = []

        def are_stable() -> bool:
            found[:] = self.administer(OffsetFetch, require_stable=True).partitions
            return all(each.error == "NONE" for each in found)

        wait_until(are_stable, account=lambda: found)
        return {(each.topic, each.partition): each.offset for each in found}

    def describe(self) -> Any:
        return self.administer(DescribeGroup)

    def administer(self, kind: type[Any], **fields: Any) -> Any:
        """Send a request that needs no membership, and return its response."""
        return self.ask(kind(**TOLD_BY_THE_TRANSPORT, group_id=self.group_id, **fields))
