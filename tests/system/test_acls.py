"""The rights that `coordinator acls` prints are sufficient for each of our processes, and each right is necessary."""

import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as RefusalCode
from confluent_kafka.admin import AclOperation
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.errors import KafkaError

from coordinator.messages.requests import DescribeGroup
from streaming.client import NoAnswer, NoCoordinator, Transport
from streaming.config.settings import Settings
from streaming.doctor import Case, Level, examine
from streaming.errors import Exit, RightMissing, TopicRefused, UserError
from streaming.gateway import Gateway
from streaming.kafka import topics
from streaming.kafka.acls import ANY_TOPIC, RIGHTS, Role, check_acls, commands
from streaming.verify.verifying import verify
from tests.clients import java
from tests.system.asking import Asker
from tests.system.conftest import Service
from tests.system.secured import STRANGE_USER, SecuredBroker, secured_broker
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long

ACL_COMMAND = "org.apache.kafka.tools.AclCommand"
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "false",
    "super.users": "User:ANONYMOUS",  # every client of the PLAINTEXT listener
}
PREFIX, DATA = "strict", "data"
COORDINATORS = [(topic, each) for topic, operations in RIGHTS[Role.COORDINATOR].items() for each in operations]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Start a broker that refuses every operation that is not granted."""
    with secured_broker(tmp_path_factory.mktemp("strict"), **AUTHORIZED) as broker:
        yield broker


def settings_of(strict: SecuredBroker, user: str) -> Settings:
    access: dict[str, Any] = strict.access("SASL_PLAINTEXT", "SCRAM-SHA-512", user)
    return Settings.load(topic_prefix=PREFIX, request_partitions=4, replication_factor=1, **access)


def administrators(strict: SecuredBroker) -> Settings:
    """Return settings that reach the broker as a user with all rights."""
    return Settings.load(
        topic_prefix=PREFIX,
        request_partitions=4,
        replication_factor=1,
        bootstrap_servers=strict.addresses["PLAINTEXT"],
    )


def grant_by_kafkas_tool(
    strict: SecuredBroker, folder: Path, role: Role, user: str, *, to_create: bool, settings: Settings | None = None
) -> None:
    """Run the printed commands with Kafka's own tool, as a person does."""
    (folder / "admin.properties").touch()
    for command in commands(role, f"User:{user}", settings or administrators(strict), to_create=to_create):
        tool, *arguments = shlex.split(command)
        assert tool == "kafka-acls"
        ended = subprocess.run(
            java.run(ACL_COMMAND, *arguments), cwd=folder, capture_output=True, text=True, timeout=HANG_S
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr


def grant(strict: SecuredBroker, role: Role, user: str) -> None:
    with KafkaAdminClient(bootstrap_servers=strict.addresses["PLAINTEXT"]) as admin:
        acls = [acl(user, topic, operation) for topic, some in RIGHTS[role].items() for operation in some]
        assert not admin.create_acls(acls)["failed"]


def acl(user: str, topic: str, operation: AclOperation) -> ACL:
    name = topic if topic in (ANY_TOPIC, DATA) else f"{PREFIX}.{topic}"
    resource = ResourcePattern(ResourceType.TOPIC, name)
    return ACL(f"User:{user}", "*", ACLOperation[operation.name], ACLPermissionType.ALLOW, resource)


@contextmanager
def without(strict: SecuredBroker, user: str, topic: str, operation: AclOperation) -> Iterator[None]:
    """Remove a right for as long as the `with` block runs."""
    with KafkaAdminClient(bootstrap_servers=strict.addresses["PLAINTEXT"]) as admin:
        right = acl(user, topic, operation)
        ((_, removed, _),) = admin.delete_acls([right])
        assert len(removed) == 1
        try:
            yield
        finally:
            assert not admin.create_acls([right])["failed"]


@pytest.fixture(scope="module")
def granted(strict: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> SecuredBroker:
    """Grant the coordinator's user its printed rights, make its topics with them, and grant a member's rights to bo."""
    grant_by_kafkas_tool(strict, tmp_path_factory.mktemp("tools"), Role.COORDINATOR, "ana", to_create=True)
    wait_until(lambda: may_make_topics(strict))
    with KafkaAdminClient(bootstrap_servers=strict.addresses["PLAINTEXT"]) as admin:
        admin.delete_acls([acl("ana", topic, AclOperation.CREATE) for topic in RIGHTS[Role.COORDINATOR]])
    grant(strict, Role.MEMBER, "bo")
    return strict


def may_make_topics(strict: SecuredBroker) -> bool:
    try:
        topics.ensure(settings_of(strict, "ana"))
    except TopicRefused:
        return False
    return True


def test_missing_right_to_make_topics_is_reported(strict: SecuredBroker) -> None:
    with pytest.raises(TopicRefused, match="grant the service Create"):
        topics.ensure(settings_of(strict, "bo"))


def test_what_a_member_may_not_see_is_a_warning_of_the_doctor(granted: SecuredBroker) -> None:
    settings = settings_of(granted, "bo")
    report = examine(Case(settings))
    assert [row for row in report.rows if row.level is Level.WRONG] == []
    hidden = [row.text for row in report.rows if row.level is Level.WARNING and row.subject == "topics"]
    assert hidden == [f"The brokers do not show {name} (TopicAuthorizationFailedError)." for name in settings.topics]
    (controller,) = [row.text for row in report.rows if row.level is Level.WARNING and row.subject == "brokers"]
    assert controller.startswith("The brokers do not show their active controller (")
    assert not [row for row in report.rows for secret in settings.secrets() if secret in "".join(row)]


@pytest.mark.parametrize(("topic", "operation"), COORDINATORS)
def test_each_missing_right_is_reported_before_a_start(
    granted: SecuredBroker, topic: str, operation: AclOperation
) -> None:
    settings = settings_of(granted, "ana")
    check_acls(settings, Role.COORDINATOR)
    with without(granted, "ana", topic, operation):
        wait_until(lambda: told_to(settings))
        spelt = operation.name.title().replace("_", "")
        assert f"{spelt} on {PREFIX}.{topic}" in told_to(settings)
    wait_until(lambda: not told_to(settings))


def told_to(settings: Settings) -> str:
    """Return the error that names the rights that the coordinator's user lacks, or an empty text."""
    try:
        check_acls(settings, Role.COORDINATOR)
    except RightMissing as refusal:
        return str(refusal)
    return ""


def test_all_processes_work_with_the_printed_rights(
    granted: SecuredBroker, run_service: Callable[..., Service], caplog: pytest.LogCaptureFixture
) -> None:
    """The query, a member, a gateway with its client, the watch and the audit work; without one right each fails."""
    access = granted.access("SASL_PLAINTEXT", "SCRAM-SHA-512", "ana")
    service = run_service(PREFIX, **access)
    service.await_ready()
    settings = settings_of(granted, "bo")
    wait_until(lambda: is_served(settings))
    for topic, operation in (("requests", AclOperation.WRITE), ("replies", AclOperation.READ)):
        with without(granted, "bo", topic, operation):
            wait_until(lambda: not is_served(settings))
        wait_until(lambda: is_served(settings))
    serve_a_gateways_client(granted, settings)
    grant(granted, Role.AUDITOR, "bo")
    wait_until(lambda: verify(settings).records > 0)
    assert "FindCoordinator" not in caplog.text, "the gateway has no group at the brokers and looks for none"
    with without(granted, "ana", "requests", AclOperation.READ):
        wait_until(lambda: not is_served(settings), HANG_S)  # the query cannot read requests now
        assert service.process.wait(HANG_S) == Exit.NEEDS_A_PERSON, service.log
        assert service.log.strip().splitlines()[-1].startswith("coordinator: Kafka refuses the coordinator's user")


def is_served(settings: Settings) -> bool:
    """Return whether the coordinator answers a DescribeGroup request of this user."""
    try:
        with Transport(settings.kafka_client_arguments(), PREFIX) as transport:
            Asker(transport, "g").ask(DescribeGroup(request_id="", reply_to="", group_id="g"), within_s=10)
    except (NoAnswer, NoCoordinator, UserError, KafkaError):
        return False
    return True


def serve_a_gateways_client(granted: SecuredBroker, settings: Settings) -> None:
    """Check that a stock client can consume and commit through a gateway, and is refused when one right is removed."""
    grant(granted, Role.GATEWAY, "bo")
    with KafkaAdminClient(bootstrap_servers=granted.addresses["PLAINTEXT"]) as admin:
        admin.create_topics({DATA: {"num_partitions": 1}}, wait_for_metadata=True)
        admin.create_acls([acl(STRANGE_USER, DATA, AclOperation.READ)])
    with Gateway(settings.model_copy(update={"gateway_port": 0})) as gateway:
        way = {
            **settings_of(granted, STRANGE_USER).librdkafka_arguments(),
            "sasl.mechanism": "SCRAM-SHA-256",
            "bootstrap.servers": gateway.bootstrap_servers,
            "group.id": "through",
            "enable.auto.commit": False,
        }
        with closing(Consumer(way)) as consumer:
            assigned: list[Any] = []
            consumer.subscribe([DATA], on_assign=lambda _, partitions: assigned.extend(partitions))
            wait_until(lambda: consumer.poll(0.1) or assigned)
            (committed,) = consumer.commit(offsets=[TopicPartition(DATA, 0, 7)], asynchronous=False)
            assert committed.error is None
            with without(granted, "bo", ANY_TOPIC, AclOperation.DESCRIBE):
                wait_until(lambda: is_refused(consumer))


def is_refused(consumer: Consumer) -> bool:
    """Return whether a commit is refused because the gateway may not see its topic."""
    try:
        consumer.commit(offsets=[TopicPartition(DATA, 0, 8)], asynchronous=False)
    except KafkaException as refusal:
        return refusal.args[0].code() == RefusalCode.UNKNOWN_TOPIC_OR_PART
    return False
