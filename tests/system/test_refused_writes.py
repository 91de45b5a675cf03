"""The output topics refuse the coordinator's records: no client gets an unwritten response, and nothing is lost."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ConfigResource,
    ConfigResourceType,
    ResourcePattern,
    ResourceType,
)
from kafka.errors import KafkaError, MessageSizeTooLargeError, TopicAuthorizationFailedError

from streaming.client.transport import Transport
from streaming.config.settings import SINK_BATCH_BYTES, Settings
from streaming.embedded import Broker
from streaming.errors import Exit
from streaming.kafka import topics
from streaming.kafka.topics import MESSAGE_BYTES_MAX
from tests.system.asking import Asker
from tests.system.conftest import Service, start_service
from tests.system.reading import Reader
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long

LARGE = b"x" * 2 * SINK_BATCH_BYTES

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # topics with lists allow only what these permit
}
READING = (ACLOperation.READ, ACLOperation.DESCRIBE, ACLOperation.DESCRIBE_CONFIGS)


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Start a broker with access control lists."""
    with Broker(tmp_path_factory.mktemp("strict"), properties=AUTHORIZED) as broker:
        yield broker


@pytest.mark.nightly
def test_batch_that_cannot_be_written_has_no_effect_and_is_repeated(
    run_service: Callable[..., Service], strict_broker: Broker
) -> None:
    """W18, S84, S94, S96: the assignments, later both leaves, are in a batch that fails; a restart completes them."""
    run = partial(run_service, "refused", bootstrap_servers=strict_broker.bootstrap_servers)
    service = run()
    service.await_ready()
    settings = service.settings
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        asker = Asker(transport, "g")
        ana, _ = asker.alone(client_id="ana")
        bo = asker.new_id("bo")
        bo_joins = asker.begin(asker.joining(bo, "bo"))
        wait_until(lambda: asker.describe().state.value == "PreparingRebalance")
        assert asker.ask(asker.joining(ana, "ana")).generation_id == 2
        assert bo_joins.result(HANG_S).error == "NONE"
        bo_syncs = asker.begin(asker.syncing(2, bo), within_s=HANG_S)
        wait_until(lambda: [m.awaiting for m in asker.describe().members] == [None, "sync"])

        let_take(settings, SINK_BATCH_BYTES)
        ana_syncs = asker.begin(asker.syncing(2, ana, {ana: LARGE, bo: LARGE}), within_s=HANG_S)
        assert service.process.wait(HANG_S) == Exit.NEEDS_A_PERSON
        sentence = service.log.strip().splitlines()[-1]
        assert sentence.startswith("coordinator: A topic refuses records of this size")
        assert "refused.groups" in sentence
        assert not ana_syncs.done()
        assert not bo_syncs.done()

        let_take(settings, MESSAGE_BYTES_MAX)
        again = run()
        again.await_ready()
        assert ana_syncs.result(HANG_S).assignment == LARGE  # type: ignore[union-attr]
        assert bo_syncs.result(HANG_S).assignment == LARGE  # type: ignore[union-attr]
        described = asker.describe()
        assert (described.state.value, described.generation_id) == ("Stable", 2)

        forbid_writing(settings)
        both_leave = asker.begin(asker.leaving(ana, bo), within_s=HANG_S)
        assert again.process.wait(HANG_S) == Exit.NEEDS_A_PERSON
        assert again.log.strip().splitlines()[-1].startswith("coordinator: Kafka refuses the coordinator's user")
        assert not both_leave.done()
        allow_writing(settings)
        run().await_ready()
        assert [m.error for m in both_leave.result(HANG_S).members] == ["NONE", "NONE"]  # type: ignore[union-attr]
        described = asker.describe()
        assert (described.state.value, described.generation_id, described.members) == ("Empty", 3, ())
        published = Reader(settings, "g").everything()
        versions = sorted(set(published.versions))
        assert versions == list(range(1, len(versions) + 1)), "no version is missing; readers drop repeats (I8)"


def test_missing_right_to_write_requests_refuses_the_start(tmp_path: Path, strict_broker: Broker) -> None:
    """Deadlines wake the coordinator by its own wake records. Without the right to write them no member expires."""
    settings = Settings.load(
        bootstrap_servers=strict_broker.bootstrap_servers,
        topic_prefix="mute",
        replication_factor=1,
        request_partitions=4,
    )
    topics.ensure(settings)
    with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
        assert not admin.create_acls(_only_reading(settings.requests_topic))["failed"]
    service = start_service(tmp_path, bootstrap_servers=settings.bootstrap_servers, topic_prefix="mute")
    try:
        assert service.process.wait(HANG_S) == Exit.NEEDS_A_PERSON
        sentence = service.log.strip().splitlines()[-1]
        assert "The coordinator's user lacks rights at the brokers (Write on mute.requests)" in sentence
    finally:
        if service.process.poll() is None:
            service.kill()


def let_take(settings: Settings, largest: int) -> None:
    """Limit the size of records on the output topics, and wait until the limit is in force."""
    with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
        admin.alter_configs(
            [
                ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": str(largest)})
                for topic in _written(settings)
            ]
        )
    wait_until(lambda: _refusal(settings, LARGE) == (MessageSizeTooLargeError if largest < len(LARGE) else None))


def forbid_writing(settings: Settings) -> None:
    """Forbid all users to write to the output topics, and wait until that is in force."""
    with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
        for topic in _written(settings):
            assert not admin.create_acls(_only_reading(topic))["failed"]
    wait_until(lambda: _refusal(settings) == TopicAuthorizationFailedError)


def allow_writing(settings: Settings) -> None:
    """Allow all users to write to the output topics again, and wait until that is in force."""
    with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
        for topic in _written(settings):
            admin.delete_acls(_only_reading(topic))
    wait_until(lambda: _refusal(settings) is None)


def _written(settings: Settings) -> tuple[str, ...]:
    return settings.groups_topic, settings.events_topic, settings.replies_topic


def _only_reading(topic: str) -> list[ACL]:
    resource = ResourcePattern(ResourceType.TOPIC, topic)
    return [ACL("User:ANONYMOUS", "*", operation, ACLPermissionType.ALLOW, resource) for operation in READING]


def _refusal(settings: Settings, value: bytes = b"whether this is taken") -> type[KafkaError] | None:
    with closing(KafkaProducer(**settings.kafka_client_arguments())) as producer:
        try:
            producer.send(settings.replies_topic, key=b"nobody", value=value).get(10)
        except KafkaError as refusal:
            return type(refusal)
    return None
