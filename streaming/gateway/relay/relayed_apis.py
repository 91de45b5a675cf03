"""The APIs that the gateway relays to the brokers: one row for each.

To relay another API, write its row here; nothing else has to change.

1. Give the versions whose responses name no addresses of brokers, or give the function of `rewriting` that replaces
   these addresses.
2. Give the function that lists what a request needs. `required_acls` has one for each common form:
   `topics("topics", READ)` for an array of topics, `cluster(ALTER)` for a right on the cluster.
3. Give the function of `error_responses` that makes the response to a refused request: `whole(XResponse)` where the
   response has one error code. Without one, a refused request ends the connection.

A row with a `rewrite` is a rewritten API: the gateway reads each response as a whole. Without one, responses are passed
on unread.

The last version of an API is the one before its unread responses contain addresses of brokers: Fetch 16 (KIP-951),
DescribeQuorum 2 (KIP-853). Produce 13 has the ids of topics in place of their names. Fetch 15 has a tagged field that
shows whether a broker sends the request, and only brokers use it (KIP-903). DescribeTopicPartitions is not relayed,
because it returns all topics page by page, those of the coordinator included, and clients do not need it (KIP-966).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeQuorumRequest,
    DescribeTransactionsRequest,
    DescribeUserScramCredentialsRequest,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListPartitionReassignmentsRequest,
    ListTransactionsRequest,
    UpdateFeaturesRequest,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    ProduceResponse,
    WriteTxnMarkersRequest,
)

from streaming.gateway.protocol.produce import FIRST_WITH_ADDRESSES, Produce, may_have_addresses
from streaming.gateway.relay import error_responses as refused
from streaming.gateway.relay import required_acls as acls
from streaming.gateway.relay import rewriting
from streaming.gateway.relay.error_responses import Refusal, whole
from streaming.gateway.relay.required_acls import NameOf, RequiredAcl, cluster, topics, transaction
from streaming.gateway.relay.rewriting import Rewrite

READ, WRITE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE
ALTER, DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
ALTER_CONFIGS, DESCRIBE_CONFIGS = AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS


class Unread(NamedTuple):
    """A request that is not read: its key and its name."""

    API_KEY: int
    name: str


class Relayed(NamedTuple):
    """One API.

    Args:
        request: The class of the request.
        first: The oldest version that is offered to clients.
        last: The newest version that is offered to clients.
        required_acls: Lists the rights that a request needs.
        refused: Makes the response to a refused request; None to end the connection.
        rewrite: The rewriting of a response; None if it is passed on unread.
        is_checked: Whether `required_acls` is sufficient for a decision. Otherwise no request is relayed if the brokers
            see the gateway and not the client.
        has_large_response: Whether a response may be far larger than its request, and is held in the gateway.
    """

    request: Any
    first: int
    last: int
    required_acls: Callable[[Any, NameOf], Iterable[RequiredAcl]]
    refused: Callable[[Any, Refusal], ApiMessage] | None = None
    rewrite: Rewrite | None = None
    is_checked: bool = True
    has_large_response: bool = False


METADATA = Rewrite(MetadataResponse, rewriting.metadata)
FOUND_COORDINATOR = Rewrite(FindCoordinatorResponse, rewriting.found_coordinator)
DESCRIBED_CONFIGS = Rewrite(DescribeConfigsResponse, rewriting.described_configs)
DESCRIBED_CLUSTER = Rewrite(DescribeClusterResponse, rewriting.described_cluster)
PRODUCED = Rewrite(ProduceResponse, rewriting.produced, FIRST_WITH_ADDRESSES, may_have_addresses)

_described = refused.configs(DescribeConfigsResponse, DescribeConfigsResponse.DescribeConfigsResult, "results")
_altered = refused.configs(AlterConfigsResponse, AlterConfigsResponse.AlterConfigsResourceResponse, "responses")
_incrementally_altered = refused.configs(
    IncrementalAlterConfigsResponse, IncrementalAlterConfigsResponse.AlterConfigsResourceResponse, "responses"
)

ROWS = (
    #       request                          versions  what it needs                     refused, rewritten
    Relayed(Produce,                             0, 12, acls.produce,                     refused.produce,
            rewrite=PRODUCED),
    Relayed(FetchRequest,                        4, 14, acls.fetch,                       refused.fetch),
    Relayed(ListOffsetsRequest,                  1, 11, topics("topics", DESCRIBE),       refused.list_offsets),
    Relayed(MetadataRequest,                     0, 13, acls.nothing,   # narrowed by `authorizer`, as the response is
            rewrite=METADATA, has_large_response=True),
    Relayed(FindCoordinatorRequest,              0, 6,  acls.find_transactions,           refused.find_transactions,
            rewrite=FOUND_COORDINATOR),
    Relayed(CreateTopicsRequest,                 2, 7,  acls.create_topics,               refused.create_topics),
    Relayed(DeleteTopicsRequest,                 1, 6,  acls.delete_topics,               refused.delete_topics),
    Relayed(DeleteRecordsRequest,                0, 2,  topics("topics", DELETE),         refused.delete_records),
    Relayed(InitProducerIdRequest,               0, 5,  acls.init_producer_id,            refused.init_producer_id),
    Relayed(OffsetForLeaderEpochRequest,         2, 4,  topics("topics", DESCRIBE),       refused.leader_epochs),
    Relayed(AddPartitionsToTxnRequest,           0, 5,  acls.add_partitions,              refused.add_partitions),
    Relayed(EndTxnRequest,                       0, 5,  transaction(WRITE, "transactional_id"), whole(EndTxnResponse)),
    Relayed(WriteTxnMarkersRequest,              1, 2,  acls.markers),
    Relayed(DescribeAclsRequest,                 1, 3,  cluster(DESCRIBE),                whole(DescribeAclsResponse)),
    Relayed(CreateAclsRequest,                   1, 3,  cluster(ALTER),                   refused.create_acls),
    Relayed(DeleteAclsRequest,                   1, 3,  cluster(ALTER)),
    Relayed(DescribeConfigsRequest,              1, 4,  acls.configs(DESCRIBE_CONFIGS),   _described,
            rewrite=DESCRIBED_CONFIGS, has_large_response=True),
    Relayed(AlterConfigsRequest,                 0, 2,  acls.configs(ALTER_CONFIGS),      _altered),
    Relayed(AlterReplicaLogDirsRequest,          1, 2,  acls.log_dirs),
    Relayed(DescribeLogDirsRequest,              1, 5,  cluster(DESCRIBE, "topics")),
    Relayed(CreatePartitionsRequest,             0, 3,  topics("topics", ALTER),          refused.create_partitions),
    Relayed(Unread(38, "CreateDelegationToken"), 1, 3,  acls.nothing,   # the token would be the gateway's
            is_checked=False),
    Relayed(Unread(39, "RenewDelegationToken"),  1, 2,  acls.nothing,  is_checked=False),
    Relayed(Unread(40, "ExpireDelegationToken"), 1, 2,  acls.nothing,  is_checked=False),
    Relayed(Unread(41, "DescribeDelegationToken"), 1, 3, acls.nothing,  is_checked=False),
    Relayed(ElectLeadersRequest,                 1, 2,  acls.elect_leaders,               whole(ElectLeadersResponse)),
    Relayed(IncrementalAlterConfigsRequest,      0, 1,  acls.configs(ALTER_CONFIGS),      _incrementally_altered),
    Relayed(AlterPartitionReassignmentsRequest,  0, 1,  cluster(ALTER, "topics")),
    Relayed(ListPartitionReassignmentsRequest,   0, 0,  cluster(DESCRIBE, "topics")),
    Relayed(DescribeClientQuotasRequest,         0, 1,  cluster(DESCRIBE_CONFIGS)),
    Relayed(AlterClientQuotasRequest,            0, 1,  cluster(ALTER_CONFIGS)),
    Relayed(DescribeUserScramCredentialsRequest, 0, 0,  cluster(DESCRIBE)),
    Relayed(AlterUserScramCredentialsRequest,    0, 0,  cluster(ALTER)),
    Relayed(DescribeQuorumRequest,               0, 1,  cluster(DESCRIBE)),
    Relayed(UpdateFeaturesRequest,               0, 2,  cluster(ALTER)),
    Relayed(DescribeClusterRequest,              0, 2,  acls.nothing,   # narrowed by `authorizer`
            rewrite=DESCRIBED_CLUSTER, has_large_response=True),
    Relayed(DescribeProducersRequest,            0, 0,  topics("topics", READ),           refused.describe_producers),
    Relayed(Unread(64, "UnregisterBroker"),      0, 0,  cluster(ALTER)),
    Relayed(DescribeTransactionsRequest,         0, 0,  transaction(DESCRIBE, "transactional_ids")),
    Relayed(ListTransactionsRequest,             0, 2,  acls.nothing,  is_checked=False),  # its response contains all
    Relayed(ListConfigResourcesRequest,          0, 1,  cluster(DESCRIBE_CONFIGS)),
)  # fmt: skip

RELAYED: Mapping[int, Relayed] = {row.request.API_KEY: row for row in ROWS}
"""The rows by Kafka's key."""
