"""The authorizer reads brokers' responses, and topics that it removes are not sent to clients."""

from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.streaming.gateway.parts import OWN_TOPIC, turn
from tests.streaming.gateway.test_relaying import Bench, response, run

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
