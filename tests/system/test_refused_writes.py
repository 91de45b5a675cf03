"""The output topics refuse what the coordinator writes: nobody hears what is not written, and nothing is lost."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

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
from kafka.errors import MessageSizeTooLargeError

from streaming import topics
from streaming.client.transport import Transport
from streaming.embedded import Broker
from streaming.settings import Settings
from streaming.topics import MESSAGE_BYTES_MAX
from tests.system.asking import Asker
from tests.system.conftest import Service, start_service
from tests.system.reading import Reader
from tests.system.waiting import wait_until

ENOUGH_S = 240  # for a coordinator to end, and another one to start

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # of a topic that has some, only what they allow
}
READING = (ACLOperation.READ, ACLOperation.DESCRIBE, ACLOperation.DESCRIBE_CONFIGS)


def test_a_batch_that_cannot_be_written_has_not_happened_and_is_taken_again(
    run_service: Callable[..., Service],
) -> None:
    """W18, S84, S94, S96: a plan, and then the leaving of all, in a batch that fails; each is whole after a restart."""
    service = run_service("refused")
    service.await_ready()
    settings = service.settings
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        asker = Asker(transport, "g")
        ana, _ = asker.alone(client_id="ana")
        bo = asker.new_id("bo")
        bo_joins = asker.begin(asker.joining(bo, "bo"))
        wait_until(lambda: asker.describe().state.value == "PreparingRebalance")
        assert asker.ask(asker.joining(ana, "ana")).generation_id == 2
        assert bo_joins.result(60).error == "NONE"
        bo_syncs = asker.begin(asker.syncing(2, bo), within_s=ENOUGH_S)
        wait_until(lambda: [m.awaiting for m in asker.describe().members] == [None, "sync"])

        let_write(settings, 10)
        ana_syncs = asker.begin(asker.syncing(2, ana, {ana: b"half", bo: b"rest"}), within_s=ENOUGH_S)
        assert service.process.wait(120) == 1
        sentence = service.log.strip().splitlines()[-1]
        assert sentence.startswith("coordinator: A topic refuses records of this size")
        assert "refused.groups" in sentence
        assert not ana_syncs.done()
        assert not bo_syncs.done()

        let_write(settings, MESSAGE_BYTES_MAX)
        again = run_service("refused")
        again.await_ready()
        assert ana_syncs.result(60).assignment == b"half"  # type: ignore[union-attr]
        assert bo_syncs.result(60).assignment == b"rest"  # type: ignore[union-attr]
        described = asker.describe()
        assert (described.state.value, described.generation_id) == ("Stable", 2)

        let_write(settings, 10)
        both_leave = asker.begin(asker.leaving(ana, bo), within_s=ENOUGH_S)
        assert again.process.wait(120) == 1
        let_write(settings, MESSAGE_BYTES_MAX)
        run_service("refused").await_ready()
        assert [m.error for m in both_leave.result(60).members] == ["NONE", "NONE"]  # type: ignore[union-attr]
        described = asker.describe()
        assert (described.state.value, described.generation_id, described.members) == ("Empty", 3, ())
        published = Reader(settings, "g").everything()
        versions = sorted(set(published.versions))
        assert versions == list(range(1, len(versions) + 1)), "nothing is missing; repeats are known by it (I8)"


def test_who_may_not_write_requests_is_told_so_and_does_not_start(tmp_path: Path) -> None:
    """Deadlines wake the coordinator by a record of its own; without the right to that, groups would never expire."""
    with Broker(tmp_path, properties=AUTHORIZED) as broker:
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, replication_factor=1, request_partitions=4)
        topics.ensure(settings)
        with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
            requests = ResourcePattern(ResourceType.TOPIC, settings.requests_topic)
            may = [ACL("User:ANONYMOUS", "*", operation, ACLPermissionType.ALLOW, requests) for operation in READING]
            assert not admin.create_acls(may)["failed"]
        service = start_service(tmp_path, bootstrap_servers=broker.bootstrap_servers)
        try:
            assert service.process.wait(120) == 1
            sentence = service.log.strip().splitlines()[-1]
            assert sentence.startswith("coordinator: Kafka refuses the coordinator's user: let it read and write")
        finally:
            if service.process.poll() is None:
                service.kill()


def let_write(settings: Settings, largest: int) -> None:
    """Bound the records that the output topics take; returns when the bound is in force."""
    written = (settings.groups_topic, settings.events_topic, settings.replies_topic)
    with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
        admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": str(largest)}) for topic in written]
        )
    with closing(KafkaProducer(**settings.kafka_client_arguments())) as producer:
        wait_until(lambda: _is_refused(producer, settings) == (largest < MESSAGE_BYTES_MAX))


def _is_refused(producer: KafkaProducer, settings: Settings) -> bool:
    try:
        producer.send(settings.replies_topic, key=b"nobody", value=b"whether this is taken").get(10)
    except MessageSizeTooLargeError:
        return True
    return False
