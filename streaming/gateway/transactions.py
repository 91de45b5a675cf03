"""The gateway's part in transactions: records of the transactions topic, written into the transactions of clients.

    AddOffsetsToTxn   adds the group's partition of the transactions topic to the client's transaction
    TxnOffsetCommit   writes a record there; its offset is the place of the commit, which the coordinator keeps pending

The brokers end the transaction as any other, so nothing here depends on seeing its end. `coordinator.transactions` and
`query.settling` have the rest.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from kafka.errors import TransactionalIdAuthorizationFailedError

from coordinator.access import Operation, Resource
from coordinator.errors import ErrorCode
from coordinator.hashing import shard_of
from coordinator.outputs import AnyAnswer, CheckAccessAnswer
from streaming.gateway.answers import Answers
from streaming.gateway.authenticating import Identity
from streaming.gateway.exchanges.exchange import expected, may
from streaming.gateway.flow import Flow
from streaming.gateway.questions import Questions
from streaming.gateway.shared import Shared
from streaming.gateway.writing import Written
from streaming.kafka.transactional import Transaction

GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED.number
INVALID_GROUP = ErrorCode.INVALID_GROUP_ID.number
ID_REFUSED: int = TransactionalIdAuthorizationFailedError.errno


class ClientTransactions:
    """The transactions of one client: its rights are checked before anything is written."""

    def __init__(self, shared: Shared, flow: Flow, questions: Questions, identity: Identity) -> None:
        self._shared, self._flow, self._questions, self._identity = shared, flow, questions, identity

    async def join(self, message: Any) -> Written:
        """Prepare an AddOffsetsToTxn."""
        refusal = await self._refusal(message)
        shard = shard_of(message.group_id, self._shared.asking.shards)
        return refusal or await self._shared.transactions.join(_transaction(message), shard)

    async def write(self, message: Any) -> Written:
        """Prepare a TxnOffsetCommit."""
        refusal = await self._refusal(message)
        shard = shard_of(message.group_id, self._shared.asking.shards)
        return refusal or await self._shared.transactions.write(_transaction(message), shard, message.group_id)

    async def _refusal(self, message: Any) -> Written | None:
        """Return the error of a request that the client may not send; None if it may."""
        if not message.group_id:
            return Written(INVALID_GROUP)
        authorizer, client = self._shared.authorizer, self._identity.client
        if not authorizer.may_use_transaction(client, message.transactional_id):
            return Written(ID_REFUSED)
        if self._shared.settings.access == "rules":
            answer = expected(await self._ask_rights(message.group_id), CheckAccessAnswer)
            if answer.code or not all(answer.allowed):
                return Written(answer.code or GROUP_REFUSED)
        return None

    async def _ask_rights(self, group_id: str) -> AnyAnswer:
        questions = (may(self._questions, group_id, [(Operation.READ, Resource.GROUP, group_id)]),)
        answered: asyncio.Future[AnyAnswer] = asyncio.get_running_loop().create_future()

        def take(answers: Sequence[AnyAnswer]) -> None:
            self._questions.answered(questions)
            if not answered.done():
                answered.set_result(answers[0])

        self._questions.expect(questions)
        self._questions.send(questions, Answers(1, take, self._flow.outgoing.hold))
        return await answered


def _transaction(message: Any) -> Transaction:
    return Transaction(message.transactional_id, message.producer_id, message.producer_epoch)
