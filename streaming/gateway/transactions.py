"""The gateway's part in transactions: records of the transactions topic, written into the transactions of clients.

    AddOffsetsToTxn   adds the group's partition of the transactions topic to the client's transaction
    TxnOffsetCommit   writes a record there; its offset is the place of the commit, which the coordinator keeps pending

The brokers end the transaction as any other, so the gateway does not need EndTxn. `coordinator.transactions` and
`query.settling` read and handle the end.

A record may not join a later transaction than the client means. A client waits for the response before it begins
another transaction, unless it gives up; then it closes the connection. So a request is prepared within `WRITE_WAIT_S`
of its arrival, and the coordinator is asked only if the connection is still open after the record was written. A record
without such a request has no effect.
"""

import time
from collections.abc import Callable
from typing import Any

from kafka.errors import TransactionalIdAuthorizationFailedError

from coordinator.access import Operation, Resource
from coordinator.errors import ErrorCode
from coordinator.outputs import CheckAccessAnswer
from streaming.gateway.authenticating import Identity
from streaming.gateway.coordinators import Home
from streaming.gateway.exchanges.exchange import expected, may
from streaming.gateway.questions import Questions
from streaming.gateway.shared import Shared
from streaming.gateway.writing import NOT_AVAILABLE, Written
from streaming.kafka.transactional import Transaction

GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED.number
INVALID_GROUP = ErrorCode.INVALID_GROUP_ID.number
ID_REFUSED: int = TransactionalIdAuthorizationFailedError.errno

GONE = Written(NOT_AVAILABLE)
"""The result for a client that has closed its connection. Nobody reads the response."""


class ClientTransactions:
    """The transactions of one client: its rights are checked before anything is written.

    Args:
        has_left: Returns whether the client has closed the connection, also while nothing is read from it.
    """

    def __init__(self, shared: Shared, questions: Questions, identity: Identity, has_left: Callable[[], bool]) -> None:
        self._shared, self._questions, self._identity, self._has_left = shared, questions, identity, has_left

    async def join(self, message: Any, until_s: float) -> Written:
        """Prepare an AddOffsetsToTxn."""
        if refusal := await self._refusal(message, until_s):
            return refusal
        return await self._shared.transactions.join(_transaction(message), self._home(message), until_s)

    async def write(self, message: Any, until_s: float) -> Written:
        """Prepare a TxnOffsetCommit. The result is an error if the client has left: its record has no effect then."""
        if not message.group_id:
            return Written(INVALID_GROUP)
        if refusal := await self._refusal(message, until_s):
            return refusal
        may_have_moved = self._shared.asking.may_have_moved(message.group_id)
        written = await self._shared.transactions.write(
            _transaction(message), self._home(message), message.group_id, until_s, may_have_moved=may_have_moved
        )
        return GONE if self._has_left() else written

    def _home(self, message: Any) -> Home:
        return self._shared.asking.home_of(message.group_id)

    async def _refusal(self, message: Any, until_s: float) -> Written | None:
        """Return the error of a request that the client may not send; None if it may."""
        authorizer, client = self._shared.authorizer, self._identity.client
        if not authorizer.may_use_transaction(client, message.transactional_id):
            return Written(ID_REFUSED)
        if self._shared.settings.access == "rules":
            question = may(self._questions, message.group_id, [(Operation.READ, Resource.GROUP, message.group_id)])
            try:
                answer = await self._questions.answer_to(question, until_s - time.monotonic())
            except TimeoutError:
                return Written(NOT_AVAILABLE)
            said = expected(answer, CheckAccessAnswer)
            if said.code or not all(said.allowed):
                return Written(said.code or GROUP_REFUSED)
        return GONE if self._has_left() else None


def _transaction(message: Any) -> Transaction:
    return Transaction(message.transactional_id, message.producer_id, message.producer_epoch)
