"""A client of one name in a simulation of moves."""

from typing import Any

from coordinator.base.errors import ErrorCode


class Client:
    """A client of one name, with at most one request at a time.

    Args:
        where: The coordinator to which it sends its next request.
        best: The highest number of the name that a redirection has named.
        acked: The highest offset that was acknowledged, and not deleted.
        deleted: The highest offset that was deleted with the group; it must not come back.
        asked: The ids of its request, which it may have sent to both coordinators.
    """

    def __init__(self, name: str) -> None:
        self.name, self.where = name, "A"
        self.best = self.acked = self.offset = self.deleted = 0
        self.deletes = False
        self.asked: set[str] = set()

    def note(self, by: str, answer: Any) -> None:
        """Store what an answer says."""
        if answer.request_id not in self.asked:
            return
        if answer.code in (ErrorCode.NONE.number, ErrorCode.GROUP_ID_NOT_FOUND.number):
            self.asked = set()
            self.deleted = self.offset if self.deletes else self.deleted
            self.acked = 0 if self.deletes else max(self.acked, self.offset)
            return
        self.asked.discard(answer.request_id)
        if self.asked:
            return
        self.offset -= not self.deletes  # the offset is committed again, where the redirection leads
        self.follow(by, answer)

    def follow(self, by: str, answer: Any) -> None:
        """Choose the coordinator for the next request after a refusal."""
        moved = answer.moved if answer.moved else None
        if moved is not None and moved.number > self.best and moved.of == "name":
            self.where, self.best = moved.to, moved.number
        else:
            self.where = "B" if by == "A" else "A"
