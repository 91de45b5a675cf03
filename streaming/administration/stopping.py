"""`coordinator stop`: a request to stop, and the wait until the driver has stopped."""

import time
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition

from coordinator.messages.requests import StopCoordinator, Wake
from coordinator.messages.responses import StopCoordinatorAnswer
from streaming.administration.shards import refusal
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.errors import NoAnswer
from streaming.kafka.clients import consumer
from streaming.kafka.offsets import OffsetAsker
from streaming.progress import Work
from streaming.wire.records import decode_request

CLIENT_ID = "coordinator-stop"
SHARD = 0
"""The shard that gets the request. Any shard would do: the driver serves all of them."""

POLL_S = 0.5


def stop(settings: Settings, timeout_s: float, work: Work) -> None:
    """Stop the coordinator after its batch, and wait until it has stopped.

    Args:
        timeout_s: The longest wait, from the request to the end of the query, seconds.

    Raises:
        RequestRefused: The sender does not have the right.
        NoAnswer: No coordinator runs, or it has not stopped in time.
        UserError: The brokers do not answer.
    """
    deadline_s = time.monotonic() + timeout_s
    answer = _ask(settings, timeout_s)
    work.step = "the request is accepted, and the driver stops after its batch"
    place = TopicPartition(settings.requests_topic, answer.partition, answer.offset + 1)
    with closing(consumer(settings, CLIENT_ID, {"auto.offset.reset": "earliest"})) as reader:
        reader.assign([place])
        while (left_s := deadline_s - time.monotonic()) > 0:
            if _reads_the_end(reader, min(left_s, POLL_S), settings, answer.offset):
                return
    raise NoAnswer(
        f"The coordinator has accepted the request and has not stopped within {timeout_s:g} s: look at its log."
        " A driver that has started since the request goes on."
    )


def _ask(settings: Settings, timeout_s: float) -> StopCoordinatorAnswer:
    place = settings.requests_topic, SHARD
    with closing(OffsetAsker(settings, CLIENT_ID)) as asker:
        end = asker.await_all([place])[place]
    request = StopCoordinator(request_id="", reply_to="", client_id=CLIENT_ID, log_end_offset=end)
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix, settings.signer_at) as transport:
        try:
            (answer,) = transport.ask_shards(request, [SHARD], timeout_s)
        except NoAnswer as error:
            raise NoAnswer(
                f"{error} No coordinator has stopped. One that waits for brokers, or for its checkpoint's store, stops"
                " if it reads the request later; one that starts later does not."
            ) from None
    if answer.code or not isinstance(answer, StopCoordinatorAnswer):
        raise refusal(settings, answer, "its stop")
    return answer


def _reads_the_end(reader: Consumer, wait_s: float, settings: Settings, offset: int) -> bool:
    """Return whether the next record says that the driver has stopped after the request at an offset."""
    message = reader.poll(wait_s)
    if message is None or message.error() is not None:
        return False
    record = _decoded(message.value(), message.timestamp()[1], settings)
    return isinstance(record, Wake) and record.stopped == offset


def _decoded(value: bytes | None, at_ms: int, settings: Settings) -> object:
    """Return the record. With access rules only a signed one counts."""
    signing = settings.signing() if settings.access == "rules" else None
    return decode_request(value) if signing is None else signing.received(0, at_ms, value).request
