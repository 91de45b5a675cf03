"""The conversations with this coordinator through a gateway. Clients must see no difference from Kafka.

They use the same versions, the same kind of sockets and the same code; `differences` lists the intended differences.
"""

import pytest

from streaming.gateway.protocol.api import Handling
from streaming.gateway.server.apis import APIS
from tests.differential.asking import NEWEST
from tests.differential.language import Conversation
from tests.differential.talk import Transcripts, check
from tests.differential.test_conversations import EVERY
from tests.differential.through_gateway import as_clients_find_it
from tests.tiers import sampled

pytestmark = pytest.mark.long

APIS_OF = {
    "join": "JoinGroup",
    "sync": "SyncGroup",
    "heartbeat": "Heartbeat",
    "leave": "LeaveGroup",
    "commit": "OffsetCommit",
    "fetch": "OffsetFetch",
    "forget": "OffsetDelete",
    "describe": "DescribeGroups",
    "list": "ListGroups",
    "delete": "DeleteGroups",
    "beat": "ConsumerGroupHeartbeat",
    "describe-consumer": "ConsumerGroupDescribe",
    "init": "InitProducerId",
    "partitions": "AddPartitionsToTxn",
    "add": "AddOffsetsToTxn",
    "send": "TxnOffsetCommit",
    "end": "EndTxn",
    "settle": "OffsetFetch",
}

HELD = [conversation for conversation in EVERY if not conversation.changes_surroundings]
"""All conversations but those that change settings of one group, or topics that a gateway sees only later."""


@pytest.mark.parametrize("conversation", sampled(HELD, HELD[::3]), ids=lambda c: c.slug)
def test_gateway_responses_are_equal(conversation: Conversation, kafkas: Transcripts, through_gateway: Transcripts):
    """S16, S56: a gateway gives the same response as Kafka to a request of any version."""
    check(as_clients_find_it(conversation), kafkas[conversation], through_gateway[conversation])


def test_every_version_of_every_served_api_occurs():
    """S56: the conversations contain every version of each served API."""
    served = [api for api in APIS.values() if api.handling is Handling.SERVED and api.name in APIS_OF.values()]
    lines = [line for conversation in HELD for line in conversation.lines if line.is_request]
    asked = {(APIS_OF[line.verb], int(line.options.get("v", NEWEST[line.verb]))) for line in lines}
    names = {api.name for api in served}
    assert {(name, version) for name, version in asked if name in names} == {
        (api.name, version) for api in served for version in range(api.first, api.last + 1)
    }
