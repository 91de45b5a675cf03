"""The authorizer reads brokers' responses, and topics that it removes are not sent to clients."""

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from streaming.gateway.relay.authorizer import Authorizer
from streaming.gateway.security.acls import AccessLists
from tests.streaming.gateway.parts import OWN_TOPIC, turn
from tests.streaming.gateway.test_relaying import Bench, list_offsets, response, run

SESSION, NO_SUCH_SESSION = 55, 70


def fetch(session_id: int, epoch: int) -> FetchRequest:
    fields = {"replica_id": -1, "max_wait_ms": 1, "min_bytes": 1, "max_bytes": 1, "isolation_level": 0}
    session = {"session_id": session_id, "session_epoch": epoch}
    return FetchRequest(version=7, **fields, **session, topics=[], forgotten_topics_data=[])


def fetched(session_id: int) -> bytes:
    topics = [FetchResponse.FetchableTopicResponse(topic="t", partitions=[])]
    return response(FetchResponse(version=7, throttle_time_ms=0, error_code=0, session_id=session_id, responses=topics))


def test_a_fetch_session_is_usable_after_the_brokers_response():
    async def scenario(bench: Bench) -> None:
        await bench.connected()
        bench.relay(fetch(SESSION, epoch=1))
        bench.run_soon()
        (refusal,) = bench.transport.frames()
        assert FetchResponse.decode(refusal, version=7, header=True).error_code == NO_SUCH_SESSION
        for request in (fetch(0, epoch=0), fetch(SESSION, epoch=1)):
            bench.relay(request)
            assert len(bench.to_broker()) == 1
            bench.broker_says(fetched(SESSION))
            assert bench.transport.frames() == [fetched(SESSION)]

    run(scenario)


class Grants:
    """Access control lists to which a right is added while the gateway requests them again."""

    def __init__(self, *rights: tuple[str, ResourceType, str]) -> None:
        self.lists, self._rights, self.requests = AccessLists([]), rights, 0

    async def renew(self) -> None:
        self.requests += 1
        self.lists = AccessLists(
            AclBinding(
                kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation[operation],
                AclPermissionType.ALLOW,
            )
            for operation, kind, name in self._rights
        )  # fmt: skip

    def authorizer(self) -> Authorizer:
        return Authorizer([OWN_TOPIC], lambda: self.lists, renew=self.renew)


def test_right_that_was_granted_after_the_last_lists_is_not_refused():
    async def scenario(bench: Bench) -> None:
        grants = Grants(("DESCRIBE", ResourceType.TOPIC, "t"))
        bench.shared.authorizer = grants.authorizer()
        bench.relay(list_offsets("t"))
        assert bench.flow.is_paused, "requests keep their order"
        await turn()
        assert (len(bench.to_broker()), grants.requests) == (1, 1)
        bench.relay(list_offsets("t"))
        assert (len(bench.to_broker()), grants.requests) == (1, 1)

    run(scenario)


def test_right_to_see_a_topic_is_looked_up_before_metadata_hides_it():
    async def scenario(bench: Bench) -> None:
        grants = Grants(("DESCRIBE", ResourceType.TOPIC, "t"))
        bench.shared.authorizer = grants.authorizer()
        named = MetadataRequest.MetadataRequestTopic
        bench.relay(MetadataRequest(version=4, topics=[named(name="t"), named(name=OWN_TOPIC)]))
        await turn()
        (frame,) = bench.to_broker()
        asked = MetadataRequest.decode(frame, version=4, header=True)
        assert ([each.name for each in asked.topics], grants.requests) == (["t"], 1)

    run(scenario)


def test_denied_request_is_answered_after_one_look_at_newer_lists():
    async def scenario(bench: Bench) -> None:
        grants = Grants()
        bench.shared.authorizer = grants.authorizer()
        bench.relay(list_offsets("t"))
        await turn()
        bench.run_soon()
        (frame,) = bench.transport.frames()
        ((partition,),) = [each.partitions for each in ListOffsetsResponse.decode(frame, version=2, header=True).topics]
        assert (partition.error_code, grants.requests, bench.shared.upstreams) == (29, 1, [])

    run(scenario)


def test_no_lists_are_requested_for_the_coordinators_topics():
    """No list allows them."""

    async def scenario(bench: Bench) -> None:
        grants = Grants(("DESCRIBE", ResourceType.TOPIC, OWN_TOPIC))
        bench.shared.authorizer = grants.authorizer()
        bench.relay(list_offsets(OWN_TOPIC))
        await turn()
        assert (bench.shared.upstreams, grants.requests) == ([], 0)

    run(scenario)


def test_metadata_is_sent_without_the_coordinators_topics():
    async def scenario(bench: Bench) -> None:
        await bench.connected()
        bench.relay(MetadataRequest(version=1, topics=None))
        kind = MetadataResponse.MetadataResponseTopic
        topics = [kind(error_code=0, name=name, is_internal=False, partitions=[]) for name in (OWN_TOPIC, "t")]
        bench.broker_says(response(MetadataResponse(version=1, brokers=[], controller_id=1, topics=topics)))
        await turn()
        bench.run_soon()
        (frame,) = bench.transport.frames()
        assert [topic.name for topic in MetadataResponse.decode(frame, version=1, header=True).topics] == ["t"]

    run(scenario)
